"""Images, decoded by Pillow once their size is known."""

import io
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from vages.files.errors import BadFile, read_bytes
from vages.files.image_size import image_size

MAX_BYTES, MAX_PIXELS = 2**26, 2**25
_GREY, _COLOUR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


def decode_image(content: bytes, name: str, pixels: int = MAX_PIXELS) -> Image.Image:
    """The grey (mode L) or colour (RGB) image of a PNG, JPEG or BMP file's bytes; `name` is for errors.

    It has at most `pixels` pixels, is turned as its EXIF orientation says, and what is transparent lies over white.
    """
    kind, width, height = image_size(content, name)
    if width * height > pixels:
        raise BadFile(f"{name}: expected at most {pixels} pixels, got {width} × {height}; make the image smaller")
    try:
        with Image.open(io.BytesIO(content), formats=[kind]) as image:
            if image.size != (width, height):  # so that nothing has been checked but what is decoded
                raise BadFile(f"{name}: expected {width} × {height} pixels, got {image.size}; save the image again")
            image.load()
            return _plain(ImageOps.exif_transpose(image), name)
    except (BadFile, MemoryError):
        raise
    except Exception as error:  # a damaged image makes Pillow raise almost anything
        reason = (str(error) or type(error).__name__).splitlines()[0].replace("; ", ", ")
        raise BadFile(f"{name}: expected a {kind} image, got a damaged one ({reason}); get the file again") from None


def parse_image(content: bytes, name: str, pixels: int = MAX_PIXELS) -> UInt8[np.ndarray, "channels height width"]:
    """The pixels of `decode_image`, with 1 or 3 channels, the channels first."""
    return pixels_of(decode_image(content, name, pixels))


def read_image(path: Path, pixels: int = MAX_PIXELS) -> UInt8[np.ndarray, "channels height width"]:
    """Read an image of at most `pixels` pixels."""
    return parse_image(read_bytes(path, MAX_BYTES), str(path), pixels)


def pixels_of(image: Image.Image) -> UInt8[np.ndarray, "channels height width"]:
    """A grey or colour image as an array, the channels first."""
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(np.moveaxis(array, -1, 0))


def _plain(image: Image.Image, name: str) -> Image.Image:
    if image.mode not in _GREY + _COLOUR:
        raise BadFile(f"{name}: expected 8 bits a channel, got the mode {image.mode}; convert it to 8 bits")
    mode = "L" if image.mode in _GREY else "RGB"
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert(mode)
