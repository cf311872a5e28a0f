"""Axes of a curve: limits, linear or logarithmic scale, and round tick values."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from vages.app.report.page.markup import written

_LARGEST = 1e200
_WIDE = 100.0  # the ratio of largest to smallest above which a scale is logarithmic


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, which are exponents of ten on a logarithmic axis."""

    low: float
    high: float
    log: bool = False

    def place(self, values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return positions of values, from 0 at `low` to 1 at `high`; non-finite values stay non-finite."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.log10(values) if self.log else values
            return (scaled - self.low) / (self.high - self.low)

    def ticks(self, about: int) -> list[tuple[float, str]]:
        """Return round numbers on the axis: positions between 0 and 1, and labels."""
        marks = log_marks(self.low, self.high) if self.log else None
        if marks is None:
            marks = round_marks(self.low, self.high, about)
            named = [(mark, 10**mark if self.log else mark) for mark in marks]
        else:
            named = [(math.log10(mark), mark) for mark in marks]
        span = self.high - self.low
        return [((at - self.low) / span, written(float(value), 3 if self.log else 6)) for at, value in named]


def drawable(values: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Whether values are finite, and so small that their differences are finite too."""
    with np.errstate(invalid="ignore"):
        return np.abs(values) < _LARGEST


def axis_of(values: Float[np.ndarray, "n"], *, margin: float = 0.0, may_log: bool = False) -> Axis:
    """Return an axis for the finite values, with `margin` as a fraction of its length at either end."""
    finite = values[drawable(values)]
    if not len(finite):
        return Axis(0.0, 1.0)
    log = may_log and finite.min() > 0 and finite.max() > _WIDE * finite.min()
    low, high = (float(x) for x in (np.log10([finite.min(), finite.max()]) if log else (finite.min(), finite.max())))
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        low, high = low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)
    room = margin * (high - low)
    return Axis(low - room, high + room, bool(log))


def round_marks(low: float, high: float, about: int) -> list[float]:
    """Return about `about` multiples of 1, 2 or 5 times a power of ten in the range."""
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)] if last - first < 100 else [low, high]


def log_marks(low: float, high: float) -> list[float] | None:
    """Return powers of ten between two exponents, with multiples if there are few; None for fewer than two marks."""
    every = max(1, math.ceil((high - low) / 6))
    factors = (1,) if high - low > 2.2 else (1, 3) if high - low > 1 else (1, 2, 5)
    powers = range(math.floor(low), math.ceil(high) + 1)
    marks = [factor * 10.0**power for power in powers if power % every == 0 for factor in factors]
    inside = [mark for mark in marks if low <= math.log10(mark) <= high]
    return inside if len(inside) >= 2 else None
