"""A table of numbers with their standard errors and meanings, as a picture."""

import math
import textwrap
from typing import Any

from matplotlib.figure import Figure


def assessment_figure(rows: list[dict[str, Any]], title: str | None = None) -> Figure:
    """Draw a table with one line for each row, a dictionary with name, value, standard_error and means."""
    wrapped = [(textwrap.wrap(row["name"], 26), textwrap.wrap(row["means"], 64)) for row in rows]
    heights = [max(1, *map(len, both)) + 0.6 for both in wrapped]  # in lines
    count = sum(heights)
    figure = Figure(figsize=(9.0, 0.7 + 0.21 * count), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(count, 0)
    if title is not None:
        axes.set_title(title, loc="left", fontsize=11)
    at = 0.5
    for row, (name, said), height in zip(rows, wrapped, heights, strict=True):
        axes.text(0.0, at, "\n".join(name), fontsize=9, va="top", weight="bold")
        told = number_with_error(row["value"], row["standard_error"])
        axes.text(0.43, at, told, fontsize=9, va="top", ha="right", family="monospace")
        axes.text(0.46, at, "\n".join(said), fontsize=8.5, va="top", color="0.25")
        at += height
    return figure


def number_with_error(value: float | None, error: float | None) -> str:
    """Format a number, ± its standard error if it has one."""
    if value is None:
        return "none"
    if not math.isfinite(value):
        return "not finite"
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
