"""Numbers that an objective or a source of h is made with, checked where they are given."""

import math
from numbers import Real
from typing import Any

import numpy as np


def check_count(name: str, count: Any, least: int, advice: str) -> None:
    """Raise unless it is a whole number, Python's or NumPy's, from `least` on."""
    if not (isinstance(count, int | np.integer) and count >= least):
        raise ValueError(f"{name}: expected at least {least}, a whole number, got {told(count)}; {advice}")


def check_positive(name: str, value: Any, kind: str, advice: str) -> None:
    """Raise unless it is a finite number above 0; `kind` is what it is called."""
    if not (is_finite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite {kind} above 0, got {told(value)}; {advice}")


def is_finite(value: Any) -> bool:
    """Whether it is one finite number, Python's, NumPy's or JAX's."""
    return (isinstance(value, Real) or getattr(value, "shape", None) == ()) and math.isfinite(value)


def told(value: Any) -> str:
    """The value in one line, of an array the beginning."""
    return " ".join(repr(value).split())[:80]
