"""Runs that start from the trained model of another run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vages.app.recipes import Recipe
from vages.app.recipes.units import Units
from vages.app.runs.loaded import Run, load_run
from vages.training import RunFolder
from vages.training.cluster import digest


def told_begin(run: Run) -> dict[str, Any]:
    """Return the entry in config.json about the run that another run starts from."""
    return {"run": str(run.path.resolve()), "step": run.step, "sha256": digest((run.model, run.posterior))}


_MEASURED = ("center", "sigma_data", "detail")  # constants of a model that are chosen for the data unless given


def starting_from(recipe: Recipe, begin: Run) -> Recipe:
    """Return the recipe with the units of the run that it starts from, and with its model's center and scale.

    Otherwise the weights of that run would be those of another function. Raise ValueError if only one of the two runs
    is standardized.
    """
    if recipe.standardizes == (begin.units is not None):
        return made_for_data_of(recipe, begin.recipe, begin.units)
    if recipe.standardizes:
        raise ValueError(
            f"standardize: expected data in their own units, as the model of {begin.path} was trained on, got "
            "standardized ones; leave it out"
        )
    raise ValueError(
        f"standardize: expected standardized data, as the model of {begin.path} was trained on, got others; give "
        "--standardize, in Python Training(standardize=True)"
    )


def made_for_data_of(recipe: Recipe, other: Recipe, units: Units | None) -> Recipe:
    """Return the recipe with these units, and with the constants of another that it leaves to be measured."""
    measured = {name: getattr(other.settings, name, None) for name in _MEASURED}
    left_open = [name for name in _MEASURED if getattr(recipe.settings, name, 0) is None]
    kept = {name: measured[name] for name in left_open if measured[name] is not None}
    return replace(recipe.with_(**kept) if kept else recipe, units=units)


def begin_again(path: Path, recipe: Recipe) -> Run | None:
    """Load the run that the one in `path` starts from, or None. For runs that have no checkpoint yet."""
    about = RunFolder.peek(path).get("from")
    if not isinstance(about, dict):
        return None
    run = load_run(Path(str(about.get("run"))), recipe if recipe.parts is None else None, changed=True)
    if digest((run.model, run.posterior)) != about.get("sha256"):
        raise ValueError(
            f"from: expected the model that {path} started from, step {about.get('step')} of {run.path}, got its step "
            f"{run.step}; start a new run"
        )
    return run
