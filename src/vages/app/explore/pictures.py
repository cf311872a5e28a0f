"""Arrays as pictures in a page."""

import base64
import io

import numpy as np
from jaxtyping import Bool, Float
from nicegui import ui
from PIL import Image

from vages.app.report import tile


def png_url(image: Float[np.ndarray, "channels height width"]) -> str:
    """Return an image as a PNG data URL; NaN is magenta."""
    pixels = np.rint(255 * tile(image[None].astype(np.float64), columns=1)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def picture(alt: str, image: np.ndarray | None = None) -> ui.element:
    """Create a picture that is enlarged without smoothing; it is gray if there is no image yet."""
    element = ui.element("img").classes("picture")
    element.props["alt"] = alt
    element.props["src"] = png_url(np.full((1, 1, 1), 0.5) if image is None else image)
    return element


def show(element: ui.element, image: np.ndarray) -> None:
    """Show an image in a picture."""
    element.props["src"] = png_url(image)


def veil(hidden: Bool[np.ndarray, "height width"]) -> str:
    """Return SVG, in units of pixels, that covers hidden pixels: one rectangle for each run within a row."""
    path = []
    for y, row in enumerate(hidden):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]])))
        path += [f"M{a} {y}h{b - a}v1h{a - b}z" for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return f'<path class="veil" d="{"".join(path)}"/>' if path else ""
