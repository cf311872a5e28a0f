"""Pictures of densities and samples."""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.figure import Figure

from vages.app.report.images import png_bytes

Extent = tuple[float, float, float, float]
_LONGEST = 4.0  # largest ratio of the sides


def density_figure(densities: dict[str, Float[np.ndarray, "y x"]], extent: Extent) -> Figure:
    """Draw one panel for each density on the plane (rows from the bottom up), with a common color scale."""
    columns = min(4, len(densities))
    rows = math.ceil(len(densities) / columns)
    figure = Figure(figsize=(2.4 * columns, 2.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    brightest = max(float(np.percentile(density, 99.5)) for density in densities.values())
    for axes, (title, density) in zip(panels, densities.items(), strict=False):
        axes.imshow(
            density,
            extent=extent,
            origin="lower",
            cmap="magma",
            vmin=0,
            vmax=brightest,
            interpolation="nearest",
            aspect=_aspect(extent),
        )
        axes.set_title(title, fontsize=10)
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_axis_on() if axes.has_data() else axes.set_axis_off()
    return figure


def density_png(density: Float[np.ndarray, "y x"]) -> bytes:
    """Return one density on the plane (rows from the bottom up) as a small PNG file, with its own color scale."""
    brightest = max(float(np.percentile(density, 99.5)), np.finfo(np.float64).tiny)
    return png_bytes(colormaps["magma"](np.clip(density[::-1] / brightest, 0, 1))[..., :3], scale=3)


def scatter_figure(sets: dict[str, Float[np.ndarray, "n 2"]], extent: Extent) -> Figure:
    """Draw one panel for each set of points on the plane."""
    figure = Figure(figsize=(3.2 * len(sets), 3.4), layout="constrained")
    for axes, (title, points) in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets.items(), strict=True):
        axes.plot(points[:, 0], points[:, 1], ".", ms=1.5, alpha=0.5, color="#0072B2")
        axes.set_xlim(extent[:2])
        axes.set_ylim(extent[2:])
        axes.set_aspect(_aspect(extent))
        axes.set_title(title, fontsize=10)
    return figure


def _aspect(extent: Extent) -> Literal["equal", "auto"]:
    """Return an equal aspect, unless the picture would be too narrow."""
    left, right, bottom, top = extent
    return "equal" if 1 / _LONGEST < (right - left) / (top - bottom) < _LONGEST else "auto"


def grid_points(extent: Extent, resolution: int = 200) -> Float[np.ndarray, "points 2"]:
    """Return the centers of a grid of cells over the extent, row by row from the bottom, for `density_figure`."""
    left, right, bottom, top = extent
    centers = (np.arange(resolution) + 0.5) / resolution
    x, y = np.meshgrid(left + (right - left) * centers, bottom + (top - bottom) * centers)
    return np.stack([x, y], -1).reshape(-1, 2)
