"""NumPy's .npy files of real numbers. The header, a literal of Python, is matched and never evaluated."""

import math
import re
import struct
from pathlib import Path

import numpy as np

from vages.files.errors import BadFile, read_bytes

_MAX_HEADER = 10_000
_PAIR = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>descr|fortran_order|shape)(?P=quote)\s*:\s*"""
    r"""(?P<value>'[^']*'|"[^"]*"|\[[^\0]*\]|True|False|\([0-9,\s]*\))\s*(?:,|$)"""
)
_REAL = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_OBJECT = re.compile(r"""['"]\|?O\d*['"]""")


def parse_npy(content: bytes | memoryview, name: str, limit: int) -> np.ndarray:
    """The array that the bytes of a .npy file are, of at most `limit` bytes; `name` is for errors.

    The numbers are real (booleans, integers, floats) and fill the rest of the bytes exactly.
    """
    header, start = _header(content, name)
    descr, fortran, shape = _fields(header, name)
    if _OBJECT.search(descr):
        raise BadFile(f"{name}: expected numbers, got pickled objects (dtype {descr:.80}); save numbers")
    if not _REAL.fullmatch(descr[1:-1]):
        hint = "save the real and the imaginary part as two features" if descr[2:3] == "c" else "save numbers"
        raise BadFile(f"{name}: expected real numbers, got the dtype {descr:.80}; {hint}")
    dtype, size = np.dtype(descr[1:-1]), math.prod(shape)
    # An empty array may have any sizes beside its 0, and NumPy multiplies those.
    if math.prod(n or 1 for n in shape) * dtype.itemsize > limit:
        raise BadFile(f"{name}: expected at most {limit} bytes, got {dtype}{list(shape)}; is it the right file?")
    if len(content) - start != size * dtype.itemsize:
        raise BadFile(
            f"{name}: expected {size * dtype.itemsize} bytes for {dtype}{list(shape)}, got {len(content) - start}; "
            "save it again with numpy.save"
        )
    array = np.frombuffer(content, dtype, size, start) if size else np.zeros(0, dtype)
    if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise BadFile(f"{name}: expected booleans, got bytes that are neither 0 nor 1; save it again with numpy.save")
    return array.reshape(shape, order="F" if fortran else "C")


def read_npy(path: Path, limit: int) -> np.ndarray:
    """Read a .npy file whose array has at most `limit` bytes."""
    return parse_npy(read_bytes(path, limit + _MAX_HEADER + 12), str(path), limit)


def _header(content: bytes | memoryview, name: str) -> tuple[str, int]:
    """The header's text, and where the numbers begin."""
    magic = bytes(content[:8])
    if magic not in (b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00"):
        raise BadFile(
            f"{name}: expected a NumPy file, got one that begins with {magic!r}; save the array with numpy.save"
        )
    form, at = ("<H", 10) if magic[6] == 1 else ("<I", 12)
    if len(content) < at:
        raise BadFile(
            f"{name}: expected {at} bytes up to the length of the header, got {len(content)}, a file cut short; "
            "save it again with numpy.save"
        )
    (length,) = struct.unpack_from(form, content, 8)
    if length > _MAX_HEADER:
        raise BadFile(
            f"{name}: expected a header of at most {_MAX_HEADER} bytes, got {length}; save it again with numpy.save"
        )
    if at + length > len(content):
        raise BadFile(
            f"{name}: expected a header of {length} bytes, got {len(content) - at}, a file cut short; "
            "save it again with numpy.save"
        )
    return bytes(content[at : at + length]).decode("latin-1"), at + length


def _fields(header: str, name: str) -> tuple[str, bool, tuple[int, ...]]:
    """The dtype as it is written, whether the order is Fortran's, and the shape."""
    text, fields, at = header.strip(), {}, 1
    while pair := _PAIR.match(text[:-1], at):
        if pair["key"] in fields:
            break
        fields[pair["key"]], at = pair["value"], pair.end()
    sizes = [part.strip() for part in fields.get("shape", "")[1:-1].split(",")]
    sizes = sizes[:-1] if sizes[-1] == "" else sizes if len(sizes) > 1 else [""]
    if (
        text[:1] + text[-1:] != "{}"
        or not text.isprintable()  # it is shown in errors
        or text[at:-1].strip()
        or set(fields) != {"descr", "fortran_order", "shape"}
        or fields["descr"][0] not in "'\"["
        or fields["fortran_order"] not in ("True", "False")
        or fields["shape"][0] != "("
        or len(sizes) > 32
        or not all(size.isdecimal() and len(size) < 20 for size in sizes)
    ):
        raise BadFile(f"{name}: expected NumPy's header, got {header[:80]!r}; save it again with numpy.save")
    return fields["descr"], fields["fortran_order"] == "True", tuple(map(int, sizes))
