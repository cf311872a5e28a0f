"""Thins out a curve without changing how it looks: the extremes of every stretch stay."""

import numpy as np
from jaxtyping import Float, Int


def thin(values: Float[np.ndarray, "n columns"], most: int) -> Int[np.ndarray, "kept"]:
    """The rows to keep of several curves over one axis: about `most`, with the ends of each stretch's range in each
    column, the first and the last row, and one row without a number of every stretch that has any, so that a gap
    stays a gap.
    """
    rows, columns = values.shape
    if rows <= most or rows == 0:
        return np.arange(rows)
    buckets = max(most // (2 * columns), 50)
    kept = {0, rows - 1}
    for stretch in np.array_split(np.arange(rows), min(buckets, rows)):
        for column in values[stretch].T:
            finite = np.isfinite(column)
            if finite.any():
                kept.add(int(stretch[np.where(finite, column, np.inf).argmin()]))
                kept.add(int(stretch[np.where(finite, column, -np.inf).argmax()]))
            if not finite.all():
                kept.add(int(stretch[finite.argmin()]))
    return np.array(sorted(kept))
