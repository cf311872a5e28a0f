"""Interpolation in the latent space: Langevin trajectories with the same start and noise, as h changes."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.experiments.kept_runs import iterations_of, kept_arrays, kept_runs
from vages.app.report import trajectory_figure
from vages.app.runs import interpolate
from vages.app.settings import CELEBA, CIFAR10, DIGITS, MNIST, DeepSettings


@dataclass(frozen=True)
class Settings:
    """The recipes to train, and the size of the picture: values of h and snapshots."""

    recipes: tuple[DeepSettings, ...]
    rows: int = 10
    columns: int = 10


PAPER = Settings((MNIST, CIFAR10, CELEBA))
QUICK = Settings((replace(DIGITS, steps=4000),))


def run(quick: bool, seed: int, say: Say, runs: Path) -> Outcome:
    """Interpolate in the latents of each model; measure how evenly the images change, and whether they change."""
    settings = QUICK if quick else PAPER
    recipes = tuple(replace(recipe, seed=seed) for recipe in settings.recipes)
    claims, measurements, figures = [], {}, {}
    models = kept_runs(recipes, runs, say)
    for model in models:
        name = model.settings.data
        kept = interpolate(model, rows=settings.rows, columns=settings.columns, seed=seed)
        arrays = kept_arrays(kept, "interpolation")
        images, trajectory, factors = arrays["v"], arrays["trajectory"], arrays["factors"]
        step, span = walk(images)
        typical = typical_distance(model.data.splits.train, seed)
        measurements[name] = {
            "iterations": model.step,
            "ratio": kept.result["ratio"],
            "largest step over the whole way": share(step, span),
            "whole way over the distance of two training images": span / typical,
            "diverged": kept.result["diverged chains"],
        }
        say(f"{name}: largest step {step:.3g}, from end to end {span:.3g}, between training images {typical:.3g}")
        claims += verdicts(f"{name} after {iterations_of(model)} iterations", images, typical)
        labels = [f"{factor:+.1f} m" for factor in factors], [str(n) for n in kept.result["snapshots"]]
        figures[name] = trajectory_figure(trajectory, *labels)
    about = {
        "recipes": [asdict(model.settings) for model in models],
        "rows": settings.rows,
        "columns": settings.columns,
    }
    return Outcome(about, claims, measurements, figures)


def verdicts(name: str, images: Float[np.ndarray, "rows ..."], typical: float) -> list[Claim]:
    """Return the claims on images for a changing h, given the typical distance of two training images."""
    step, span = walk(images)
    way = "from end to end, over the distance of two training images"
    return [
        Claim.at_most(f"{name}: the images change smoothly with h (largest step over the way)", share(step, span), 0.5),
        Claim.at_least(f"{name}: the images change with h ({way})", span / typical, 0.25),
        Claim.at_most(f"{name}: the images stay as near each other as training images ({way})", span / typical, 2.0),
    ]


def share(step: float, span: float) -> float:
    """Return the largest step over the whole way, or NaN if the images are all the same."""
    return step / span if span else math.nan


def walk(images: Float[np.ndarray, "rows ..."]) -> tuple[float, float]:
    """Return the largest distance between neighbors, and the largest distance between any two images."""
    flat = images.reshape(len(images), -1)
    steps = np.linalg.norm(np.diff(flat, axis=0), axis=1)
    spans = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    return float(steps.max()), float(spans.max())


def typical_distance(images: Float[np.ndarray, "n ..."], seed: int, pairs: int = 200) -> float:
    """Return the median distance between two images, over random pairs."""
    rows = np.random.default_rng(seed).integers(len(images), size=(2, pairs))
    difference = (images[rows[0]] - images[rows[1]]).reshape(pairs, -1)
    return float(np.median(np.linalg.norm(difference, axis=1)))
