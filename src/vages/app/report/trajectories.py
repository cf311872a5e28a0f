"""Trajectories of chains from noise to an image, as in the paper's interpolation figure."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from vages.app.report.images import tile

WIDTH = 6.4  # of the images, in inches
Trajectory = Float[np.ndarray, "time chains height width"] | Float[np.ndarray, "time chains channels height width"]


def trajectory_figure(
    trajectory: Trajectory, row_labels: Sequence[str] = (), column_labels: Sequence[str] = (), title: str = ""
) -> Figure:
    """Draw a sampler's `trajectory` with chains in rows and snapshots in columns, with optional labels of both."""
    if trajectory.ndim not in (4, 5):
        raise ValueError(
            "trajectory: expected (time, chains, height, width) or (time, chains, channels, height, width), "
            f"got {trajectory.shape}; reshape its images"
        )
    by_chain = trajectory.swapaxes(0, 1)
    sheet = tile(by_chain.reshape(-1, *by_chain.shape[2:]), columns=len(trajectory))
    times, chains = trajectory.shape[:2]
    for name, labels, number in (("row_labels", row_labels, chains), ("column_labels", column_labels, times)):
        if labels and len(labels) != number:
            raise ValueError(f"{name}: expected {number}, one for each, got {len(labels)}")
    width, height = WIDTH, WIDTH * len(sheet) / sheet.shape[1]
    left = 0.1 + 0.075 * max(map(len, row_labels), default=0)  # inches, for the labels
    bottom, top = 0.25 if column_labels else 0.05, 0.3 if title else 0.05
    whole = np.asarray([left + width + 0.1, bottom + height + top])
    figure = Figure(figsize=tuple(whole))
    axes = figure.add_axes((left / whole[0], bottom / whole[1], width / whole[0], height / whole[1]))
    axes.imshow(sheet, interpolation="nearest", aspect="auto")
    axes.set_title(title, fontsize=10)
    one = (np.asarray(sheet.shape[:2]) + 1) / (chains, times)
    middles = [(np.arange(number) + 0.5) * size - 1 for number, size in zip((chains, times), one, strict=True)]
    axes.set_yticks(middles[0] if row_labels else [], list(row_labels), fontsize=8)
    axes.set_xticks(middles[1] if column_labels else [], list(column_labels), fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
