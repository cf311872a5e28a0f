"""Commands that reproduce the results in a folder."""

import shlex
from os.path import relpath
from pathlib import Path
from typing import Any

from vages.app.recipes import Recipe, nearest_preset
from vages.app.recipes.recipe import Origin
from vages.app.runs.config import OWN, is_own, recipe_in, settings_of


def train_command(config: dict[str, Any], data: object = None) -> tuple[str, list[str]] | None:
    """Return `vages train …` for a run's config.json: the nearest preset or the recipe's file, and changed settings.

    `data` is the path in the record of the run's data, which a custom recipe may have got by --data. The second value
    lists settings that no option can set. None if there is no such command.
    """
    settings, lost = settings_of(config), list[str]()
    if is_own(config):
        first, changes = str(config.get("recipe")), settings
        if first == OWN:  # trained in Python
            return None
        first = first.removesuffix(":recipe")
    else:
        try:
            first, changes = nearest_preset(recipe_in(config).settings)
        except ValueError:
            return None
    words, begun = ["vages", "train", first], config.get("from")
    others = {"data": data} if is_own(config) and data is not None else {}
    others |= {"from": begun.get("run")} if isinstance(begun, dict) else {}
    for key, value in {**changes, **others}.items():
        option = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{key.replace('_', '-')}")
        elif value is not None and not isinstance(value, int | float | str):
            lost.append(key)
        else:
            words += [f"{option}={value}"] if str(value).startswith("-") else [option, str(value)]
    return shlex.join([*words, "--out", "NEW_FOLDER"]), lost


def resume_command(recipe: Recipe, folder: Path) -> str:
    """Return `vages train --resume …`, or a call for a recipe that does not come from a file."""
    if recipe.parts is None and recipe.origin is None:
        return f"vages.train(recipe, {str(folder)!r}, resume=True)"
    file = "" if recipe.origin is None else f"{shlex.quote(recipe_file(recipe.origin))} "
    return f"vages train {file}--resume {shlex.quote(str(folder))}"


def recipe_file(origin: Origin) -> str:
    """Return a recipe's FILE.py[:NAME], as an argument of `vages train`."""
    named = origin.name.rpartition(":")[2]
    return relpath(origin.path) if named == "recipe" else f"{relpath(origin.path)}:{named}"


def reproduce_command(result: dict[str, Any], folder: Path) -> str:
    """Return `vages reproduce …` for an experiment's result.json, with a new folder."""
    words = ["vages", "reproduce", str(result.get("experiment") or folder.resolve().name)]
    words += ["--quick"] if result.get("quick") is True else []
    words += ["--seed", str(result["seed"])] if isinstance(result.get("seed"), int) else []
    return shlex.join([*words, "--out", "NEW_FOLDER"])
