"""A U-Net that is conditioned on a noise level and a label."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.conditional import HIGHEST, Embedding, blend, silu, unit
from vages.nets.network import check_size
from vages.nets.readout import at_least_float32
from vages.nets.scaling import normalized_along

_RESIDUAL = 0.3  # share of the residual branch in the result of a block
_HEAD = 64  # minimum number of channels of an attention head


class Conv(eqx.Module):
    """A convolution with normalized weights, stride 1, zero padding that keeps the sides, and no bias.

    Images are (height, width, channels) throughout, the native layout of convolutions on GPUs and CPUs.
    """

    weight: Float[Array, "side side in out"] = eqx.field(metadata=normalized_along(-1))

    def __init__(self, key: PRNGKeyArray, channels: int, out: int, side: int):
        self.weight = jax.random.normal(key, (side, side, channels, out))

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height width out"]:
        """The result for one example."""
        weight = unit(self.weight, x.dtype, out=-1)
        if len(weight) == 1:
            return x @ weight[0, 0]
        return jax.lax.conv_general_dilated(
            x[None], weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]


class Attention(eqx.Module):
    """Residual self-attention between all pixels of an image."""

    inputs: Conv
    output: Conv
    heads: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, channels: int):
        inputs, output = jax.random.split(key)
        self.inputs = Conv(inputs, channels, 3 * channels, 1)
        self.output = Conv(output, channels, channels, 1)
        self.heads = next(n for n in range(max(1, channels // _HEAD), 0, -1) if channels % n == 0)

    def __call__(self, x: Float[Array, "height width channels"]) -> Float[Array, "height width channels"]:
        """The result for one example."""
        size = x.shape[2] // self.heads
        inputs = normalized(self.inputs(x).reshape(-1, 3, self.heads, size))
        query, key, value = inputs[:, 0], inputs[:, 1], inputs[:, 2]
        match = jnp.einsum("qhd,khd->hqk", query, key) / math.sqrt(size)
        weights = jax.nn.softmax(match.astype(at_least_float32(x.dtype))).astype(x.dtype)
        mixed = jnp.einsum("hqk,khd->qhd", weights, value)
        return blend(x, self.output(mixed.reshape(x.shape)), _RESIDUAL)


class Block(eqx.Module):
    """A residual block: two 3×3 convolutions, scaled in between by the embedding, and optional attention.

    `resample` ("down" or "up") halves or doubles the sides first. `skip` channels are concatenated to the input.
    """

    first: Conv
    second: Conv
    shortcut: Conv | None
    scale: Float[Array, "out embedding"] = eqx.field(metadata=normalized_along(0))
    gain: Float[Array, ""]
    attention: Attention | None
    resample: str = eqx.field(static=True)
    skip: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        channels: int,
        out: int,
        embedding: int,
        *,
        resample: str = "",
        skip: int = 0,
        attention: bool = False,
    ):
        first, second, shortcut, scale, for_attention = jax.random.split(key, 5)
        self.first = Conv(first, channels + skip, out, 3)
        self.second = Conv(second, out, out, 3)
        self.shortcut = None if channels + skip == out else Conv(shortcut, channels + skip, out, 1)
        self.scale = jax.random.normal(scale, (out, embedding))
        self.gain = jnp.zeros(())
        self.attention = Attention(for_attention, out) if attention else None
        self.resample, self.skip = resample, skip

    def __call__(
        self, x: Float[Array, "height width in"], embedding: Float[Array, "size"]
    ) -> Float[Array, "height_out width_out out"]:
        """The result for one example."""
        if self.resample == "down":
            x = normalized(halved(x))
        if self.resample == "up":
            x = doubled(x)
        scale = 1 + self.gain.astype(x.dtype) * (unit(self.scale, x.dtype) @ embedding)
        change = self.second(silu(self.first(silu(x)) * scale[None, None]))
        x = blend(x if self.shortcut is None else self.shortcut(x), change, _RESIDUAL)
        return x if self.attention is None else self.attention(x)


class UNet(eqx.Module):
    """A U-Net from images (channels, height, width) of any size to an image of that shape and `out` features.

    `widths` are the channels of the levels, each with half the sides of the one before. Images are padded with zeros to
    a multiple of 2^(levels − 1), and the result is cropped. A level has `blocks` residual blocks on the way down and
    one more on the way up, and self-attention if its longer side is at most `attention` (0 for none; otherwise the
    lowest level always has it). The features are a linear layer of the lowest level.

    All weights are normalized, and sums and activations keep the mean square of their inputs (Karras et al. 2024), so
    there are no normalization layers. The resulting image is multiplied by a gain that starts at zero.
    """

    embedding: Embedding
    stem: Conv
    encoder: list[Block]
    middle: list[Block]
    decoder: list[Block]
    last: Conv
    gain: Float[Array, ""]
    readout: Float[Array, "out lowest"] = eqx.field(metadata=normalized_along(0))
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    levels: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        *,
        widths: tuple[int, ...],
        blocks: int = 2,
        attention: int = 16,
        out: int,
        embedding: int = 256,
        classes: int = 0,
        level_frequency: float = HIGHEST,
    ):
        check_size(levels=len(widths), blocks=blocks, out=out, width=min(widths, default=1))
        _check_shape(shape, len(widths))
        for_embedding, stem, last, readout, for_blocks = jax.random.split(key, 5)
        self.in_shape, self.out_size, self.classes, self.levels = shape, out, classes, len(widths)
        self.embedding = Embedding(for_embedding, embedding, classes, level_frequency)
        self.stem = Conv(stem, shape[0] + 1, widths[0], 3)
        height, width = padded_sides(shape, len(widths))
        attends = [max(height, width) // 2**level <= attention for level in range(len(widths))]
        self.encoder, self.middle, self.decoder, made = [], [], [], 0

        def block(channels: int, wanted: int, **options) -> Block:
            nonlocal made
            made += 1
            return Block(jax.random.fold_in(for_blocks, made), channels, wanted, embedding, **options)

        channels, skips = widths[0], [widths[0]]
        for level, wanted in enumerate(widths):
            if level:
                self.encoder.append(block(channels, wanted, resample="down"))
                channels = wanted
                skips.append(channels)
            for i in range(blocks):
                self.encoder.append(block(channels, wanted, attention=attends[level] and i == blocks - 1))
                channels = wanted
                skips.append(channels)
        self.middle = [block(channels, channels, attention=attention > 0), block(channels, channels)]
        for level, wanted in reversed(list(enumerate(widths))):
            if level < len(widths) - 1:
                self.decoder.append(block(channels, wanted, resample="up"))
                channels = wanted
            for i in range(blocks + 1):
                self.decoder.append(block(channels, wanted, skip=skips.pop(), attention=attends[level] and i == 0))
                channels = wanted
        self.last = Conv(last, widths[0], shape[0], 3)
        self.gain = jnp.zeros(())
        lowest = widths[-1] * (height // 2 ** (len(widths) - 1)) * (width // 2 ** (len(widths) - 1))
        self.readout = jax.random.normal(readout, (out, lowest))

    def __call__(
        self, u: Float[Array, "channels height width"], level: Float[Array, ""], label: Array | None = None
    ) -> tuple[Float[Array, "channels height width"], Float[Array, "out"]]:
        """Return the resulting image and the features of one image."""
        embedding = self.embedding(level, label).astype(u.dtype)
        height, width = padded_sides(self.in_shape, self.levels)
        top, left = (height - u.shape[1]) // 2, (width - u.shape[2]) // 2
        bottom, right = height - u.shape[1] - top, width - u.shape[2] - left
        inside = jnp.ones((*u.shape[1:], 1), u.dtype)  # distinguishes pixels from padding, and replaces biases
        pixels = jnp.concatenate([jnp.moveaxis(u, 0, 2), inside], axis=2)
        x = self.stem(jnp.pad(pixels, ((top, bottom), (left, right), (0, 0))))
        skips = [x]
        for block in self.encoder:
            x = block(x, embedding)
            skips.append(x)
        for block in self.middle:
            x = block(x, embedding)
        features = self._read(silu(x).reshape(-1))
        for block in self.decoder:
            x = block(x if block.skip == 0 else join(x, skips.pop()), embedding)
        x = self.gain.astype(u.dtype) * self.last(silu(x))
        return jnp.moveaxis(x[top : top + u.shape[1], left : left + u.shape[2]], 2, 0), features

    def _read(self, x: Float[Array, "lowest"]) -> Float[Array, "out"]:
        wide = at_least_float32(x.dtype)
        weight = unit(self.readout, x.dtype)
        if jax.default_backend() == "cpu":  # XLA has no product of bfloat16 matrices with a float32 result there
            weight, x = weight.astype(wide), x.astype(wide)
        return jnp.matmul(weight, x, preferred_element_type=wide)


def padded_sides(shape: tuple[int, int, int], levels: int) -> tuple[int, int]:
    """Return height and width, rounded up to a multiple of 2^(levels − 1)."""
    multiple = 2 ** (levels - 1)
    height, width = (-(-side // multiple) * multiple for side in shape[1:])
    return height, width


def join(a: Float[Array, "height width a"], b: Float[Array, "height width b"]) -> Float[Array, "height width both"]:
    """Concatenate channels, scaled so that both inputs contribute equally and the mean square is kept."""
    half = (a.shape[2] + b.shape[2]) / 2
    return jnp.concatenate([a * math.sqrt(half / a.shape[2]), b * math.sqrt(half / b.shape[2])], axis=2)


def halved(x: Float[Array, "height width channels"]) -> Float[Array, "height//2 width//2 channels"]:
    """Halve the sides by averaging 2×2 squares."""
    height, width, channels = x.shape
    return jnp.mean(x.reshape(height // 2, 2, width // 2, 2, channels), axis=(1, 3))


def doubled(x: Float[Array, "height width channels"]) -> Float[Array, "2*height 2*width channels"]:
    """Double the sides by repeating pixels."""
    height, width, channels = x.shape
    square = jnp.broadcast_to(x[:, None, :, None], (height, 2, width, 2, channels))
    return square.reshape(2 * height, 2 * width, channels)


def normalized(x: Array) -> Array:
    """Scale x to a mean square of 1 along its last axis, computed in float32 or wider."""
    wide = x.astype(at_least_float32(x.dtype))
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def _check_shape(shape: tuple[int, ...], levels: int) -> None:
    least = 2 ** (levels - 1)
    if len(shape) != 3 or min(shape) < 1 or min(shape[1:]) < least:
        raise ValueError(
            f"shape: expected (channels, height, width) with sides of at least {least}, which {levels} levels need, "
            f"got {shape}; give fewer widths, or larger images"
        )
