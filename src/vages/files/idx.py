"""Arrays in the idx format of MNIST: two zeros, a type, the number of dimensions, the sizes, the numbers."""

import math
import struct
from pathlib import Path

import numpy as np

from vages.files.deflate import inflate
from vages.files.errors import BadFile, read_bytes

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """The array that the bytes of an idx file are, in the machine's byte order; `name` is for errors."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES or not 1 <= content[3] <= 8:
        raise BadFile(f"{name}: expected an idx file, got one that begins with {content[:4]!r}; is it the right file?")
    dtype, start = np.dtype(_TYPES[content[2]]), 4 + 4 * content[3]
    if len(content) < start:
        raise BadFile(f"{name}: expected {content[3]} sizes, got {len(content)} bytes in all; get the file again")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected or 0 in shape:
        raise BadFile(
            f"{name}: expected {expected} bytes for an array of shape {list(shape)}, got {len(content)}; "
            "get the file again"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def read_idx(path: Path, limit: int) -> np.ndarray:
    """Read an idx file of at most `limit` bytes, or a .gz file that inflates to no more."""
    content = read_bytes(path, limit)
    if path.suffix == ".gz":
        content = inflate(content, str(path), limit, "gzip")
    return parse_idx(content, str(path))
