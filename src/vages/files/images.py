"""PNG, JPEG and BMP images, decoded by Pillow.

The result is 8-bit grayscale or RGB. The EXIF orientation is applied. Transparent pixels are blended with white.
Palettes and CMYK are converted to RGB by Pillow's formulas, without a color profile. Images of 16 bits per channel and
animations are refused.
"""

import io
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import BmpImagePlugin, Image, ImageOps, JpegImagePlugin, PngImagePlugin

from vages.files.limits import MAX_IMAGE_BYTES, MAX_PIXELS
from vages.storage.errors import BadFile, read_bytes, reading

_FORMATS = {
    b"\x89PNG\r\n\x1a\n": ("PNG", PngImagePlugin.PngImageFile),
    b"\xff\xd8\xff": ("JPEG", JpegImagePlugin.JpegImageFile),
    b"BM": ("BMP", BmpImagePlugin.BmpImageFile),
}
_GRAY, _COLOR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK")
_MAX_SCANS = 100  # of a progressive JPEG, which usually has 10; each costs a pass over the image

# Pillow warns about damaged metadata, which we do not use. `catch_warnings` is not safe in threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.(Png|Jpeg|Tiff)ImagePlugin")


def decode_image(content: bytes, name: str, pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode a grayscale (mode L) or color (RGB) image of at most `pixels` pixels. `name` is for errors."""
    kind, read = next((found for magic, found in _FORMATS.items() if content.startswith(magic)), ("", None))
    if read is None:
        raise BadFile(f"{name}: expected a PNG, JPEG or BMP image, got {content[:8]!r}; convert it to PNG")
    with reading(name, f"a {kind} image"), read(io.BytesIO(content)) as image:
        if image.width * image.height > pixels:
            raise BadFile(
                f"{name}: expected at most {pixels} pixels, got {image.width} × {image.height}; make the image smaller"
            )
        if getattr(image, "is_animated", False):
            raise BadFile(f"{name}: expected a still image, got an animation; save one frame")
        if (kind == "PNG" and content[24] == 16) or image.mode not in _GRAY + _COLOR:
            raise BadFile(f"{name}: expected 8 bits per channel, got 16 or another mode; convert it to 8 bits")
        if kind == "JPEG" and content.count(b"\xff\xda") > _MAX_SCANS:
            raise BadFile(f"{name}: expected at most {_MAX_SCANS} scans, got more; save the image again")
        if kind == "PNG":
            read(io.BytesIO(content)).verify()  # checksums, which decoding does not compare
        image.load()
        return _plain(ImageOps.exif_transpose(image))


def parse_image(content: bytes, name: str, pixels: int = MAX_PIXELS) -> UInt8[np.ndarray, "channels height width"]:
    """Return the pixels of `decode_image`, with 1 or 3 channels, channels first."""
    return pixels_of(decode_image(content, name, pixels))


def read_image(path: Path) -> UInt8[np.ndarray, "channels height width"]:
    """Read an image as `parse_image` does."""
    return parse_image(read_bytes(path, MAX_IMAGE_BYTES), str(path))


def pixels_of(image: Image.Image) -> UInt8[np.ndarray, "channels height width"]:
    """Return a grayscale or color image as an array, channels first."""
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(np.moveaxis(array, -1, 0))


def _plain(image: Image.Image) -> Image.Image:
    mode = "L" if image.mode in _GRAY else "RGB"
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert(mode)
