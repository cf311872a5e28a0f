"""The critic of a Stein discrepancy: a function of one example, shaped like the example."""

import math

import equinox as eqx
import jax
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
