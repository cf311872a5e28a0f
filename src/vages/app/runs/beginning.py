"""Runs that begin with what another run has learnt."""

from pathlib import Path
from typing import Any

from vages.app.recipes import Recipe
from vages.app.runs.loaded import Run, load_run
from vages.training import RunFolder
from vages.training.cluster import digest


def told_begin(run: Run) -> dict[str, Any]:
    """What config.json says of the run that another began with."""
    return {"run": str(run.path.resolve()), "step": run.step, "sha256": digest((run.model, run.posterior))}


def begin_again(path: Path, recipe: Recipe) -> Run | None:
    """The run that the one in `path` began with, for a run that has no checkpoint yet; None where it began fresh."""
    about = RunFolder.peek(path).get("from")
    if not isinstance(about, dict):
        return None
    run = load_run(Path(str(about.get("run"))), recipe if recipe.parts is None else None, changed=True)
    if digest((run.model, run.posterior)) != about.get("sha256"):
        raise ValueError(
            f"from: expected what {path} began with, step {about.get('step')} of {run.path}, got its step {run.step}; "
            "start anew"
        )
    return run
