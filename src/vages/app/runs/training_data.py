"""The data of a run that is started or resumed."""

from pathlib import Path
from typing import Any

from vages.app.recipes import Examples, Recipe
from vages.app.runs.classes import class_record
from vages.app.runs.config import check_resumable
from vages.app.runs.dataset import dataset_record, expected_fingerprints, own_data, read, recorded_dataset
from vages.storage.directory import Directory
from vages.training import RunFolder, is_writer
from vages.training.checkpoint import newest_about


def data_to_train_on(
    recipe: Recipe, path: Path, *, resume: bool, where: str | None = None
) -> tuple[Examples, dict[str, Any]]:
    """Return the data to train on in this folder, and their record; nothing is written.

    A resumed run must have the data that it was started with. `where` is their location if they were moved, and is
    recorded from now on. In a cluster, processes without the folder rely on the first process to check this.
    """
    here = recipe if where is None else recipe.at(where)
    about: dict[str, Any] = {}
    with_folder = resume and (is_writer() or path.is_dir())
    if with_folder:
        check_resumable(recipe, path)
        started = {"dataset": recorded_dataset(path, RunFolder.events(path))}
        about = newest_about(Directory(path) / "checkpoints") or started
    # a new run, or an early one that was killed before its first checkpoint
    if not expected_fingerprints(about) and not (with_folder and where is not None):
        value, fingerprints = read(here)
        return value, dataset_record(here, path, fingerprints) | class_record(value)
    found = own_data(path, recipe, about, where)
    record = about.get("dataset")
    if where is not None or not isinstance(record, dict):
        record = dataset_record(here, path, found.fingerprints)
    return found.value, {**record, **found.fingerprints, **class_record(found.value)}
