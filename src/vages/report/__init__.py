"""Pictures of results."""

from vages.report.figures import Series, proportionality_figure

__all__ = ["Series", "proportionality_figure"]
