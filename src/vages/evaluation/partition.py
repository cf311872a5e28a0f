"""log Z of any model: exact if possible, otherwise, for continuous v, by forward and reverse AIS.

The path goes from a Gaussian b(x), fitted to samples of the model, to p̃(x): log f_β = (1 − β) log b + β log p̃. Chains
that go up give an unbiased estimate of Z, so that log Z is too low on average. Chains that go down from exact samples
of the model give an unbiased estimate of 1/Z, so that log Z is too high on average (Grosse, Ghahramani & Adams 2015).
Here the samples come from Markov chains: both may miss the same mode, and the reverse estimate may then be too low too.
"""

import math
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_context, check_energy, check_kind, check_own_context
from vages.evaluation.ais import LogEstimate, ais, check_run, log_mean, reverse_ais
from vages.evaluation.densities import exact_log_density, has_exact_density
from vages.models import EBLVM, GRBM, TractableEBLVM
from vages.samplers import MCMC, Gibbs, Samples, sample
from vages.samplers.checks import as_rows, check_call, check_untraced
from vages.samplers.exact import can_list, log_masses
from vages.samplers.langevin import chain_dtype
from vages.samplers.moves import kernel_of
from vages.samplers.target import State, Target, scattered, states_of

_PILOTS = 32  # chains that adapt the step sizes
_LEAPFROG = 3
_WIDER = 1.2  # standard deviation of the initial Gaussian, relative to that of the samples
_MOST_ENERGIES = 2**32  # most pairs of states of v and h that are summed, which takes minutes
_BLOCK = 2**18  # pairs of states in memory at once
_LOG_2PI = math.log(2 * math.pi)


class LogPartition(NamedTuple):
    """Two estimates of log Z: `forward` is too low on average, `reverse` too high if its chains start at exact samples.

    If log Z is exact, both are equal. Check the `gap` first. If it is large compared to the errors, the path is too
    short, or one of the estimates misses a mode. If it is below 0 by more than the errors, the samples that `reverse`
    starts from are not from the model. A small gap proves nothing: both may miss the same mode.
    """

    forward: LogEstimate
    reverse: LogEstimate
    exact: bool

    @property
    def gap(self) -> float:
        """The reverse estimate minus the forward one."""
        return self.reverse.value - self.forward.value

    @staticmethod
    def known(value: float) -> "LogPartition":
        """Return a known value of log Z, without error."""
        sure = LogEstimate(value, 0.0, value, value)
        return LogPartition(sure, sure, True)


@jax.default_matmul_precision("float32")
def log_partition(
    key: PRNGKeyArray,
    model: EBLVM,
    *,
    context: Any = None,
    chains: int = 1000,
    temperatures: int = 1000,
    exact: bool = True,
    drawn: Samples | None = None,
) -> LogPartition:
    """Estimate log Z = log ∫ p̃(v, h) dv dh, for one context if the model has one.

    The result is exact if the model has a closed form, or if p(v | h) has one and the states of h can be enumerated;
    `exact=False` disables this. For discrete v with at most 2²⁰ states, it is log Σ_v p̃(v), where p̃(v) must be exact
    (see `log_density`). Otherwise there are two estimates, each from `chains` chains and `temperatures` temperatures.
    The reverse one starts from `drawn`, at least `chains` samples of the model, which are drawn here unless given.
    `context` is a dict of numbers, or of arrays with one row.
    """
    check_call(key, model)
    check_untraced(key=key, model=model, context=context, drawn=drawn)
    check_run(chains, temperatures)
    context = as_rows(context)
    check_context(context, 1)
    check_own_context(context, model)
    check_energy(model, chain_dtype(model), context)
    if exact and context is None and can_list(model):
        return LogPartition.known(_log_sum(log_masses(model)))
    if exact and context is None and isinstance(model, TractableEBLVM) and not isinstance(model, GRBM):
        return LogPartition.known(float(model.log_partition()))
    if not model.v.continuous:
        return LogPartition.known(_sum_over_v(model, context))
    if drawn is not None:
        check_kind("drawn", drawn, Samples, "Samples", "give what vages.sample returned, v and h")
    if drawn is not None and drawn.v.shape[1:] != model.v.shape:
        raise ValueError(f"drawn: expected v of shape {model.v.shape}, got {drawn.v.shape[1:]}; draw from this model")
    if drawn is not None and len(drawn.v) < chains:
        raise ValueError(f"drawn: expected a draw for each of {chains} chains, got {len(drawn.v)}; draw more")
    if isinstance(model, GRBM):
        return _of_grbm(key, model, chains, temperatures, drawn)
    up, down = _both_ways(key, model, context, chains, temperatures, drawn)
    return LogPartition(log_mean(up, 0.0, 1), log_mean(down, 0.0, -1), False)


def _of_grbm(key: PRNGKeyArray, model: GRBM, chains: int, temperatures: int, drawn: Samples | None) -> LogPartition:
    """Estimate log Z of a GRBM along GRBMs of growing weights, whose transitions have a closed form."""
    for_samples, for_up, for_down = jax.random.split(key, 3)
    v = _sample(for_samples, model, chains, sampler=Gibbs()).v if drawn is None else _spread(drawn.v, chains)
    forward = ais(for_up, model, chains, temperatures)
    return LogPartition(forward, reverse_ais(for_down, model, v, temperatures=temperatures), False)


def _sum_over_v(model: EBLVM, context: Any) -> float:
    """Return log Σ_v p̃(v) over all states of a discrete v."""
    latents = 1 if isinstance(model, TractableEBLVM) else model.h.count or 1
    if not model.v.enumerable or not has_exact_density(model) or latents * (model.v.count or 1) > _MOST_ENERGIES:
        raise TypeError(
            f"model: expected continuous v, or v and h whose states can be summed, at most {_MOST_ENERGIES:.1g} pairs, "
            f"got v {model.v!r} and h {model.h!r}; give a conditional where h has few states, or compare log_density"
        )
    known = () if context is None else (jax.tree.map(lambda x: x[0], context),)
    logs = np.asarray(_log_densities(model, known, max(1, _BLOCK // latents)), np.float64)
    if not np.isfinite(logs.max()):
        raise ValueError(f"energy: expected finite values, got log p̃(v) up to {logs.max()}; correct its terms")
    return _log_sum(logs)


@eqx.filter_jit
def _log_densities(model: EBLVM, known: tuple[Any, ...], block: int) -> Float[Array, "states"]:
    numbers = jnp.arange(model.v.count or 0, dtype=jnp.uint32)
    one = lambda number: exact_log_density(model, model.v.states(chain_dtype(model), number[None])[0], *known)
    return jax.lax.map(one, numbers, batch_size=min(block, len(numbers)))


def _sample(key: PRNGKeyArray, model: EBLVM, n: int, **how: Any) -> Samples:
    """Draw samples, with warnings that name `log_partition`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drawn = sample(key, model, n, **how)
    for one in caught:
        said = str(one.message).replace("sample: ", "log_partition: of the samples that reverse starts from, ", 1)
        warnings.warn(said, one.category, stacklevel=5)
    return drawn


def _spread(draws: Any, count: int) -> Any:
    """Return `count` of the draws, evenly spaced."""
    take = lambda x: x[np.linspace(0, len(x) - 1, count).astype(int)]
    return jax.tree.map(take, draws)


def _log_sum(exact: np.ndarray) -> float:
    return float(exact.max() + np.log(np.exp(exact - exact.max()).sum()))


class _Base(eqx.Module):
    """The start of the path: independent normal variables, and uniform states of the discrete ones."""

    mean: State
    scale: State
    log_count: float  # log of the number of discrete states

    def log_prob(self, x: State) -> Float[Array, ""]:
        """Return the normalized log-density."""
        one = lambda x, m, s: -0.5 * jnp.sum(((x - m) / s) ** 2) - jnp.sum(jnp.log(s)) - 0.5 * x.size * _LOG_2PI
        return sum(
            jax.tree.leaves(jax.tree.map(one, x, self.mean, self.scale)), jnp.asarray(-self.log_count, _dtype(x))
        )


def _both_ways(
    key: PRNGKeyArray, model: EBLVM, context: Any, chains: int, temperatures: int, drawn: Samples | None
) -> tuple[Float[Array, "chains"], Float[Array, "chains"]]:
    """Return log weights of chains that go up from the base, and of chains that go down from samples of the model."""
    for_samples, for_pilots, for_pilot_start, for_up, for_down, for_start = jax.random.split(key, 6)
    known = None if context is None else jax.tree.map(lambda x: x[0], context)
    target = Target(model, context=known)
    target = Target(model, context=known, summed=target.can_sum())
    if drawn is None:
        drawn = _sample(for_samples, model, chains, context=context, sampler=MCMC("hmc"))
    states = states_of(model.h, *_spread((drawn.v, drawn.h), chains))
    x = {name: states[name] for name in target.continuous}
    discrete = {} if target.summed else {name: states[name] for name in target.discrete}
    spread = lambda x: _WIDER * jnp.std(x, axis=0) + jnp.asarray(1e-6, x.dtype)
    log_count = math.fsum(math.log(target.discrete[name].count or 1) for name in discrete)
    base = _Base(jax.tree.map(lambda x: jnp.mean(x, axis=0), x), jax.tree.map(spread, x), log_count)
    betas = jnp.linspace(0, 1, temperatures, dtype=_dtype(x)) ** 2
    sizes = _pilot(for_pilots, target, base, *_begin(for_pilot_start, target, base, _PILOTS), betas)
    start = _begin(for_start, target, base, chains)
    up = _anneal(for_up, target, base, *start, betas, sizes)
    return up, _anneal(for_down, target, base, x, discrete, betas[::-1], sizes[::-1])


def _begin(key: PRNGKeyArray, target: Target, base: _Base, count: int) -> tuple[State, State]:
    """Draw `count` samples of the base."""
    keys = iter(jax.random.split(key, len(target.domains)))
    dtype = _dtype(base.mean)
    noise = {name: scattered(next(keys), domain, (count,), dtype) for name, domain in target.continuous.items()}
    x = jax.tree.map(lambda z, m, s: m[None] + s[None] * z, noise, base.mean, base.scale)
    free = {} if target.summed else target.discrete
    return x, {name: scattered(next(keys), domain, (count,), dtype) for name, domain in free.items()}


def _move(key: PRNGKeyArray, target: Target, base: _Base, x: State, discrete: State, beta: Array, size: Array) -> Any:
    """Move one chain by a transition that leaves f_β invariant; return the state and the acceptance probability."""
    for_latents, for_x = jax.random.split(key)
    if discrete:
        discrete = target.redraw(for_latents, x, discrete, beta)
    density = lambda x: (1 - beta) * base.log_prob(x) + beta * target.log_prob(x, discrete)
    variance = ravel_pytree(base.scale)[0] ** 2
    with jax.numpy_dtype_promotion("standard"):
        at = (x, *jax.value_and_grad(density)(x))
        x, _, _, info = kernel_of("hmc")(for_x, density, at, size, variance, _LEAPFROG)
    return x, discrete, jnp.nan_to_num(info.acceptance_rate)


@eqx.filter_jit
def _pilot(
    key: PRNGKeyArray, target: Target, base: _Base, x: State, discrete: State, betas: Float[Array, "steps"]
) -> Float[Array, "steps"]:
    """Adapt a step size for each β on separate chains, because valid weights require transitions fixed in advance."""

    def step(carry, now):
        x, discrete, log_size = carry
        key, beta = now
        move = jax.vmap(lambda key, x, d: _move(key, target, base, x, d, beta, jnp.exp(log_size)))
        x, discrete, accepted = move(jax.random.split(key, _PILOTS), x, discrete)
        log_size = log_size + 0.3 * (jnp.mean(accepted) - 0.8)
        return (x, discrete, log_size), log_size

    start = (x, discrete, jnp.log(jnp.asarray(0.5, betas.dtype)))
    return jnp.exp(jax.lax.scan(step, start, (jax.random.split(key, len(betas)), betas))[1])


@eqx.filter_jit
def _anneal(
    key: PRNGKeyArray,
    target: Target,
    base: _Base,
    x: State,
    discrete: State,
    betas: Float[Array, "steps"],
    sizes: Float[Array, "steps"],
) -> Float[Array, "chains"]:
    """Return log importance weights of chains from the first β: reweighted to each next β, then moved there."""
    chains = len(jax.tree.leaves(x)[0])

    def step(carry, now):
        x, discrete, log_weight = carry
        key, beta, following, size = now
        gain = jax.vmap(lambda x, d: target.log_prob(x, d) - base.log_prob(x))(x, discrete)
        move = jax.vmap(lambda key, x, d: _move(key, target, base, x, d, following, size)[:2])
        x, discrete = move(jax.random.split(key, chains), x, discrete)
        return (x, discrete, log_weight + (following - beta) * gain), None

    steps = (jax.random.split(key, len(betas) - 1), betas[:-1], betas[1:], sizes[1:])
    return jax.lax.scan(step, (x, discrete, jnp.zeros(chains, betas.dtype)), steps)[0][2]


def _dtype(x: State) -> Any:
    return jax.tree.leaves(x)[0].dtype
