"""The residual network of the deep models: no normalization, and learned 1×1 convolutions as shortcuts."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.network import check_image_shape, check_size
from vages.nets.patches import convolve_patches
from vages.nets.readout import Readout


class Block(eqx.Module):
    """ELU, 3×3 convolution, ELU, 3×3 convolution, plus a 1×1 shortcut; with `down`, at half the resolution."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    shortcut: eqx.nn.Conv2d
    down: bool = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, in_channels: int, out_channels: int, *, down: bool):
        first, second, shortcut = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(in_channels, in_channels, 3, padding=1, use_bias=False, key=first)
        stride, padding = (2, 0) if down else (1, 1)
        self.second = eqx.nn.Conv2d(in_channels, out_channels, 3, stride, padding, key=second)
        self.shortcut = eqx.nn.Conv2d(in_channels, out_channels, 1, key=shortcut)
        self.down = down

    def __call__(self, x: Float[Array, "in height width"]) -> Float[Array, "out height_out width_out"]:
        """The result for one example."""
        inner = jax.nn.elu(self.first(jax.nn.elu(x)))
        if self.down:
            # Pooling after a convolution is a convolution of stride 2 of running means, at a quarter of the cost.
            return self.second(running_means(inner)) + self.shortcut(average_pool(x))
        return self.second(inner) + self.shortcut(x)


class ResNet(eqx.Module):
    """A ResNet from images with sides divisible by 8 to `out` numbers, or without `out` to its last layer.

    It has a 3×3 convolution to `width` channels, three stages, each with a block that doubles the channels and halves
    the sides and `depth` − 1 further blocks, and a linear layer of the flattened result. There is no activation after
    the last block.
    """

    stem: eqx.nn.Conv2d
    blocks: list[Block]
    readout: Readout | None
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, shape: tuple[int, int, int], *, width: int, depth: int, out: int | None = None
    ):
        check_image_shape(shape)
        check_size(width=width, depth=depth, out=1 if out is None else out)
        channels, height, side = shape
        stem, readout, *keys = jax.random.split(key, 2 + 3 * depth)
        self.stem = eqx.nn.Conv2d(channels, width, 3, padding=1, key=stem)
        self.blocks = [
            Block(keys.pop(), stage * width if down else 2 * stage * width, 2 * stage * width, down=down)
            for stage in (1, 2, 4)
            for down in [True] + [False] * (depth - 1)
        ]
        last = 8 * width * (height // 8) * (side // 8)
        self.readout = None if out is None else Readout(readout, last, out)
        self.in_shape = shape
        self.out_size = last if out is None else out

    def __call__(self, v: Float[Array, "channels height width"]) -> Float[Array, "out"]:
        """The result for one image."""
        x = jnp.transpose(convolve_patches(self.stem, jnp.transpose(v, (1, 2, 0))), (2, 0, 1))
        for block in self.blocks:
            x = block(x)
        x = x.reshape(-1)
        return x if self.readout is None else self.readout(x)


def running_means(x: Float[Array, "channels height width"]) -> Float[Array, "channels height+1 width+1"]:
    """Means of all 2×2 squares, at stride 1, of an image padded with zeros."""
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1)))
    x = x[:, :-1] + x[:, 1:]
    return (x[:, :, :-1] + x[:, :, 1:]) / 4


def average_pool(x: Float[Array, "channels height width"]) -> Float[Array, "channels height//2 width//2"]:
    """Average 2×2 squares by a reshape and a mean, whose derivatives are cheaper than those of a window reduction."""
    channels, height, width = x.shape
    return jnp.mean(x.reshape(channels, height // 2, 2, width // 2, 2), axis=(2, 4))
