"""The data of a run that is started or resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vages.app.runs.config import check_resumable
from vages.app.runs.dataset import AnyRecipe, Data, Fingerprints, dataset_record, expected_fingerprints, own_data
from vages.storage.directory import Directory
from vages.training import RunFolder, is_writer
from vages.training.checkpoint import newest_about


def data_to_train_on(
    recipe: AnyRecipe, path: Path, read: Callable[[AnyRecipe], tuple[Data, Fingerprints]], *, resume: bool
) -> tuple[Data, dict[str, Any]]:
    """The data of a run in this folder, and what it records of them; nothing is written.

    A run that goes on has the data that it was started with, wherever they are now; others are refused. In a cluster
    this is left to the first process, where the others do not have the folder.
    """
    about: dict[str, Any] = {}
    if resume and (is_writer() or path.is_dir()):
        check_resumable(recipe, path)
        about = newest_about(Directory(path) / "checkpoints") or _started(path)
    if not expected_fingerprints(about):  # a new run, or an early one that was killed before its first checkpoint
        value, fingerprints = read(recipe)
        return value, dataset_record(recipe, path, fingerprints)
    found = own_data(path, recipe, about, read)
    record = about.get("dataset")
    record = record if isinstance(record, dict) else dataset_record(recipe, path, found.fingerprints)
    return found.value, {**record, **found.fingerprints}


def _started(path: Path) -> dict[str, Any]:
    """What a run recorded of its data when it was started."""
    events = [event for event in RunFolder.events(path) if event.get("event") == "started"]
    return {"dataset": events[-1].get("dataset")} if events else {}
