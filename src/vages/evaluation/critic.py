"""Critics of a Stein discrepancy: functions of one example, and optionally its latents, shaped like the example."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.network import check_size


class MLPCritic(eqx.Module):
    """An MLP critic with ELU, by default with two hidden layers as wide as the dimension of v, as in the paper.

    Any other `eqx.Module` from v to an array of the same shape can be a critic.
    """

    layers: eqx.nn.MLP

    def __init__(
        self, key: PRNGKeyArray, shape: int | tuple[int, ...], *, width: int | None = None, hidden_layers: int = 2
    ):
        size = shape if isinstance(shape, int) else math.prod(shape)
        width = size if width is None else width
        check_size(shape=size, width=width, hidden_layers=hidden_layers)
        self.layers = eqx.nn.MLP(size, size, width, hidden_layers, activation=jax.nn.elu, key=key)

    def __call__(self, v: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the critic's value at one example."""
        return self.layers(v.reshape(-1)).reshape(v.shape)


class LatentCritic(eqx.Module):
    """A critic of v and E_q[h | v]: the sum of a linear map and an MLP.

    The score of an energy that is linear in h, such as a GRBM's, is linear in the inputs of this critic. A network of v
    alone would have to learn every unit of the posterior first.
    """

    linear: eqx.nn.Linear
    layers: eqx.nn.MLP

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: int | tuple[int, ...],
        h_shape: int | tuple[int, ...],
        *,
        width: int | None = None,
        hidden_layers: int = 2,
    ):
        size, latents = (x if isinstance(x, int) else math.prod(x) for x in (shape, h_shape))
        width = size if width is None else width
        check_size(shape=size, width=width, hidden_layers=hidden_layers)
        for_linear, for_layers = jax.random.split(key)
        self.linear = eqx.nn.Linear(size + latents, size, key=for_linear)
        self.layers = eqx.nn.MLP(size + latents, size, width, hidden_layers, activation=jax.nn.elu, key=for_layers)

    def __call__(self, v: Float[Array, "..."], h: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the critic's value at one example, where h is the posterior mean of its latents."""
        both = jnp.concatenate([v.reshape(-1), h.reshape(-1)])
        return (self.linear(both) + self.layers(both)).reshape(v.shape)
