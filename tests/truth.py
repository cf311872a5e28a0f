"""Closed forms and enumerations, written independently of the library, as references for its results."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from vages import GRBM, Bernoulli, EnergyModel, LinearGaussian
from vages.domains import Binary, Real


def relative_error(got, expected) -> float:
    """The largest relative error over all leaves, each relative to its own norm."""
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    errors = []
    for a, b in pairs:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        errors.append(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300))
    return max(errors)


def closed_form_vages(model: GRBM | LinearGaussian, v, h, z) -> GRBM | LinearGaussian:
    """zᵀ(ê + ĉ) of a bilinear model, derived by hand, in float64, averaged over the batch."""
    h = np.asarray(h, np.float64)
    gap = h - h.mean(1, keepdims=True)
    covariance = np.einsum("bli,blj->bij", gap, gap) / (h.shape[1] - 1)
    return expected_vages(model, v, h.mean(1), covariance, z)


def expected_vages(model: GRBM | LinearGaussian, v, mean, covariance, z) -> GRBM | LinearGaussian:
    """zᵀ(e + c) of a bilinear model under any posterior with this mean and covariance of h at each v."""
    weight, b, _, precision = _parameters(model)
    v, mean, covariance, z = (np.asarray(x, np.float64) for x in (v, mean, covariance, z))
    d_c = np.einsum("bij,bi->bj", covariance, z @ weight)
    d_weight = np.einsum("bv,bh->vh", z, mean) + np.einsum("bv,bh->vh", v, d_c)
    d_sigma = 2 * (z * (v - b) * precision).sum(0)
    d_sigma = d_sigma.sum() if model.log_sigma.ndim == 0 else d_sigma
    total = (d_weight, (z * precision).sum(0), d_c.sum(0), d_sigma)
    return type(model)(*(jnp.asarray(x / len(v)) for x in total))


def expected_vaes(model: GRBM | LinearGaussian, v, mean):
    """The expectation of VaES under any posterior with this mean of h at each v."""
    weight, b, _, precision = _parameters(model)
    return -(np.asarray(v, np.float64) - b) * precision + np.asarray(mean, np.float64) @ weight.T


def _parameters(model):
    arrays = (model.weight, model.visible_bias, model.latent_bias, model.log_sigma)
    weight, b, c, log_sigma = (np.asarray(x, np.float64) for x in arrays)
    return weight, b, c, np.exp(-2 * log_sigma) * np.ones_like(b)


def bilinear(kind, key, v_dim, h_dim, dtype="float32", scalar_sigma=False):
    """A random GRBM or LinearGaussian whose σ is not 1."""
    model = kind.init(key, v_dim, h_dim, scalar_sigma=scalar_sigma, dtype=jnp.dtype(dtype))
    log_sigma = -0.3 + 0.2 * jax.random.normal(key, model.log_sigma.shape, jnp.dtype(dtype))
    return kind(model.weight, model.visible_bias, model.latent_bias, log_sigma)


def enumerated(logits):
    """All binary states for each row of logits, (batch, 2^h, h), with their Bernoulli probabilities."""
    states = Binary(logits.shape[-1]).states().astype(logits.dtype)
    q = Bernoulli(logits)
    log_prob = jax.vmap(lambda q: jax.vmap(q.log_prob)(states))(q)
    return jnp.broadcast_to(states, (len(logits), *states.shape)), jnp.exp(log_prob)


def structured_model(key, dtype="float32"):
    """A generic energy: nested parameters, v of shape (2, 3), three-valued integer h of shape (2,)."""
    keys = jax.random.split(key, 4)
    params = {
        "table": jax.random.normal(keys[0], (3, 2, 3), dtype),
        "mix": [jax.random.normal(keys[1], (2,), dtype), {"scale": jnp.asarray(0.7, dtype)}],
        "pair": (jax.random.normal(keys[2], (3, 3), dtype),),
        "name": "not an array",
    }

    def energy(params, v, h):
        pulled = params["table"][h[0]] * jnp.tanh(v) + params["table"][h[1]] * v * params["mix"][0][:, None]
        return params["mix"][1]["scale"] * jnp.sum(v**2) - jnp.sum(pulled) - params["pair"][0][h[0], h[1]]

    return EnergyModel(energy, params, v=Real(2, 3), h=Real(2))


class Descent(NamedTuple):
    """The state of Adam: parameters, their moments, and the number of steps."""

    at: list[Any]
    first: list[Any]
    second: list[Any]
    made: int


def adam_start(parameters) -> Descent:
    zeros = [jnp.zeros_like(x) for x in parameters]
    return Descent(parameters, zeros, zeros, 0)


def adam_steps(gradient, start: Descent, inputs, rate, decay) -> Descent:
    """Adam by hand, unrolled: one step along gradient(parameters, input) for each of the inputs."""
    at, first, second, made = start
    for one in inputs:
        made += 1
        slopes = gradient(at, one)
        first = [decay[0] * m + (1 - decay[0]) * g for m, g in zip(first, slopes, strict=True)]
        second = [decay[1] * s + (1 - decay[1]) * g**2 for s, g in zip(second, slopes, strict=True)]
        fix = [1 - b**made for b in decay]
        steps = [m / fix[0] / (jnp.sqrt(s / fix[1]) + 1e-8) for m, s in zip(first, second, strict=True)]
        at = [x - rate * step for x, step in zip(at, steps, strict=True)]
    return Descent(at, first, second, made)


def mean_differs(replicates, expected, false_alarm: float = 1e-6) -> bool:
    """Whether the mean of independent replicates (first axis) differs from `expected` in any entry.

    A normal test of every entry with a Bonferroni bound: if the means agree, the result is True with probability
    `false_alarm`.
    """
    replicates = np.asarray(replicates, np.float64).reshape(len(replicates), -1)
    expected = np.asarray(expected, np.float64).reshape(-1)
    error = replicates.std(0, ddof=1) / np.sqrt(len(replicates))
    constant = error < 1e-12 * (1 + np.abs(expected))
    off = np.abs(replicates.mean(0) - expected)
    threshold = stats.norm.isf(false_alarm / 2 / len(expected))
    return bool(np.any(np.where(constant, off > 1e-5 * (1 + np.abs(expected)), off > threshold * error)))
