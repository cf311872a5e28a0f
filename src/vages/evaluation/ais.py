"""Annealed importance sampling (AIS) of a GRBM's log Z (Neal 2001; Salakhutdinov & Murray 2008).

The path from the base (W = 0, c = 0, the model's b and σ) to the model is the GRBM with weights β W and biases β c.
The term ½ ‖(v − b) / σ‖² is the same along the path, so the importance weights depend on v only through c + Wᵀv:

    F_β(v) − F_β'(v) = Σ_j softplus(β' field_j) − softplus(β field_j)

A chain stores only its field and its weight. Noise is drawn at each step, so it takes no memory per temperature.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_inputs
from vages.distributions import Bernoulli, check_key
from vages.models import GRBM
from vages.samplers.exact import can_list, sample_exactly

_full_precision = jax.default_matmul_precision("float32")  # by default, GPUs and TPUs may use lower precision


class LogEstimate(NamedTuple):
    """An estimate of log Z, its standard error (delta method), and the ends of Ẑ ± 3 standard errors on a log scale.

    An end is infinite if three standard errors exceed the estimate: use more chains or temperatures. For an energy
    without a normalizer, the value is NaN if chains diverge, and otherwise meaningless, with a large error or gap.
    """

    value: float
    error: float
    lower: float
    upper: float


@_full_precision
def ais(key: PRNGKeyArray, model: GRBM, chains: int = 2000, temperatures: int = 2000) -> LogEstimate:
    """Estimate log Z by chains from the base to the model, with one Gibbs transition at each temperature.

    The estimate of Z is unbiased, so that of log Z is a stochastic lower bound: its mean is at most log Z.
    """
    check_key(key)
    check_run(chains, temperatures)
    start = jnp.broadcast_to(model.visible_bias, (chains, *model.v.shape))  # forgotten by the transition at β = 0
    return log_mean(_anneal(key, model, start, _betas(model, temperatures)), _log_partition_of_base(model), sign=1)


@_full_precision
def reverse_ais(
    key: PRNGKeyArray, model: GRBM, v: Array | None = None, chains: int = 2000, temperatures: int = 2000
) -> LogEstimate:
    """Estimate log Z by chains from samples of the model to the base (Grosse, Ghahramani & Adams 2015).

    The estimate of 1/Z is unbiased, so that of log Z is a stochastic upper bound; `ais` gives the lower one. The
    samples are exact draws if the latent states can be enumerated. Otherwise pass them as `v`, one per chain; `chains`
    is then ignored, and the bound holds only as far as they are samples of the model.
    """
    check_key(key)
    for_start, for_chains = jax.random.split(key)
    if v is None:
        check_run(chains, temperatures)
        if not can_list(model):
            raise ValueError(
                f"reverse_ais: expected few enough latent units to draw exact samples, got {model.h!r}; "
                "give samples of the model as v, e.g. sample(key, model, chains).v"
            )
        v = sample_exactly(for_start, model, chains)[0]
    else:
        check_inputs(model, v)
        check_run(len(v), temperatures)
    weights = _anneal(for_chains, model, v, _betas(model, temperatures)[::-1])
    return log_mean(weights, _log_partition_of_base(model), sign=-1)


@eqx.filter_jit
def _anneal(
    key: PRNGKeyArray, model: GRBM, v: Float[Array, "chains v"], betas: Float[Array, "temperatures"]
) -> Float[Array, "chains"]:
    """Return log importance weights of chains that move at each β but the last, then are reweighted to the next β.

    The weights are valid if v are draws at the first β, or if that is 0: a transition at 0 draws from the base.
    """

    def field_of(v):
        return jax.vmap(lambda v: model.features(v).field)(v)

    def move(key, beta, field):  # v → h → v at β; W (β h) is (β W) h
        for_h, for_v = jax.random.split(key)
        h = Bernoulli(beta * field, temperature=0.0).draw(for_h)
        return jax.vmap(model.conditional)(beta * h).draw(for_v)

    def step(carry, now):
        field, log_weight = carry
        key, beta, next_beta = now
        field = field_of(move(key, beta, field))
        gain = jnp.sum(jax.nn.softplus(next_beta * field) - jax.nn.softplus(beta * field), axis=1)
        return (field, log_weight + gain), None

    steps = (jax.random.split(key, len(betas) - 1), betas[:-1], betas[1:])
    start = (field_of(v), jnp.zeros(len(v), v.dtype))
    return jax.lax.scan(step, start, steps)[0][1]


def _betas(model: GRBM, temperatures: int) -> Float[Array, "temperatures"]:
    return jnp.linspace(0, 1, temperatures, dtype=model.weight.dtype)


def log_mean(log_weights: Float[Array, "chains"], base: float, sign: int) -> LogEstimate:
    """Return base + sign · log of the mean weight, in float64 to keep small errors."""
    logs = np.asarray(log_weights, np.float64)
    if not np.isfinite(logs.max()) or np.isnan(logs).any():  # chains diverged: there may be no normalizer
        return LogEstimate(math.nan, math.inf, -math.inf, math.inf)
    weights = np.exp(logs - logs.max())
    error = float(weights.std(ddof=1) / weights.mean() / math.sqrt(len(weights)))
    value = base + sign * float(logs.max() + np.log(weights.mean()))
    ends = (value + sign * (math.log1p(side) if side > -1 else -math.inf) for side in (-3 * error, 3 * error))
    return LogEstimate(value, error, *sorted(ends))


def _log_partition_of_base(model: GRBM) -> float:
    (v_dim,), (h_dim,) = model.v.shape, model.h.shape
    log_sigma = np.broadcast_to(np.asarray(model.log_sigma, np.float64), (v_dim,))
    return float(log_sigma.sum()) + 0.5 * v_dim * math.log(2 * math.pi) + h_dim * math.log(2)


def check_run(chains: int, temperatures: int) -> None:
    """Raise ValueError unless there are at least two chains and two temperatures."""
    for name, value, why in (
        ("chains", chains, "a standard error"),
        ("temperatures", temperatures, "a path from the base to the model"),
    ):
        check_count(name, value, 2, f"{why} needs two")
