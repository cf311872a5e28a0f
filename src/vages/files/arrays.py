"""Arrays of numbers in .npy, .npz, idx, .mat and CIFAR10 files. Declared sizes are checked; nothing is unpickled."""

import io
import math
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vages.files.archives import inflate, zip_members
from vages.files.errors import BadFile, read_bytes, reading
from vages.files.limits import MAX_ARRAYS

_IDX = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR10 = 1 + 3 * 32 * 32  # bytes of a label and the red, green and blue planes
_MAT_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_MAT_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15


def parse_npy(content: bytes, name: str, limit: int) -> np.ndarray:
    """The array of real numbers in the bytes of a .npy file, of at most `limit` bytes; `name` is for errors."""
    file = io.BytesIO(content)
    with reading(name, "a .npy file by numpy.save"), warnings.catch_warnings(action="error"):
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        if dtype.hasobject or dtype.kind not in "biuf" or dtype.itemsize > 8:
            kind = "pickled objects" if dtype.hasobject else f"the dtype {dtype.str!r}"
            hint = "save the real and the imaginary part as two features" if dtype.kind == "c" else "save numbers"
            raise BadFile(f"{name}: expected real numbers of at most 8 bytes, got {kind}; {hint}")
        # An empty array may have any sizes beside its 0, and NumPy multiplies those.
        if min(shape, default=0) < 0 or math.prod(n or 1 for n in shape) * dtype.itemsize > limit:
            raise BadFile(f"{name}: expected at most {limit} bytes, got {dtype}{list(shape)}; is it the right file?")
        size, got = math.prod(shape) * dtype.itemsize, len(content) - file.tell()
        if got != size:
            raise BadFile(f"{name}: expected {size} bytes for {dtype}{list(shape)}, got {got}; save it again")
        array = np.load(io.BytesIO(content), allow_pickle=False)
    if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise BadFile(f"{name}: expected booleans, got bytes that are neither 0 nor 1; save it again with numpy.save")
    return array


def read_npy(path: Path, limit: int) -> np.ndarray:
    """Read a .npy file whose array has at most `limit` bytes."""
    return parse_npy(read_bytes(path, limit + 2**16), str(path), limit)


def parse_npz(content: bytes, name: str, limit: int) -> dict[str, np.ndarray]:
    """The arrays by name in the bytes of a .npz file, of at most `limit` bytes together; `name` is for errors."""
    arrays = {}
    for member, array in zip_members(io.BytesIO(content), name, limit, MAX_ARRAYS):
        if not member.endswith(".npy"):
            raise BadFile(f"{name}: expected arrays alone, got the file {member!r} among them; use numpy.savez")
        arrays[member.removesuffix(".npy")] = parse_npy(array, f"{name}, array {member[:-4]!r}", limit)
    return arrays


def read_npz(path: Path, limit: int) -> dict[str, np.ndarray]:
    """Read a .npz file whose arrays have at most `limit` bytes together."""
    return parse_npz(read_bytes(path, limit + 2**20), str(path), limit)


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """The array in the bytes of an idx file, MNIST's format: a type, the sizes, big-endian numbers."""
    dims = content[3] if len(content) > 3 else 0
    start = 4 + 4 * dims
    if (
        content[:2] != b"\0\0"
        or content[2:3] not in map(bytes, zip(_IDX))
        or not 1 <= dims <= 8
        or len(content) < start
    ):
        raise BadFile(f"{name}: expected an idx file, got one that begins with {content[:4]!r}; is it the right file?")
    dtype, shape = np.dtype(_IDX[content[2]]), struct.unpack_from(f">{dims}I", content, 4)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected or 0 in shape:
        raise BadFile(
            f"{name}: expected {expected} bytes for an array of shape {list(shape)}, got {len(content)}; "
            "get the file again"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def parse_cifar10(content: bytes, name: str) -> tuple[UInt8[np.ndarray, "n 3 32 32"], UInt8[np.ndarray, "n"]]:
    """The images and the labels 0 to 9 in the bytes of one of CIFAR10's binary files; `name` is for errors."""
    if not content or len(content) % _CIFAR10:
        raise BadFile(f"{name}: expected records of {_CIFAR10} bytes, got {len(content)} bytes; get the file again")
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR10)
    labels = records[:, 0]
    if labels.max() > 9:
        row = int(labels.argmax())
        raise BadFile(f"{name}: expected labels 0 to 9, got {labels[row]} in record {row}; is it the right file?")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def parse_mat(content: bytes, name: str, variable: str, limit: int) -> np.ndarray:
    """The real array `variable` in the bytes of a MATLAB file of version 5 to 7, of at most `limit` bytes.

    Compressed arrays may inflate to `limit` bytes and their headers, all together. `scipy.io.loadmat` is not used: it
    inflates without a limit, and a number that it does not expect makes it crash the process.
    """
    order = {b"\0\1IM": "<", b"\1\0MI": ">"}.get(content[124:128])
    if order is None:
        found = "one of version 7.3 (HDF5)" if content[124:128] in (b"\0\2IM", b"\2\0MI") else f"{content[:20]!r}"
        raise BadFile(f"{name}: expected a MATLAB file of version 5 to 7, got {found}; save it with -v7")
    arrays, left = [], limit + 1024
    with reading(name, f"a MATLAB file with one real array {variable!r} of at most {limit} bytes"):
        for kind, data in _mat_elements(memoryview(content)[128:], order):
            if kind == _COMPRESSED:
                inflated = inflate(data, name, left)
                left -= len(inflated)
                ((kind, data),) = _mat_elements(memoryview(inflated), order)
            parts = _mat_elements(data, order)
            (_, flags), (_, sizes), (_, title) = next(parts), next(parts), next(parts)
            if kind != _MATRIX or bytes(title) != variable.encode():
                continue
            (cls, _), shape = struct.unpack(f"{order}II", flags), struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
            ((kind, numbers),) = parts  # a complex array has another part
            # MATLAB stores small whole numbers of any class in fewer bytes.
            dtype, stored = (
                np.dtype(_MAT_CLASSES.get(cls & 0x8FF, "V1")),
                np.dtype(order + _MAT_TYPES.get(kind, "V2")),
            )
            if min(shape) < 1 or math.prod(shape) * dtype.itemsize > limit or not np.can_cast(stored, dtype):
                raise ValueError(f"class {cls & 0x8FF}, type {kind} and shape {list(shape)}")
            arrays.append(np.frombuffer(numbers, stored).reshape(shape, order="F").astype(dtype))
        if len(arrays) != 1:
            raise ValueError(f"{len(arrays)} arrays of that name")
    return arrays[0]


def _mat_elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Types and contents of the elements that follow each other in a MATLAB file or in an element of it."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start, at = at + 8, at + 8 + size + (0 if kind == _COMPRESSED else -size % 8)
        if kind >> 16:  # a small one: type, size and contents in 8 bytes
            kind, size, start, at = kind & 0xFFFF, min(kind >> 16, 4), start - 4, start
        if at > len(data):
            raise ValueError("an element that is cut short")
        yield kind, data[start : start + size]
