"""Checks that data suit the noise: float32 rounds v + σ z by about 1e-7 |v|, and noise hides narrower columns."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from vages.models.noise_conditional import NORMALIZED

MOST = 1e-3  # limit of rounding as a share of the noise; at ten times as much, gradients are off by percents
_ROWS = 1000  # examples that are checked
_FEWEST = 20  # examples of a first batch whose spread is checked; with fewer, it may be small by chance
_COLUMNS = 20  # of a table whose columns are checked; with more, some may be nearly constant, like pixels
_REMEDY = "standardize the data (--standardize, or Training(standardize=True))"


class ScaleWarning(UserWarning):
    """Warning about the scale of the data: rounding is large compared with the noise, or the noise hides a column."""


def scale_problem(objective: Any, v: Any, *, whole: bool = True) -> str | None:
    """Return what is wrong with the scale of examples v (n, …) for an objective's noise, with advice, or None.

    If not `whole`, v is only the first batch of a stream.
    """
    if not hasattr(v, "shape") or not v.size:
        return None
    some = np.asarray(v if len(v) <= _ROWS else v[spread_rows(len(v), _ROWS)])
    if not jnp.issubdtype(some.dtype, jnp.floating):
        return None
    largest = float(np.abs(some).max())
    dtype = jnp.asarray(some[:0]).dtype  # float64 becomes float32 unless jax_enable_x64 is set
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
    """Return indices of rows spread over an array, as multiples of the golden ratio. It may be sorted or periodic."""
    return np.unique((np.arange(most) * ((5**0.5 - 1) / 2) % 1 * rows).astype(np.int64))


def _hidden(rows: np.ndarray, level: float) -> str | None:
    """Return a message about the narrowest column of a table if it is narrower than a third of the noise, or None.

    Noise of one to three times the width of the widest column is taken as intended.
    """
    varies = rows.min(axis=0) != rows.max(axis=0)  # the deviation of a constant is not exactly 0
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
    """Return the smallest standard deviation of an objective's noise, or the width of its kernel; None if unknown."""
    level = getattr(objective, "sigma", getattr(objective, "bandwidth", None))
    if hasattr(objective, "sigma_data"):
        level = NORMALIZED[0] * objective.sigma_data
    level = getattr(level, "begin", level)  # the lowest of a range of levels
    return float(level) if isinstance(level, int | float) and level > 0 else None
