"""Check of normalized models: estimates of log Z at several noise levels, where it should be 0.

In one and two dimensions, log Z is computed by quadrature on a grid. Beyond, it is estimated by importance sampling:
examples x_1 … x_K of the data or of the model, with noise of level σ, have the density

    r_σ(v) = mean_k N(v; x_k, σ² I)                 log Z_σ = log E[p̃_σ(v) / r_σ(v)],   v ~ r_σ

which is close to that of the model if σ is not below the distances between examples. At lower levels a few draws carry
all the weight, and `ess` is small. Mass of the model far from all examples is missed; a grid finds it within its range.

If h is drawn from q, log p̃ is an estimate too, and too low if few samples of q carry the weight; `share` reports this.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, PRNGKeyArray

from vages.checks import check_count, check_inputs, check_kind, told
from vages.evaluation.densities import log_density
from vages.models import NoiseConditionalEBLVM
from vages.posteriors import Posterior
from vages.samplers.checks import check_call, check_untraced

_SIDE = 200  # cells of the grid along each axis
_REACH = 5  # standard deviations of the noise by which the grid extends beyond the examples
LEVELS = 6
_FEW = 10  # examples below which their range is too uncertain for an error
_PAIRS = 2**22  # numbers in memory at once, in differences between draws and examples

_log_density = eqx.filter_jit(log_density)


class LevelNormalizer(NamedTuple):
    """log Z at the level `sigma`, its standard error, and the effective number of draws, which is ∞ on a grid.

    The error includes the noise of q's samples of h. If few of them carry the weight, log p̃ and the error are too low.
    `share` is their ESS as a fraction of the samples, weighted by the contributions to Z; it is 1 if log p̃ is exact.
    With fewer than 10 examples, the error is ∞.
    """

    sigma: float
    value: float
    error: float
    ess: float
    share: float = 1.0


@jax.default_matmul_precision("float32")
def level_normalizers(
    key: PRNGKeyArray,
    model: NoiseConditionalEBLVM,
    posterior: Posterior | None,
    v: Array | np.ndarray,
    *,
    sigmas: Sequence[float] | None = None,
    draws: int = 2000,
    samples: int = 64,
) -> list[LevelNormalizer]:
    """Estimate log Z of a model at several noise levels, from examples v (n, …) of the data or of the model itself.

    Without `sigmas`, six levels are geometrically spaced from the lowest to the highest in training. Each log p̃ uses
    `samples` draws of h, see `log_density`.
    """
    check_call(key, model)
    check_untraced(key=key, model=model, v=v)
    check_kind("model", model, NoiseConditionalEBLVM, "a NoiseConditionalEBLVM", "others have one level")
    if not model.normalized:
        raise ValueError(
            "model: expected one that is normalized, got one whose log Z is any number; make it with normalized=True "
            "and train it with level_weight, or estimate log Z with log_partition"
        )
    check_inputs(model, v)
    if len(v) < 2:
        raise ValueError("v: expected at least 2 examples, and 10 for an error, got 1; give more")
    check_count("draws", draws, 2, "2000 are usual")
    levels = np.geomspace(model.sigma_min, model.sigma_top, LEVELS) if sigmas is None else np.asarray(sigmas)
    if levels.ndim != 1 or not len(levels):
        raise ValueError(f"sigmas: expected one level or more in a sequence, got {told(sigmas)}; give (0.1, 1.0), say")
    model.check_context({"sigma": levels})
    v, found = jnp.asarray(v), []
    for i, sigma in enumerate(levels.tolist()):
        for_draws, for_density = jax.random.split(jax.random.fold_in(key, i))
        at = _On(model, posterior, for_density, float(sigma), samples)
        found.append(_by_grid(at, v) if model.v.size <= 2 else _by_draws(for_draws, at, v, draws))
    return found


class _On(NamedTuple):
    """A function of points v: log p̃_σ, its standard error, and the ESS as a fraction of q's samples."""

    model: NoiseConditionalEBLVM
    posterior: Posterior | None
    key: PRNGKeyArray
    sigma: float
    samples: int

    def __call__(self, v: Array) -> tuple[Float64[np.ndarray, "n"], ...]:
        context = {"sigma": jnp.full(len(v), self.sigma, v.dtype)}
        v = v.reshape(-1, *self.model.v.shape)
        found = _log_density(self.key, self.model, self.posterior, v, samples=self.samples, context=context)
        value, error, ess = (np.asarray(x, np.float64) for x in found[:3])
        return value, error, np.ones_like(ess) if found.exact else ess / self.samples


def _by_grid(at: _On, examples: Array) -> LevelNormalizer:
    rows = np.asarray(examples, np.float64).reshape(len(examples), -1)
    low, high = rows.min(0) - _REACH * at.sigma, rows.max(0) + _REACH * at.sigma
    margin = 0.1 * (high - low)
    low, high = low - margin, high + margin
    centers = [a + (b - a) * (np.arange(_SIDE) + 0.5) / _SIDE for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*centers, indexing="ij"), axis=-1).reshape(-1, len(low))
    logs, errors, shares = at(jnp.asarray(points, examples.dtype))
    cell, total = float(np.sum(np.log((high - low) / _SIDE))), float(np.logaddexp.reduce(logs))
    weights = np.exp(logs - total)
    error = float(np.sqrt(np.sum((weights * errors) ** 2))) if len(examples) >= _FEW else math.inf
    return LevelNormalizer(at.sigma, total + cell, error, math.inf, float(np.sum(weights * shares)))


def _by_draws(key: PRNGKeyArray, at: _On, examples: Array, draws: int) -> LevelNormalizer:
    for_rows, for_noise = jax.random.split(key)
    centers = examples.reshape(len(examples), -1)
    chosen = jax.random.randint(for_rows, (draws,), 0, len(centers))
    v = centers[chosen] + at.sigma * jax.random.normal(for_noise, (draws, centers.shape[1]), centers.dtype)
    logs, _, shares = at(v)
    logs = logs - np.asarray(_log_mixture(v, centers, at.sigma), np.float64)
    top = logs.max()
    weights = np.exp(logs - top)
    ess = float(weights.sum() ** 2 / np.sum(weights**2))
    error = float(weights.std(ddof=1) / weights.mean() / math.sqrt(draws))  # includes the noise of q
    error = error if len(examples) >= _FEW else math.inf
    share = float(np.sum(weights * shares) / weights.sum())
    return LevelNormalizer(at.sigma, float(top + np.log(weights.mean())), error, ess, share)


@eqx.filter_jit
def _log_mixture(v: Array, centers: Array, sigma: Any) -> Float[Array, "draws"]:
    """Return log mean_k N(v; x_k, σ² I) of each row."""
    size = centers.shape[1]
    constant = math.log(len(centers)) + size * (jnp.log(sigma) + 0.5 * math.log(2 * math.pi))
    one = lambda v: jax.nn.logsumexp(-0.5 * jnp.sum(((v[None] - centers) / sigma) ** 2, axis=1)) - constant
    return jax.lax.map(one, v, batch_size=max(1, min(len(v), _PAIRS // max(1, centers.size))))
