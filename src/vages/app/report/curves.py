"""Curves: learning curves, and quantities over a grid of settings."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num
from matplotlib.figure import Figure

from vages.app.report.figures import COLORS, MARKERS

LINES = ("-", "--", ":", "-.")


def curves_figure(
    curves: dict[str, tuple[Num[np.ndarray, "n"], Float[np.ndarray, "n seeds"]]],
    y_label: str,
    ceiling: tuple[str, float] | None = None,
    floor: float | None = None,
) -> Figure:
    """Draw one line for each name: the mean over seeds, in a band of one standard deviation.

    `ceiling` is the name and value of a reference line. Early values below `floor` are cut off, so that final values
    can be distinguished.
    """
    figure = Figure(figsize=(6.4 if len(curves) == 1 else 7.6, 4.0), layout="constrained")
    axes = figure.subplots()
    for i, (name, (steps, values)) in enumerate(curves.items()):
        mean, spread = values.mean(1), values.std(1)
        color, line = COLORS[i % len(COLORS)], LINES[i // len(COLORS) % len(LINES)]
        axes.plot(steps, mean, line, color=color, lw=1.6, label=name)
        axes.fill_between(steps, mean - spread, mean + spread, color=color, alpha=0.15, lw=0)
    if ceiling is not None:
        axes.axhline(ceiling[1], color="0.4", lw=1, ls=(0, (1, 3)))
        axes.annotate(ceiling[0], (0, ceiling[1]), xytext=(4, -11), textcoords="offset points", fontsize=9, color="0.3")
    if floor is not None:
        axes.set_ylim(bottom=floor)
    axes.set_xlabel("iteration")
    axes.set_ylabel(y_label)
    axes.set_xlim(0)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


@dataclass(frozen=True)
class GridPanel:
    """A quantity against one setting, with one line for each name."""

    x_label: str
    y_label: str
    lines: dict[str, tuple[np.ndarray, np.ndarray]]


def grid_figure(panels: list[GridPanel], columns: int = 4) -> Figure:
    """Draw all panels with one legend."""
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.6 * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        for i, (name, (x, y)) in enumerate(panel.lines.items()):
            axes.plot(x, y, MARKERS[i] + "-", color=COLORS[i], ms=4, lw=1.4, label=name)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        x = np.asarray(next(iter(panel.lines.values()))[0])
        if len(x) > 1 and np.diff(x).min() > 0.15 * np.ptp(x):  # else their labels would overlap
            axes.set_xticks(x)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure
