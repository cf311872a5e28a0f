"""Tables of numbers in .csv files: commas between the numbers, an example in each line, the first line may be names."""

import re
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from vages.storage.errors import BadFile, read_bytes

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def parse_csv(content: bytes, name: str) -> Float64[np.ndarray, "rows columns"]:
    """The numbers in the bytes of a .csv file; `name` is for errors. Empty lines are passed over."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadFile(f"{name}: expected a text of numbers and commas, got other bytes; save it as CSV") from None
    rows: list[np.ndarray] = []
    width = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        wrong = next((cell for cell in cells if not _NUMBER.fullmatch(cell)), None)
        if width is None:
            width = len(cells)
            if wrong is not None and not any(map(_NUMBER.fullmatch, cells)):  # the names of the columns
                continue
        if wrong is not None:
            raise BadFile(f"{name}: expected numbers, got {wrong[:40]!r} in line {number}; clean or remove the line")
        if len(cells) != width:
            raise BadFile(f"{name}: expected {width} numbers in each line, got {len(cells)} in line {number}; mend it")
        rows.append(np.array(cells, np.float64))
    if not rows:
        raise BadFile(f"{name}: expected lines of numbers, got none; is it the right file?")
    return np.stack(rows)


def read_csv(path: Path, limit: int) -> Float64[np.ndarray, "rows columns"]:
    """Read a .csv file of at most `limit` bytes."""
    return parse_csv(read_bytes(path, limit), str(path))
