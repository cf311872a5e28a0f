"""Figure 2: learning a GRBM on the checkerboard by KSD, exactly, by VaGES and by importance sampling."""

from dataclasses import asdict, replace

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
from vages.app.settings import CHECKERBOARD, GRBMSettings

SAMPLES = (2, 5, 10)
PAPER = replace(CHECKERBOARD, seeds=10)
QUICK = replace(CHECKERBOARD, seeds=5, steps=8_000, evaluate_every=400)


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Train seven recipes, each with several seeds. Test log-likelihoods are exact."""
    recipe = replace(QUICK if quick else PAPER, seed=seed)
    recipes: dict[str, GRBMSettings] = {"KSD": replace(recipe, method="ksd")}
    for method, label in (("vages-ksd", "VaGES-KSD"), ("is-ksd", "IS-KSD")):
        recipes |= {f"{label} L = {n}": replace(recipe, method=method, samples=n) for n in SAMPLES}
    runs = train_all(recipes, say)
    mean, learned = mean_likelihood(runs), learned_likelihood(runs)
    claims = [
        Claim.above(
            f"VaGES-KSD beats IS-KSD at L = {n} (gain in mean test log-likelihood)",
            learned[f"VaGES-KSD L = {n}"] - mean[f"IS-KSD L = {n}"],
            0.0,
        )
        for n in SAMPLES
    ]
    gap = abs(difference(learned["VaGES-KSD L = 10"], learned["KSD"]))
    claims.append(Claim.at_most("VaGES-KSD at L = 10 is comparable to exact KSD (distance in nats)", gap, 0.02))
    return Outcome(
        settings=asdict(recipe),
        claims=claims,
        measurements=likelihoods(runs),
        figures={"fig2": likelihood_figure(runs), "densities": densities_figure(runs)},
    )
