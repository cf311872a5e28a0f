"""`vages train` of a deep model: a folder with checkpoints, the loss and first samples."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vages.app.output.progress import ProgressBar
from vages.app.recipes.chains import chains_of
from vages.app.recipes.deep_training import DeepTrained, train_deep
from vages.app.recipes.selection import check_selection
from vages.app.recipes.sizes import check_training_memory, training_sizes
from vages.app.report import curves_figure, figure_png, sheet_png
from vages.app.runs.config import config_of, reopened
from vages.app.runs.dataset import data_digests, read_deep
from vages.app.runs.reports import reported
from vages.app.runs.saved import saved_step
from vages.app.runs.training_data import data_to_train_on
from vages.app.settings import DeepSettings
from vages.posteriors import posterior_means
from vages.samplers import LangevinSamples, sample_v
from vages.training import RunFolder, by_writer, check_batch, check_same, seed_keys
from vages.training.fit import Callback

GRID = 100  # images in a first look


def run_deep(
    recipe: DeepSettings,
    path: Path,
    *,
    resume: bool = False,
    where: str | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    **how: Any,
) -> DeepTrained:
    """Train in a new folder, or resume a run by this recipe; draw its loss and a hundred samples.

    `where` is the place of a resumed run's data, if they were moved. `progress` shows bars. `callbacks` and `how` are
    passed on to `fit`.
    """
    images, dataset = data_to_train_on(recipe, path, read_deep, resume=resume, where=where)
    train = images.splits.train
    check_training_memory(training_sizes(recipe, train.shape[1:], len(train)))
    check_selection(recipe)
    check_batch(recipe.batch, how.get("mesh"))
    check_same(lambda: {"settings": {**config_of(recipe), "resume": resume}, "data": data_digests(dataset)})
    how |= {"resume": resume, "data_fingerprint": dataset["train"]}
    folder = by_writer(
        lambda: reopened(recipe, path, dataset) if resume else RunFolder(path, config_of(recipe), dataset)
    )
    if folder is None:
        return train_deep(recipe, images, **how)
    with reported(folder, recipe.steps):
        with ProgressBar(recipe.steps, visible=progress, done=saved_step(path) if resume else 0) as bar:
            trained = train_deep(recipe, images, folder=folder, callbacks=[*callbacks, bar], **how)
        fitted = trained.fitted
        samples = first_look(trained, visible=progress)
        folder.directory.write_bytes("samples.png", sheet_png(np.asarray(samples.v), columns=10))
        steps, loss = fitted.curve("loss")
        if len(steps):  # a finished run that goes on without its log has none
            figure = curves_figure({recipe.method: (steps, np.log10(loss)[:, None])}, "loss, log10")
            folder.directory.write_bytes("curve.png", figure_png(figure))
        folder.save(
            "result",
            {
                "steps": fitted.step,
                "interrupted": fitted.interrupted,
                "seconds": fitted.seconds,
                "milliseconds an iteration": 1e3 * fitted.seconds / max(fitted.step, 1),
                "loss": fitted.history[-1]["loss"] if fitted.history else None,
                "diverged chains": {"count": int(np.sum(samples.diverged)), "of": GRID},
            },
        )
        return trained


def first_look(trained: DeepTrained, count: int = GRID, *, visible: bool = False) -> LangevinSamples:
    """Samples of the model, with h the posterior means of random training images, as in the paper; a `visible` bar."""
    recipe = trained.recipe
    key = seed_keys((recipe.seed,), "samples")[0]
    rows = np.random.default_rng(recipe.seed).integers(len(trained.images.splits.train), size=count)
    h = posterior_means(trained.model, trained.posterior, trained.images.splits.train[rows])
    model, schedule = chains_of(recipe, trained.model)
    with ProgressBar(schedule.steps, visible=visible) as bar:
        show = lambda done, total: bar({"step": done, "seconds": time.perf_counter()})
        return sample_v(key, model, jnp.asarray(h), schedule, batch=count, progress=show)
