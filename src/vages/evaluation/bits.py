"""Bits per dimension of examples whose entries lie on a grid, as pixels do.

A code for such examples needs at least E[−log₂ P(x)] bits. A density gives an upper bound, by adding noise to them:

- uniform noise over the cells of the grid, where P(x) is the integral of p over the cell of x (Theis et al. 2016),

      −log P(x) ≤ E[−log p(x + w ε)] − d log w                                  ε uniform on ± 1/2, w the width

- Gaussian noise of the level σ at which p_σ was trained, v = x + σ ε ~ q(v | x), with the decoder
  P(x | v) = q(v | x) / Σ_j q(v | x_j) over the points x_j of the grid (Kingma et al. 2021),

      −log P(x) ≤ E[−log p_σ(v) + log q(v | x) − log P(x | v)]

  If σ is well above w, the last two terms are −d log w too.
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.bounds import SCALE, check_number
from vages.checks import check_count, check_inputs, check_own_context, told
from vages.evaluation.densities import log_density
from vages.evaluation.estimate import Estimate
from vages.evaluation.flow_likelihood import flow_likelihood
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.samplers.checks import as_rows, broadcast_context, check_call, check_untraced
from vages.samplers.flow import check_level

_REACH = 16  # standard deviations covered by the sum over the grid
_FINE = 0.8  # grid width, in standard deviations, below which the sum equals the integral to 1e-13

_log_density = eqx.filter_jit(log_density)


def bits_per_dim(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior | None,
    v: Array | np.ndarray,
    *,
    width: float | Array | np.ndarray,
    noise: Literal["uniform", "gaussian"] = "uniform",
    one_pass: bool = False,
    sigma_min: float | None = None,
    samples: int = 1,
    batch: int = 100,
    context: Any = None,
    **options: Any,
) -> Estimate:
    """Estimate bits per dimension of examples with entries on a grid of this `width`, 2 / 255 for pixels in [−1, 1].

    The estimate is an upper bound on average. Its standard error is over examples.

    - `width`: one for all entries, or an array with one for each entry of v, such as 1 / 255 / scale for pixels in
      [0, 1] that were divided by `scale`.
    - `noise`: the noise added to v. With "uniform", the noise of `sigma_min` is part of the model, and should be well
      below the width. "gaussian" adds noise of level `sigma_min`, and the bound holds for any width.
    - `one_pass`: compute log p of a normalized model in one forward pass instead of by the probability-flow ODE.
    - `samples`: draws of h for each gradient of the ODE, or for each log p in one pass, which needs more, such as 64,
      and uses at least 2.
    - `context`: labels, as for `flow_likelihood`.
    - `options`: options of `flow_likelihood`; none with `one_pass`.
    """
    check_call(key, model)
    check_untraced(key=key, model=model, v=v, context=context)
    check_inputs(model, v)
    widths = np.asarray(width, np.float64)
    for one in np.unique(widths).tolist() or [math.nan]:
        check_number("width", one, SCALE)
    if noise not in ("uniform", "gaussian"):
        raise ValueError(f"noise: expected 'uniform' or 'gaussian', got {told(noise)}; choose one")
    for name, count in (("samples", samples), ("batch", batch)):
        check_count(name, count, 1, "give more")
    if one_pass and options:
        name, value = next(iter(options.items()))
        raise TypeError(f"{name}: expected no option of the ODE with one_pass, got {told(value)}; leave it out")
    sigma = check_level(model, "sigma_min", sigma_min)
    for_noise, for_density = jax.random.split(key)
    v = jnp.asarray(v)
    if widths.shape not in ((), model.v.shape):
        raise ValueError(f"width: expected one number, or shape {model.v.shape}, as v, got {widths.shape}; reshape it")
    widths, size = np.broadcast_to(widths, model.v.shape), math.prod(model.v.shape)
    if noise == "uniform":
        uniform = jax.random.uniform(for_noise, v.shape, v.dtype, minval=-0.5, maxval=0.5)
        v = v + jnp.asarray(widths, v.dtype)[None] * uniform
        found = np.log(widths).sum()
    else:
        epsilon = jax.random.normal(for_noise, v.shape, v.dtype)
        v = v + sigma * epsilon
        found = _found_again(np.asarray(epsilon, np.float64).reshape(len(v), -1), widths.reshape(-1) / sigma)
        found = found + size * math.log(sigma)
    if one_pass:
        known = as_rows({} if context is None else context)
        if "sigma" in known:
            raise ValueError("context: expected no level, which is sigma_min, got 'sigma'; leave it out")
        check_own_context(known, model)
        value = _one_pass(for_density, model, posterior, v, broadcast_context(known, len(v)), sigma, samples, batch)
    else:
        how = {"sigma_min": sigma, "samples": samples, "batch": batch, "context": context} | options
        value = flow_likelihood(for_density, model, posterior, v, **how).value
    return Estimate.of(jnp.asarray(-(value + found) / (size * math.log(2))))


def _found_again(epsilon: Float[np.ndarray, "n size"], widths: Float[np.ndarray, "size"]) -> Float[np.ndarray, "n"]:
    """Return log P(x | v) − log q(v | x) of each row, for noise of level 1 and grids of these widths."""
    fine, coarse = np.log(widths[widths < _FINE]).sum(), widths >= _FINE
    epsilon, widths = epsilon[:, coarse], widths[coarse]
    reach = math.ceil(_REACH / widths.min(initial=_REACH))
    total = sum(np.exp(-0.5 * (epsilon - j * widths) ** 2) for j in range(-reach, reach + 1))
    return fine + np.sum(0.5 * math.log(2 * math.pi) - np.log(total), axis=1)


def _one_pass(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior | None,
    v: Array,
    context: Any,
    sigma: float,
    samples: int,
    batch: int,
) -> Float[np.ndarray, "n"]:
    """Return log p_σ of each row, computed in blocks."""
    found, count = [], min(batch, len(v))
    rows = context | {"sigma": jnp.full(len(v), sigma, v.dtype)}
    for i, first in enumerate(range(0, len(v), count)):
        some = np.minimum(np.arange(first, first + count), len(v) - 1)  # equal blocks, so that it compiles once
        block, known = jax.tree.map(lambda x, some=some: x[some], (v, rows))
        key_of = jax.random.fold_in(key, i)
        density = _log_density(key_of, model, posterior, block, samples=max(2, samples), context=known, normalized=True)
        found.append(np.asarray(density.value, np.float64))
    return np.concatenate(found)[: len(v)]
