"""Last layers of networks, which sum in float32 even if the network computes in lower precision.

Inputs may be bfloat16; results are float32, or float64 if the inputs are.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Readout(eqx.Module):
    """W x + b."""

    linear: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray, in_size: int, out_size: int):
        self.linear = eqx.nn.Linear(in_size, out_size, key=key)

    def __call__(self, x: Float[Array, "in"]) -> Float[Array, "out"]:
        """The result for one example."""
        wide = at_least_float32(x.dtype)
        assert self.linear.bias is not None
        weight = self.linear.weight
        if jax.default_backend() == "cpu":  # XLA has no product of bfloat16 matrices with a float32 result there
            weight, x = weight.astype(wide), x.astype(wide)
        return jnp.matmul(weight, x, preferred_element_type=wide) + self.linear.bias.astype(wide)


class Quadratic(eqx.Module):
    """(w₁·x + b₁)(w₂·x + b₂) + w₃·x² + b₃, the energy of a plain EBM as a function of its last layer."""

    weight: Float[Array, "3 in"]
    bias: Float[Array, "3"]

    def __init__(self, key: PRNGKeyArray, in_size: int):
        bound, (weight, bias) = 1 / math.sqrt(in_size), jax.random.split(key)
        self.weight = jax.random.uniform(weight, (3, in_size), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias, (3,), minval=-bound, maxval=bound)

    def __call__(self, x: Float[Array, "in"]) -> Float[Array, ""]:
        """The result for one example."""
        wide = at_least_float32(x.dtype)
        x, weight, bias = x.astype(wide), self.weight.astype(wide), self.bias.astype(wide)
        first, second, third = jnp.sum(weight * jnp.stack([x, x, x**2]), axis=1) + bias
        return first * second + third


def at_least_float32(dtype):
    """Return the dtype in which to sum numbers of this dtype: float32, or wider."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)
