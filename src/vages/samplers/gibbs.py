"""Block Gibbs sampling of a GRBM: all of v given h, then all of h given v."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from vages.models import GRBM


class GibbsState(NamedTuple):
    """v and the binary h drawn given it. Where means look better than draws, show `model.conditional(h).mean`."""

    v: Array
    h: Array


class GibbsNoise(NamedTuple):
    """The standard noise of a transition: logistic for h, normal for v."""

    h: Array
    v: Array


def gibbs_noise(key: PRNGKeyArray, model: GRBM, batch_shape: tuple[int, ...]) -> GibbsNoise:
    """The noise of as many transitions as `batch_shape` holds, in one call: (*batch_shape, h) and (*batch_shape, v).

    It asks the model for shapes and dtypes alone.
    """
    for_h, for_v = jax.random.split(key)
    posterior, conditional = jax.eval_shape(
        lambda model: (model.posterior(model.features(model.visible_bias)), model.conditional(model.latent_bias)), model
    )
    return GibbsNoise(
        posterior.noise(for_h, (*batch_shape, *model.h.shape)),
        conditional.noise(for_v, (*batch_shape, *model.v.shape)),
    )


def gibbs_transition(model: GRBM, h: Array, noise: GibbsNoise) -> GibbsState:
    """v ~ p(v | h), then h ~ p(h | v), of one chain. It leaves p(v, h) as it is."""
    v = model.conditional(h).transform(noise.v)
    return GibbsState(v, model.posterior(model.features(v)).transform(noise.h))


def gibbs_init(key: PRNGKeyArray, model: GRBM, chains: int) -> GibbsState:
    """v uniform on [0, 1] and h ~ p(h | v), with the axis of the chains first."""
    for_v, for_h = jax.random.split(key)
    v = jax.random.uniform(for_v, (chains, *model.v.shape), model.weight.dtype)
    noise = gibbs_noise(for_h, model, (chains,)).h
    return GibbsState(v, jax.vmap(lambda v, noise: model.posterior(model.features(v)).transform(noise))(v, noise))


def gibbs_step(key: PRNGKeyArray, model: GRBM, state: GibbsState) -> GibbsState:
    """One transition of every chain."""
    noise = gibbs_noise(key, model, state.h.shape[:1])
    return jax.vmap(lambda h, noise: gibbs_transition(model, h, noise))(state.h, noise)


@eqx.filter_jit
def gibbs_sample(key: PRNGKeyArray, model: GRBM, chains: int, steps: int = 1000) -> GibbsState:
    """Independent chains, `steps` transitions after their start, as one compiled program."""
    for_init, for_steps = jax.random.split(key)
    state = gibbs_init(for_init, model, chains)
    step = lambda state, key: (gibbs_step(key, model, state), None)
    return jax.lax.scan(step, state, jax.random.split(for_steps, steps))[0]
