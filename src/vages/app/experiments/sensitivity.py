"""Sensitivity of VaGES-MDSM to its settings, changed one at a time (the paper's sensitivity table).

The paper compares FIDs after 300,000 iterations; here runs are short, and compared by their loss.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.recipes import Examples, as_recipe, train
from vages.app.settings import CIFAR10, DIGITS, DeepSettings
from vages.training import Diverged, Guard


@dataclass(frozen=True)
class Settings:
    """A recipe, and the values of each setting to compare."""

    recipe: DeepSettings
    latents: tuple[int, ...] = (20, 50, 100)
    depth: tuple[int, ...] = (2, 3, 4)
    samples: tuple[int, ...] = (2, 5, 10)
    corrector_noise: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    steps_of_q_and_corrector: tuple[tuple[int, int], ...] = tuple(
        (k, c) for k in (0, 5, 10, 15) for c in (0, 5, 10, 15) if k + c <= 15
    )


PAPER = Settings(replace(CIFAR10, steps=5000))
QUICK = Settings(
    replace(DIGITS, steps=1500, depth=3),
    latents=(8, 16, 32),
    samples=(2, 5),
    corrector_noise=(1e-4, 1e-2),
    steps_of_q_and_corrector=((0, 0), (0, 5), (5, 0), (5, 5)),
)
DEFAULT = "as it is"


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Train each variant, and compare its last losses with those of the unchanged recipe."""
    settings = QUICK if quick else PAPER
    recipe = replace(settings.recipe, seed=seed)
    images = as_recipe(recipe).load()
    table: dict[str, dict[str, Any]] = {}
    for name, variant in variants(settings, recipe).items():
        table[name] = row = ending(variant, images)
        say(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    loss = {name: learned_loss(row) for name, row in table.items()}
    change = {name: abs(value / loss[DEFAULT] - 1) for name, value in loss.items()}
    worst = lambda start: float(np.max([value for name, value in change.items() if name.startswith(start)]))
    few, many = (f"depth {n}" for n in (min(settings.depth), max(settings.depth)))
    claims = [
        Claim.at_most("The dimension of h matters little (largest relative change of the loss)", worst("latents"), 0.1),
        Claim.at_most("The number of samples of h matters little", worst("samples"), 0.1),
        Claim.at_most("The noise of the corrector matters little", worst("corrector noise"), 0.1),
        Claim.at_most("KL or Fisher divergence for q matters little", worst("divergence"), 0.1),
        Claim.below("More layers improve (loss of the deepest over the shallowest)", loss[many] / loss[few], 1.0),
        Claim.at_most(
            "K = 5 and C = 5 are enough: the loss falls, and the run does not diverge (1 if not)",
            float(not math.isfinite(loss[DEFAULT])),
            0.0,
        ),
    ]
    return Outcome({"recipe": asdict(recipe), "runs of": recipe.steps}, claims, {"table": table})


def learned_loss(row: dict[str, Any]) -> float:
    """Return the last loss, or NaN, with which no claim holds, if the run diverged or its loss has not fallen."""
    return row["loss"] if "loss" in row and row["loss"] < row["first loss"] else math.nan


def variants(settings: Settings, recipe: DeepSettings) -> dict[str, DeepSettings]:
    """Return the recipe, and variants with one setting (or K and C) changed.

    As in the paper, the step size of the corrector is proportional to the dimension of h.
    """
    found = {DEFAULT: recipe}
    for value in settings.latents:
        size = recipe.corrector_size * value / recipe.latents
        found[f"latents {value}"] = replace(recipe, latents=value, corrector_size=size)
    for field in ("depth", "samples", "corrector_noise"):
        for value in getattr(settings, field):
            found[f"{field.replace('_', ' ')} {value:g}"] = replace(recipe, **{field: value})
    found["divergence kl"] = replace(recipe, divergence="kl")
    for k, c in settings.steps_of_q_and_corrector:
        found[f"K = {k}, C = {c}"] = replace(recipe, posterior_steps=k, corrector_steps=c)
    return {name: one for name, one in found.items() if name == DEFAULT or one != recipe}


def ending(recipe: DeepSettings, images: Examples) -> dict[str, Any]:
    """Train a recipe; return the mean loss of its first tenth and the means of its last, or that it diverged."""
    try:
        fitted = train(as_recipe(recipe), images, guard=Guard()).fitted.uninterrupted()
    except Diverged as stopped:
        return {"diverged": 1.0, "said": str(stopped)}
    tenth = max(len(fitted.history) // 10, 1)
    names = [name for name in ("loss", "divergence") if name in fitted.history[-1]]
    last = {name: float(np.mean(fitted.curve(name)[1][-tenth:])) for name in names}
    first = float(np.mean(fitted.curve("loss")[1][:tenth]))
    return {"first loss": first, **last, "diverged": 0.0, "seconds": round(fitted.seconds, 1)}
