"""Five hundred images of colored shapes to train on: circles, squares and triangles, 16 × 16 pixels.

    python examples/colored_shapes.py shapes
    vages train --data shapes

trains a noise-conditional EBLVM on them, in ten minutes on two CPU cores.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

SIDE, FINE = 16, 4  # pixels, and points along a pixel


def shape(rng: np.random.Generator, kind: int) -> np.ndarray:
    """Return a circle, a square or a triangle of one color on a darker background, with smooth edges."""
    at = (np.arange(FINE * SIDE) + 0.5) / FINE
    y, x = np.meshgrid(at, at, indexing="ij")
    x, y, size = x - rng.uniform(5, 11), y - rng.uniform(5, 11), rng.uniform(3, 5)
    inside = [
        x**2 + y**2 < size**2,
        np.maximum(abs(x), abs(y)) < 0.9 * size,
        (y < 0.8 * size) & (y > 2 * abs(x) - size),
    ][kind]
    share = inside.reshape(SIDE, FINE, SIDE, FINE).mean(axis=(1, 3))[..., None]
    front, ground = rng.uniform(0, 1, 3), rng.uniform(0, 0.4, 3)
    return ground + (front - ground) * share


def main(folder: Path, count: int = 500, seed: int = 0) -> None:
    """Write the images as PNG files."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        Image.fromarray(np.rint(255 * shape(rng, i % 3)).astype(np.uint8)).save(folder / f"{i:03d}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "shapes"))
