"""Sums over all states of discrete latents, in blocks of bounded memory."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vages.models.eblvm import EBLVM

_BLOCK = 2**12  # states in memory at once, per example


def log_joints(model: EBLVM, features: Any, dtype: Any) -> Float[Array, "states"]:
    """log p̃(v, h) of one v for every state of h, in the order of `model.h.states()`."""
    return _by_blocks(model, features, dtype, lambda log_joints: log_joints).reshape(-1)[: model.h.count]


def log_marginal(model: EBLVM, features: Any, dtype: Any) -> Float[Array, ""]:
    """log p̃(v) = log Σ_h p̃(v, h) of one v. Its gradients are exact scores, and exact gradients of scores."""
    return jax.nn.logsumexp(_by_blocks(model, features, dtype, _logsumexp))


def _logsumexp(values: Float[Array, "states"]) -> Float[Array, ""]:
    """Log-sum-exp with gradient zero instead of NaN if every state of a block is forbidden, log p̃ = −∞."""
    forbidden = jnp.all(jnp.isneginf(values))
    return jnp.where(forbidden, -jnp.inf, jax.nn.logsumexp(jnp.where(forbidden, 0.0, values)))


def _by_blocks(model: EBLVM, features: Any, dtype: Any, reduce: Any) -> Array:
    """Apply `reduce` to log p̃(v, h) of each block of states, padded with −∞ after the last state."""
    count = model.h.count
    assert count is not None
    numbers = jnp.arange(-(-count // _BLOCK) * min(count, _BLOCK), dtype=jnp.uint32).reshape(-1, min(count, _BLOCK))

    def block(numbers):
        values = jax.vmap(lambda h: model.log_joint(features, h))(model.h.states(dtype, numbers))
        return reduce(values if count <= _BLOCK else jnp.where(numbers < count, values, -jnp.inf))

    if len(numbers) == 1:
        return block(numbers[0])[None]
    return jax.lax.map(jax.checkpoint(block), numbers)  # pyright: ignore[reportPrivateImportUsage]
