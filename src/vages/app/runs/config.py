"""The settings in a run folder: config.json, its checks, and reopening a folder to resume."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from vages.app.settings import DeepSettings, GRBMSettings
from vages.storage.directory import Directory
from vages.training import RunFolder
from vages.training.checkpoint import last_step, newest_about
from vages.training.digests import canonical, settings_digest

_KINDS = {"grbm": GRBMSettings, "deep": DeepSettings}


def config_of(recipe: GRBMSettings | DeepSettings) -> dict[str, Any]:
    """What config.json holds."""
    kind = next(name for name, kind in _KINDS.items() if isinstance(recipe, kind))
    return {"model": kind, **asdict(recipe)}


def recipe_of(path: Path) -> GRBMSettings | DeepSettings:
    """The recipe in a run's folder. An edited config.json is refused, as far as a checkpoint tells it."""
    config = RunFolder.peek(path)
    recipe = _recipe(config, str(path / "config.json"))
    if (about := newest_about(Directory(path) / "checkpoints")) is not None:
        _check_unedited(path, config, recipe, about)
    return recipe


def _recipe(config: dict[str, Any], name: str) -> GRBMSettings | DeepSettings:
    """The recipe of a config; `name` is for the error."""
    config = dict(config)
    kind = _KINDS.get(str(config.pop("model", None)))
    if kind is None or not set(config) <= {field.name for field in fields(kind)}:  # a setting may be newer than a run
        raise ValueError(f"{name}: expected the settings of a recipe, got others; is it a run of vages?")
    try:
        return kind(**config)
    except TypeError as error:
        raise ValueError(
            f"{name}: expected the settings of a recipe, got values of other types; is it a run of vages?"
        ) from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _check_unedited(
    path: Path, config: dict[str, Any], recipe: GRBMSettings | DeepSettings, about: dict[str, Any]
) -> None:
    """Raise unless config.json has the settings of the checkpoint, or those that a resume has announced since."""
    if settings_digest(config) == about.get("settings_sha256"):
        return
    kept = about.get("config")
    if not isinstance(kept, dict):  # a checkpoint that no run of vages wrote; whoever needs its arrays will say so
        return
    then = _recipe(kept, f"{path / 'checkpoints'}, the settings of the newest checkpoint")
    before, now = config_of(then), config_of(recipe)
    changed = [name for name in before | now if canonical(before.get(name)) != canonical(now.get(name))]
    if not changed:
        return
    free, announced = _free_settings(then, recipe), _announced(path)
    edited = [name for name in changed if name not in free or announced.get(name) != canonical(now.get(name))]
    if edited:
        told = ", ".join(f"{name} {now.get(name)} in place of {before.get(name)}" for name in edited)
        raise ValueError(
            f"{path / 'config.json'}: expected the settings of the checkpoint, got {told:.500}; undo the edit, and "
            "give allowed changes as options"
        )


def _announced(path: Path) -> dict[str, str]:
    """The settings that resumes have announced in events.jsonl: a process may end before the next checkpoint."""
    announced = {}
    for event in RunFolder.events(path):
        if event.get("event") == "other settings":
            for name, pair in event.items():
                if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int | float):
                    announced[name] = canonical(pair[1])
    return announced


def check_resumable(recipe: GRBMSettings | DeepSettings, path: Path) -> list[str]:
    """Raise unless the run in this folder can go on by the recipe; nothing is written. The settings that change."""
    earlier = recipe_of(path)
    before, now = config_of(earlier), config_of(recipe)
    free = _free_settings(earlier, recipe)
    changed = [name for name in before | now if before.get(name) != now.get(name)]
    if refused := [name for name in changed if name not in free]:
        told = ", ".join(f"{name} ({before.get(name)} before, {now.get(name)} now)" for name in refused)
        raise ValueError(f"resume: expected the settings that {path} was started with, got another {told}; start anew")
    done = last_step(Directory(path) / "checkpoints")
    if recipe.steps < done:
        raise ValueError(f"steps: expected at least the {done} already made, got {recipe.steps}; ask for more")
    return changed


def reopened(recipe: GRBMSettings | DeepSettings, path: Path, dataset: dict[str, Any] | None = None) -> RunFolder:
    """The folder of a run that this recipe can go on with; its config is brought up to date.

    `dataset` is what the run's next checkpoints say of its data.
    """
    changed = check_resumable(recipe, path)
    folder = RunFolder.reopen(path)
    folder.dataset = dataset
    if changed:
        folder.configure(config_of(recipe))
    return folder


def _free_settings(earlier: GRBMSettings | DeepSettings, now: GRBMSettings | DeepSettings) -> set[str]:
    """The settings that may differ between two recipes of one run."""
    return {"sampling"} if any(map(rate_depends_on_steps, (earlier, now))) else {"sampling", "steps"}


def rate_depends_on_steps(recipe: GRBMSettings | DeepSettings) -> bool:
    """Whether the learning rate of an iteration depends on how many there are: as it decays, or in a cut warm-up."""
    return recipe.decay != "constant" or (isinstance(recipe, DeepSettings) and recipe.warmup > recipe.steps // 10)
