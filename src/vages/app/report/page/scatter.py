"""Scatter plots of points on a plane, drawn as the digits of their classes."""

import numpy as np
from jaxtyping import Float, Int

from vages.app.report.page.markup import Markup, element, joined

_MOST = 1500  # points on the page
_NUMERALS = 10  # classes that a single digit can name


def scatter_plot(
    points: Float[np.ndarray, "n 2"], labels: Int[np.ndarray, "n"] | None, alt: str, caption: object
) -> Markup:
    """Draw the first points, as colored digits if the labels are 0 to 9, else as dots with one color for each class."""
    points = points[:_MOST]
    classes = np.zeros(len(points), int) if labels is None else labels[:_MOST]
    low, high = np.percentile(points, [1, 99], axis=0)  # a few outliers would squeeze the rest
    placed = 20 + 960 * np.clip((points - low) / np.where(high > low, high - low, 1), 0, 1)
    placed[:, 1] = 1000 - placed[:, 1]
    numerals = labels is not None and classes.min() >= 0 and classes.max() < _NUMERALS
    groups = (
        _numerals(placed[classes == one], int(one)) if numerals else _dots(placed[classes == one], i)
        for i, one in enumerate(np.unique(classes))
    )
    drawing = element("svg", joined(groups), viewBox="0 0 1000 1000", role="img", aria_label=alt, class_="scatter")
    return element("figure", drawing, element("figcaption", caption))


def principal_plane(values: Float[np.ndarray, "n dim"]) -> tuple[Float[np.ndarray, "n 2"], float]:
    """Return the coordinates along the two directions of largest variance, and their share of all variance."""
    centered = values.astype(np.float64) - values.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centered.T @ centered / max(1, len(centered)))
    plane = centered @ directions[:, ::-1][:, :2]
    if plane.shape[1] < 2:
        plane = np.column_stack([plane, np.zeros(len(plane))])
    return plane, float(variances[-2:].sum() / max(variances.sum(), 1e-30))


def _numerals(points: np.ndarray, label: int) -> Markup:
    """Return one element for all points of a class: a text in which every character has its own position."""
    u, v = (" ".join(f"{x:.0f}" for x in column) for column in points.T)
    return element("text", str(label) * len(points), x=u, y=v, class_=f"c{label % 7}")


def _dots(points: np.ndarray, i: int) -> Markup:
    return element("path", d="".join(f"M{u:.0f} {v:.0f}h0" for u, v in points), class_=f"dots c{i % 7}")
