"""Saved progress of a run."""

from pathlib import Path

from vages.storage.directory import Directory
from vages.training.checkpoint import checkpoints, step_of


def saved_step(path: Path) -> int:
    """The step of a run's newest checkpoint, from which it is resumed; 0 if it has none."""
    found = checkpoints(Directory(path) / "checkpoints")
    return step_of(found[-1]) if found else 0


def saved_progress(path: Path, steps: int) -> tuple[int | None, str]:
    """The step of a run's newest checkpoint, or None, and a sentence about it; `steps` is the run's last iteration."""
    found = checkpoints(Directory(path) / "checkpoints")
    if not found:
        return None, "there is no checkpoint yet"
    step = step_of(found[-1])
    if step >= steps:
        return step, f"training is complete (checkpoint: {found[-1]})"
    return step, f"training reached iteration {step} of {steps} (checkpoint: {found[-1]})"
