"""The Langevin corrector: samples of q moved towards the posterior."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.models import EBLVM


def langevin_corrector(
    model: EBLVM,
    features: Any,
    h: Array,
    key: PRNGKeyArray,
    *,
    steps: int,
    step_size: float,
    noise_std: float | None = None,
) -> Array:
    """`steps` times h ← h + ½ α ∇_h log p̃(v, h) + noise, for h (batch, L, …) of continuous latents (Eq. 11).

    α is `step_size`. The noise has standard deviation √α, or `noise_std` where given: practice takes it smaller.
    """
    if not jnp.issubdtype(h.dtype, jnp.floating):
        raise TypeError(f"h: expected floating (continuous) latents, got {h.dtype}; skip the corrector for discrete h")
    std = step_size**0.5 if noise_std is None else noise_std
    force = jax.vmap(lambda features, h: jax.vmap(jax.grad(lambda h: model.log_joint(features, h)))(h))

    def step(h, noise):
        return h + 0.5 * step_size * force(features, h) + std * noise, None

    noise = jax.random.normal(key, (steps, *h.shape), h.dtype)
    return jax.lax.stop_gradient(jax.lax.scan(step, h, noise)[0])
