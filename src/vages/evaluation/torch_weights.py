"""Reader of arrays in PyTorch weight files: state dictionaries (.pth, old and new) and TorchScript archives (.pt).

Such a file holds a pickle and raw numbers. Python's unpickler reads it with two allowlists: instructions that build
plain values, and the names of tensor classes, which are replaced by functions of this module. No code of the file is
run.
"""

import math
import pickle
import pickletools
from collections import OrderedDict
from io import BytesIO
from typing import Any

import numpy as np

from vages.files.archives import zip_members
from vages.files.limits import MAX_ARRAYS
from vages.storage.errors import Unexpected, reading

_LEGACY = [0x1950A86A20F9469CFC6C, 1001]  # first two values of files from before PyTorch 1.6
_TYPES = {"Double": "<f8", "Float": "<f4", "Half": "<f2", "Long": "<i8", "Int": "<i4", "Short": "<i2", "Byte": "<u1"}
_INSTRUCTIONS = (
    " PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
    "EMPTY_TUPLE EMPTY_LIST EMPTY_DICT TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT "
    "MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD BINPERSID "
)
_MAX_STEPS = 60_000  # most instructions in a pickle; that of the FID network has 25,000


class _Unpickler(pickle.Unpickler):
    """Unpickler that builds dictionaries of arrays. Without storages, it only records their types."""

    def __init__(self, file: BytesIO, storages: dict[str, bytes] | None, limit: int):
        super().__init__(file)
        self.storages, self.left, self.types = storages, limit, {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the object for a name. Functions and our classes are new each time: a pickle cannot change them."""
        if module == "torch" and (dtype := _TYPES.get(name.removesuffix("Storage"))):
            return dtype
        if module.startswith("__torch__"):
            return type("Module", (dict,), {"__setstate__": dict.update})
        if module == "torch.jit._pickle":
            return lambda *_: None  # functions that build lists of numbers
        match f"{module} {name}":
            case "collections OrderedDict":
                return OrderedDict
            case "torch._utils _rebuild_tensor_v2":
                return lambda *arguments: self.tensor(*arguments)
            case "torch._utils _rebuild_parameter":
                return lambda tensor, *_: tensor if isinstance(tensor, np.ndarray) else None
        raise Unexpected(f"the Python name {f'{module} {name}'[:80]!r}, which is not imported")

    def persistent_load(self, pid: Any) -> np.ndarray | None:
        _, dtype, key, _, size, *_ = pid
        self.types[str(key)] = np.dtype(dtype)
        return None if self.storages is None else np.frombuffer(self.storages[key], dtype, size)

    def tensor(self, numbers: np.ndarray | None, offset: int, shape: Any, strides: Any, *_: Any) -> np.ndarray | None:
        """Return a copy of a strided part of a storage."""
        if numbers is None:
            return None
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if min(offset, *shape, *strides, 0) < 0 or last >= max(numbers.size, 1):
            raise Unexpected("numbers beyond their storage")
        self.left -= math.prod(n or 1 for n in shape) * numbers.itemsize
        if self.left < 0:
            raise Unexpected("more bytes of arrays than the limit")
        steps = [stride * numbers.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(numbers[offset:], shape, steps).copy()


def parse_torch(content: bytes, name: str, limit: int) -> dict[str, np.ndarray]:
    """Parse the arrays of a PyTorch file, by their dotted names, with at most `limit` bytes in total.

    `name` is used in errors. Values that are not arrays are ignored.
    """
    with reading(name, "a file of PyTorch with arrays alone"):
        if content[:2] != b"PK":
            return _legacy(BytesIO(content), limit)
        wanted = lambda member: member.count("/") < 3 and (member.endswith("/data.pkl") or "/data/" in member)
        members = dict(zip_members(BytesIO(content), name, 2 * limit, MAX_ARRAYS, wanted))
        (root,) = (member.removesuffix("data.pkl") for member in members if member.endswith("/data.pkl"))
        storages = {member.removeprefix(f"{root}data/"): data for member, data in members.items()}
        return _arrays(_unpickled(BytesIO(members[f"{root}data.pkl"]), storages, limit)[0])


def _legacy(file: BytesIO, limit: int) -> dict[str, np.ndarray]:
    """Parse five pickles (magic, version, machine, value, keys), then for each key a count and as many numbers."""
    if [_unpickled(file)[0] for _ in _LEGACY] != _LEGACY or _unpickled(file)[0]["little_endian"] is not True:
        raise Unexpected("another beginning")
    start, storages = file.tell(), {}
    (_, types), (keys, _) = _unpickled(file), _unpickled(file)
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        storages[key] = file.read(count * types[key].itemsize)
    if file.read(1) or len(storages) != len(types):
        raise Unexpected("storages that do not fill the file")
    file.seek(start)
    return _arrays(_unpickled(file, storages, limit)[0])


def _unpickled(
    file: BytesIO, storages: dict[str, bytes] | None = None, limit: int = 0
) -> tuple[Any, dict[str, np.dtype]]:
    """Return the value of the pickle at the file's position, and the types of its storages by key."""
    start, last, memo = file.tell(), "", {}
    for i, (code, argument, _) in enumerate(pickletools.genops(file)):
        wrong = f" {code.name} " not in _INSTRUCTIONS or i > _MAX_STEPS
        if code.name.endswith("GET"):  # hashing tuples that repeat nested tuples takes exponential time
            wrong |= memo.get(argument, "").startswith("TUPLE")
        elif code.name.endswith(("PUT", "MEMOIZE")):
            position = len(memo) if argument is None else argument
            memo[position], wrong = (
                last,
                wrong or position > _MAX_STEPS,
            )  # the unpickler's memo is an array of this length
        if wrong:
            raise Unexpected(f"the instruction {code.name}")
        last = code.name
    file.seek(start)
    unpickler = _Unpickler(file, storages, limit)
    return unpickler.load(), unpickler.types


def _arrays(value: Any) -> dict[str, np.ndarray]:
    """Return all arrays nested in a value. It may contain itself, so steps and name lengths are limited."""
    arrays, todo = {}, [("", value)]
    for _ in range(_MAX_STEPS):
        if not todo:
            return arrays
        path, item = todo.pop()
        if isinstance(item, np.ndarray):
            arrays[path] = item
        elif isinstance(item, dict) and len(path) < 1024:
            todo += [(f"{path}.{key}".removeprefix("."), below) for key, below in dict.items(item) if type(key) is str]
    raise Unexpected("too many values")
