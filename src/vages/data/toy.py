"""Toy densities on the plane, about as large as the unit disk.

A sampler takes a Generator and n, and returns n points as float32 (n, 2). A log density takes points (n, 2) and returns
the exact log p of each in float64. Rotations use complex numbers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from vages.data.splits import Splits

Points = Float32[np.ndarray, "n 2"]
LogDensity = Float64[np.ndarray, "n"]

MOONS_CENTRE, MOONS_SCALE, MOONS_STD = 0.5 + 0.25j, 2 / 3, 0.06
RING_RADII, RING_STD = np.array([0.25, 0.5, 0.75, 1.0]), 0.04
GAUSSIAN_CENTRES, GAUSSIAN_STD = np.exp(0.25j * np.pi * np.arange(8)), 0.1
BLADES = np.exp(0.4j * np.pi * np.arange(5))
BLADE_CENTRE, BLADE_STD, BLADE_TWIST = 0.6, (0.18, 0.06), 1.5
ROLL_INNER, ROLL_ANGLE, ROLL_STD = 1 / 3, 4.5 * np.pi, 0.03


class Toy(NamedTuple):
    """A density on the plane: a sampler, log p if it has a closed form, and a window to plot."""

    sample: Callable[[np.random.Generator, int], Points]
    log_density: Callable[[Float[np.ndarray, "n 2"]], LogDensity] | None
    bounds: tuple[float, float, float, float]
    """(left, right, bottom, top), as Matplotlib's `extent`."""


def load_toy(name: str, seed: int, train: int = 60_000, validation: int = 10_000, test: int = 10_000) -> Splits:
    """Draw training, validation and test points, in this order, from one Generator seeded with `seed`.

    The paper uses 60,000 points for training, 10,000 for test, and no validation on toys.
    """
    if name not in TOYS:
        raise ValueError(f"toy: expected one of {', '.join(TOYS)}, got {name!r}; choose one of these")
    if min(train, validation, test) < 0:
        raise ValueError(
            f"toy: expected sizes of 0 or more, got train={train}, validation={validation}, test={test}; raise them"
        )
    generator = np.random.default_rng(seed)
    return Splits(*(TOYS[name].sample(generator, n) for n in (train, validation, test)))


def checkerboard(generator: np.random.Generator, n: int) -> Points:
    """The paper's board of 2 × 2 squares: uniform on [0, ½]² ∪ [½, 1]², half the points in each square.

    The density is 2 there, so that no model's expected log-likelihood exceeds log 2.
    """
    corner = 0.5 * generator.integers(2, size=(n, 1))
    return (corner + generator.uniform(0, 0.5, (n, 2))).astype(np.float32)


def checkerboard_log_density(points: Float[np.ndarray, "n 2"]) -> LogDensity:
    """log 2 on the two closed squares, −∞ elsewhere."""
    low, high = points.min(1), points.max(1)
    inside = ((low >= 0) & (high <= 0.5)) | ((low >= 0.5) & (high <= 1))
    return np.where(inside, np.log(2), -np.inf)


def board(generator: np.random.Generator, n: int) -> Points:
    """A board of 4 × 4 squares on [−1, 1]²: uniform on its eight dark ones. The density is ½ there."""
    square = generator.integers(8, size=n)
    row, column = square // 2, 2 * (square % 2) + square // 2 % 2
    corner = np.stack([column, row], axis=1) / 2 - 1
    return (corner + generator.uniform(0, 0.5, (n, 2))).astype(np.float32)


def board_log_density(points: Float[np.ndarray, "n 2"]) -> LogDensity:
    """−log 2 on the dark squares, −∞ elsewhere."""
    column, row = np.floor(2 * (points.astype(np.float64) + 1)).T
    dark = ((column + row) % 2 == 0) & (np.abs(points) < 1).all(axis=1)
    return np.where(dark, -np.log(2), -np.inf)


def two_moons(generator: np.random.Generator, n: int) -> Points:
    """Two interleaved half circles of radius ⅔ with Gaussian noise; the origin is between them."""
    moon = np.exp(1j * generator.uniform(0, np.pi, n)) - MOONS_CENTRE
    return _plane(MOONS_SCALE * generator.choice([-1, 1], n) * moon + _noise(generator, n, MOONS_STD))


def rings(generator: np.random.Generator, n: int) -> Points:
    """Four circles about the origin, radii ¼ to 1, with Gaussian noise; a quarter of the points on each."""
    angle = generator.uniform(0, 2 * np.pi, n)
    return _plane(generator.choice(RING_RADII, n) * np.exp(1j * angle) + _noise(generator, n, RING_STD))


def rings_log_density(points: Float[np.ndarray, "n 2"]) -> LogDensity:
    """Log density of Gaussians averaged over each circle: the angle integrates to the Bessel function I₀."""
    from scipy.special import i0e  # imported here, as it takes longer than all other datasets together

    radius = np.abs(_complex(points))[:, None]
    ring = -0.5 * ((radius - RING_RADII) / RING_STD) ** 2 + np.log(i0e(radius * RING_RADII / RING_STD**2))
    return np.logaddexp.reduce(ring, axis=1) - np.log(len(RING_RADII) * 2 * np.pi * RING_STD**2)


def eight_gaussians(generator: np.random.Generator, n: int) -> Points:
    """Eight round Gaussians of equal weight, their centers evenly on the unit circle."""
    return _plane(generator.choice(GAUSSIAN_CENTRES, n) + _noise(generator, n, GAUSSIAN_STD))


def eight_gaussians_log_density(points: Float[np.ndarray, "n 2"]) -> LogDensity:
    """Log density of the mixture."""
    squares = np.abs((_complex(points)[:, None] - GAUSSIAN_CENTRES) / GAUSSIAN_STD) ** 2
    return np.logaddexp.reduce(-0.5 * squares, axis=1) - np.log(len(GAUSSIAN_CENTRES) * 2 * np.pi * GAUSSIAN_STD**2)


def pinwheel(generator: np.random.Generator, n: int) -> Points:
    """Five Gaussian blades about the origin, bent: each point is rotated in proportion to its distance from it."""
    along, across = (std * generator.standard_normal(n) for std in BLADE_STD)
    blade = BLADE_CENTRE + along + 1j * across
    return _plane(generator.choice(BLADES, n) * blade * np.exp(1j * BLADE_TWIST * np.abs(blade)))


def pinwheel_log_density(points: Float[np.ndarray, "n 2"]) -> LogDensity:
    """Log density of the mixture before bending: rotating circles about the origin preserves areas."""
    z = _complex(points)
    blade = (z * np.exp(-1j * BLADE_TWIST * np.abs(z)))[:, None] / BLADES - BLADE_CENTRE
    along, across = blade.real / BLADE_STD[0], blade.imag / BLADE_STD[1]
    return np.logaddexp.reduce(-0.5 * (along**2 + across**2), axis=1) - np.log(
        len(BLADES) * 2 * np.pi * np.prod(BLADE_STD)
    )


def swiss_roll(generator: np.random.Generator, n: int) -> Points:
    """A spiral of one and a half turns from radius ⅓ to 1, its radius uniform, with Gaussian noise."""
    radius = generator.uniform(ROLL_INNER, 1, n)
    return _plane(radius * np.exp(1j * ROLL_ANGLE * radius) + _noise(generator, n, ROLL_STD))


def _noise(generator: np.random.Generator, n: int, std: float) -> np.ndarray:
    return std * (generator.standard_normal(n) + 1j * generator.standard_normal(n))


def _plane(z: np.ndarray) -> Points:
    return np.stack([np.real(z), np.imag(z)], axis=1).astype(np.float32)


def _complex(points: np.ndarray) -> np.ndarray:
    return points[:, 0].astype(np.float64) + 1j * points[:, 1]


_WINDOW = (-1.5, 1.5, -1.5, 1.5)
TOYS: dict[str, Toy] = {
    "checkerboard": Toy(checkerboard, checkerboard_log_density, (-0.25, 1.25, -0.25, 1.25)),
    "board": Toy(board, board_log_density, (-1.25, 1.25, -1.25, 1.25)),
    "two_moons": Toy(two_moons, None, _WINDOW),
    "rings": Toy(rings, rings_log_density, _WINDOW),
    "eight_gaussians": Toy(eight_gaussians, eight_gaussians_log_density, _WINDOW),
    "pinwheel": Toy(pinwheel, pinwheel_log_density, _WINDOW),
    "swiss_roll": Toy(swiss_roll, None, _WINDOW),
}
