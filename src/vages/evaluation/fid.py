"""The Fréchet inception distance (Heusel et al. 2017), its bias, and the kernel distance (Bińkowski et al. 2018).

The FID of n samples is too large by about a constant over n, and the constant differs between models. So it is shown
with n, beside the same number for real images, and extrapolated to infinitely many samples (Chong & Forsyth 2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from vages.checks import check_count, check_kind, check_rows
from vages.evaluation.features import GROUPS, Moments
from vages.evaluation.statistics import Statistics

FULL = 50_000  # least number of samples of a result that is named FID


class Extrapolation(NamedTuple):
    """The FID at infinitely many samples, by a line in 1/n; `residual` is its largest deviation from the FIDs."""

    value: float
    residual: float
    n: list[int]
    fid: list[float]


class KID(NamedTuple):
    """The mean and standard deviation over subsets. The mean is unbiased, and may be negative.

    If `size`, the number of rows of a subset, is near that of a whole set, its subsets are nearly the same, and the
    deviation is too small.
    """

    mean: float
    deviation: float
    subsets: int
    size: int


def metric_name(metric: str, n: int) -> str:
    """Return `metric`, e.g. FID, for 50,000 samples or more; otherwise FID-10k, FID-1k or FID-1234, for example."""
    return metric if n >= FULL else f"{metric}-{n // 1000}k" if n % 1000 == 0 else f"{metric}-{n}"


def fid(a: Statistics, b: Statistics) -> float:
    """Return |m₁ − m₂|² + tr(C₁ + C₂ − 2 (C₁C₂)^½), by the eigenvalues of the symmetric C₂^½ C₁ C₂^½ in float64.

    The square root of C₂ is cached in b, so pass the reference as b.
    """
    for name, one in (("a", a), ("b", b)):
        check_kind(
            name,
            one,
            Statistics,
            "Statistics of images",
            "compute them with vages.evaluation.feature_moments(…).statistics()",
        )
    if a.weights != b.weights:
        raise ValueError(f"fid: expected statistics of the same network, got {a.weights[:16]} and {b.weights[:16]}")
    product = b.root @ a.covariance @ b.root
    overlap = np.sqrt(np.maximum(np.linalg.eigvalsh((product + product.T) / 2), 0)).sum()
    apart = np.sum((a.mean - b.mean) ** 2)
    return float(apart + np.trace(a.covariance) + np.trace(b.covariance) - 2 * overlap)


def extrapolated_fid(moments: Moments, reference: Statistics) -> Extrapolation | None:
    """Extrapolate the FID to infinitely many samples, from the FIDs of 2/5, 3/5, 4/5 and all of the samples.

    Return None for fewer samples than four times the features (4 · 2048): the smallest part then has fewer than 1.6
    times the features, where the bias does not fall as 1/n yet, and the result is too low.
    """
    check_kind(
        "moments", moments, Moments, "Moments of images", "compute them with vages.evaluation.feature_moments(…)"
    )
    if moments.n < 4 * len(reference.mean):
        return None
    parts = [moments.statistics(groups) for groups in range(2, GROUPS + 1)]
    values = [fid(part, reference) for part in parts]
    return extrapolate([part.n for part in parts], values)


def extrapolate(n: list[int], values: list[float]) -> Extrapolation:
    """Fit a least-squares line to the values in 1/n and evaluate it at 1/n = 0."""
    design = np.stack([np.ones(len(n)), 1 / np.array(n, np.float64)], axis=1)
    line, *_ = np.linalg.lstsq(design, np.array(values), rcond=None)
    return Extrapolation(float(line[0]), float(np.abs(design @ line - values).max()), n, values)


def kid(
    x: Float32[np.ndarray, "n d"],
    y: Float32[np.ndarray, "m d"],
    *,
    subsets: int = 100,
    size: int = 1000,
    seed: int = 0,
) -> KID:
    """Compute the unbiased squared MMD of features with the kernel (x·y / d + 1)³ over random subsets."""
    check_rows("x", x)
    check_rows("y", y, x.shape[1])
    check_count("subsets", subsets, 1, "100 is usual")
    check_count("size", size, 2, "1000 is usual")
    check_count("seed", seed, 0, "0 is usual")
    size = min(size, len(x), len(y))
    if size < 2:
        raise ValueError(f"kid: expected at least two features of each, got {len(x)} and {len(y)}; keep more")
    rng = np.random.default_rng(seed)
    rows = [np.stack([rng.permutation(len(z))[:size] for _ in range(subsets)]).astype(np.int32) for z in (x, y)]
    with jax.enable_x64(True):
        values = np.asarray(_mmds(*(jnp.asarray(z) for z in (x, y, *rows))))
    return KID(float(values.mean()), float(values.std()), subsets, size)


@jax.jit
def _mmds(
    x: Float[Array, "n d"],
    y: Float[Array, "m d"],
    rows_x: Int[Array, "subsets size"],
    rows_y: Int[Array, "subsets size"],
) -> Float[Array, "subsets"]:
    def kernel(a, b):
        return (jnp.matmul(a, b.T, precision="highest") / a.shape[1] + 1) ** 3

    def mmd(rows):
        a, b = x[rows[0]].astype(jnp.float64), y[rows[1]].astype(jnp.float64)
        m = len(a)
        within = lambda a: (jnp.sum(kernel(a, a)) - jnp.trace(kernel(a, a))) / (m * (m - 1))
        return within(a) + within(b) - 2 * jnp.mean(kernel(a, b))

    return jax.lax.map(mmd, (rows_x, rows_y))
