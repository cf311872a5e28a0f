"""Sets of images, and their labels where they have any."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from vages.data.splits import Splits


class _ThreeSets(NamedTuple):
    train: Int32[np.ndarray, "train"]
    validation: Int32[np.ndarray, "validation"]
    test: Int32[np.ndarray, "test"]


class Labels(_ThreeSets):
    """The classes of three sets of images, from 0; `names` are those of their folders, or none."""

    names: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: tuple[str, ...], *sets: Int32[np.ndarray, "_"]) -> "Labels":
        """The labels `train`, `validation` and `test` of classes that have names."""
        labels = cls(*sets)
        labels.names = names
        return labels


class Images(NamedTuple):
    """Images as float32 in [0, 1], each of shape (channels, height, width), and their labels or none."""

    splits: Splits
    labels: Labels | None


def scaled(pixels: UInt8[np.ndarray, "*shape"], top: int = 255) -> Float32[np.ndarray, "*shape"]:
    """Pixels 0 to `top` as numbers from 0 to 1."""
    return np.divide(pixels, np.float32(top), dtype=np.float32)
