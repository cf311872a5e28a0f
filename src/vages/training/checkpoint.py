"""Checkpoints that are whole or not there: a folder of arrays and a manifest, written aside and renamed into place.

    checkpoints/step-000000100000/state.safetensors    the arrays
    checkpoints/step-000000100000/manifest.json        what they are, and SHA-256 sums of the arrays and of itself

A process killed at any moment leaves either no folder of that name or a complete one. What is read is verified first;
nothing is ever unpickled.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from vages.files.bad import BadFile, read_bytes
from vages.files.durable import sync_folder, write_durably
from vages.files.objects import read_json

FORMAT = 1
ARRAYS, MANIFEST = "state.safetensors", "manifest.json"
_LARGEST = {ARRAYS: 2**37, MANIFEST: 2**24}  # bytes that are read at most
_NAME = re.compile(r"step-(\d{12})")
_BITS = {"bfloat16": np.uint16}  # kept as its bits: NumPy has no such type
Arrays = dict[str, np.ndarray]


class Checkpoint(NamedTuple):
    """A verified checkpoint."""

    path: Path
    step: int
    arrays: Arrays
    about: dict[str, Any]


def write_checkpoint(folder: Path, step: int, arrays: Arrays, about: dict[str, Any]) -> Path:
    """Write `folder/step-…` durably, or leave nothing of that name."""
    path = folder / f"step-{step:012d}"
    aside = folder / f".{path.name}.{os.getpid()}"
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
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        write_durably(aside / ARRAYS, content)
        write_durably(aside / MANIFEST, manifest)
        sync_folder(aside)
        if path.exists():  # of a run that went back before it; a whole one takes its place
            _remove(path)
        aside.rename(path)
        sync_folder(folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in this folder, if every byte of it is as it was written."""
    body = _read_manifest(path)
    content = read_bytes(path / ARRAYS, min(body["files"][ARRAYS]["bytes"], _LARGEST[ARRAYS]))
    if hashlib.sha256(content).hexdigest() != body["files"][ARRAYS]["sha256"]:
        raise BadFile(f"{path / ARRAYS}: expected the SHA-256 sum of its manifest, got another; it was changed or cut")
    try:
        stored = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path / ARRAYS}: expected arrays in safetensors format, got {_line(error)}") from None
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


def newest_checkpoint(folder: Path, refused: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that can be verified; `refused` is told of each newer one that cannot."""
    for path in reversed(checkpoints(folder)):
        try:
            return read_checkpoint(path)
        except (BadFile, OSError) as error:
            refused(_line(error))
    return None


def newest_about(folder: Path) -> dict[str, Any] | None:
    """What the newest checkpoint with a verified manifest is about; its arrays are not read."""
    for path in reversed(checkpoints(folder)):
        with suppress(BadFile, OSError):
            return _read_manifest(path)["about"]
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)) if folder.is_dir() else []


def prune(folder: Path, step: int, last: int, every: int | None) -> None:
    """Of the checkpoints up to `step`, remove all but the `last` newest and those of steps that `every` divides.

    Later ones are of a run that went back before them, because they could not be verified: they push out no other.
    """
    for path in [path for path in checkpoints(folder) if step_of(path) <= step][:-last]:
        if every is None or step_of(path) % every:
            _remove(path)


def sweep(folder: Path) -> None:
    """Remove what interrupted writes and removals left."""
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    aside = path.with_name(f".{path.name}.old.{os.getpid()}")  # so that no half-removed one bears the name
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    return int(path.name.removeprefix("step-"))


def _read_manifest(path: Path) -> dict[str, Any]:
    where = path / MANIFEST
    content = read_json(where, _LARGEST[MANIFEST])
    body = content.get("manifest")
    if set(content) != {"manifest", "sha256"} or not isinstance(body, dict):
        raise BadFile(f"{where}: expected a manifest and its sum, got something else; is it a checkpoint of vages?")
    if body.get("format") != FORMAT:
        raise BadFile(f"{where}: expected format {FORMAT}, got {str(body.get('format'))[:40]}; update vages to read it")
    if content["sha256"] != _digest(body):
        raise BadFile(f"{where}: expected its own SHA-256 sum, got another; it was changed or cut")
    if (problem := _problem(body)) is not None:
        raise BadFile(f"{where}: expected {problem}, got something else; is it a checkpoint of vages?")
    if _NAME.fullmatch(path.name) and step_of(path) != body["step"]:
        raise BadFile(f"{where}: expected step {step_of(path)}, as its folder says, got {body['step']}; was it moved?")
    return body


def _problem(body: dict[str, Any]) -> str | None:
    """What a manifest with a right sum still lacks: a sum proves nothing about who made it."""
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


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
