"""A recipe as a run folder keeps it, and the folder of a run that goes on."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from vages.files.directory import Directory
from vages.recipes.deep import DeepRecipe
from vages.recipes.recipe import Recipe
from vages.training import RunFolder
from vages.training.checkpoint import last_step

_KINDS = {"grbm": Recipe, "deep": DeepRecipe}


def config_of(recipe: Recipe | DeepRecipe) -> dict[str, Any]:
    """What config.json holds."""
    kind = next(name for name, kind in _KINDS.items() if isinstance(recipe, kind))
    return {"model": kind, **asdict(recipe)}


def recipe_of(path: Path) -> Recipe | DeepRecipe:
    """The recipe in a run's folder."""
    config = dict(RunFolder.peek(path))
    kind = _KINDS.get(str(config.pop("model", None)))
    if kind is None or not set(config) <= {field.name for field in fields(kind)}:  # a setting may be newer than a run
        raise ValueError(
            f"{path / 'config.json'}: expected the settings of a recipe, got others; is it a run of vages?"
        )
    try:
        return kind(**config)
    except TypeError as error:
        raise ValueError(f"{path / 'config.json'}: expected the settings of a recipe, got {error}") from None
    except ValueError as error:
        raise ValueError(f"{path / 'config.json'}: {error}") from None


def reopened(recipe: Recipe | DeepRecipe, path: Path) -> RunFolder:
    """The folder of a run that this recipe can go on with; its config is brought up to date as it goes on."""
    earlier = recipe_of(path)
    before, now = config_of(earlier), config_of(recipe)
    free = {"sampling"} if any(map(_rate_depends_on_steps, (earlier, recipe))) else {"sampling", "steps"}
    changed = [name for name in before | now if before.get(name) != now.get(name)]
    if refused := [name for name in changed if name not in free]:
        told = ", ".join(f"{name} ({before.get(name)} before, {now.get(name)} now)" for name in refused)
        raise ValueError(f"resume: expected the settings that {path} was started with, got another {told}; start anew")
    done = last_step(Directory(path) / "checkpoints")
    if recipe.steps < done:
        raise ValueError(f"steps: expected at least the {done} already made, got {recipe.steps}; ask for more")
    folder = RunFolder.reopen(path)
    if changed:
        folder.tell("other settings", **{name: [before[name], now[name]] for name in changed})
        folder.configure(now)
    return folder


def _rate_depends_on_steps(recipe: Recipe | DeepRecipe) -> bool:
    """Whether the learning rate of an iteration depends on how many there are: as it decays, or in a cut warm-up."""
    return recipe.decay != "constant" or (isinstance(recipe, DeepRecipe) and recipe.warmup > recipe.steps // 10)
