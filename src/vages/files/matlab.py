"""One real array out of a MATLAB file of version 5 (what MATLAB writes from 5 to 7), and nothing else of it.

A file is a header of 128 bytes and elements; an element is a type, a size and data, padded to 8 bytes, or, if the data
have at most 4 bytes, all of it in 8. An array is an element of elements: flags, sizes, name, numbers.
"""

import math
import struct
from pathlib import Path

import numpy as np

from vages.files.deflate import inflate
from vages.files.errors import BadFile, read_bytes

_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x0800


def parse_mat(content: bytes, name: str, variable: str, limit: int) -> np.ndarray:
    """The array called `variable` in a file's bytes, of at most `limit` bytes; `name` is for errors.

    Compressed arrays may inflate to `limit` bytes and their headers, all together.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or struct.unpack_from(f"{order}H", content, 124)[0] != 0x0100:
        raise BadFile(f"{name}: expected a MATLAB file of version 5, got {content[:20]!r}; save it with -v7")
    arrays, at, budget = [], 128, limit + 1024
    while at < len(content):
        kind, data, at = _element(memoryview(content), at, order, name)
        if kind == _COMPRESSED:
            data = memoryview(inflate(data, name, budget, "zlib"))
            budget -= len(data)
            kind, data, end = _element(whole := data, 0, order, name)
            if end != len(whole):
                raise BadFile(f"{name}: expected one array when inflated, got more; save the file again")
        if kind != _MATRIX:
            raise BadFile(f"{name}: expected arrays, got an element of type {kind}; save the file again")
        title, rest, shape, flags = _header(data, order, name)
        if title == variable:
            arrays.append(_numbers(rest, shape, flags, order, f"{name}, array {variable!r}", limit))
    if len(arrays) != 1:
        raise BadFile(f"{name}: expected one array {variable!r}, got {len(arrays)}; is it the right file?")
    return arrays[0]


def read_mat(path: Path, variable: str, limit: int) -> np.ndarray:
    """Read one array of at most `limit` bytes from a file that is little larger."""
    return parse_mat(read_bytes(path, limit + 65_536), str(path), variable, limit)


def _element(data: memoryview, at: int, order: str, name: str) -> tuple[int, memoryview, int]:
    """The type and the data of the element at a position, and the position behind it."""
    if at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16 and kind >> 16 <= 4:
            return kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)], at + 8
        end = at + 8 + size
        padded = end if kind == _COMPRESSED else end + -size % 8
        if padded <= len(data):
            return kind, data[at + 8 : end], padded
    raise BadFile(f"{name}: expected whole elements, got one that is cut short at byte {at}; get the file again")


def _header(data: memoryview, order: str, name: str) -> tuple[str, memoryview, tuple[int, ...], int]:
    """An array's name, the elements that follow it, its shape and its flags."""
    kinds, fields, at = [], [], 0
    for _ in range(3):
        kind, field, at = _element(data, at, order, name)
        kinds.append(kind)
        fields.append(field)
    flags, sizes, title = fields
    if kinds != [_UINT32, _INT32, _INT8] or len(flags) != 8 or len(sizes) % 4 or not 8 <= len(sizes) <= 128:
        raise BadFile(f"{name}: expected an array's flags, sizes and name, got something else; save the file again")
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    return bytes(title).decode("latin-1"), data[at:], shape, struct.unpack(f"{order}II", flags)[0]


def _numbers(data: memoryview, shape: tuple[int, ...], flags: int, order: str, name: str, limit: int) -> np.ndarray:
    if flags & 0xFF not in _CLASSES or flags & _COMPLEX:
        raise BadFile(f"{name}: expected real numbers, got flags {flags:#x} of something else; save it as an array")
    dtype = np.dtype(_CLASSES[flags & 0xFF])
    if min(shape) < 1 or math.prod(shape) * dtype.itemsize > limit:
        raise BadFile(f"{name}: expected 1 to {limit} bytes, got the shape {list(shape)}; is it the right file?")
    kind, numbers, end = _element(data, 0, order, name)
    stored = np.dtype(order + _STORED.get(kind, "V1"))  # MATLAB stores small whole numbers of any class in fewer bytes
    if not np.can_cast(stored, dtype) or len(numbers) != math.prod(shape) * stored.itemsize or end != len(data):
        raise BadFile(
            f"{name}: expected {math.prod(shape)} numbers that fit in {dtype}, got {len(numbers)} bytes of type {kind} "
            f"and {len(data) - end} more; save the file again"
        )
    return np.frombuffer(numbers, stored).astype(dtype).reshape(shape, order="F")
