"""Sets of images, and their labels where they have any."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from vages.data.splits import Splits


class Labels(NamedTuple):
    """The classes of three sets of images, from 0."""

    train: Int32[np.ndarray, "train"]
    validation: Int32[np.ndarray, "validation"]
    test: Int32[np.ndarray, "test"]


class Images(NamedTuple):
    """Images as float32 in [0, 1], each of shape (channels, height, width), and their labels or none."""

    splits: Splits
    labels: Labels | None


def scaled(pixels: UInt8[np.ndarray, "*shape"], top: int = 255) -> Float32[np.ndarray, "*shape"]:
    """Pixels 0 to `top` as numbers from 0 to 1."""
    return np.divide(pixels, np.float32(top), dtype=np.float32)
