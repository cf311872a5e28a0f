"""The log of a run as panels of curves."""

from typing import Any

import numpy as np

from vages.app.report.page.markup import as_float, is_number
from vages.app.report.page.svg_curves import Line, Panel

_FIRST = ("log_likelihood", "fid", "loss", "divergence", "gradient_norm")  # the order of interest
_ASIDE = ("step", "seconds")
_MOST = 24  # panels
_SEEDS = 1000  # seeds in each
_NAME = 100  # characters of a name


def metric_panels(rows: list[dict[str, Any]], ceilings: dict[str, tuple[str, float]]) -> list[Panel]:
    """Return a panel for each logged quantity, a number or a list over seeds; `ceilings` are by quantity."""
    rows = [row for row in rows if np.isfinite(as_float(row.get("step")))]
    rows = sorted({as_float(row["step"]): row for row in rows}.values(), key=lambda row: as_float(row["step"]))
    names = dict.fromkeys(name for row in rows for name, x in row.items() if name not in _ASIDE and _is_curve(x))
    panels = []
    for name in sorted(names, key=_interest)[:_MOST]:
        own = [row for row in rows if _is_curve(row.get(name, "")) or (name in row and row[name] is None)]
        seeds = max(len(x) if isinstance(x := row[name], list) else 1 for row in own)
        values = np.full((len(own), min(seeds, _SEEDS)), np.nan)
        for i, row in enumerate(own):
            several = row[name][:_SEEDS] if isinstance(row[name], list) else [row[name]]
            values[i, : len(several)] = _floats(several)
        line = Line(name[:_NAME], np.array([as_float(row["step"]) for row in own]), values)
        panels.append(Panel(name[:_NAME].replace("_", " "), "iteration", (line,), ceilings.get(name)))
    return panels


def measured_panels(measurements: Any) -> list[Panel]:
    """Return a panel of the curves of an experiment: named objects with `steps` and a `curve` of the same length."""
    found = measurements.items() if isinstance(measurements, dict) else ()
    lines = tuple(
        Line(
            name[:_NAME], np.array([as_float(x) for x in one["steps"]]), np.array([[as_float(y)] for y in one["curve"]])
        )
        for name, one in found
        if isinstance(one, dict)
        and isinstance(one.get("steps"), list)
        and isinstance(one.get("curve"), list)
        and len(one["steps"]) == len(one["curve"]) > 0
        and all(np.isfinite(as_float(x)) for x in one["steps"])
    )
    return [Panel("measured curves", "iteration", lines[:_MOST])] if lines else []


def _is_curve(x: object) -> bool:
    return is_number(x) or (isinstance(x, list) and len(x) > 0 and {int, float, type(None)}.issuperset(map(type, x)))


def _floats(several: list[Any]) -> np.ndarray:
    try:
        return np.array(several, float)  # None becomes NaN
    except OverflowError:
        return np.array([as_float(x) for x in several])


def _interest(name: str) -> int:
    return next((i for i, known in enumerate(_FIRST) if known in name), len(_FIRST))
