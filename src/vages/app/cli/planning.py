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
from vages.app.recipes import DeepSettings, GRBMSettings
from vages.app.recipes.deep import load_deep
from vages.app.recipes.grbm import load_all_data
from vages.app.recipes.selection import check_selection
from vages.app.recipes.sizes import check_training_memory, training_sizes
from vages.app.runs import config_of, recipe_of
from vages.app.runs.config import check_resumable
from vages.app.runs.dataset import read_deep, read_grbm
from vages.app.runs.training_data import data_to_train_on
from vages.data import IMAGE_SETS, TOYS, Dataset, datasets
from vages.storage.directory import Directory
from vages.training.checkpoint import last_step
from vages.training.folder import check_new


def plan_training(
    recipe: GRBMSettings | DeepSettings,
    folder: Path,
    *,
    resume: bool,
    where: str | None = None,
    check: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """What `vages train` would do. `problem` is what would stop it at the start, or None.

    `where` is the place of a resumed run's data, if they were moved. `check` raises what is wrong with other options.
    """
    plan: dict[str, Any] = {"folder": folder, "settings": config_of(recipe)}
    problems = []
    for one in (check, lambda: isinstance(recipe, DeepSettings) and check_selection(recipe)):
        try:
            one()
        except (ValueError, OSError) as error:
            problems.append(str(error))
    resumable = resume
    if resume:
        plan["from step"] = last_step(Directory(folder) / "checkpoints")
        before = config_of(recipe_of(folder))
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
    with waiting("looking at the data"):
        data, shape, problem = _data(recipe, folder if resumable else None, where)
    plan["data"] = data
    problems += [problem] if problem is not None else []
    if shape is not None:
        try:
            sizes = training_sizes(recipe, shape, data["examples"])
            plan |= {"parameters": sizes.parameters, "bytes": sizes.bytes}
            check_training_memory(sizes)
        except ValueError as error:
            problems.append(str(error))
    return plan | {"problem": "; ".join(problems) or None}


def plan_experiment(name: str, out: Path, *, quick: bool, seed: int) -> dict[str, Any]:
    """What `vages reproduce` would do."""
    entry = EXPERIMENTS[name]
    settings = getattr(importlib.import_module(entry.module), "QUICK" if quick else "PAPER")
    folder = out / name
    with waiting("looking at the data"):
        states = {row.name: row.state for row in datasets()}
    return {
        "experiment": name,
        "shows": entry.shows,
        "takes": entry.takes,
        "folder": folder,
        "earlier results": "would be moved aside" if folder.exists() else "none",
        **({"runs": out / "runs"} if entry.trains else {}),
        "seed": seed,
        "settings": _plain(settings),
        "data": {one: states.get(one, "one's own") for one in dict.fromkeys(r.data for r in _recipes(settings))},
    }


def print_plan(plan: dict[str, Any]) -> None:
    """The plan for a reader: a line a fact."""
    for name, value in plan.items():
        if isinstance(value, dict):
            say(f"{name}:")
            for key, one in value.items():
                say(f"  {key}: {f'{one:,}' if name in ('parameters', 'bytes') else one}")
        elif value is not None:
            say(f"{name}: {value}")


def _data(
    recipe: GRBMSettings | DeepSettings, resumed: Path | None, where: str | None
) -> tuple[dict[str, Any], tuple[int, ...] | None, str | None]:
    """What is known of the data, the shape of an example, and what is wrong with them.

    Known sets are not read for a new run. `resumed` is the folder of a run that is resumed: its data are then found,
    and told from others, as `train` does. `where` is their place, if they were moved.
    """
    named = IMAGE_SETS if isinstance(recipe, DeepSettings) else (*TOYS, "freyface")
    place = recipe.data if where is None else where
    about = {"name": recipe.data, "state": "missing", "where": Path(place), "examples": None}
    if recipe.data in named and where is None:
        (row,) = [row for row in datasets() if row.name == recipe.data]
        about = {"name": row.name, "state": row.state, "where": row.where, "examples": row.counts and row.counts[0]}
        flat = row.shape if isinstance(recipe, DeepSettings) else (prod(row.shape),)
        if resumed is None or _missing(row):
            return about, flat, _missing(row)
    try:
        if isinstance(recipe, DeepSettings):
            train = _read(recipe, resumed, where, load_deep, read_deep).splits.train
        else:
            train = _read(recipe, resumed, where, load_all_data, read_grbm).train
    except (ValueError, OSError) as error:
        there = recipe.data in named or lexists(place)
        return about | {"state": "unusable" if there else "missing"}, None, str(error)
    if recipe.data in TOYS:  # one set of rows for each seed
        train = train[0]
    return about | {"state": "present", "examples": len(train)}, train.shape[1:], None


def _read(
    recipe: Any, resumed: Path | None, where: str | None, load: Callable[[Any], Any], read: Callable[[Any], Any]
) -> Any:
    if resumed is None:
        return load(recipe)
    return data_to_train_on(recipe, resumed, read, resume=True, where=where)[0]


def _missing(row: Dataset) -> str | None:
    if row.state in ("present", "built in"):
        return None
    return f"{row.name} is {row.state}: {row.detail}; get it with 'vages data --get {row.name}'"


def _recipes(settings: Any) -> Iterator[GRBMSettings | DeepSettings]:
    """The recipes in an experiment's settings, but for those that only lend their network to random images."""
    match settings:
        case GRBMSettings() | DeepSettings():
            yield settings
        case (DeepSettings(), tuple()):  # a network, and the shape of images that are made up
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
    """Settings as JSON has them."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    return value
