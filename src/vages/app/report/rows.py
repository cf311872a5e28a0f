"""Figures of examples that are not images: points, pairs of coordinates, or heat maps."""

from itertools import pairwise

import numpy as np
from jaxtyping import Float, Num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vages.app.report.figures import COLORS

_MOST = 6  # coordinates in a pair plot
_POINTS = 2000  # of each set


def rows_figure(sets: dict[str, Num[np.ndarray, "n d"]], title: str = "") -> Figure:
    """Draw each set in one color: points on the plane, or a pair plot of the first coordinates with histograms."""
    figure = _rows_figure(sets)
    if title:
        figure.suptitle(title, fontsize=8, wrap=True)
    return figure


def _rows_figure(sets: dict[str, Num[np.ndarray, "n d"]]) -> Figure:
    sets = {name: np.asarray(rows, np.float64)[:_POINTS] for name, rows in sets.items()}
    size = next(iter(sets.values())).shape[1]
    shown = min(size, _MOST)
    if shown == 2:
        return _plane(sets)
    side = 2.6 if shown == 1 else 1.5
    figure = Figure(figsize=(max(side * shown, 3.4), max(side * shown, 2.6) + 0.4), layout="constrained")
    panels = figure.subplots(shown, shown, squeeze=False)
    for row in range(shown):
        for column in range(shown):
            axes = panels[row, column]
            if column > row:
                axes.set_axis_off()
                continue
            for (name, points), color in zip(sets.items(), COLORS, strict=False):
                if row == column:
                    axes.hist(_finite(points[:, row]), bins=40, density=True, histtype="step", color=color, label=name)
                else:
                    axes.plot(points[:, column], points[:, row], ".", ms=1.2, alpha=0.4, color=color)
            axes.tick_params(labelsize=6)
            if row == shown - 1:
                axes.set_xlabel(f"v[{column}]", fontsize=8)
            if column == 0 and row:
                axes.set_ylabel(f"v[{row}]", fontsize=8)
    more = f", the first {shown} of {size} coordinates" if size > shown else ""
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", fontsize=8, title=more.removeprefix(", ") or None)
    return figure


def walk_rows_figure(
    rows: Float[np.ndarray, "n d"], labels: list[str], data: Num[np.ndarray, "m d"], title: str = ""
) -> Figure:
    """Draw the points of a walk: on the plane over the data, or as rows of a heat map over the coordinates."""
    figure = _walk_rows_figure(rows, labels, data)
    if title:
        figure.suptitle(title, fontsize=8, wrap=True)
    return figure


def _walk_rows_figure(rows: np.ndarray, labels: list[str], data: np.ndarray) -> Figure:
    if rows.shape[1] == 2:
        figure = _plane({"data": np.asarray(data, np.float64)[:_POINTS]})
        axes = figure.axes[0]
        for one, other in pairwise(rows):
            axes.annotate("", other, one, arrowprops={"arrowstyle": "->", "color": COLORS[1], "lw": 1.2})
        axes.plot(rows[:, 0], rows[:, 1], "o", ms=4, color=COLORS[1])
        for label, (x, y) in list(zip(labels, rows, strict=True))[:: max(1, len(rows) - 1)]:
            axes.annotate(label, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8)
        return figure
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(rows, aspect="auto", cmap="viridis", interpolation="nearest")
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xlabel("number of the coordinate of v", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(picture, ax=axes)
    return figure


def _plane(sets: dict[str, np.ndarray]) -> Figure:
    figure = Figure(figsize=(3.4 * len(sets), 3.4), layout="constrained")
    together = np.concatenate([_finite(points) for points in sets.values()])
    low, high = np.percentile(together, (0.5, 99.5), axis=0) if len(together) else (np.zeros(2), np.ones(2))
    margin = 0.1 * np.maximum(high - low, 1e-9)
    for axes, (title, points), color in zip(
        figure.subplots(1, len(sets), squeeze=False)[0], sets.items(), COLORS, strict=False
    ):
        axes.plot(points[:, 0], points[:, 1], ".", ms=1.5, alpha=0.5, color=color)
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("v[0]", fontsize=8)
        axes.set_ylabel("v[1]", fontsize=8)
    return figure


def _finite(points: np.ndarray) -> np.ndarray:
    return points[np.isfinite(points).reshape(len(points), -1).all(axis=1)]
