"""Moves of single chains: BlackJAX kernels, exchanges between temperatures, and good starts."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.models import EBLVM
from vages.samplers.langevin import chain_dtype
from vages.samplers.target import State, Target, scattered

_SETTLING = 200  # steps towards p(v | h) of a random h
_SPREAD = 2.0  # standard deviation of the starts


class Chain(NamedTuple):
    """The state of a chain, with log p̃ and its gradient."""

    continuous: State
    discrete: State
    log_prob: Float[Array, ""]
    gradient: State


def exchange(key: PRNGKeyArray, betas: Array, chain: Chain, parity: Array) -> tuple[Chain, Array]:
    """Exchange copies of a chain at neighboring temperatures; return the copies and the acceptance rate.

    With `parity` 0, the pairs are (0, 1), (2, 3), …, and with 1, they are (1, 2), (3, 4), …
    """
    count = len(betas)
    place = jnp.arange(count)
    first = (place % 2 == parity) & (place < count - 1)
    log_ratio = (betas[:-1] - betas[1:]) * (chain.log_prob[1:] - chain.log_prob[:-1])
    accept = jnp.append(jnp.log(jax.random.uniform(key, (count - 1,), betas.dtype)) < log_ratio, False) & first
    order = jnp.where(accept, place + 1, jnp.where(jnp.roll(accept, 1), place - 1, place))
    rate = jnp.sum(jnp.where(first[:-1], jnp.exp(jnp.minimum(log_ratio, 0)), 0)) / jnp.maximum(jnp.sum(first), 1)
    return jax.tree.map(lambda x: x[order], chain), rate.astype(betas.dtype)


def kernel_of(name: str) -> Any:
    """Return a move: from (key, log density, (position, its log density, gradient), step size, variances, leaps).

    It returns the next position, its log density, its gradient and BlackJAX's info.
    """
    import blackjax

    if name == "nuts":
        nuts = blackjax.nuts.build_kernel()
        step = lambda key, state, density, size, variance, leaps: nuts(key, state, density, size, variance)
    else:
        hmc = blackjax.hmc.build_kernel()
        count = (lambda leaps: 1) if name == "mala" else lambda leaps: leaps
        step = lambda key, state, density, size, variance, leaps: hmc(key, state, density, size, variance, count(leaps))

    def move(key, density, at, step_size, variance, leaps):
        state, info = step(key, blackjax.mcmc.hmc.HMCState(*at), density, step_size, variance, leaps)
        return state.position, state.logdensity, state.logdensity_grad, info

    return move


@eqx.filter_jit
def far_apart(
    key: PRNGKeyArray, model: EBLVM, given: dict[str, Any], shape: tuple[int, int], *, settled: bool
) -> State:
    """Return starts (targets, chains, …): normal numbers and random states, moved towards p(v | h) with `settled`."""
    target, dtype = Target(model, **jax.tree.map(lambda x: x[0], given)), chain_dtype(model)
    for_settling, *keys = jax.random.split(key, 1 + len(target.domains))
    spread = {True: jnp.asarray(_SPREAD, dtype), False: jnp.ones((), dtype)}
    states = {
        name: spread[domain.continuous] * scattered(key, domain, shape, dtype)
        for key, (name, domain) in zip(keys, target.domains.items(), strict=True)
    }
    both = bool(target.discrete) and bool(target.continuous)
    return _settle(for_settling, model, given, states) if settled and both else states


def _settle(key: PRNGKeyArray, model: EBLVM, given: dict[str, Any], start: State) -> State:
    """Move starts towards p(v | h) of their random h.

    Chains then begin in the modes of different h, wherever these are. Each chain adapts its own step size.
    """
    hmc = kernel_of("mala")

    def one(key, given, state):
        target = Target(model, **given)
        discrete = {name: state[name] for name in target.discrete}
        density = lambda x: target.log_prob(x, discrete)

        def step(carry, key):
            at, size = carry
            *new, info = hmc(key, density, at, size, jnp.ones(total, size.dtype), None)
            return (tuple(new), size * jnp.where(info.acceptance_rate > 0.6, 1.2, 0.7)), None

        continuous = {name: state[name] for name in target.continuous}
        total = sum(x.size for x in continuous.values())
        log_prob, gradient = jax.value_and_grad(density)(continuous)
        start = ((continuous, log_prob, gradient), jnp.asarray(0.1, log_prob.dtype))
        ((position, _, _), _), _ = jax.lax.scan(step, start, jax.random.split(key, _SETTLING))
        return position | discrete

    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("float32"):
        keys = jax.random.split(key, jax.tree.leaves(start)[0].shape[:2])
        over_chains = jax.vmap(one, in_axes=(0, None, 0))
        return jax.vmap(over_chains)(keys, given, start)
