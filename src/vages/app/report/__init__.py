"""Pictures of results. Every function takes plain arrays, and returns a matplotlib Figure or a sheet of pixels."""

from vages.app.report.assessments import assessment_figure, number_with_error
from vages.app.report.chains import chains_figure
from vages.app.report.curves import GridPanel, curves_figure, grid_figure
from vages.app.report.figures import COLORS, MARKERS, Series, proportionality_figure
from vages.app.report.images import figure_png, image_grid, sheet_png, tile
from vages.app.report.pictures import Extent, density_figure, density_png, grid_points, scatter_figure
from vages.app.report.rows import rows_figure, walk_rows_figure
from vages.app.report.trajectories import trajectory_figure

__all__ = [
    "COLORS",
    "MARKERS",
    "Extent",
    "GridPanel",
    "Series",
    "assessment_figure",
    "chains_figure",
    "curves_figure",
    "density_figure",
    "density_png",
    "figure_png",
    "grid_figure",
    "grid_points",
    "image_grid",
    "number_with_error",
    "proportionality_figure",
    "rows_figure",
    "scatter_figure",
    "sheet_png",
    "tile",
    "trajectory_figure",
    "walk_rows_figure",
]
