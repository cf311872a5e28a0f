"""--dry-run: what a command would do. Nothing is written."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from math import prod
from os.path import lexists
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.experiments.catalogue import EXPERIMENTS
from vages.app.output.console import say, waiting
from vages.app.recipes import Examples, Recipe, example_of
from vages.app.recipes.sizes import check_training_memory, training_sizes
from vages.app.recipes.training import check_begin
from vages.app.runs import Run, config_of, recipe_of
from vages.app.runs.beginning import starting_from, told_begin
from vages.app.runs.classes import classes_of, told_classes, untrained_problem
from vages.app.runs.config import check_resumable, settings_of
from vages.app.runs.training_data import data_to_train_on
from vages.app.settings import DeepSettings, GRBMSettings
from vages.data import Dataset, datasets
from vages.storage.directory import Directory
from vages.training.checkpoint import last_step
from vages.training.folder import check_new


def plan_training(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool,
    where: str | None = None,
    begin: Callable[[], Run | None] = lambda: None,
    check: Callable[[], int] = lambda: 1,
) -> dict[str, Any]:
    """Return what `vages train` would do. `problem` is what would stop it at the start, or None.

    `where` is the path of a resumed run's data, if they were moved. `begin` loads the run to start from. `check` raises
    errors in other options, and returns the number of devices.
    """
    problems, first, devices = [], None, 1
    try:
        first = begin()
        recipe = recipe if first is None else starting_from(recipe, first)
    except (ValueError, OSError) as error:
        problems.append(str(error))
    config = config_of(recipe)
    plan: dict[str, Any] = {"folder": folder, "recipe": config["recipe"], "settings": config["settings"]}
    plan |= {} if first is None else {"from": told_begin(first)}
    try:
        devices = check()
    except (ValueError, OSError) as error:
        problems.append(str(error))
    try:
        recipe.check()
    except (ValueError, OSError) as error:
        problems.append(str(error))
    resumable = resume
    if resume:
        plan["from step"] = last_step(Directory(folder) / "checkpoints")
        own = None if recipe.parts is not None else recipe
        before = settings_of(config_of(recipe_of(folder, own, changed=True)))
        plan["changed settings"] = {
            name: [before.get(name), now] for name, now in plan["settings"].items() if before.get(name) != now
        }
        try:
            check_resumable(recipe, folder)
        except (ValueError, OSError) as error:
            problems.append(str(error))
            resumable = False
    else:
        try:
            check_new(folder)
        except (ValueError, OSError) as error:
            problems.append(str(error))
    with waiting("reading the data"):
        about, examples, problem = _data(recipe, folder if resumable else None, where)
    plan["data"] = about
    problems += [problem] if problem is not None else []
    if examples is not None:
        try:
            sizes = training_sizes(recipe, examples, about["examples"], devices)
            plan |= {"parameters": sizes.parameters, "bytes": sizes.bytes}
            check_training_memory(sizes)
            if first is not None:
                check_begin(recipe, examples, (first.model, first.posterior))
        except ValueError as error:
            problems.append(str(error))
    return plan | {"problem": "; ".join(problems) or None}


def plan_experiment(name: str, out: Path, *, quick: bool, seed: int) -> dict[str, Any]:
    """Return what `vages reproduce` would do."""
    entry = EXPERIMENTS[name]
    settings = getattr(importlib.import_module(entry.module), "QUICK" if quick else "PAPER")
    folder = out / name
    with waiting("reading the data"):
        states = {row.name: row.state for row in datasets()}
    return {
        "experiment": name,
        "shows": entry.shows,
        "takes": entry.takes,
        "folder": folder,
        "earlier results": "would be moved" if folder.exists() else "none",
        **({"runs": out / "runs"} if entry.trains else {}),
        "seed": seed,
        "settings": _plain(settings),
        "data": {one: states.get(one, "custom") for one in dict.fromkeys(r.data for r in _recipes(settings))},
    }


def print_plan(plan: dict[str, Any]) -> None:
    """Print the plan, one entry per line."""
    for name, value in plan.items():
        if isinstance(value, dict):
            say(f"{name}:")
            for key, one in value.items():
                say(f"  {key}: {f'{one:,}' if name in ('parameters', 'bytes') else one}")
        elif value is not None:
            say(f"{name}: {value}")


def _data(
    recipe: Recipe, resumed: Path | None, where: str | None
) -> tuple[dict[str, Any], Examples | None, str | None]:
    """Return a description of the data, examples or placeholders of their shape, and what is wrong with the data.

    Public datasets are not read for a new run without labels. `resumed` is the folder of a resumed run, whose data are
    found and checked as `train` does. `where` is their path, if they were moved.
    """
    place = recipe.place if where is None else where
    about = {"name": recipe.place or "made by the recipe", "state": "missing", "where": place, "examples": None}
    if recipe.parts is not None and recipe.is_named and where is None:
        (row,) = [row for row in datasets() if row.name == recipe.place]
        about = {"name": row.name, "state": row.state, "where": row.where, "examples": row.counts and row.counts[0]}
        counted = getattr(recipe.settings, "labels", False)  # classes are counted, which needs the labels
        if _missing(row) or (resumed is None and not counted):
            return about, example_of(row.shape if recipe.parts.rank == 3 else (prod(row.shape),)), _missing(row)
    try:
        examples = recipe.load() if resumed is None else data_to_train_on(recipe, resumed, resume=True, where=where)[0]
    except (ValueError, OSError) as error:
        there = recipe.is_named or (place is not None and lexists(place))
        return about | {"state": "unusable" if there else "missing"}, None, str(error)
    about |= {"state": "present", "examples": examples.rows}
    if classes := classes_of(examples):
        learnt = examples.context is not None or not hasattr(recipe.settings, "labels")
        about["classes"] = told_classes(classes) + ("" if learnt else "; used only with --labels")
    if warning := untrained_problem(examples, recipe.settings):
        about["warning"] = warning
    return about, examples, None


def _missing(row: Dataset) -> str | None:
    if row.state in ("present", "built in"):
        return None
    return f"{row.name} is {row.state}: {row.detail}; get it with 'vages data --get {row.name}'"


def _recipes(settings: Any) -> Iterator[GRBMSettings | DeepSettings]:
    """Yield the recipes in an experiment's settings, except those that are only timed on random images."""
    match settings:
        case GRBMSettings() | DeepSettings():
            yield settings
        case (DeepSettings(), tuple()):  # a network, and the shape of random images
            return
        case dict():
            for one in settings.values():
                yield from _recipes(one)
        case tuple() | list():
            for one in settings:
                yield from _recipes(one)
        case _ if is_dataclass(settings):
            for field in fields(settings):
                yield from _recipes(getattr(settings, field.name))


def _plain(value: Any) -> Any:
    """Convert settings to values of JSON."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    return value
