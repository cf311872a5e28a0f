"""First pictures of a trained noise-conditional model: a hundred samples, and the loss."""

import warnings

import numpy as np

from vages.app.recipes.trained import Drawn, Trained
from vages.app.report import curves_figure, sheet_png
from vages.evaluation import nearness
from vages.samplers import SamplingWarning, sample
from vages.training import seed_keys

GRID = 100  # images in a first look


def draw(trained: Trained, visible: bool = False) -> Drawn:
    """Samples by Heun's method, and the loss."""
    key = seed_keys((trained.settings.seed,), "samples")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # the result says it
        drawn = sample(key, trained.model, GRID, sampler=trained.recipe.make_sampler(trained.posterior))
    pictures: dict = {"samples": sheet_png(np.asarray(drawn.v), columns=10)}
    steps, loss = trained.fitted.curve("loss")
    if len(steps):  # a finished run that goes on without its log has none
        pictures["curve"] = curves_figure({"training": (steps, np.log10(loss)[:, None])}, "loss, log10")
    told: dict = {"lost samples": {"count": drawn.diverged, "of": GRID}}
    if drawn.diverged < GRID:
        near = nearness(np.asarray(drawn.v), trained.data.splits.train)
        told["distance to the nearest training image"] = {**near._asdict(), "ratio": near.ratio}
    return Drawn(pictures, told, np.asarray(drawn.v))
