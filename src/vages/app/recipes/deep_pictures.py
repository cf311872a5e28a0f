"""First pictures of a trained deep model: a hundred samples, and the loss."""

import time

import jax.numpy as jnp
import numpy as np

from vages.app.output.progress import ProgressBar
from vages.app.recipes.chains import chains_of
from vages.app.recipes.trained import Drawn, Trained
from vages.app.report import curves_figure, sheet_png
from vages.posteriors import posterior_means
from vages.samplers import LangevinSamples, sample_v
from vages.training import seed_keys

GRID = 100  # samples that are drawn


def draw(trained: Trained, visible: bool = False) -> Drawn:
    """Draw samples and the loss, with a progress bar if `visible`."""
    samples = first_look(trained, visible=visible)
    pictures: dict = {"samples": sheet_png(np.asarray(samples.v), columns=10)}
    steps, loss = trained.fitted.curve("loss")
    if len(steps):  # a finished run that is resumed without its log has none
        curve = {trained.settings.method: (steps, np.log10(loss)[:, None])}
        pictures["curve"] = curves_figure(curve, "loss, log10")
    told = {"diverged chains": {"count": int(np.sum(samples.diverged)), "of": GRID}}
    return Drawn(pictures, told, np.asarray(samples.v))


def first_look(trained: Trained, count: int = GRID, *, visible: bool = False) -> LangevinSamples:
    """Draw v given posterior means of random training images, as in the paper, with a progress bar if `visible`."""
    seed, train = trained.settings.seed, trained.data.splits.train
    key = seed_keys((seed,), "samples")[0]
    rows = np.random.default_rng(seed).integers(len(train), size=count)
    h = posterior_means(trained.model, trained.posterior, train[rows])
    model, schedule = chains_of(trained.recipe, trained.model)
    with ProgressBar(schedule.steps, visible=visible) as bar:
        show = lambda done, total: bar({"step": done, "seconds": time.perf_counter()})
        return sample_v(key, model, jnp.asarray(h), schedule, batch=count, progress=show)
