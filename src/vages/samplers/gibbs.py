"""Block Gibbs sampling of a GRBM: all of v given h, then all of h given v."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Bernoulli
from vages.models import GRBM


class GibbsState(NamedTuple):
    """v and the binary h drawn given it. Where means look better than draws, show `model.conditional(h).mean`."""

    v: Array
    h: Array


def gibbs_init(key: PRNGKeyArray, model: GRBM, chains: int) -> GibbsState:
    """v uniform on [0, 1] and h ~ p(h | v), with the axis of the chains first."""
    for_v, for_h = jax.random.split(key)
    v = jax.random.uniform(for_v, (chains, *model.v.shape), model.weight.dtype)
    return GibbsState(v, _posterior(model, v).draw(for_h))


def gibbs_step(key: PRNGKeyArray, model: GRBM, state: GibbsState) -> GibbsState:
    """v ~ p(v | h), then h ~ p(h | v), in every chain. It leaves p(v, h) as it is."""
    for_h, for_v = jax.random.split(key)
    v = jax.vmap(model.conditional)(state.h).draw(for_v)
    return GibbsState(v, _posterior(model, v).draw(for_h))


@eqx.filter_jit
def gibbs_sample(key: PRNGKeyArray, model: GRBM, chains: int, steps: int = 1000) -> GibbsState:
    """Independent chains, `steps` transitions after their start, as one compiled program."""
    for_init, for_steps = jax.random.split(key)
    state = gibbs_init(for_init, model, chains)
    step = lambda state, key: (gibbs_step(key, model, state), None)
    return jax.lax.scan(step, state, jax.random.split(for_steps, steps))[0]


def _posterior(model: GRBM, v: Array) -> Bernoulli:
    return jax.vmap(lambda v: model.posterior(model.features(v)))(v)
