"""Bounds of numeric settings, declared next to the setting and checked in one place.

width: Annotated[int, Bounds(1, 2**16)] = 128        a field of a dataclass, checked by check_fields(self)
check_bounds(count=(count, Bounds(1, 10**6)))        an argument
"""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Bounds:
    """The range from `low` to `high`, both included. `hint` is appended to the error."""

    low: int | float
    high: int | float
    hint: str = ""

    def problem(self, value: Any, whole: bool) -> str | None:
        """Describe what is wrong with a value: what was expected and what it is. None if nothing is."""
        kind: Any = Integral if whole else Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return f"expected a {'whole ' if whole else ''}number, got {shown(value)}"
        if not value >= self.low and not value > 0:
            least = f"at least {self.low:g}"
            if not whole and self.low >= 0:
                least = "a positive number" if self.low > 0 else "zero or more"
            return f"expected {least}, got {shown(value)}"
        if value == math.inf:
            return f"expected a finite number, got {value}"
        if value < self.low:
            return f"expected at least {self.low:g}, got {shown(value)}"
        if value > self.high:
            most = f"{self.high:,}" if whole else f"{self.high:g}"
            return f"expected at most {most}, got {shown(value)}"
        return None


SCALE = Bounds(1e-12, 1e12)  # positive numbers whose square and inverse fit in float32
MAYBE_SCALE = Bounds(0, 1e12)
ITERATIONS = Bounds(1, 2**31 - 1)  # counted by an int32
MAYBE_ITERATIONS = Bounds(0, 2**31 - 1)
SEED = Bounds(0, 2**32 - 1)  # valid for JAX and NumPy
IMAGES = Bounds(1, 10**6)
SECONDS = Bounds(1, 24 * 60 * 60)  # timeouts
PROCESSES = Bounds(1, 10**5)
MAX_ENUMERATED = 20  # binary latents: 2²⁰ states are summed in seconds, and each further one doubles the time


def check_bounds(**settings: tuple[Any, Bounds]) -> None:
    """Raise ValueError for the first value that is not an integer within its bounds."""
    for name, (value, bounds) in settings.items():
        _check(name, value, bounds, whole=True)


def check_number(name: str, value: Any, bounds: Bounds) -> None:
    """Raise ValueError unless the value is a number within its bounds."""
    _check(name, value, bounds, whole=False)


def check_fields(settings: Any) -> None:
    """Raise ValueError for the first field of a dataclass that is out of the bounds in its annotation."""
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        kind = hints[field.name]
        if get_origin(kind) is not Annotated:
            continue
        inner, bounds = get_args(kind)[:2]
        kinds = get_args(inner) or (inner,)
        value = getattr(settings, field.name)
        if not (value is None and NoneType in kinds):
            _check(field.name, value, bounds, whole=int in kinds)


def shown(value: Any) -> str:
    """Format a value for an error: shortened, with control characters escaped."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


def _check(name: str, value: Any, bounds: Bounds, *, whole: bool) -> None:
    if (problem := bounds.problem(value, whole)) is not None:
        raise ValueError(f"{name}: {problem}" + (f"; {bounds.hint}" if bounds.hint else "; choose another"))
