"""The arrays in PyTorch's files of weights: state dictionaries (.pth, old and new) and TorchScript archives (.pt).

Such a file is a pickle and raw numbers. Python's unpickler reads it with lists of what is allowed: instructions that
build plain values, and the names of tensors, which stand for functions made here. No code of the file is run.
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

_LEGACY = [0x1950A86A20F9469CFC6C, 1001]  # how files from before PyTorch 1.6 begin
_TYPES = {"Double": "<f8", "Float": "<f4", "Half": "<f2", "Long": "<i8", "Int": "<i4", "Short": "<i2", "Byte": "<u1"}
_INSTRUCTIONS = (
    " PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
    "EMPTY_TUPLE EMPTY_LIST EMPTY_DICT TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT "
    "MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD BINPERSID "
)
_MAX_STEPS = 60_000  # instructions in a pickle; the FID network's has 25,000


class _Unpickler(pickle.Unpickler):
    """Builds dictionaries of arrays; without storages, it only notes their types."""

    def __init__(self, file: BytesIO, storages: dict[str, bytes] | None, limit: int):
        super().__init__(file)
        self.storages, self.left, self.types = storages, limit, {}

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name. Functions and classes are new each time, so that a pickle cannot change ours."""
        if module == "torch" and (dtype := _TYPES.get(name.removesuffix("Storage"))):
            return dtype
        if module.startswith("__torch__"):
            return type("Module", (dict,), {"__setstate__": dict.update})
        if module == "torch.jit._pickle":
            return lambda *_: None  # lists of numbers
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
        """A copy of some of a storage's numbers."""
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
    """The arrays by their dotted names in the bytes of a PyTorch file, of at most `limit` bytes together.

    `name` is for errors. Values that are not arrays are ignored.
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
    """Five pickles (magic, version, machine, value, keys), then for each key a count and that many numbers."""
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
    """The value of the pickle where the file stands, and the types of its storages by their keys."""
    start, last, memo = file.tell(), "", {}
    for i, (code, argument, _) in enumerate(pickletools.genops(file)):
        wrong = f" {code.name} " not in _INSTRUCTIONS or i > _MAX_STEPS
        if code.name.endswith("GET"):  # a tuple of a tuple twice of a tuple twice … takes years to hash
            wrong |= memo.get(argument, "").startswith("TUPLE")
        elif code.name.endswith(("PUT", "MEMOIZE")):
            position = len(memo) if argument is None else argument
            memo[position], wrong = (
                last,
                wrong or position > _MAX_STEPS,
            )  # the memo is an array
        if wrong:
            raise Unexpected(f"the instruction {code.name}")
        last = code.name
    file.seek(start)
    unpickler = _Unpickler(file, storages, limit)
    return unpickler.load(), unpickler.types


def _arrays(value: Any) -> dict[str, np.ndarray]:
    """All arrays below a value, which may hold itself: the steps and the length of names are limited."""
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
