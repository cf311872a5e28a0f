"""Frey face: 1,965 grayscale images of 28 × 20 pixels, in the order of the video they come from."""

from io import BytesIO
from pathlib import Path

import numpy as np

from vages.data.checksums import FILES, check_content
from vages.data.folder import data_folder
from vages.data.splits import Splits
from vages.files import read_bytes

SHAPE = (28, 20)
_SPLITS = (1400, 1700, 1965)  # by position in the film, as in the paper


def freyface_file() -> Path:
    """Return the path of the file."""
    return data_folder() / "freyface" / "frey_rawface.mat"


def load_freyface(path: Path | None = None) -> Splits:
    """Read `frey_rawface.mat`: 1,400, 300 and 265 images of 560 pixels in [0, 1], one image per row.

    The file must have the SHA-256 of the published one.
    """
    path = freyface_file() if path is None else path
    if not path.is_file():
        raise FileNotFoundError(
            f"Frey face: expected the file {path}, got none; put frey_rawface.mat there, run "
            "'vages data --get freyface' or set VAGES_DATA"
        )
    known = FILES["freyface"]["frey_rawface.mat"]
    content = read_bytes(path, known.size)
    check_content(content, known, str(path))
    import scipy.io  # slow to import. It crashes on damaged files, so it is passed only verified bytes.

    images = scipy.io.loadmat(BytesIO(content))["ff"]
    pixels = images.T.astype(np.float32) / 255
    return Splits(*np.split(pixels, _SPLITS[:2]))
