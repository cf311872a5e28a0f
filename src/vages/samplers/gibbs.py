"""Block Gibbs sampling: all of v given h, then all of h given v, for models with closed forms of both."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.checks import check_count
from vages.distributions import Distribution
from vages.models import EBLVM, GRBM
from vages.samplers.chains import Drawn, Job, collect
from vages.samplers.langevin import Held
from vages.samplers.target import assemble, states_of


@dataclass(frozen=True)
class Gibbs:
    """Gibbs sampling: v given h and h given v in turn. Every `thin`-th step after the warm-up is kept."""

    warmup: int = 1000
    thin: int = 1

    def __post_init__(self):
        check_count("warmup", self.warmup, 0, "give more")
        check_count("thin", self.thin, 1, "1 keeps every step")

    def run(self, key: PRNGKeyArray, job: Job) -> Drawn:
        """Return the draws of all chains."""
        if not can_gibbs(job.model) or set(job.given) - {"mask", "known"}:
            raise TypeError(
                "sampler: expected a model with closed forms `conditional` and `posterior`, and no context or h, for "
                f"Gibbs, got {type(job.model).__name__} given {sorted(job.given) or 'nothing'}; leave sampler out, or "
                "write MCMC(), which draws discrete variables one after the other, given the rest"
            )
        if len(job.start["v"]) > 1:
            raise TypeError("held: expected one mask for all draws of Gibbs, got one for each; use MCMC()")
        return _run(key, self, job)


def can_gibbs(model: EBLVM) -> bool:
    """Whether the model has p(v | h) and p(h | v), as `conditional(h)` and `posterior(features)`."""
    return getattr(model, "conditional", None) is not None and hasattr(model, "posterior")


@eqx.filter_jit
def _run(key: PRNGKeyArray, sampler: Gibbs, job: Job) -> Drawn:
    """Run the chains of one target. Held entries of v are fixed, which is exact if entries are independent given h."""
    model: Any = job.model
    held = None if "mask" not in job.given else Held(job.given["mask"], job.given["known"])

    def step(key, i, state):
        for_v, for_h = jax.random.split(key)
        v = jax.vmap(model.conditional)(assemble(model.h, state, len(state["v"]))).hard().draw(for_v)
        v = v if held is None else held.hold(v)
        return states_of(model.h, v, _posterior(model, v).hard().draw(for_h))

    start = jax.tree.map(lambda x: x[0], job.start)
    how = {"warmup": sampler.warmup, "draws": job.draws, "thin": sampler.thin}
    states = collect(step, key, start, lambda state: state, **how)[1]
    shape = (1, len(start["v"]))
    states = jax.tree.map(lambda x: x[:, None], states)
    none = jnp.zeros(shape, jnp.int32)
    return Drawn(states, jnp.ones(shape), none, none)


class GibbsState(NamedTuple):
    """v and the binary h drawn given it. To show images without noise, use `model.conditional(h).mean`."""

    v: Array
    h: Array


def gibbs_init(key: PRNGKeyArray, model: GRBM, chains: int) -> GibbsState:
    """Draw v uniformly on [0, 1] and h ~ p(h | v), with a first axis of chains."""
    for_v, for_h = jax.random.split(key)
    v = jax.random.uniform(for_v, (chains, *model.v.shape), model.weight.dtype)
    return GibbsState(v, _posterior(model, v).draw(for_h))


def gibbs_step(key: PRNGKeyArray, model: GRBM, state: GibbsState) -> GibbsState:
    """Draw v ~ p(v | h), then h ~ p(h | v), in every chain. This leaves p(v, h) invariant."""
    for_h, for_v = jax.random.split(key)
    v = jax.vmap(model.conditional)(state.h).draw(for_v)
    return GibbsState(v, _posterior(model, v).draw(for_h))


@eqx.filter_jit
def gibbs_sample(key: PRNGKeyArray, model: GRBM, chains: int, steps: int = 1000) -> GibbsState:
    """Return independent chains, `steps` transitions after their start, in one compiled program."""
    for_init, for_steps = jax.random.split(key)
    state = gibbs_init(for_init, model, chains)
    step = lambda state, key: (gibbs_step(key, model, state), None)
    return jax.lax.scan(step, state, jax.random.split(for_steps, steps))[0]


def _posterior(model: Any, v: Array) -> Distribution:
    return jax.vmap(lambda v: model.posterior(model.features(v)))(v)
