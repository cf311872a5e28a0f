"""Sets of images with optional labels."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from vages.data.splits import Splits


class _ThreeSets(NamedTuple):
    train: Int32[np.ndarray, "train"]
    validation: Int32[np.ndarray, "validation"]
    test: Int32[np.ndarray, "test"]


class Labels(_ThreeSets):
    """The classes of three sets of images, from 0. `names` are the names of their folders, or empty."""

    names: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: tuple[str, ...], *sets: Int32[np.ndarray, "_"]) -> "Labels":
        """Return the labels `train`, `validation` and `test` of named classes."""
        labels = cls(*sets)
        labels.names = names
        return labels


class Images(NamedTuple):
    """Images as float32 in [0, 1], each of shape (channels, height, width), and their labels or None."""

    splits: Splits
    labels: Labels | None


def scaled(pixels: UInt8[np.ndarray, "*shape"], top: int = 255) -> Float32[np.ndarray, "*shape"]:
    """Scale pixels from 0 to `top` to numbers from 0 to 1."""
    return np.divide(pixels, np.float32(top), dtype=np.float32)
