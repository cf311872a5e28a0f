"""Random signs."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray


def random_signs(key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    """Draw independent Rademacher numbers, ±1. Each random word gives 32 of them."""
    size = math.prod(shape)
    words = jax.random.bits(key, (-(-size // 32),), jnp.uint32)
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & 1
    return (2 * bits.reshape(-1)[:size].astype(dtype) - 1).reshape(shape)
