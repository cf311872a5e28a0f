"""Figures of results. Each function returns a matplotlib Figure and touches no global state."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # colorblind-safe
MARKERS = ("o", "^", "s", "D", "v", "P", "X")


@dataclass(frozen=True)
class Series:
    """Points, and the slope of the line through the origin that fits them."""

    name: str
    x: np.ndarray
    y: np.ndarray
    slope: float


def proportionality_figure(panels: dict[str, tuple[str, list[Series]]], y_label: str) -> Figure:
    """Draw one panel for each title: points over fitted lines through the origin, with one axis for each series."""
    figure = Figure(figsize=(4.4 * len(panels), 3.4), layout="constrained")
    for axes, (title, (x_label, series)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        axes.set_title(title, fontsize=11)
        axes.set_xlabel(x_label)
        for i, one in enumerate(series):
            side = axes if i == 0 else axes.twinx()
            ends = np.array([0.0, one.x.max()])
            side.plot(ends, one.slope * ends, color=COLORS[i], alpha=0.45, lw=1.5)
            side.plot(one.x, one.y, MARKERS[i], color=COLORS[i], ms=4, label=one.name)
            side.set_ylabel(f"{y_label} of {one.name}", color=COLORS[i])
            side.tick_params(axis="y", colors=COLORS[i])
            side.set_xlim(0)
            side.set_ylim(0, (1.05 + 0.55 * i) * one.y.max())  # so that the series do not overlap
            side.spines["top"].set_visible(False)
    return figure
