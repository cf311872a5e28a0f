"""Frey face: 1,965 grey images of 28 × 20 pixels, in the order of the video they come from."""

from pathlib import Path

import numpy as np

from vages.data.folder import data_folder
from vages.data.splits import Splits
from vages.files import BadFile, parse_mat, read_bytes

SHAPE = (28, 20)
_LIMIT = 2**21
_SPLITS = (1400, 1700, 1965)  # by position in the film, as in the paper


def freyface_file() -> Path:
    """Where the file is looked for."""
    return data_folder() / "freyface" / "frey_rawface.mat"


def load_freyface(path: Path | None = None) -> Splits:
    """Read `frey_rawface.mat`: 1,400, 300 and 265 images of 560 pixels in [0, 1], one image a row."""
    path = freyface_file() if path is None else path
    if not path.is_file():
        raise FileNotFoundError(
            f"Frey face: expected the file {path}, found none; put frey_rawface.mat there, run "
            "'vages data --get freyface' or set VAGES_DATA"
        )
    images = parse_mat(read_bytes(path, _LIMIT), str(path), "ff", _LIMIT)
    if images.shape != (560, 1965) or images.dtype != np.uint8:
        got = f"{images.dtype}{list(images.shape)}"
        raise BadFile(f"Frey face: expected uint8[560, 1965] under 'ff' in {path}, got {got}; fetch the file again")
    pixels = images.T.astype(np.float32) / 255
    return Splits(*np.split(pixels, _SPLITS[:2]))
