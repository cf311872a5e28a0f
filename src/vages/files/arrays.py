"""Arrays of numbers in .npy, .npz, idx and CIFAR10 files. Declared sizes are checked; nothing is unpickled."""

import io
import math
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vages.files.archives import zip_members
from vages.files.limits import MAX_ARRAYS
from vages.storage.errors import BadFile, check_file, read_bytes, reading

_HEADER = 10_000  # bytes
_IDX = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR10 = 1 + 3 * 32 * 32  # bytes of a label and the red, green and blue planes


def parse_npy(content: bytes, name: str, limit: int) -> np.ndarray:
    """Parse the array of real numbers in a .npy file, of at most `limit` bytes. `name` is for errors."""
    with reading(name, "a NumPy file"), warnings.catch_warnings(action="error"):
        shape, dtype, start = _declared(content, name)
        if dtype.hasobject or dtype.kind not in "biuf" or dtype.itemsize > 8:
            kind = f"pickled objects (dtype {dtype.str!r})" if dtype.hasobject else f"the dtype {dtype.str!r}"
            hint = "save the real and the imaginary part as two features" if dtype.kind == "c" else "save numbers"
            raise BadFile(f"{name}: expected real numbers, got {kind}; {hint}")
        # An empty array may declare any other sizes besides its 0, and NumPy multiplies them.
        if min(shape, default=0) < 0 or math.prod(n or 1 for n in shape) * dtype.itemsize > limit:
            raise BadFile(f"{name}: expected at most {limit} bytes, got {dtype}{list(shape)}; is it the right file?")
        size, got = math.prod(shape) * dtype.itemsize, len(content) - start
        if got != size:
            raise BadFile(f"{name}: expected {size} bytes for {dtype}{list(shape)}, got {got}; save it again")
        array = np.load(io.BytesIO(content), allow_pickle=False)
    if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise BadFile(f"{name}: expected booleans, got bytes that are neither 0 nor 1; save it again with numpy.save")
    return array


def declared_arrays(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return the shapes and dtypes in the headers of a .npy or .npz file, without reading its arrays."""
    check_file(path)
    with reading(str(path), "a NumPy file"), warnings.catch_warnings(action="error"):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                return {"": _declared(file.read(_HEADER + 12), str(path))[:2]}
        found = {}
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist()[:MAX_ARRAYS]:
                with archive.open(member) as file:
                    name = member.removesuffix(".npy")
                    found[name] = _declared(file.read(_HEADER + 12), f"{path}, array {name!r}")[:2]
        return found


def _declared(content: bytes, name: str) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return the shape and dtype in the header of a .npy file, and the offset of its numbers."""
    file = io.BytesIO(content)
    short = np.lib.format.read_magic(file) == (1, 0)
    length = int.from_bytes(content[8 : 10 if short else 12], "little")
    if length > _HEADER:
        raise BadFile(f"{name}: expected a header of at most {_HEADER} bytes, got {length}; save it with numpy.save")
    header = np.lib.format.read_array_header_1_0 if short else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    return shape, dtype, file.tell()


def read_npy(path: Path, limit: int) -> np.ndarray:
    """Read a .npy file whose array has at most `limit` bytes."""
    return parse_npy(read_bytes(path, limit + 2**16), str(path), limit)


def parse_npz(content: bytes, name: str, limit: int) -> dict[str, np.ndarray]:
    """Parse the arrays of a .npz file by name, of at most `limit` bytes in total. `name` is for errors."""
    arrays = {}
    for member, array in zip_members(io.BytesIO(content), name, limit, MAX_ARRAYS):
        if not member.endswith(".npy"):
            raise BadFile(f"{name}: expected arrays alone, got the file {member!r} among them; use numpy.savez")
        arrays[member.removesuffix(".npy")] = parse_npy(array, f"{name}, array {member[:-4]!r}", limit)
    return arrays


def read_npz(path: Path, limit: int) -> dict[str, np.ndarray]:
    """Read a .npz file whose arrays have at most `limit` bytes in total."""
    return parse_npz(read_bytes(path, limit + 2**20), str(path), limit)


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """Parse the array in an idx file, the format of MNIST: a type, the sizes, big-endian numbers."""
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
    """Parse the images and the labels 0 to 9 in one of CIFAR10's binary files. `name` is for errors."""
    if not content or len(content) % _CIFAR10:
        raise BadFile(f"{name}: expected records of {_CIFAR10} bytes, got {len(content)} bytes; get the file again")
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR10)
    labels = records[:, 0]
    if labels.max() > 9:
        row = int(labels.argmax())
        raise BadFile(f"{name}: expected labels 0 to 9, got {labels[row]} in record {row}; is it the right file?")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels
