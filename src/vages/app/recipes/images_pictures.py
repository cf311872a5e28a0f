"""First pictures of a trained noise-conditional model: a hundred samples, and the loss."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.recipes.examples import Examples
from vages.app.recipes.recipe import Recipe
from vages.app.recipes.trained import Drawn, Trained
from vages.app.report import curves_figure, sheet_png
from vages.evaluation import nearness
from vages.samplers import SamplingWarning, sample
from vages.training import seed_keys
from vages.training.health import Finding

GRID = 100  # samples that are drawn
DUPLICATES = "most training images have an exact duplicate, so copies among the samples cannot be detected"
SKETCHED = 8  # samples that are shown during training


def draw(trained: Trained, visible: bool = False) -> Drawn:
    """Draw samples by Heun's method, and the loss."""
    key = seed_keys((trained.settings.seed,), "samples")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # the result counts lost samples
        drawn = sample(key, trained.model, GRID, sampler=trained.recipe.make_sampler(trained.posterior))
    pictures: dict = {"samples": sheet_png(np.asarray(drawn.v), columns=10)}
    steps, loss = trained.fitted.curve("loss")
    if len(steps):  # a finished run that is resumed without its log has none
        pictures["curve"] = curves_figure({"training": (steps, np.log10(loss)[:, None])}, "loss, log10")
    findings: tuple[Finding, ...] = ()
    told: dict = {"lost samples": {"count": drawn.diverged, "of": GRID}}
    if drawn.diverged < GRID:
        near = nearness(np.asarray(drawn.v), trained.data.splits.train)
        told["distance to the nearest training image"] = {**near._asdict(), "ratio": near.ratio}
        if near.ratio is None:
            findings = (Finding("data", "notice", DUPLICATES),)
    return Drawn(pictures, told, np.asarray(drawn.v), findings)


def sketch(key: PRNGKeyArray, recipe: Recipe, model: Any, posterior: Any, data: Examples) -> bytes:
    """Draw a row of samples by Heun's method during training.

    As many are drawn as at the end, by the same program: compiling another takes longer, a minute for CIFAR10 on a GPU.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # lost samples are visible
        drawn = sample(key, model, GRID, sampler=recipe.make_sampler(posterior))
    return sheet_png(np.asarray(drawn.v)[:SKETCHED], columns=SKETCHED)
