"""Pictures of results. Every function takes plain arrays and returns a matplotlib Figure."""

from vages.report.curves import GridPanel, curves_figure, grid_figure
from vages.report.figures import COLOURS, MARKERS, Series, proportionality_figure
from vages.report.pictures import Extent, density_figure, grid_points, image_grid, scatter_figure

__all__ = [
    "COLOURS",
    "MARKERS",
    "Extent",
    "GridPanel",
    "Series",
    "curves_figure",
    "density_figure",
    "grid_figure",
    "grid_points",
    "image_grid",
    "proportionality_figure",
    "scatter_figure",
]
