"""Comparison of VaGES-DSM with every other way to learn a GRBM, on the checkerboard (Appendix figures)."""

import math
from dataclasses import asdict, replace

import numpy as np

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.experiments.comparison import (
    densities_figure,
    difference,
    learned_likelihood,
    likelihood_figure,
    likelihoods,
    mean_likelihood,
    train_all,
)
from vages.app.recipes import Trained
from vages.app.settings import CHECKERBOARD, Method

METHODS: dict[str, Method] = {
    "CD": "cd",
    "PCD": "pcd",
    "NCE": "nce",
    "VNCE": "vnce",
    "DSM": "dsm",
    "VaGES-DSM": "vages-dsm",
    "BiDSM": "bidsm",
}
PAPER = replace(CHECKERBOARD, seeds=10)
QUICK = replace(CHECKERBOARD, seeds=5, steps=8_000, evaluate_every=400)
SIMILAR = 0.02  # nats, the bound for "similar"


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Train seven methods, each with several seeds. Test log-likelihoods are exact."""
    recipe = replace(QUICK if quick else PAPER, seed=seed)
    runs = train_all({label: replace(recipe, method=method) for label, method in METHODS.items()}, say)
    mean, learned = mean_likelihood(runs), learned_likelihood(runs)
    ours = learned["VaGES-DSM"]
    apart = lambda rival: abs(difference(ours, learned[rival]))
    faster = mean_over_run(runs["VaGES-DSM"]) - mean_over_run(runs["BiDSM"])
    claims = [
        Claim.at_most("VaGES-DSM matches exact DSM (distance in nats)", apart("DSM"), 0.01),
        *(
            Claim.at_most(f"VaGES-DSM is similar to {rival} (distance in nats)", apart(rival), SIMILAR)
            for rival in ("CD", "BiDSM")
        ),
        *(
            Claim.above(f"VaGES-DSM is better than {rival} (gain in nats)", ours - mean[rival], 0.0)
            for rival in ("PCD", "NCE", "VNCE")
        ),
        Claim.above(
            "VaGES-DSM converges faster than BiDSM (gain in log-likelihood averaged over the run)",
            math.nan if math.isnan(ours) else faster,
            0.0,
        ),
    ]
    return Outcome(
        settings=asdict(recipe),
        claims=claims,
        measurements=likelihoods(runs),
        figures={"curves": likelihood_figure(runs), "densities": densities_figure(runs)},
    )


def mean_over_run(run: Trained) -> float:
    """Return the mean of a learning curve, which is higher if the same end is reached sooner."""
    return float(np.mean(run.fitted.curve("test_log_likelihood")[1]))
