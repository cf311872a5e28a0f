"""CelebA: faces of celebrities, aligned, cropped to a square around the face."""

from math import ceil, floor
from pathlib import Path

import numpy as np
from PIL import Image

from vages.data.decoding import decode_all
from vages.data.folder import data_folder
from vages.data.images import Images, scaled
from vages.data.splits import Splits
from vages.files import decode_image, image_files, pixels_of
from vages.files.limits import MAX_IMAGE_BYTES, MAX_MEMBERS
from vages.storage.errors import BadFile, read_bytes

_CROP, _WIDTH = 140, 178  # the square that the paper cuts out of 178 × 218 pixels
_HELD_OUT = 0.05  # each for validation and test


def celeba_folder() -> Path | None:
    """Return the first folder `img_align…` in `celeba`, or None."""
    return next((path for path in sorted((data_folder() / "celeba").glob("img_align*")) if path.is_dir()), None)


def load_celeba(folder: Path | None = None, size: int = 64) -> Images:
    """Read a folder of aligned images of any one size, as images of shape (3, size, size).

    The last 5 % by name are for test and the 5 % before them for validation; there are no labels.
    """
    files = celeba_files(folder)
    pixels = decode_all(files, lambda path: (path.name, pixels_of(read_face(path, size))), str(files[0].parent))
    return Images(Splits(*map(scaled, np.split(pixels, celeba_bounds(len(pixels))))), None)


def celeba_files(folder: Path | None = None) -> list[Path]:
    """Return the files of the images, sorted by name."""
    folder = celeba_folder() if folder is None else folder
    if folder is None:
        raise FileNotFoundError(
            f"CelebA: expected a folder img_align… in {data_folder() / 'celeba'}, got none; put img_align_celeba "
            "there or set VAGES_DATA"
        )
    return sorted(image_files(folder, MAX_MEMBERS), key=lambda path: path.name)


def celeba_bounds(rows: int) -> tuple[int, int]:
    """Return the indices at which validation and test begin."""
    held_out = round(_HELD_OUT * rows)
    return rows - 2 * held_out, rows - held_out


def read_face(path: Path, size: int) -> Image.Image:
    """Read the square around a face, scaled to `size`."""
    image = decode_image(read_bytes(path, MAX_IMAGE_BYTES), str(path)).convert("RGB")
    side = image.width * _CROP / _WIDTH
    if side > image.height:
        raise BadFile(f"{path}: expected a face of 178 × 218 pixels or in proportion, got {image.size}; is it aligned?")
    left, top = (image.width - side) / 2, (image.height - side) / 2
    x, y = floor(left), floor(top)  # whole pixels are cropped first, so that pixels outside have no effect
    cut = image.crop((x, y, ceil(left + side), ceil(top + side)))
    box = left - x, top - y, left - x + side, top - y + side
    return cut.resize((size, size), Image.Resampling.BILINEAR, box)
