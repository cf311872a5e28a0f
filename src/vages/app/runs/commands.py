"""The command that would make a folder's results again."""

import shlex
from pathlib import Path
from typing import Any

from vages.app.runs.config import config_of
from vages.app.settings import DEEP_PRESETS, PRESETS


def train_command(config: dict[str, Any]) -> tuple[str, list[str]] | None:
    """`vages train …` for a run's config.json: the nearest preset, and what is different.

    The second value names settings that no option can set. None, where the config is not that of a recipe.
    """
    presets = {name: config_of(recipe) for name, recipe in (PRESETS | DEEP_PRESETS).items()}
    kind = {name: one for name, one in presets.items() if one["model"] == config.get("model")}
    if not kind or not all(set(config) <= set(one) for one in kind.values()):
        return None
    changes = {
        name: {key: config[key] for key in one if key in config and config[key] != one[key]}
        for name, one in kind.items()
    }
    preset = min(changes, key=lambda name: len(changes[name]))
    words, lost = ["vages", "train", preset], []
    for key, value in changes[preset].items():
        option = f"--{key.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is False or not isinstance(value, int | float | str):
            lost.append(key)
        else:
            words += [f"{option}={value}"] if str(value).startswith("-") else [option, str(value)]
    return shlex.join([*words, "--out", "NEW_FOLDER"]), lost


def reproduce_command(result: dict[str, Any], folder: Path) -> str:
    """`vages reproduce …` for an experiment's result.json, in another folder."""
    words = ["vages", "reproduce", str(result.get("experiment") or folder.resolve().name)]
    words += ["--quick"] if result.get("quick") is True else []
    words += ["--seed", str(result["seed"])] if isinstance(result.get("seed"), int) else []
    return shlex.join([*words, "--out", "NEW_FOLDER"])
