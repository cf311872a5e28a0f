"""Thin out a curve without changing its appearance: the extremes of every interval are kept."""

import numpy as np
from jaxtyping import Float, Int


def thin(values: Float[np.ndarray, "n columns"], most: int) -> Int[np.ndarray, "kept"]:
    """Return about `most` rows to keep of several curves over one axis.

    These are the first and the last row, the extremes of each column in every interval, and one non-finite row of every
    interval that has any, so that gaps remain.
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
