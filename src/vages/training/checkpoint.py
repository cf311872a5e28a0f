"""Atomic checkpoints: a folder of arrays and a manifest, written under a temporary name and renamed into place.

    checkpoints/step-000000100000/state.safetensors    the arrays
    checkpoints/step-000000100000/manifest.json        their description, and SHA-256 sums of the arrays and of itself

A process killed at any moment leaves either no folder of that name or a complete one. Files are verified when they are
read, and nothing is unpickled. Unreadable checkpoints are never removed: they may be from another program or a newer
version.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from vages.files.json_files import parse_json
from vages.memory import check_memory
from vages.storage.directory import FOLDER, Directory, UnsafeFile
from vages.storage.errors import BadFile

FORMAT = 1
ARRAYS, MANIFEST = "state.safetensors", "manifest.json"
_LARGEST = {ARRAYS: 2**37, MANIFEST: 2**24}  # limits in bytes
_NAME = re.compile(r"step-(\d{12})")
_ASIDE = re.compile(r"\.step-\d{12}\.(old\.)?\d+")
_BITS = {"bfloat16": np.uint16}  # stored as bits, since NumPy has no such type
Arrays = dict[str, np.ndarray]


class NewerFormat(BadFile):
    """Error for a checkpoint that a newer version has written."""


class Checkpoint(NamedTuple):
    """A verified checkpoint."""

    path: Path
    step: int
    arrays: Arrays
    about: dict[str, Any]


def write_checkpoint(folder: Directory | Path, step: int, arrays: Arrays, about: dict[str, Any]) -> Path:
    """Write `folder/step-…` to disk, or leave no folder of that name."""
    folder, name = Directory.of(folder), f"step-{step:012d}"
    aside = f".{name}.{os.getpid()}"
    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = safetensors.numpy.save(
        {name: array.view(_BITS.get(array.dtype.name, array.dtype)) for name, array in kept.items()}
    )
    body = {
        "format": FORMAT,
        "step": step,
        "files": {ARRAYS: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}},
        "arrays": {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in kept.items()},
        "about": about,
    }
    manifest = json.dumps({"manifest": body, "sha256": _digest(body)}, indent=1, allow_nan=False).encode()
    folder.create()
    try:
        folder.remove(aside)
        with folder.make(aside) as new:
            new.create_file(ARRAYS, content)
            new.create_file(MANIFEST, manifest)
            new.sync()
        _make_way(folder, name)
        folder.rename(aside, name)
        folder.sync()
    except BaseException:
        with suppress(OSError):
            folder.remove(aside)
        raise
    return folder.path / name


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in this folder after verifying its checksums."""
    with Directory(path.parent) / path.name as directory:
        return _read_arrays(directory, _read_manifest(directory))


def checksum(folder: Directory | Path, step: int) -> str:
    """Return the SHA-256 sum of the arrays of a step's checkpoint, from its manifest."""
    with Directory.of(folder) / f"step-{step:012d}" as directory:
        return _read_manifest(directory)["files"][ARRAYS]["sha256"]


def newest_checkpoint(folder: Directory | Path, refused: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest checkpoint that can be verified. `refused` is called with the reason for each invalid one.

    Raise NewerFormat if any is of a newer version, UnsafeFile if one has a link, for example, in place of a file, and
    OSError if one cannot be read for a reason other than damage.
    """
    folder, found = Directory.of(folder), None
    for path, body in reversed(_manifests(folder)):
        try:
            if isinstance(body, Exception):
                raise body
            if found is None:
                with _naming(path), folder / path.name as directory:
                    found = _read_arrays(directory, body)
        except UnsafeFile:
            raise
        except (BadFile, FileNotFoundError) as error:
            refused(_line(error))
    return found


def newest_about(folder: Directory | Path) -> dict[str, Any] | None:
    """Return the metadata of the newest checkpoint with a verified manifest, without reading its arrays."""
    bodies = [body for _, body in _manifests(Directory.of(folder)) if isinstance(body, dict)]
    return bodies[-1]["about"] if bodies else None


def last_step(folder: Directory | Path) -> int:
    """Return the last step that has a checkpoint with a verified manifest; 0 if there is none."""
    bodies = [body for _, body in _manifests(Directory.of(folder)) if isinstance(body, dict)]
    return max((body["step"] for body in bodies), default=0)


def has_checkpoints(folder: Directory | Path) -> bool:
    """Whether there are checkpoints, damaged or not. A folder without any part of a checkpoint does not count."""
    folder = Directory.of(folder)
    return any(
        folder.kind(path.name) == FOLDER and {ARRAYS, MANIFEST} & set((folder / path.name).names())
        for path in checkpoints(folder)
    )


def checkpoints(folder: Directory | Path) -> list[Path]:
    """Return the checkpoints in a folder by their names, oldest first."""
    folder = Directory.of(folder)
    return [folder.path / name for name in folder.names() if _NAME.fullmatch(name)]


def prune(folder: Directory | Path, step: int, last: int, keeps: Callable[[int], bool]) -> None:
    """Remove the checkpoints up to `step`, except for the `last` newest and those of steps that `keeps` accepts.

    Later checkpoints do not count: they could not be verified, so the run continued from an earlier one. Checkpoints
    without a readable manifest do not count either, and are not removed.
    """
    folder, newest = Directory.of(folder), 0
    for path in reversed(checkpoints(folder)):
        if step_of(path) > step or (newest >= last and keeps(step_of(path))):
            continue
        with suppress(BadFile, OSError):
            with folder / path.name as directory:
                _read_manifest(directory)
            newest += 1
            if newest > last and not keeps(step_of(path)):
                _remove(folder, path.name)


def sweep(folder: Directory | Path) -> None:
    """Remove remnants of interrupted writes and removals."""
    folder = Directory.of(folder)
    for name in folder.names():
        if _ASIDE.fullmatch(name) and folder.kind(name) == FOLDER:
            with suppress(OSError):
                folder.remove(name)


def set_aside_later(folder: Directory | Path, step: int) -> None:
    """Rename the checkpoints after `step`, from which the run continues: their arrays could not be verified.

    Otherwise, they would count as good ones when the run has passed their steps.
    """
    folder = Directory.of(folder)
    for path, body in _manifests(folder):
        if step_of(path) > step and isinstance(body, dict):
            _set_aside(folder, path.name)


def _set_aside(folder: Directory, name: str) -> None:
    others = (f"unreadable-{name}-{number}" for number in count(1))
    folder.rename(name, next(other for other in others if folder.kind(other) is None))


def _make_way(folder: Directory, name: str) -> None:
    """Free the name of a checkpoint: an earlier checkpoint of that step is removed, anything else is renamed."""
    if folder.kind(name) is None:
        return
    try:
        with folder / name as directory:
            _read_manifest(directory)
    except (BadFile, OSError):
        _set_aside(folder, name)
    else:  # the run continued from an earlier step; the new checkpoint is complete
        _remove(folder, name)


def _remove(folder: Directory, name: str) -> None:
    aside = f".{name}.old.{os.getpid()}"  # so that no partly removed one has the name
    with suppress(OSError):
        folder.remove(aside)
    folder.rename(name, aside)
    with suppress(OSError):
        folder.remove(aside)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name."""
    return int(path.name.removeprefix("step-"))


def _manifests(folder: Directory) -> list[tuple[Path, dict[str, Any] | Exception]]:
    """Return the manifest of each checkpoint, oldest first, or the error if it is missing or damaged.

    Raise NewerFormat if any checkpoint is of a newer format, and OSError if the system cannot read it: to continue from
    an older one would lose steps silently.
    """
    found: list[tuple[Path, dict[str, Any] | Exception]] = []
    for path in checkpoints(folder):
        try:
            with _naming(path), folder / path.name as directory:
                found.append((path, _read_manifest(directory)))
        except (NewerFormat, UnsafeFile):
            raise
        except (BadFile, FileNotFoundError) as error:
            found.append((path, error))
    return found


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the checkpoint in errors of the system, for example too many open files. A missing file is damage."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(
            f"{path}: expected to read this checkpoint, got {error.strerror or error}; fix that, or move it out of its "
            "folder to use the one before it"
        ) from error


def _read_manifest(directory: Directory) -> dict[str, Any]:
    where = directory.path / MANIFEST
    content = parse_json(directory.read_bytes(MANIFEST, _LARGEST[MANIFEST]), str(where))
    body = content.get("manifest")
    version = body.get("format") if isinstance(body, dict) else None
    if type(version) is int and version > FORMAT:
        raise NewerFormat(
            f"{where}: expected a checkpoint of format {FORMAT} or earlier, got format {str(version)[:40]}, of a newer "
            "vages; update vages to read it"
        )
    if set(content) != {"manifest", "sha256"} or not isinstance(body, dict):
        raise BadFile(f"{where}: expected a manifest and its sum, got something else; is it a checkpoint of vages?")
    if version != FORMAT:
        raise BadFile(f"{where}: expected format {FORMAT}, got {str(version)[:40]}; is it a checkpoint of vages?")
    if content["sha256"] != _digest(body):
        raise BadFile(f"{where}: expected its own SHA-256 sum, got another; it was changed or truncated")
    if (problem := _problem(body)) is not None:
        raise BadFile(f"{where}: expected {problem}, got something else; is it a checkpoint of vages?")
    path = directory.path
    if _NAME.fullmatch(path.name) and step_of(path) != body["step"]:
        raise BadFile(f"{where}: expected step {step_of(path)}, as its folder says, got {body['step']}; was it moved?")
    return body


def _read_arrays(directory: Directory, body: dict[str, Any]) -> Checkpoint:
    path, size = directory.path, body["files"][ARRAYS]["bytes"]
    if size > sum(map(_bytes, body["arrays"].values())) + 2**10 * len(body["arrays"]) + 2**16:
        raise BadFile(f"{path / MANIFEST}: expected as many bytes as its arrays have, got {size}; it was changed")
    check_memory({"the checkpoint": size}, "use a machine with more", host=True)
    content = directory.read_bytes(ARRAYS, min(size, _LARGEST[ARRAYS]))
    if hashlib.sha256(content).hexdigest() != body["files"][ARRAYS]["sha256"]:
        raise BadFile(f"{path / ARRAYS}: expected the SHA-256 sum in its manifest, got another; was it changed?")
    try:
        stored = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BadFile(
            f"{path / ARRAYS}: expected arrays in safetensors format, got others; remove this checkpoint"
        ) from error
    described = body["arrays"]
    if set(stored) != set(described):
        raise BadFile(
            f"{path / MANIFEST}: expected the names in {ARRAYS}, got others; it belongs to another checkpoint"
        )
    arrays = {}
    for name, array in stored.items():
        wanted = described[name]["dtype"]
        array = array.view(ml_dtypes.bfloat16) if wanted == "bfloat16" and array.dtype == np.uint16 else array
        if array.dtype.name != wanted or list(array.shape) != described[name]["shape"]:
            raise BadFile(
                f"{path / ARRAYS}: expected {wanted}{described[name]['shape']} under {name!r}, "
                f"got {array.dtype}{list(array.shape)}; it belongs to another checkpoint"
            )
        arrays[name] = array
    return Checkpoint(path, body["step"], arrays, body["about"])


def _problem(body: dict[str, Any]) -> str | None:
    """Return what a manifest lacks even though its sum is right, since anyone can compute a sum."""
    files, arrays = body.get("files"), body.get("arrays")
    if not (_whole(body.get("step")) and isinstance(body.get("about"), dict)):
        return "a step and what it is about"
    if not (isinstance(files, dict) and set(files) == {ARRAYS} and isinstance(files[ARRAYS], dict)):
        return f"a description of {ARRAYS} alone under 'files'"
    if not (_whole(files[ARRAYS].get("bytes")) and isinstance(files[ARRAYS].get("sha256"), str)):
        return f"bytes and sum of {ARRAYS}"
    if not (isinstance(arrays, dict) and all(_describes(value) for value in arrays.values())):
        return "shape and dtype of every array"
    return None


def _describes(value: Any) -> bool:
    if not (isinstance(value, dict) and set(value) == {"shape", "dtype"} and isinstance(value["dtype"], str)):
        return False
    return isinstance(value["shape"], list) and all(map(_whole, value["shape"]))


def _bytes(described: dict[str, Any]) -> int:
    """An upper bound on the bytes of an array: no dtype of a checkpoint has more than 16."""
    try:
        item = np.dtype(described["dtype"]).itemsize
    except TypeError:
        item = 16
    return math.prod(described["shape"]) * min(item, 16)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
