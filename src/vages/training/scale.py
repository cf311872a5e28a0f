"""Whether float32 can tell data from data with noise: v + σ z is rounded by about 1e-7 |v|."""

from typing import Any

import jax.numpy as jnp
import numpy as np

MOST = 1e-3  # of rounding, as a share of the noise; at ten times as much, gradients are off by per cents
_ROWS = 1000  # examples that are looked at


class ScaleWarning(UserWarning):
    """The data are so large, or the noise so small, that rounding is a share of the noise."""


def scale_problem(objective: Any, v: Any) -> str | None:
    """What is wrong with the scale of examples v (n, …) for the noise of an objective, and what to do; else None."""
    level = lowest_noise(objective)
    if level is None or not hasattr(v, "shape") or not v.size:
        return None
    some = np.asarray(v[:_ROWS])
    if not jnp.issubdtype(some.dtype, jnp.floating):
        return None
    largest = float(np.abs(some).max())
    dtype = some.dtype if some.dtype.itemsize >= 4 else np.dtype(np.float32)  # 16 bits are widened before the noise
    unit = float(jnp.finfo(dtype).eps) / level
    share = unit * largest
    if not MOST < share < np.inf:
        return None
    return (
        f"v: expected numbers of at most {MOST / unit:.2g} in {dtype} for noise of {level:g}, got "
        f"{largest:.3g}, whose rounding is {100 * share:.2g} % of the noise and spoils gradients; "
        "standardize the data (--standardize, or Training(standardize=True))"
    )


def lowest_noise(objective: Any) -> float | None:
    """The smallest standard deviation of the noise of an objective, or the width of its kernel; None where unknown."""
    level = getattr(objective, "sigma", getattr(objective, "bandwidth", None))
    level = getattr(level, "begin", level)  # of a range of levels
    return float(level) if isinstance(level, int | float) and level > 0 else None
