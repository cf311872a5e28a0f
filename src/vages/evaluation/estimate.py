"""A mean over examples with its standard error."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float


class Estimate(NamedTuple):
    """A mean over examples and its standard error."""

    mean: float
    error: float

    @staticmethod
    def of(values: Float[Array | np.ndarray, "examples"]) -> "Estimate":
        """Return the estimate from independent values, in float64. A single value has an infinite error."""
        exact = np.asarray(values, np.float64)
        error = exact.std(ddof=1) / math.sqrt(len(exact)) if len(exact) > 1 else math.inf
        return Estimate(float(exact.mean()), float(error))
