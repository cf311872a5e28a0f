"""Pictures inside the page: small PNG files as data URIs."""

import base64
import io
from dataclasses import dataclass

from PIL import Image

from vages.app.report.page.markup import Markup, element

WIDEST, TALLEST = 1280, 2400  # pixels
_HEAVY = 150_000  # bytes, above which a picture is reduced to 256 colors


@dataclass(frozen=True)
class Picture:
    """A PNG file as a data URI, and its size in pixels."""

    uri: str
    width: int
    height: int

    @staticmethod
    def of(image: Image.Image) -> "Picture":
        """Encode an image (mode L or RGB), scaled down if it is too large for a page."""
        shrink = min(1.0, WIDEST / image.width, TALLEST / image.height)
        if shrink < 1:
            size = max(1, round(image.width * shrink)), max(1, round(image.height * shrink))
            image = image.resize(size, Image.Resampling.LANCZOS)
        content = _png(image)
        if len(content) > _HEAVY and image.mode == "RGB":
            content = min(content, _png(image.quantize(256, dither=Image.Dither.NONE)), key=len)
        return Picture("data:image/png;base64," + base64.b64encode(content).decode(), image.width, image.height)


def figure(picture: Picture, alt: str, caption: object = "", *, pixels: bool = False) -> Markup:
    """Return a picture above its caption; with `pixels`, it is enlarged without smoothing."""
    image = element(
        "img",
        src=picture.uri,
        alt=alt,
        width=picture.width,
        height=picture.height,
        class_="pixels" if pixels else None,
    )
    told = element("figcaption", caption) if caption else ""
    return element("figure", element("div", image, class_="plate"), told)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
