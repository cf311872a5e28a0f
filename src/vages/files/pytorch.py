"""The arrays in files of PyTorch: state dictionaries (`.pth`, old and new) and TorchScript archives (`.pt`).

Nothing is unpickled (see `pickles`), and no program in an archive is looked at: what comes out are arrays by name.
"""

import math
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vages.files.errors import BadFile, read_bytes
from vages.files.pickles import Call, Instance, Named, Persistent, parse_pickle
from vages.files.zips import zip_members

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of files from before PyTorch 1.6
_TYPES = {
    "torch DoubleStorage": "<f8",
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ShortStorage": "<i2",
    "torch CharStorage": "<i1",
    "torch ByteStorage": "<u1",
}
_TENSOR, _PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
_LISTS = re.compile(r"torch\.jit\._pickle (build_(int|double|bool|tensor)list|restore_type_tag)")
_MAX_MEMBERS, _MAX_ARRAYS, _MAX_NODES, _MAX_DEPTH = 10_000, 10_000, 100_000, 64


class _Storage(NamedTuple):
    dtype: str
    key: str
    size: int


class _Tensor(NamedTuple):
    """Where in a storage an array's numbers lie."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def parse_torch(content: bytes, name: str, limit: int) -> dict[str, np.ndarray]:
    """The arrays by their dotted names that the bytes of a PyTorch file hold, at most `limit` bytes in all.

    `name` is for errors. Values that are not arrays are passed over.
    """
    value, stored = _zipped(content, name, limit) if content[:2] == b"PK" else _legacy(content, name)
    arrays: dict[str, np.ndarray] = {}
    left = limit
    for path, tensor in _tensors(value, name):
        if path in arrays or len(arrays) >= _MAX_ARRAYS:
            raise BadFile(f"{name}: expected each array once, got {path[:80]!r} again, or too many; save it again")
        # an empty array may have any sizes beside its 0, and NumPy multiplies those
        left -= math.prod(size or 1 for size in tensor.shape) * np.dtype(tensor.storage.dtype).itemsize
        if left < 0:
            raise BadFile(f"{name}: expected at most {limit} bytes of arrays, got more; is it the right file?")
        arrays[path] = _array(tensor, stored, f"{name}, array {path[:80]!r}")
    return arrays


def read_torch(path: Path, limit: int) -> dict[str, np.ndarray]:
    """Read the arrays of a PyTorch file, of at most `limit` bytes together."""
    return parse_torch(read_bytes(path, 2 * limit), str(path), limit)


def _allowed(name: str) -> bool:
    known = (*_TYPES, _TENSOR, _PARAMETER, "collections OrderedDict")
    return name in known or name.startswith("__torch__.") or _LISTS.fullmatch(name) is not None


def _zipped(content: bytes, name: str, limit: int) -> tuple[Any, dict[str, memoryview]]:
    """The pickle in an archive, and the bytes of its storages."""
    wanted = lambda member: member.count("/") < 3 and (member.endswith("/data.pkl") or "/data/" in member)
    members = dict(zip_members(BytesIO(content), name, 2 * limit, _MAX_MEMBERS, wanted))
    pickles = [member for member in members if member.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise BadFile(f"{name}: expected one data.pkl in a folder of it, got {len(pickles)}; is it PyTorch's file?")
    root = pickles[0].removesuffix("data.pkl")
    file = BytesIO(members.pop(pickles[0]))
    value = parse_pickle(file, name, _allowed)
    prefix = f"{root}data/"
    return value, {
        key.removeprefix(prefix): memoryview(data) for key, data in members.items() if key.startswith(prefix)
    }


def _legacy(content: bytes, name: str) -> tuple[Any, dict[str, memoryview]]:
    """Five pickles (magic, version, machine, value, keys), then for each key a count and that many numbers."""
    file = BytesIO(content)
    pickled: Callable[[], Any] = lambda: parse_pickle(file, name, _allowed)
    if content[:2] != b"\x80\x02" or pickled() != _MAGIC or pickled() != _VERSION:
        raise BadFile(f"{name}: expected a file of PyTorch, got {content[:8]!r}; is it the right file?")
    machine, value, keys = pickled(), pickled(), pickled()
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise BadFile(f"{name}: expected little-endian numbers, got others; save it again")
    sizes = _storages(value, name)
    if not isinstance(keys, list) or any(type(key) is not str for key in keys) or set(keys) != set(sizes):
        raise BadFile(f"{name}: expected the keys of its storages, got others; get the file again")
    at, stored = file.tell(), {}
    for key in keys:
        count = int.from_bytes(content[at : at + 8], "little")
        end = at + 8 + count * np.dtype(sizes[key].dtype).itemsize
        if key in stored or end > len(content):
            break
        stored[key], at = memoryview(content)[at + 8 : end], end
    if at != len(content) or len(stored) != len(keys):
        raise BadFile(f"{name}: expected its storages to fill the file, got another number of bytes; get it again")
    return value, stored


def _storages(value: Any, name: str) -> dict[str, _Storage]:
    return {tensor.storage.key: tensor.storage for _, tensor in _tensors(value, name)}


def _tensors(value: Any, name: str) -> list[tuple[str, _Tensor]]:
    """All tensors below a value, by their dotted names. A value may hold itself: steps and depth are counted."""
    found, left, level = [], _MAX_NODES, [("", value)]
    for _ in range(_MAX_DEPTH):
        inner = []
        for path, item in level:
            item = item.state if isinstance(item, Instance) else item
            if isinstance(item, Call) and item.function in (_TENSOR, _PARAMETER):
                found.append((path, _tensor(item, name)))
            elif isinstance(item, dict) and (left := left - len(item)) >= 0:
                inner += [(f"{path}.{key}" if path else str(key), below) for key, below in item.items()]
        if not inner and left >= 0:
            return found
        level = inner
    raise BadFile(f"{name}: expected a few arrays by name, got too many or too deep; is it the right file?")


def _tensor(call: Call, name: str) -> _Tensor:
    try:
        if call.function == _PARAMETER:
            call = call.arguments[0]
        storage, offset, shape, strides, *_ = call.arguments
        kind, dtype, key, _, size, *views = storage.key
        tensor = _Tensor(_Storage(_TYPES[dtype.name], key, size), offset, tuple(shape), tuple(strides))
        numbers = (size, offset, *tensor.shape, *tensor.strides)
        right = isinstance(storage, Persistent) and isinstance(dtype, Named) and isinstance(key, str)
        right &= kind == "storage" and all(view is None for view in views)
        right &= len(tensor.shape) == len(tensor.strides) <= 8
        if right and all(type(number) is int and 0 <= number < 2**40 for number in numbers):
            return tensor
    except (AttributeError, TypeError, ValueError, KeyError, IndexError):
        pass
    raise BadFile(f"{name}: expected tensors of numbers in storages of their own, got others; save it again")


def _array(tensor: _Tensor, stored: dict[str, memoryview], name: str) -> np.ndarray:
    """A copy of the numbers, which must lie within the storage."""
    dtype, content = np.dtype(tensor.storage.dtype), stored.get(tensor.storage.key)
    if content is None or len(content) != tensor.storage.size * dtype.itemsize:
        raise BadFile(f"{name}: expected a storage of {tensor.storage.size} numbers, got none; get the file again")
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, dtype)
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    if last >= tensor.storage.size:
        raise BadFile(f"{name}: expected numbers within their storage, got some beyond it; get the file again")
    numbers = np.frombuffer(content, dtype)[tensor.offset :]
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(numbers, tensor.shape, strides).copy()
