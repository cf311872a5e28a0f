"""The convolutional network of the variational posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.network import check_image_shape, check_size
from vages.nets.patches import convolve_patches
from vages.nets.readout import Readout


class ConvEncoder(eqx.Module):
    """A convolutional network from images with sides divisible by 8 to `out` numbers.

    It has three 3×3 convolutions of stride 2 to `width`, 2 `width` and 4 `width` channels, each followed by
    LeakyReLU(0.2), and a linear layer of the flattened result.
    """

    layers: list[eqx.nn.Conv2d]
    readout: Readout
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, shape: tuple[int, int, int], *, width: int = 64, out: int):
        check_image_shape(shape)
        check_size(width=width, out=out)
        channels, height, side = shape
        readout, *keys = jax.random.split(key, 4)
        sizes = (channels, width, 2 * width, 4 * width)
        self.layers = [
            eqx.nn.Conv2d(before, after, 3, stride=2, padding=1, key=key)
            for before, after, key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        ]
        self.readout = Readout(readout, sizes[-1] * (height // 8) * (side // 8), out)
        self.in_shape = shape
        self.out_size = out

    def __call__(self, v: Float[Array, "channels height width"]) -> Float[Array, "out"]:
        """The result for one image."""
        x = jnp.transpose(v, (1, 2, 0))
        for layer in self.layers:
            x = jax.nn.leaky_relu(convolve_patches(layer, x), 0.2)
        return self.readout(jnp.transpose(x, (2, 0, 1)).reshape(-1))
