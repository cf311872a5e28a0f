"""What a learner consists of, as far as it is plain data, so that a resume with another learner can be noticed.

Classes are recorded by name, and their fields with numbers, strings and booleans. Schedules, optimizers of Optax and
other functions have no description that is the same in every process, and are left out.
"""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from numbers import Real
from types import FunctionType
from typing import Any

import numpy as np

_MOST = 200  # entries
_LONGEST = 200  # characters of a string
_DEEPEST = 8
_SAME = 1e-5  # relative difference of numbers that may come from rounding on another machine


class LearnerWarning(UserWarning):
    """A run is resumed with another learner than before."""


def learner_record(learner: Any) -> dict[str, Any]:
    """Return the plain values of a learner by the path of their fields, for JSON."""
    found = dict(_values("learner", learner, 0))
    if isinstance(learner.objective, FunctionType):
        found["learner.objective"] = _plain(learner.objective.__name__)
    return dict(list(found.items())[:_MOST])


def learner_changes(before: Any, now: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the values that both records have and that differ, as [before, now].

    A field that only one of them has may be new in this version.
    """
    if not isinstance(before, dict):
        return {}
    both = {name.removeprefix("learner."): [before[name], value] for name, value in now.items() if name in before}
    return {name: pair for name, pair in both.items() if not _same(*pair)}


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value) and not isinstance(value, type):
        yield name, _plain(type(value).__name__)
        for one in fields(value):
            if depth < _DEEPEST and not one.name.startswith("_"):
                yield from _values(f"{name}.{one.name}", getattr(value, one.name, None), depth + 1)
    elif isinstance(value, tuple | list):  # an optimizer is a tuple of functions
        if all(map(_is_plain, value)):
            yield name, [_plain(one) for one in value[:_MOST]]
    elif _is_plain(value):
        yield name, _plain(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | np.bool_ | str | Real | type | np.dtype)


def _plain(value: Any) -> Any:
    """Return a value for JSON, where text is ASCII and numbers are finite."""
    if value is None:
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value) if abs(int(value)) < 2**53 else hex(value)[:_LONGEST]
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else repr(float(value))
    text = value if isinstance(value, str) else value.name if isinstance(value, np.dtype) else value.__name__
    return ascii(text)[1:-1][:_LONGEST]


def _same(before: Any, now: Any) -> bool:
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (before, now)]
    if all(numbers):
        return math.isclose(before, now, rel_tol=_SAME)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same, before, now))
    return type(before) is type(now) and before == now
