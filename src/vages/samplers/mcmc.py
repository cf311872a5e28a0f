"""Markov chain Monte Carlo for any density with a gradient, with Gibbs updates of discrete variables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Integer, PRNGKeyArray

from vages.checks import check_count, is_finite, told
from vages.models import EBLVM
from vages.samplers.chains import Drawn, Job, collect
from vages.samplers.jumps import Regression, can_jump, jump, start_regression
from vages.samplers.moves import Chain, exchange, kernel_of
from vages.samplers.target import MAX_SUMMED, State, Target
from vages.samplers.warmup import Tuning, Windows, start_tuning, update_tuning

_ACCEPTANCE = {"nuts": 0.8, "hmc": 0.8, "mala": 0.574}


@dataclass(frozen=True)
class MCMC:
    """Markov chains at temperature 1. A warm-up adapts the step size and the scale of each coordinate.

    `kernel` is "nuts", "hmc" (with a random number of leapfrog steps around `leapfrog`) or "mala". Discrete latents
    with up to 1,024 states are summed out of the density and drawn exactly at the end; others are drawn given the rest
    between the moves. `sum_latents` overrides this. If all variables are discrete, there are only such draws, whatever
    the kernel is. After the warm-up, every `thin`-th step is kept.

    With `temperatures` (1.0, 2.0, 4.0, …), copies of each chain run on flatter densities p̃^(1/T) and are exchanged
    between neighboring temperatures. This helps if a single chain does not move between modes.

    The warm-up finds the step size at which a share `target_acceptance` of the moves is accepted: 0.8, or 0.574 for
    MALA. If moves diverge, 0.95 or 0.99 makes steps smaller, and chains slower.
    """

    kernel: Literal["nuts", "hmc", "mala"] = "nuts"
    warmup: int = 500
    thin: int = 1
    leapfrog: int = 10
    temperatures: Sequence[float] = (1.0,)
    sum_latents: bool | None = None
    target_acceptance: float | None = None

    def __post_init__(self):
        if self.kernel not in _ACCEPTANCE:
            raise ValueError(f"kernel: expected one of {', '.join(_ACCEPTANCE)}, got {told(self.kernel)}")
        for name, least in (("warmup", 0), ("thin", 1), ("leapfrog", 1)):
            check_count(name, getattr(self, name), least, "give more")
        if not is_finite(rate := self.rate) or not 0 < rate < 1:
            raise ValueError(f"target_acceptance: expected a number between 0 and 1, got {told(rate)}; give 0.95, say")
        ladder = list(self.temperatures) if hasattr(self.temperatures, "__iter__") else []
        numbers = len(ladder) > 0 and all(map(is_finite, ladder))
        if not numbers or ladder[0] != 1 or not all(a < b for a, b in pairwise(ladder)):
            got = told(self.temperatures)
            raise ValueError(f"temperatures: expected increasing numbers from 1, got {got}; give (1.0, 2.0, 4.0), say")
        object.__setattr__(self, "temperatures", tuple(map(float, ladder)))  # lists cannot be hashed

    @property
    def rate(self) -> float:
        """The acceptance rate that the warm-up aims for."""
        return _ACCEPTANCE[self.kernel] if self.target_acceptance is None else self.target_acceptance

    def run(self, key: PRNGKeyArray, job: Job) -> Drawn:
        """Return the draws of all chains."""
        target = Target(job.model, **jax.tree.map(lambda x: x[0], job.given))
        summed = target.can_sum() if self.sum_latents is None else self.sum_latents
        if summed and not target.can_sum():
            raise ValueError(
                f"sum_latents: expected discrete latents with at most {MAX_SUMMED} states beside continuous variables, "
                f"got {job.model.h!r} and v {job.model.v!r}; leave it out"
            )
        windows = Windows.of(self.warmup)
        return _run(key, self, job.model, job.given, job.start, windows, summed=summed, draws=job.draws)


class _Learnt(NamedTuple):
    """What the warm-up adapts, for one target and temperature."""

    tuning: Tuning
    jumps: Regression


class _Totals(NamedTuple):
    accepted: Float[Array, "targets chains"]
    diverged: Integer[Array, "targets chains"]
    swapped: Float[Array, "targets chains"]
    gradients: Integer[Array, "targets chains"]


@eqx.filter_jit
def _run(
    key: PRNGKeyArray,
    sampler: MCMC,
    model: EBLVM,
    given: dict[str, Any],
    start: State,
    windows: Windows,
    *,
    summed: bool,
    draws: int,
) -> Drawn:
    """Run chains from `start` (targets, chains, …). `given` has the fields of the targets along their first axis."""
    for_chains, for_latents = jax.random.split(key)
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("float32"):
        make = lambda given: Target(model, **given, summed=summed)
        chains = _copies(_begin(make, given, start), len(sampler.temperatures))
        betas = jnp.asarray(1 / np.asarray(sampler.temperatures, np.float64), chains.log_prob.dtype)
        learnt = _begin_learning(make, given, start, chains, sampler.rate)
        step = _all_chains(make, sampler, betas)

        def one(key, i, carry):
            chains, learnt, totals = carry
            warm = i < sampler.warmup
            tuning, place = learnt.tuning, jnp.minimum(i, sampler.warmup)
            adapting = warm if sampler.warmup else True
            step_size = jnp.where(adapting, tuning.step_size, tuning.final_step_size)
            chains, info = step(key, given, step_size, learnt, chains, i)
            if chains.continuous and sampler.warmup:
                new = _learn(learnt, chains, info, windows.slow[place], windows.end[place], sampler)
                learnt = jax.tree.map(lambda new, old: jnp.where(warm, new, old), new, learnt)
            kept = jnp.where(warm, 0, 1)
            totals = _Totals(
                totals.accepted + kept * info.accepted[:, :, 0],
                totals.diverged + kept * info.diverged[:, :, 0],
                totals.swapped + kept * info.swapped,
                totals.gradients + jnp.sum(info.gradients, axis=2, dtype=jnp.int32),
            )
            return chains, learnt, totals

        zeros = jnp.zeros(chains.log_prob.shape[:2], chains.log_prob.dtype)
        none = zeros.astype(jnp.int32)
        totals = _Totals(zeros, none, zeros, none)
        cold = lambda chains: (chains.continuous | chains.discrete, chains.log_prob)
        read = lambda carry: jax.tree.map(lambda x: x[:, :, 0], cold(carry[0]))
        how = {"warmup": sampler.warmup, "draws": draws, "thin": sampler.thin}
        (_, _, totals), (states, log_prob) = collect(one, for_chains, (chains, learnt, totals), read, **how)
        if summed:
            states |= _completed(for_latents, make, given, states)
        steps = draws * sampler.thin
        swapped = None if len(betas) == 1 else totals.swapped / steps
        accepted = totals.accepted / steps
        return Drawn(states, accepted, totals.diverged, totals.gradients, log_prob, swapped)


def _begin(make: Any, given: Any, start: State) -> Chain:
    """Return the chains at their start (targets, chains, …)."""

    def one(given, state):
        target = make(given)
        continuous = {name: state[name] for name in target.continuous}
        discrete = {} if target.summed else {name: state[name] for name in target.discrete}
        log_prob, gradient = jax.value_and_grad(target.log_prob)(continuous, discrete)
        return Chain(continuous, discrete, log_prob, gradient)

    return jax.vmap(lambda given, states: jax.vmap(lambda state: one(given, state))(states))(given, start)


def _copies(chains: Chain, count: int) -> Chain:
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:, :, None], (*x.shape[:2], count, *x.shape[2:])), chains)


def _flat(states: State) -> Array:
    """Flatten states with three leading axes to vectors."""
    return jax.vmap(jax.vmap(jax.vmap(lambda x: ravel_pytree(x)[0])))(states)


def _begin_learning(make: Any, given: Any, start: State, chains: Chain, rate: float) -> _Learnt:
    """Return the state of the warm-up before the first step, with slopes of jumps from the starts."""
    target = make(jax.tree.map(lambda x: x[0], given))
    dtype, (targets, count, copies) = chains.log_prob.dtype, chains.log_prob.shape
    size = sum(domain.size for domain in target.continuous.values())
    latents = sum(domain.size for domain in target.discrete.values()) if can_jump(target) else 0

    def one(h, x):
        regression = start_regression(latents, size, dtype)
        return _Learnt(start_tuning(size, dtype, rate), regression.add(h, x).solve() if latents else regression)

    def states(names, size):
        shape = (targets, count, copies, size)
        flat = _flat({name: start[name][:, :, None] for name in names}) if size else jnp.zeros(shape, dtype)
        return jnp.broadcast_to(flat, shape)

    x, h = states(target.continuous, size), states(target.discrete, latents)
    return jax.vmap(jax.vmap(one, in_axes=1))(h, x)


def _learn(learnt: _Learnt, chains: Chain, info: "_Info", slow: Array, end: Array, sampler: MCMC) -> _Learnt:
    """Return the state of the warm-up after a step."""

    def one(learnt, x, accepted, before, h):
        tuning = update_tuning(learnt.tuning, slow, end, x, jnp.mean(accepted), sampler.rate)
        jumps = learnt.jumps
        if h.shape[1]:
            added = jumps.add(h, before)
            jumps = jax.lax.cond(end, lambda: added.solve(), lambda: added)
        return _Learnt(tuning, jumps)

    return jax.vmap(jax.vmap(one, in_axes=(0, 1, 1, 1, 1)))(
        learnt, _flat(chains.continuous), info.accepted, info.x, info.h
    )


class _Info(NamedTuple):
    accepted: Array
    diverged: Array
    gradients: Array
    x: Array  # continuous and discrete variables before the move, for the regression; empty without jumps
    h: Array
    swapped: Any = None


def _vmap_unless_one(function: Callable[..., Any], in_axes: tuple[int | None, ...], size: int) -> Callable[..., Any]:
    """`jax.vmap` over an axis of this size; an axis of size 1 is removed instead, as is usual for all but the chains.

    The result is the same. NUTS has nested loops, and `vmap` traces the body of a loop several times.
    """
    if size > 1:
        return jax.vmap(function, in_axes)

    def single(*args):
        only = lambda axis, arg: arg if axis is None else jax.tree.map(lambda x: jnp.squeeze(x, axis), arg)
        return jax.tree.map(lambda x: x[None], function(*map(only, in_axes, args)))

    return single


def _all_chains(make: Any, sampler: MCMC, betas: Float[Array, "temperatures"]) -> Any:
    """Return a function for one step of every chain at every temperature: latents, jumps, a move and exchanges."""
    move = kernel_of(sampler.kernel)

    def transition(key, leaps, given, beta, step_size, learnt, chain):
        target = make(given)
        for_latents, for_jumps, for_move = jax.random.split(key, 3)
        gradients, seen = jnp.zeros((), jnp.int32), (jnp.zeros(0), jnp.zeros(0))
        discrete, power = chain.discrete, None if len(betas) == 1 else beta
        if discrete:
            discrete = target.redraw(for_latents, chain.continuous, discrete, power)
        if can_jump(target):
            latents = discrete or target.complete(for_latents, chain.continuous)
            seen = ravel_pytree(chain.continuous)[0], ravel_pytree(latents)[0]
            x, latents = jump(for_jumps, target, learnt.jumps.slope, chain.continuous, latents, power)
            chain = chain._replace(continuous=x)
            discrete = latents if discrete else {}
        if discrete or can_jump(target):
            log_prob, gradient = jax.value_and_grad(target.log_prob)(chain.continuous, discrete)
            chain, gradients = Chain(chain.continuous, discrete, log_prob, gradient), gradients + 1
        if not chain.continuous:
            zero = jnp.zeros((), jnp.int32)
            return chain, _Info(jnp.ones_like(chain.log_prob), zero, zero, *seen)
        position, log_prob, gradient, info = move(
            for_move,
            lambda x: beta * target.log_prob(x, discrete),
            (chain.continuous, beta * chain.log_prob, jax.tree.map(lambda x: beta * x, chain.gradient)),
            step_size,
            learnt.tuning.variance,
            leaps,
        )
        chain = Chain(position, discrete, log_prob / beta, jax.tree.map(lambda x: x / beta, gradient))
        gradients = gradients + jnp.asarray(info.num_integration_steps, jnp.int32)
        return chain, _Info(jnp.nan_to_num(info.acceptance_rate), info.is_divergent.astype(jnp.int32), gradients, *seen)

    vmap = _vmap_unless_one if sampler.kernel == "nuts" else lambda function, in_axes, size: jax.vmap(function, in_axes)

    def step(key, given, step_size, learnt, chains, i):
        for_leaps, for_moves, for_swaps = jax.random.split(key, 3)
        leaps = jax.random.randint(for_leaps, (), 1, 2 * sampler.leapfrog)
        shape = targets, count, temperatures = chains.log_prob.shape
        over_temperatures = vmap(transition, (0, None, None, 0, 0, 0, 0), temperatures)
        over_chains = vmap(over_temperatures, (0, None, None, None, None, None, 0), count)
        over_targets = vmap(over_chains, (0, None, 0, None, 0, 0, 0), targets)
        chains, info = over_targets(jax.random.split(for_moves, shape), leaps, given, betas, step_size, learnt, chains)
        if len(betas) == 1:
            return chains, info._replace(swapped=jnp.zeros(shape[:2], chains.log_prob.dtype))
        keys = jax.random.split(for_swaps, shape[:2])
        parity = i % min(2, len(betas) - 1)  # two temperatures make one pair
        chains, swapped = jax.vmap(jax.vmap(lambda key, chain: exchange(key, betas, chain, parity)))(keys, chains)
        return chains, info._replace(swapped=swapped)

    return step


def _completed(key: PRNGKeyArray, make: Any, given: Any, states: State) -> State:
    """Draw the summed-out latents exactly, for every state (draws, targets, chains, …)."""
    draws, targets, count = jax.tree.leaves(states)[0].shape[:3]
    one = lambda key, given, state: make(given).complete(key, state)
    over_chains = jax.vmap(one, in_axes=(0, None, 0))
    over_targets = jax.vmap(over_chains)
    block = lambda now: over_targets(jax.random.split(now[0], (targets, count)), given, now[1])
    return jax.lax.map(block, (jax.random.split(key, draws), states))
