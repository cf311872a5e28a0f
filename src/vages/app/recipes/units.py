"""Units of the data, for models that are trained on standardized numbers u = (v − mean) / scale.

Results are converted from u to v: samples are mean + scale · u, and log p(v) = log p(u) − Σ log scale.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Num


@dataclass(frozen=True, eq=False)
class Units:
    """Mean and scale of each coordinate, both of the shape of an example."""

    mean: Float64[np.ndarray, "..."]
    scale: Float64[np.ndarray, "..."]

    @staticmethod
    def of(train: Num[np.ndarray, "n ..."], *, per_seed: bool = False) -> "Units":
        """Return the mean and standard deviation of training examples. A constant coordinate has the scale 1."""
        axes = (0, 1) if per_seed else 0
        exact = np.asarray(train, np.float64)
        first, constant = exact.min(axis=axes), exact.min(axis=axes) == exact.max(axis=axes)
        mean, scale = exact.mean(axis=axes), exact.std(axis=axes)  # rounding takes a constant's from 0
        return Units(np.where(constant, first, mean), np.where(constant | (scale == 0), 1.0, scale))

    def standardized(self, v: Num[np.ndarray, "*n"]) -> Float32[np.ndarray, "*n"]:
        """Convert examples from the data's units to the model's."""
        return ((np.asarray(v, np.float64) - self.mean) / self.scale).astype(np.float32)

    def restored(self, u: Float[np.ndarray, "*n"]) -> Float64[np.ndarray, "*n"]:
        """Convert examples from the model's units to the data's."""
        return self.mean + self.scale * np.asarray(u, np.float64)

    @property
    def log_volume(self) -> float:
        """Σ log scale, which is log p(u) − log p(v)."""
        return float(np.log(self.scale).sum())

    def plain(self) -> dict[str, Any]:
        """Return plain values for config.json."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @staticmethod
    def parse(plain: Any, name: str) -> "Units":
        """Invert `plain`. `name` is the name of the file, for the error."""
        try:
            mean, scale = (np.asarray(plain[part], np.float64) for part in ("mean", "scale"))
            good = mean.shape == scale.shape and np.isfinite(mean).all() and np.isfinite(scale).all()
            good = good and bool((scale > 0).all()) and math.prod(mean.shape) > 0
        except (TypeError, ValueError, KeyError):
            good, mean, scale = False, None, None
        if not good or mean is None or scale is None:
            raise ValueError(
                f"{name}: expected units, a mean and a scale of each coordinate, got others; was it edited?"
            )
        return Units(mean, scale)


def standardized(units: Units | None, v: Any) -> Float32[np.ndarray, "..."]:
    """Convert numbers from the data's units to the model's, as float32; without units, only round them."""
    return np.asarray(v, np.float32) if units is None else units.standardized(np.asarray(v))


def in_units(units: Units | None, u: Any) -> Any:
    """Convert numbers from the model's units to the data's; without units, return them unchanged."""
    return u if units is None else units.restored(np.asarray(u))
