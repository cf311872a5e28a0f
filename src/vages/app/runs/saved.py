"""Saved progress of a run."""

from pathlib import Path
from typing import Any

from vages.app.report.page.markup import as_float
from vages.app.report.page.summaries import largest_logged
from vages.storage.directory import Directory
from vages.training.checkpoint import checkpoints, step_of


def saved_step(path: Path) -> int:
    """The step of a run's newest checkpoint, from which it is resumed; 0 if it has none."""
    found = checkpoints(Directory(path) / "checkpoints")
    return step_of(found[-1]) if found else 0


def current_result(path: Path, result: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the contents of result.json, or {} if the run has been resumed and trained further since.

    `rows` are those of metrics.jsonl.
    """
    steps = as_float(result.get("steps"))
    outdated = steps < saved_step(path) or steps < largest_logged(rows, "step")
    return {} if outdated else result


def saved_progress(path: Path, steps: int) -> tuple[int | None, str]:
    """The step of a run's newest checkpoint, or None, and a sentence about it; `steps` is the run's last iteration."""
    found = checkpoints(Directory(path) / "checkpoints")
    if not found:
        return None, "there is no checkpoint yet"
    step = step_of(found[-1])
    if step >= steps:
        return step, f"training is complete (checkpoint: {found[-1]})"
    return step, f"training reached iteration {step} of {steps} (checkpoint: {found[-1]})"
