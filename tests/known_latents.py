"""Latents without sampling, for tests of estimators: all states, or fixed samples."""

import jax
import jax.numpy as jnp

from small_nets import normal
from vages.objectives import Latents, LatentSource


class Weighted(LatentSource):
    """All states with their posterior probabilities: VaGES without sampling."""

    def __call__(self, key, model, q, encoding, count=1):
        states = model.h.states(encoding.v.dtype)
        logs = jax.vmap(lambda f: jax.vmap(lambda h: model.log_joint(f, h))(states))(encoding.features)
        h = jnp.broadcast_to(states, (len(logs), *states.shape))
        return [Latents(h, jax.nn.softmax(logs, axis=1))] * count


class Fixed(LatentSource):
    """Two fixed sets of samples."""

    def __call__(self, key, model, q, encoding, count=1):
        return [Latents(normal(seed, len(encoding.v), 3, *model.h.shape)) for seed in (7, 8)]
