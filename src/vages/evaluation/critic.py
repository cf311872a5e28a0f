"""The critic of a Stein discrepancy: a function of one example, and perhaps of its latents, shaped like the example."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.network import check_size


class MLPCritic(eqx.Module):
    """Fully connected layers with ELU between them; two hidden layers as wide as v is long, as in the paper.

    Any other `eqx.Module` from v to an array of the same shape is a critic as well.
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
        """The direction at one example."""
        return self.layers(v.reshape(-1)).reshape(v.shape)


class LatentCritic(eqx.Module):
    """A critic that also reads E_q[h | v]: a linear map of both, and fully connected layers beside it.

    The score of an energy that is linear in h, such as a GRBM's, is linear in what this critic is given. A network of v
    alone would have to find every unit of the posterior first.
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
        """The direction at one example, whose latents have the posterior mean h."""
        both = jnp.concatenate([v.reshape(-1), h.reshape(-1)])
        return (self.linear(both) + self.layers(both)).reshape(v.shape)
