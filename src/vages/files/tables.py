"""Tables of numbers in .csv files: one example per line, separated by commas, with an optional first line of names.

A first line of missing values (nan, NA, empty) is not taken for names, and is refused as in any other line. A first
line 0, 1, 2, … is refused too, as pandas gives such names to columns, unless the other lines are whole numbers in the
same range.
"""

import re
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from vages.storage.errors import BadFile, read_bytes

_MISSING = ("", "nan", "na", "n/a", "null", "none", "nat", "inf", "infinity")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def parse_csv(content: bytes, name: str) -> Float64[np.ndarray, "rows columns"]:
    """Parse the numbers in the bytes of a .csv file. Empty lines are skipped. `name` is for errors."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadFile(f"{name}: expected a text of numbers and commas, got other bytes; save it as CSV") from None
    rows: list[np.ndarray] = []
    width, named = None, False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        wrong = next((cell for cell in cells if not _NUMBER.fullmatch(cell)), None)
        if width is None:
            width = len(cells)
            if named := _are_names(cells):
                if "" in cells:
                    raise BadFile(
                        f"{name}: expected a name for each column in line {number}, got an empty one; name it, or "
                        "leave the column out if it numbers the lines (index=False in pandas)"
                    )
                continue
        if wrong is not None:
            raise BadFile(f"{name}: expected numbers, got {wrong[:40]!r} in line {number}; clean or remove the line")
        if len(cells) != width:
            raise BadFile(f"{name}: expected {width} numbers in each line, got {len(cells)} in line {number}; fix it")
        rows.append(np.array(cells, np.float64))
    if not rows:
        raise BadFile(f"{name}: expected lines of numbers, got none; is it the right file?")
    table = np.stack(rows)
    if not named and _may_be_numbered(table):
        raise BadFile(
            f"{name}: expected names of columns or an example in the first line, got 0 to {table.shape[1] - 1}, which "
            "may be either; remove the line, or put a line of names above it"
        )
    return table


def _are_names(cells: list[str]) -> bool:
    """Whether a first line has names of columns: no numbers, and not only missing values."""
    if any(map(_NUMBER.fullmatch, cells)):
        return False
    return not all(cell.lstrip("+-").lower() in _MISSING for cell in cells)


def _may_be_numbered(table: Float64[np.ndarray, "rows columns"]) -> bool:
    """Whether the first line is 0, 1, 2, … and the others are not whole numbers in the same range."""
    first, others, width = table[0], table[1:], table.shape[1]
    if not np.array_equal(first, np.arange(width)):
        return False
    whole = others == np.rint(others)
    if width == 1:  # a column of counts may begin with 0
        return len(others) > 0 and not whole.any()
    return not np.all(whole & (others >= 0) & (others < width))


def read_csv(path: Path, limit: int) -> Float64[np.ndarray, "rows columns"]:
    """Read a .csv file of at most `limit` bytes."""
    return parse_csv(read_bytes(path, limit), str(path))
