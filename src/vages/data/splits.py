"""Training, validation and test examples."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32


class Splits(NamedTuple):
    """Three sets of examples, one example per row, all of one shape. A set may be empty."""

    train: Float32[np.ndarray, "train ..."]
    validation: Float32[np.ndarray, "validation ..."]
    test: Float32[np.ndarray, "test ..."]


def split(array: np.ndarray, seed: int, validation: float = 0.1, test: float = 0.1) -> Splits:
    """Shuffle the rows of a float32 array by a Generator seeded with `seed`, and split them.

    `validation` and `test` are fractions of the rows, rounded to whole rows; the rest is for training. A fraction of
    0 leaves its set empty; any other set must get at least one row.
    """
    if array.ndim < 1 or array.dtype != np.float32:
        raise ValueError(
            f"split: expected a float32 array of rows, got {array.dtype}{list(array.shape)}; "
            "cast it with astype(np.float32)"
        )
    return Splits(*(array[rows] for rows in split_rows(len(array), seed, validation, test)))


def split_rows(rows: int, seed: int, validation: float = 0.1, test: float = 0.1) -> list[np.ndarray]:
    """Return the indices of the rows that `split` puts in each set.

    With these, an array of bytes can be split before it becomes four times as large in float32.
    """
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise ValueError(
            f"split: expected fractions from 0 that leave rows for training, got validation={validation} and "
            f"test={test}; choose them so that their sum is below 1"
        )
    held_out = round(validation * rows), round(test * rows)
    sizes = (rows - sum(held_out), *held_out)
    if any(size < 1 for size, wanted in zip(sizes, (1, validation, test), strict=True) if wanted):
        raise ValueError(
            f"split: expected a row or more in each set, got {rows} rows, that is "
            f"{sizes[0]} for training, {sizes[1]} for validation and {sizes[2]} for test; add rows, or save an .npz "
            "file with the arrays train, validation and test"
        )
    return np.split(np.random.default_rng(seed).permutation(rows), np.cumsum(sizes)[:2])
