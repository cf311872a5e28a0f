"""Time and memory of deep EBLVMs (the paper's table): VaGES-MDSM compared with BiMDSM and with a plain EBM."""

from dataclasses import asdict, dataclass, replace

import numpy as np

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.recipes import job_on_noise
from vages.app.settings import CELEBA, CIFAR10, DIGITS, DeepSettings
from vages.timing import ratio
from vages.training import iteration_costs

METHODS: dict[str, dict] = {
    "VaGES-MDSM": {},
    **{f"BiMDSM N = {n}": {"method": "bimdsm", "unrolled": n} for n in (0, 2, 5)},
    "EBM": {"method": "mdsm"},
}


@dataclass(frozen=True)
class Settings:
    """The model sizes by dataset, and the length of the measurement."""

    sizes: dict[str, tuple[DeepSettings, tuple[int, int, int]]]
    iterations: int = 30
    rounds: int = 5


# CelebA with five corrector steps, which the paper finds enough, so that the methods differ only in their gradients.
PAPER = Settings({"CIFAR10": (CIFAR10, (3, 32, 32)), "CelebA": (replace(CELEBA, corrector_steps=5), (3, 64, 64))})
QUICK = Settings({"digits": (DIGITS, (1, 8, 8))}, iterations=20)


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Measure an iteration of each method at each size, in turns."""
    settings = QUICK if quick else PAPER
    table, claims = {}, []
    for size, (recipe, shape) in settings.sizes.items():
        recipe = replace(recipe, seed=seed)
        jobs = {name: job_on_noise(replace(recipe, **change), shape) for name, change in METHODS.items()}
        costs = iteration_costs(jobs, iterations=settings.iterations, rounds=settings.rounds)
        for name, cost in costs.items():
            row = {"ms": 1e3 * float(np.median(cost.seconds)), "GiB": cost.bytes / 2**30}
            table.setdefault(size, {})[name] = row
            say(f"{size}, {name}: {row['ms']:.2f} ms an iteration, {row['GiB']:.3g} GiB")
        ours = costs["VaGES-MDSM"]
        time = lambda name, ours=ours, costs=costs: ratio(ours.seconds, costs[name].seconds)
        memory = lambda name, ours=ours, costs=costs: ours.bytes / costs[name].bytes
        claims += [
            Claim.below(f"{size}: VaGES takes less time than BiMDSM N = 2", time("BiMDSM N = 2"), 1.0),
            Claim.at_most(f"{size}: VaGES takes at most 0.7 of the time of BiMDSM N = 5", time("BiMDSM N = 5"), 0.7),
            Claim.below(f"{size}: VaGES takes less memory than BiMDSM N = 2", memory("BiMDSM N = 2"), 1.0),
            Claim.below(f"{size}: VaGES takes less memory than BiMDSM N = 5", memory("BiMDSM N = 5"), 1.0),
            Claim.at_most(f"{size}: an EBLVM takes at most 2.8 times as long as an EBM", time("EBM"), 2.8),
        ]
    return Outcome({size: asdict(recipe) for size, (recipe, _) in settings.sizes.items()}, claims, {"table": table})
