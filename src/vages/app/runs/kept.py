"""New folders for results of a run: arrays and result.json."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vages.app.runs.loaded import Run
from vages.environment import environment
from vages.storage.directory import Directory
from vages.terminal import printable


class Kept(NamedTuple):
    """Results on disk: their folder, and the contents of result.json."""

    folder: Path
    result: dict[str, Any]


@contextmanager
def new_folder(run: Run, name: str, out: Path | None) -> Iterator[Directory]:
    """Create the folder `out`, or the first free RUN/NAME-NUMBER; remove it at the end if it is empty."""
    if out is None:
        folder = Directory(run.path).make_numbered(name)
    else:
        folder = Directory(out)
        if folder.names() or (out.exists() and not out.is_dir()):
            raise ValueError(f"out: expected a new or empty folder, got {out}, which is not empty; choose another")
        folder.create()
    try:
        yield folder
    finally:
        folder.remove_empty()


def keep(folder: Directory, name: str, run: Run, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Kept:
    """Write NAME.npz, and last result.json, which records how the arrays were made."""
    with folder.writing(f"{name}.npz") as file:
        np.savez(file, allow_pickle=False, **arrays)
    result = {
        "run": printable(run.path),
        "checkpoint": run.step,
        "weights": run.weights,
        **about,
        "data": run.about_data,
        "environment": environment(),
    }
    folder.write_json("result.json", result)
    return Kept(folder.path, result)
