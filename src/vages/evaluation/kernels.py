"""Radial kernels k(x, y) = κ(‖x − y‖²), and their Stein kernels for a score s.

u(x, y) = k s(x)·s(y) + s(x)·∇_y k + ∇_x k·s(y) + tr ∇_x ∇_y k                                     (in Eq. 12)
        = κ s(x)·s(y) + 2 κ' (x − y)·(s(y) − s(x)) − 2 κ' dim − 4 κ'' ‖x − y‖²
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vages.checks import check_rows

_POINTS = 1000  # most points whose pairwise distances give the median


class Profile(NamedTuple):
    """κ and its first two derivatives at squared distances."""

    value: Array
    slope: Array
    curvature: Array


@runtime_checkable
class Kernel(Protocol):
    """A radial kernel, smooth and positive definite."""

    @property
    def name(self) -> str:
        """The name of the kernel in results."""
        ...

    def __call__(self, square: Array) -> Profile:
        """Return κ and its derivatives at squared distances, in units of the squared bandwidth."""
        ...


@dataclass(frozen=True)
class RBF:
    """κ(t) = exp(−t / 2), with t = ‖x − y‖² / bandwidth²."""

    name: str = "rbf"

    def __call__(self, square: Array) -> Profile:
        value = jnp.exp(-0.5 * square)
        return Profile(value, -0.5 * value, 0.25 * value)


@dataclass(frozen=True)
class IMQ:
    """κ(t) = (1 + t)^(−exponent), the inverse multiquadric, with t = ‖x − y‖² / bandwidth².

    With an exponent in (0, 1), KSD detects non-convergence to the model (Gorham & Mackey 2017). With the RBF kernel in
    many dimensions, it does not.
    """

    exponent: float = 0.5
    name: str = "imq"

    def __post_init__(self):
        if not 0 < self.exponent < 1:
            raise ValueError(f"exponent: expected a number between 0 and 1, got {self.exponent}; 0.5 is usual")

    def __call__(self, square: Array) -> Profile:
        base, power = 1 / (1 + square), self.exponent
        value = jnp.sqrt(base) if power == 0.5 else base**power
        return Profile(value, -power * value * base, power * (power + 1) * value * base**2)


def stein_kernel(
    kernel: Kernel,
    x: Float[Array, "m dim"],
    score_x: Float[Array, "m dim"],
    y: Float[Array, "n dim"],
    score_y: Float[Array, "n dim"],
) -> Float[Array, "m n"]:
    """Return u(x_i, y_j) for all pairs, by four matrix products.

    x, y and their scores are in units of the bandwidth, x / bandwidth and bandwidth · s; u is then in units of
    1 / bandwidth². Subtract the same center from x and y, because squared distances are computed from inner products.
    """
    own = lambda a, b: jnp.sum(a * b, axis=1)
    square = jnp.maximum(own(x, x)[:, None] + own(y, y)[None, :] - 2 * (x @ y.T), 0)
    turn = x @ score_y.T + score_x @ y.T - own(x, score_x)[:, None] - own(y, score_y)[None, :]
    value, slope, curvature = kernel(square)
    return value * (score_x @ score_y.T) + 2 * slope * (turn - x.shape[1]) - 4 * curvature * square


def median_distance(v: Float[Array, "n dim"]) -> Float[Array, ""]:
    """Return the median pairwise distance of at most a thousand points, evenly spaced over the rows."""
    check_rows("v", v)
    if len(v) == 1:
        raise ValueError("v: expected at least two rows, got one; give more, or a bandwidth")
    some = v[jnp.linspace(0, len(v) - 1, min(len(v), _POINTS)).round().astype(jnp.int32)]
    some = some - jnp.mean(some, axis=0, keepdims=True)
    norms = jnp.sum(some**2, axis=1)
    square = norms[:, None] + norms[None, :] - 2 * (some @ some.T)
    rows, columns = jnp.triu_indices(len(some), 1)
    return jnp.sqrt(jnp.maximum(jnp.median(square[rows, columns]), 0))


median_bandwidth = jax.jit(median_distance)
