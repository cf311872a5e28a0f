"""Conversion of images to the inputs of the FID network: numbers from 0 to 255 in three channels."""

from typing import Literal

import numpy as np
from jaxtyping import Shaped, UInt8

from vages.checks import check_numbers

Gray = Literal["refuse", "replicate"]


def as_pixels(
    images: Shaped[np.ndarray, "..."], name: str, gray: Gray = "refuse"
) -> UInt8[np.ndarray, "n 3 height width"]:
    """Convert images of uint8, or of floats in [0, 1] (rounded to 8 bits), with 1 or 3 channels, first or last.

    Gray images raise ValueError unless `gray` is "replicate": the network was trained on color photographs, and results
    for three equal channels are not comparable with others. `name` is used in errors.
    """
    check_numbers(name, images, floating=False)
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = np.moveaxis(images, 3, 1)
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[1:]:
        raise ValueError(
            f"{name}: expected images of shape (n, 3, height, width), got {list(images.shape)}; reshape them"
        )
    if images.shape[1] == 1 and gray == "refuse":
        raise ValueError(
            f"{name}: expected color images, got gray ones; replicate their channel (--gray replicate), and compare "
            "such results only with each other"
        )
    if images.dtype != np.uint8:
        if images.dtype.kind != "f":
            raise ValueError(f"{name}: expected uint8 from 0 to 255 or floats from 0 to 1, got {images.dtype}; cast it")
        if not np.isfinite(images).all():
            row = int(np.argwhere(~np.isfinite(images))[0][0])
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in image {row}; leave it out")
        low, high = (float(images.min()), float(images.max())) if images.size else (0.0, 1.0)
        if low < 0 or high > 1:
            raise ValueError(f"{name}: expected floats from 0 to 1, got {low:.4g} to {high:.4g}; clip or rescale them")
        images = np.rint(images * 255).astype(np.uint8)
    return np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images
