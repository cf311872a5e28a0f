"""Shared functions of the models with energy ½ ‖(v − b) / σ‖² − (c + Wᵀv)·h + …"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Projection(NamedTuple):
    """The features of v: −½ ‖(v − b) / σ‖² and the field c + Wᵀv that acts on h."""

    log_base: Float[Array, ""]
    field: Float[Array, "h"]


def project(v: Array, weight: Array, visible_bias: Array, latent_bias: Array, log_sigma: Array) -> Projection:
    """Compute the features of v."""
    standard = (v - visible_bias) * jnp.exp(-log_sigma)
    return Projection(-0.5 * jnp.sum(standard**2), latent_bias + v @ weight)


def uniform_parameters(
    key: PRNGKeyArray, v_dim: int, h_dim: int, bound: float, scalar_sigma: bool, dtype
) -> tuple[Array, Array, Array, Array]:
    """W, b and c uniform on ±bound, and log σ = 0, in the order of the models' fields."""
    weight, b, c = jax.random.split(key, 3)
    return (
        jax.random.uniform(weight, (v_dim, h_dim), dtype, -bound, bound),
        jax.random.uniform(b, (v_dim,), dtype, -bound, bound),
        jax.random.uniform(c, (h_dim,), dtype, -bound, bound),
        jnp.zeros(() if scalar_sigma else (v_dim,), dtype),
    )
