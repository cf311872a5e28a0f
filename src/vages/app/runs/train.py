"""`vages train`: train a new run in a folder, or resume one."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.output.console import say_error
from vages.app.output.progress import ProgressBar
from vages.app.recipes import Drawn, Recipe, Trained, check_recipe
from vages.app.recipes import train as in_memory
from vages.app.recipes.own_pictures import draw_own
from vages.app.recipes.training import check_begin, check_evaluation
from vages.app.report import figure_png
from vages.app.runs.beginning import begin_again, made_for_data_of, starting_from, told_begin
from vages.app.runs.classes import classes_of, told_classes, untrained_problem
from vages.app.runs.config import config_of, recipe_of, reopened
from vages.app.runs.dataset import data_digests
from vages.app.runs.health import Watch, health_of, tell_warning, telling_warnings
from vages.app.runs.loaded import Run
from vages.app.runs.reports import reported
from vages.app.runs.saved import saved_step
from vages.app.runs.sketches import Sketches
from vages.app.runs.training_data import data_to_train_on
from vages.checks import check_kind
from vages.training import RunFolder, by_writer, check_batch, check_same
from vages.training.fit import Callback


def run_recipe(
    recipe: Recipe,
    path: Path | str,
    *,
    resume: bool = False,
    where: str | None = None,
    begin: Run | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    **how: Any,
) -> Trained:
    """Train in a new folder, and write config, environment, metrics, checkpoints, result, pictures and a page to it.

    With `resume`, continue the run in the folder, which was trained by this recipe or by the same with fewer steps;
    `where` is the location of its data, if they were moved. A new run starts from the model and the posterior of the
    run `begin`, if given; if that was standardized, the new run has its mean and scale. `progress` shows progress bars.
    `callbacks` and `how` are passed on to `fit`.
    """
    check_kind("recipe", recipe, Recipe, "a vages.Recipe", "for a preset, give vages.app.recipes.preset('board'), say")
    path, steps = Path(path), recipe.settings.steps
    begun = {}
    if begin is not None:
        check_kind("begin", begin, Run, "a run", "load it with vages.load_run")
        recipe, begun = starting_from(recipe, begin), {"from": told_begin(begin)}
    if resume and path.is_dir():  # its units and constants may be those of another run, which it started from
        own = recipe_of(path, None if recipe.parts else recipe, changed=True)
        recipe = made_for_data_of(recipe, own, own.units)
    if resume and path.is_dir() and saved_step(path) == 0:  # it was stopped before its first checkpoint
        begin = begin_again(path, recipe)
    data, dataset = data_to_train_on(recipe, path, resume=resume, where=where)
    recipe = recipe.settled(data)
    mesh = how.get("mesh")
    check_recipe(recipe, data, 1 if mesh is None else mesh.size)
    if begin is not None:
        how["begin"] = begin.model, begin.posterior
        check_begin(recipe, data, how["begin"])
    if data.stream is None:
        check_batch(recipe.settings.batch, mesh)
    check_same(lambda: {"settings": {**_flat(config_of(recipe)), "resume": resume}, "data": data_digests(dataset)})
    check_evaluation(recipe, data)
    how |= {"resume": resume}
    if data.stream is None:
        how["data_fingerprint"] = {name: one for name, one in dataset["train"].items() if name != "labels"}
    folder = by_writer(
        lambda: reopened(recipe, path, dataset) if resume else RunFolder(path, config_of(recipe) | begun, dataset)
    )
    if folder is None:
        return in_memory(recipe, data, **how)
    with reported(folder, recipe):
        done = saved_step(path) if resume else 0
        if progress and data.context is not None and (classes := classes_of(data)):
            say_error(told_classes(classes))
        if problem := untrained_problem(data, recipe.settings):
            tell_warning(folder, problem)
        with ProgressBar(steps, visible=progress, done=done, lines=True) as bar:
            watch, sketches = Watch(folder, recipe), Sketches(folder, recipe, data, done)
            with telling_warnings(folder):
                callbacks = [*callbacks, bar, watch]
                trained = in_memory(recipe, data, folder=folder, callbacks=callbacks, observe=sketches, **how)
        if progress:
            again = "; a second signal stops it at once" if trained.fitted.interrupted else ""
            say_error(f"{trained.fitted.step}/{steps}  drawing pictures…{again}")
        drawn = _drawn(trained, progress)
        for name, picture in drawn.pictures.items():
            content = picture if isinstance(picture, bytes) else figure_png(picture)
            folder.directory.write_bytes(f"{name}.png", content)
        folder.save("result", _plain(_result(trained) | drawn.result | {"health": health_of(trained, drawn)}))
        return trained


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "settings"} | config["settings"]


def train(recipe: Recipe, path: Path | str | None = None, *, begin: Run | None = None, **how: Any) -> Trained:
    """Train by a recipe, in a new folder (see `run_recipe`) or, without a `path`, in memory.

    `begin` is a run to start from (see `load_run`). `how` is passed on to `fit`: callbacks, checkpoints, guard, mesh;
    with a path, `resume=True` continues a run.
    """
    if path is not None:
        return run_recipe(recipe, path, begin=begin, **how)
    if begin is not None:
        check_kind("begin", begin, Run, "a run", "load it with vages.load_run")
        recipe, how["begin"] = starting_from(recipe, begin), (begin.model, begin.posterior)
    return in_memory(recipe, **how)


def _drawn(trained: Trained, visible: bool) -> Drawn:
    recipe = trained.recipe
    if recipe.pictures is not None:
        return Drawn(dict(recipe.pictures(trained)))
    return draw_own(trained) if recipe.parts is None else recipe.parts.draw(trained, visible)


def _result(trained: Trained) -> dict[str, Any]:
    fitted, history = trained.fitted, trained.fitted.history
    loss = history[-1].get("loss") if history else None
    return {
        **{name: _told(value) for name, value in trained.tested.items()},
        "steps": fitted.step,
        "interrupted": fitted.interrupted,
        "seconds": fitted.seconds,
        "milliseconds an iteration": 1e3 * fitted.seconds / max(fitted.step, 1),
        "loss": None if loss is None else _told(np.asarray(loss, np.float64)),
    }


def _told(value: np.ndarray) -> Any:
    """Return a number, or the numbers of all seeds with their mean."""
    return float(value) if value.ndim == 0 else {"mean": float(value.mean()), "each seed": value.tolist()}


def _plain(value: Any) -> Any:
    """Replace non-finite numbers by None, for JSON."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
