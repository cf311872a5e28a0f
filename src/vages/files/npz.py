"""NumPy's .npz files: zip archives of .npy files."""

import io
from pathlib import Path

import numpy as np

from vages.files.errors import BadFile, check_file
from vages.files.npy import parse_npy
from vages.files.zips import zip_members

_MAX_ARRAYS = 10_000


def parse_npz(content: bytes, name: str, limit: int) -> dict[str, np.ndarray]:
    """The arrays by name that the bytes of a .npz file hold, at most `limit` bytes in all; `name` is for errors."""
    return _arrays(io.BytesIO(content), name, limit)


def read_npz(path: Path, limit: int) -> dict[str, np.ndarray]:
    """Read the arrays of a .npz file, of at most `limit` bytes together."""
    check_file(path)
    with path.open("rb") as file:
        return _arrays(file, str(path), limit)


def _arrays(file: io.BufferedIOBase, name: str, limit: int) -> dict[str, np.ndarray]:
    arrays = {}
    for member, content in zip_members(file, name, limit, _MAX_ARRAYS):
        if not member.endswith(".npy"):
            raise BadFile(f"{name}: expected arrays alone, got the file {member!r} among them; use numpy.savez")
        arrays[member.removesuffix(".npy")] = parse_npy(content, f"{name}, array {member[:-4]!r}", limit)
    return arrays
