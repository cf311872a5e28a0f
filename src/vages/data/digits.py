"""1,797 handwritten digits of 8 × 8 pixels, included in the package so that a first run needs no network.

They are the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0, here in a fixed random order.
"""

import hashlib
from pathlib import Path

import numpy as np

from vages.data.images import Images, Labels, scaled
from vages.data.splits import Splits
from vages.files import BadFile, parse_npz, read_bytes

_SPLITS = (1437, 1617)
_SHA256 = "bdc2a7f3ed0c851189f8e895b622fda2a0d8d0a17481d756d112a0be07f8afb3"


def load_digits() -> Images:
    """Load 1,437, 180 and 180 images of shape (1, 8, 8), with pixel values 0, 1/16, …, 1."""
    path = Path(__file__).with_name("digits.npz")
    content = read_bytes(path, 2**16)
    if (got := hashlib.sha256(content).hexdigest()) != _SHA256:
        raise BadFile(f"{path}: expected the file with SHA-256 {_SHA256}, got {got}; install vages again")
    arrays = parse_npz(content, str(path), 2**18)
    splits = Splits(*np.split(scaled(arrays["images"][:, None], 16), _SPLITS))
    return Images(splits, Labels(*np.split(arrays["labels"].astype(np.int32), _SPLITS)))
