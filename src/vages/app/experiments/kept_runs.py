"""Deep runs that are shared by several figures, trained once and kept."""

from pathlib import Path
from typing import Any

import numpy as np

from vages.app.experiments.claims import Say
from vages.app.recipes import as_recipe
from vages.app.runs import Kept, Run, load_run, recipe_of, run_recipe
from vages.app.runs.saved import saved_step
from vages.app.settings import DeepSettings
from vages.files import parse_npz
from vages.storage.directory import Directory
from vages.training import RunFolder
from vages.training.folder import is_run

_LARGEST = 2**34  # bytes of arrays


def kept_runs(recipes: tuple[DeepSettings, ...], runs: Path, say: Say) -> list[Run]:
    """Return the run for each recipe's images, method and seed in `runs`, which is trained if there is none.

    An existing run of the same images, method and seed may have other settings, such as fewer steps. It is resumed
    until its own step count.
    """
    for recipe in recipes:
        as_recipe(recipe).load()  # fails here, not after an hour of training another recipe
    return [_kept_run(recipe, runs / run_name(recipe), say) for recipe in recipes]


def run_name(recipe: DeepSettings) -> str:
    """The name of a kept run: DATA-SEED, or DATA-METHOD-SEED for other methods than VaGES-MDSM."""
    method = "" if recipe.method == DeepSettings.method else f"{recipe.method}-"
    return f"{recipe.data}-{method}{recipe.seed}"


def kept_arrays(kept: Kept, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a result, in the file NAME.npz."""
    with Directory(kept.folder) as folder:
        return parse_npz(folder.read_bytes(f"{name}.npz", _LARGEST), str(kept.folder), _LARGEST)


def told_iterations(iterations: int, recoveries: list[dict[str, Any]]) -> str:
    """Return the number of iterations as text, with the steps from which the guard lowered the learning rates."""
    since = [f"with {event['rate']:g} of the rates from {event['to']:,} on" for event in recoveries]
    return f"{iterations:,}" + (f" ({', '.join(since)})" if since else "")


def iterations_of(run: Run) -> str:
    """Return the number of iterations of a run as text (see `told_iterations`)."""
    return told_iterations(run.step, lasting_recoveries(RunFolder.events(run.path)))


def lasting_recoveries(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return recoveries whose smaller rates reached a checkpoint: not those that a later one or resumption undid."""
    found: list[dict[str, Any]] = []
    for event in events:
        if event.get("event") == "recovered":
            found = [one for one in found if one["to"] < event["to"]] + [event]
        elif event.get("event") == "resumed":
            found = [one for one in found if one["to"] < event["step"]]
    return found


def _kept_run(recipe: DeepSettings, path: Path, say: Say) -> Run:
    there = is_run(path)
    own = recipe_of(path) if there else as_recipe(recipe)
    if own.annealed is None:
        raise ValueError(f"runs: expected the run of a deep model in {path}, got a run of {own.kind}; move it away")
    same = lambda settings: (settings.data, settings.method, settings.seed)
    if same(own.settings) != same(recipe):
        expected, got = (" ".join(map(str, same(settings))) for settings in (recipe, own.settings))
        raise ValueError(f"runs: expected a run of {expected} in {path}, got one of {got}; move it away")
    if not there or saved_step(path) < own.settings.steps:
        fitted = run_recipe(own, path, resume=there).fitted.uninterrupted()
        say(f"{own.place}: {fitted.step:,} iterations in {fitted.seconds:.0f} s, in {path}")
    run = load_run(path)
    say(f"{own.place}: checkpoint {run.step:,} of {path}")
    return run
