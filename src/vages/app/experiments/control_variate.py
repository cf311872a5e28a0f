"""The control variate of VaES on the checkerboard: VaGES-DSM and VaGES-KSD with and without it (Appendix)."""

from dataclasses import asdict, replace

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.experiments.comparison import difference, learned_likelihood, likelihood_figure, likelihoods, train_all
from vages.app.settings import CHECKERBOARD, Method

METHODS: dict[str, Method] = {"VaGES-DSM": "vages-dsm", "VaGES-KSD": "vages-ksd"}
PAPER = replace(CHECKERBOARD, seeds=10)
QUICK = replace(CHECKERBOARD, seeds=5, steps=8_000, evaluate_every=400)


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Train four recipes, each with several seeds. Test log-likelihoods are exact."""
    recipe = replace(QUICK if quick else PAPER, seed=seed)
    recipes = {
        label + suffix: replace(recipe, method=method, control_variate=variate)
        for label, method in METHODS.items()
        for suffix, variate in (("", False), (" + CV", True))
    }
    runs = train_all(recipes, say)
    mean = learned_likelihood(runs)
    gain = {label: difference(mean[label + " + CV"], mean[label]) for label in METHODS}
    claims = [
        Claim.at_most("The control variate makes no difference to VaGES-DSM (in nats)", abs(gain["VaGES-DSM"]), 0.01),
        Claim.at_least("The control variate does not harm VaGES-KSD (gain in nats)", gain["VaGES-KSD"], 0.0),
        Claim.at_most("What it gains or loses for VaGES-KSD is marginal (in nats)", abs(gain["VaGES-KSD"]), 0.05),
    ]
    return Outcome(
        settings=asdict(recipe),
        claims=claims,
        measurements=likelihoods(runs),
        figures={"control-variate": likelihood_figure(runs)},
    )
