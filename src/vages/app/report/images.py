"""Images as sheets of pixels: gray or color, in [0, 1]; NaN is magenta."""

import io
import math

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from PIL import Image

from vages.checks import check_count

NOT_A_NUMBER = (1.0, 0.0, 1.0)  # magenta, so that a diverged chain does not look like a black picture

GrayOrColor = Float[np.ndarray, "n height width"] | Float[np.ndarray, "n channels height width"]


def tile(images: GrayOrColor, columns: int, gap: int = 1) -> Float[np.ndarray, "y x 3"]:
    """Arrange images on one sheet, row by row, `gap` white pixels apart. Values are clipped to [0, 1]."""
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[1] not in (1, 3)) or not len(images):
        raise ValueError(
            "images: expected at least one, (n, height, width) or (n, channels, height, width) with 1 or 3 channels, "
            f"got {images.shape}; reshape them"
        )
    check_count("columns", columns, 1, "10 is usual")
    gray_or_color = images[:, None] if images.ndim == 3 else images
    count, _, height, width = gray_or_color.shape
    colors = np.broadcast_to(np.moveaxis(gray_or_color, 1, -1), (count, height, width, 3))
    colors = np.where(np.isnan(colors), np.asarray(NOT_A_NUMBER), np.clip(colors, 0, 1))
    rows = math.ceil(count / columns)
    tiles = np.ones((rows * columns, height + gap, width + gap, 3))
    tiles[:count, :height, :width] = colors
    sheet = tiles.reshape(rows, columns, height + gap, width + gap, 3).swapaxes(1, 2)
    sheet = sheet.reshape(rows * (height + gap), columns * (width + gap), 3)
    return sheet[: len(sheet) - gap, : sheet.shape[1] - gap]


def image_grid(sets: dict[str, GrayOrColor], columns: int = 10) -> Figure:
    """Draw one panel for each set of images, tiled."""
    sheets = {title: tile(images, columns) for title, images in sets.items()}
    tallest = max(len(sheet) / sheet.shape[1] for sheet in sheets.values())
    figure = Figure(figsize=(4.2 * len(sets), 4.2 * tallest + 0.3), layout="constrained")
    for axes, (title, sheet) in zip(figure.subplots(1, len(sets), squeeze=False)[0], sheets.items(), strict=True):
        axes.imshow(sheet, interpolation="nearest")
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    return figure


def sheet_png(images: GrayOrColor, columns: int) -> bytes:
    """Return images as one sheet of tiles, a PNG file; small images are enlarged."""
    return png_bytes(tile(images, columns), max(1, 64 // images.shape[-1]))


def png_bytes(sheet: Float[np.ndarray, "y x 3"], scale: int) -> bytes:
    """Return a sheet as a PNG file, each pixel as a square of `scale` pixels."""
    file = io.BytesIO()
    sheet_image(sheet.repeat(scale, axis=0).repeat(scale, axis=1)).save(file, "PNG", optimize=True)
    return file.getvalue()


def sheet_image(sheet: Float[np.ndarray, "y x 3"]) -> Image.Image:
    """Return a sheet of pixels in [0, 1] as an image of 8 bits, in grayscale if it is gray."""
    pixels = np.rint(255 * np.clip(sheet, 0, 1)).astype(np.uint8)
    gray = bool((pixels == pixels[..., :1]).all())
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0]) if gray else pixels)


def figure_png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()
