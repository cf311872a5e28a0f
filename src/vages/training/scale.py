"""Whether data fit the noise: float32 rounds v + σ z by about 1e-7 |v|; and noise hides what is narrower than it."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from vages.models.noise_conditional import NORMALIZED

MOST = 1e-3  # of rounding, as a share of the noise; at ten times as much, gradients are off by per cents
_ROWS = 1000  # examples that are looked at
_FEWEST = 20  # of a first batch, whose spread is looked at: that of fewer is small by chance
_COLUMNS = 20  # of a table that are looked at one by one; of more, some may be nearly constant, as pixels are
_REMEDY = "standardize the data (--standardize, or Training(standardize=True))"


class ScaleWarning(UserWarning):
    """The data are so large, or the noise so small, that rounding is a share of the noise; or a column is narrower."""


def scale_problem(objective: Any, v: Any, *, whole: bool = True) -> str | None:
    """What is wrong with the scale of examples v (n, …) for the noise of an objective, and what to do; else None.

    Of a stream, v is the first batch, not all of them.
    """
    if not hasattr(v, "shape") or not v.size:
        return None
    some = np.asarray(v if len(v) <= _ROWS else v[spread_rows(len(v), _ROWS)])
    if not jnp.issubdtype(some.dtype, jnp.floating):
        return None
    largest = float(np.abs(some).max())
    dtype = jnp.asarray(some[:0]).dtype  # float32 of float64, unless JAX is told to keep it
    if (level := lowest_noise(objective)) is None:
        return None
    dtype = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)  # 16 bits are widened before the noise
    unit = float(jnp.finfo(dtype).eps) / level
    share = unit * largest
    if MOST < share < np.inf:
        return (
            f"v: expected numbers of at most {MOST / unit:.2g} in {dtype} for noise of {level:g}, got "
            f"{largest:.3g}, whose rounding is {100 * share:.2g} % of the noise and spoils gradients; {_REMEDY}"
        )
    table = some.ndim == 2 and some.shape[1] <= _COLUMNS and np.isfinite(some).all()
    return _hidden(some, level) if table and (whole or len(some) >= _FEWEST) else None


def spread_rows(rows: int, most: int) -> np.ndarray:
    """Numbers of rows all over an array, which may be sorted, or periodic: multiples of the golden ratio."""
    return np.unique((np.arange(most) * ((5**0.5 - 1) / 2) % 1 * rows).astype(np.int64))


def _hidden(rows: np.ndarray, level: float) -> str | None:
    """Of the columns of a table, one that varies by a third of the noise or less, where others vary by more, or none.

    Noise that is about as wide as the widest column is the user's own choice.
    """
    varies = rows.min(axis=0) != rows.max(axis=0)  # a constant's deviation is not 0 but rounded
    widths = rows.astype(np.float64).std(axis=0)
    column = int(np.argmin(np.where(varies, widths, np.inf)))
    widest = widths[varies].max(initial=0.0)
    if not (varies[column] and 3 * widths[column] < level and not widest <= level <= 3 * widest):
        return None
    return (
        f"v: expected columns wider than the lowest noise, {level:.3g}, got a standard deviation of "
        f"{widths[column]:.3g} in column {column}, which the model cannot learn; {_REMEDY}"
    )


def lowest_noise(objective: Any) -> float | None:
    """The smallest standard deviation of the noise of an objective, or the width of its kernel; None where unknown."""
    level = getattr(objective, "sigma", getattr(objective, "bandwidth", None))
    if hasattr(objective, "sigma_data"):
        level = NORMALIZED[0] * objective.sigma_data
    level = getattr(level, "begin", level)  # of a range of levels
    return float(level) if isinstance(level, int | float) and level > 0 else None
