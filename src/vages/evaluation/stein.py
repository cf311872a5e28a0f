"""Goodness-of-fit tests that use only the score: they need no normalizer and, with VaES, no tractable posterior.

`ksd_test` is the test of Liu, Lee & Jordan (2016) and Chwialkowski, Strathmann & Gretton (2016): the U-statistic of
the kernelized Stein discrepancy (Eq. 12), with its null distribution by the wild bootstrap. The Stein matrix is summed
block by block, so that memory grows with n, not n².
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_finite
from vages.distributions import check_key
from vages.evaluation.kernels import IMQ, Kernel, median_bandwidth, stein_kernel
from vages.evaluation.scores import Score, check_examples, score_batch
from vages.evaluation.signs import random_signs

LEAST = 10  # least number of examples
_BLOCK = 1024  # rows and columns of the Stein matrix in memory at once


class SteinTest(NamedTuple):
    """The result of a test whose null hypothesis is that the model is correct; small p-values are evidence against it.

    The statistic of `ksd` is an unbiased estimate of KSD. Its standard error is valid only if the model is incorrect,
    and is not used for the p-value. The statistic of `learned` is a mean; its ratio to its standard error is standard
    normal if the model is correct.
    """

    method: str
    statistic: float
    standard_error: float
    p_value: float
    n: int
    kernel: str | None = None
    bandwidth: float | None = None
    replicates: int | None = None

    def record(self) -> dict[str, str | float | int | None]:
        """Return the result as a dict, for storage in a file."""
        return self._asdict()


def ksd_test(
    key: PRNGKeyArray,
    score: Score | Array,
    v: Array,
    *,
    kernel: Kernel | None = None,
    bandwidth: float | None = None,
    replicates: int = 1000,
) -> SteinTest:
    """Test whether examples come from the model with this score, with a p-value from `replicates` of the bootstrap.

    `score` is an array of scores shaped like v, a function of one example, or a `VariationalScore`. The kernel is by
    default `IMQ`, and its bandwidth the median pairwise distance. Examples must be independent.
    """
    kernel = IMQ() if kernel is None else kernel
    check_key(key)
    check_examples("v", v, LEAST)
    v = jnp.asarray(v)  # float64 becomes float32, unless 64-bit mode is on
    check_count("replicates", replicates, 1, "1000 is usual")
    for_score, for_weights = jax.random.split(key)
    scores = _scores(for_score, score, v)
    flat, flat_scores = v.reshape(len(v), -1), scores.reshape(len(v), -1)
    width = float(median_bandwidth(flat)) if bandwidth is None else bandwidth
    if not (width > 0 and np.isfinite(width)):
        hint = "more than half of the pairs coincide: give a bandwidth" if bandwidth is None else "give another"
        raise ValueError(f"bandwidth: expected a positive number, got {width}; {hint}")
    statistic, error, bootstrap = _ksd(
        for_weights, kernel, flat, flat_scores, jnp.asarray(width, v.dtype), replicates=replicates
    )
    check_finite("statistic", statistic)
    p_value = bootstrap_p_value(float(statistic), np.asarray(bootstrap))
    return SteinTest("ksd", float(statistic), float(error), p_value, len(v), kernel.name, float(width), replicates)


def bootstrap_p_value(statistic: float, bootstrap: Float[np.ndarray, "replicates"]) -> float:
    """Return (1 + number of replicates that are at least the statistic) / (1 + replicates)."""
    return (1 + int(np.sum(bootstrap >= statistic))) / (1 + len(bootstrap))


def ksd_sums(
    kernel: Kernel,
    v: Float[Array, "n dim"],
    scores: Float[Array, "n dim"],
    bandwidth: Float[Array, ""],
    weights: Float[Array, "replicates n"],
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "replicates"]]:
    """Return the U-statistic Σ_{i≠j} u_ij / n(n−1), its error, and Σ_{i≠j} w_i w_j u_ij / n(n−1) for each w.

    Each block above the diagonal is computed once and counted twice.
    """
    n, dim = v.shape
    block = min(n, _BLOCK)
    count = -(-n // block)
    short = count * block - n
    x = jnp.pad((v - jnp.mean(v, axis=0, keepdims=True)) / bandwidth, ((0, short), (0, 0)))
    s = jnp.pad(bandwidth * scores, ((0, short), (0, 0)))
    w = jnp.pad(weights, ((0, 0), (0, short))).reshape(-1, count, block).swapaxes(0, 1)
    there = (jnp.arange(count * block) < n).reshape(count, block)
    x, s = x.reshape(count, block, dim), s.reshape(count, block, dim)

    def add(carry, pair):
        rows, bootstrap = carry
        i, j = pair
        u = stein_kernel(kernel, x[i], s[i], x[j], s[j])
        same = (i == j) & jnp.eye(block, dtype=bool)
        u = jnp.where(there[i][:, None] & there[j][None, :] & ~same, u, 0)
        twice = (i != j).astype(u.dtype)
        rows = rows.at[i].add(jnp.sum(u, axis=1)).at[j].add(twice * jnp.sum(u, axis=0))
        return (rows, bootstrap + (1 + twice) * jnp.sum((w[i] @ u) * w[j], axis=1)), None

    pairs = tuple(jnp.asarray(index, jnp.int32) for index in np.triu_indices(count))
    start = (jnp.zeros((count, block), v.dtype), jnp.zeros(len(weights), v.dtype))
    (rows, bootstrap), _ = jax.lax.scan(add, start, pairs)
    means = rows.reshape(-1)[:n] / (n - 1)
    error = 2 * jnp.sqrt(jnp.sum((means - jnp.mean(means)) ** 2) / (n - 1) / n)
    scale = bandwidth**2
    return jnp.mean(means) / scale, error / scale, bootstrap / (scale * n * (n - 1))


@eqx.filter_jit
def _ksd(key: PRNGKeyArray, kernel: Kernel, v: Array, scores: Array, bandwidth: Array, *, replicates: int):
    with jax.default_matmul_precision("float32"):
        return ksd_sums(kernel, v, scores, bandwidth, random_signs(key, (replicates, len(v)), v.dtype))


def _scores(key: PRNGKeyArray, score: Score | Array, v: Array) -> Array:
    if not isinstance(score, jax.Array | np.ndarray):
        scores = score_batch(key, score, v)
    elif score.shape != v.shape:
        raise ValueError(f"score: expected scores shaped like the examples, {v.shape}, got {score.shape}")
    else:
        scores = jnp.asarray(score, v.dtype)
    check_finite("score", scores)
    return scores
