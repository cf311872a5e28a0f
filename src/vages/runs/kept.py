"""What is made of a deep run: a new folder for it, and its arrays there with what they were made of."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vages.environment import environment
from vages.files.durable import replace_durably
from vages.runs.loaded import LoadedRun
from vages.training.folder import numbered_folder


class Kept(NamedTuple):
    """Results on the disk: their folder, and what its result.json says."""

    folder: Path
    result: dict[str, Any]


@contextmanager
def new_folder(run: LoadedRun, name: str, out: Path | None) -> Iterator[Path]:
    """The folder `out`, or the first free RUN/NAME-NUMBER; it goes again where nothing came to lie in it."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out: expected a new or empty folder, got {out}, which holds something; choose another")
    folder = numbered_folder(run.path, name) if out is None else out
    folder.mkdir(parents=True, exist_ok=out is not None)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def keep(folder: Path, name: str, run: LoadedRun, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Kept:
    """Write NAME.npz, and last of all result.json, which says what the arrays were made of, and with."""
    np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    result = {
        "run": str(run.path),
        "checkpoint": run.step,
        "weights": run.weights,
        **about,
        "data": run.about_data,
        "environment": environment(),
    }
    replace_durably(folder / "result.json", (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())
    return Kept(folder, result)
