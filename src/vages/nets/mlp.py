"""A residual network of fully connected layers, for vectors and for images where convolutions are too slow."""

import math

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.network import check_size
from vages.nets.readout import Readout


class ResidualMLP(eqx.Module):
    """A residual MLP from arrays of any shape, flattened, to `out` numbers, or without `out` to its last layer.

    It has `depth` layers of `width`, all but the first residual: x + Linear(ELU(x)); then a linear layer of ELU(x).
    Without `out`, there is no activation after the last layer.
    """

    layers: list[eqx.nn.Linear]
    readout: Readout | None
    in_shape: tuple[int, ...] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, shape: int | tuple[int, ...], *, width: int, depth: int, out: int | None = None
    ):
        check_size(width=width, depth=depth, out=1 if out is None else out)
        self.in_shape = (shape,) if isinstance(shape, int) else shape
        size = math.prod(self.in_shape)
        check_size(shape=size)
        readout, *keys = jax.random.split(key, 1 + depth)
        self.layers = [eqx.nn.Linear(width if i else size, width, key=key) for i, key in enumerate(keys)]
        self.readout = None if out is None else Readout(readout, width, out)
        self.out_size = width if out is None else out

    def __call__(self, v: Float[Array, "..."]) -> Float[Array, "out"]:
        """The result for one example."""
        x = self.layers[0](v.reshape(-1))
        for layer in self.layers[1:]:
            x = x + layer(jax.nn.elu(x))
        return x if self.readout is None else self.readout(jax.nn.elu(x))
