"""The Inception network of the Fréchet inception distance (Szegedy et al. 2016, as Heusel et al. 2017 used it).

The architecture is data, and one pure function evaluates it. It differs from the published Inception v3 as the weights
of 2015-12-05 require: average pools leave padding out, the last block uses max pooling, and images are resized as in
TensorFlow 1. There is no classifier.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

SIDE = 299
EPSILON = 1e-3  # of batch normalization, which has no scale


class Conv(NamedTuple):
    """A convolution, batch normalization and ReLU. Without `pad`, there is no padding."""

    name: str
    out: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    pad: bool = True


class Pool(NamedTuple):
    """Mean or max pooling of 3 × 3 numbers, without the padding."""

    kind: str
    stride: int = 1


Fork = tuple[Conv, ...]  # parallel convolutions of one input
Branch = tuple[Conv | Pool | Fork, ...]


class Block(NamedTuple):
    """Parallel branches of one input, whose results are concatenated."""

    name: str
    branches: tuple[Branch, ...]


class Folded(NamedTuple):
    """A convolution with its batch normalization: relu(x ∗ kernel + bias)."""

    kernel: Float[Array, "height width in out"]
    bias: Float[Array, "out"]


_MEAN, _MAX, _DOWN = Pool("mean"), Pool("max"), Pool("max", 2)
STEM: Branch = (
    Conv("conv", 32, (3, 3), 2, False),
    Conv("conv_1", 32, (3, 3), pad=False),
    Conv("conv_2", 64, (3, 3)),
    _DOWN,
    Conv("conv_3", 80),
    Conv("conv_4", 192, (3, 3), pad=False),
    _DOWN,
)


def _small(name: str, pooled: int) -> Block:
    """A block at 35 × 35."""
    double = Conv("tower_1.conv", 64), Conv("tower_1.conv_1", 96, (3, 3)), Conv("tower_1.conv_2", 96, (3, 3))
    five = Conv("tower.conv", 48), Conv("tower.conv_1", 64, (5, 5))
    return Block(name, ((Conv("conv", 64),), five, double, (_MEAN, Conv("tower_2.conv", pooled))))


def _long(name: str, width: int) -> Block:
    """A block at 17 × 17, with 7 × 7 kernels in two factors."""
    once = Conv("tower.conv", width), Conv("tower.conv_1", width, (1, 7)), Conv("tower.conv_2", 192, (7, 1))
    twice = (
        Conv("tower_1.conv", width),
        Conv("tower_1.conv_1", width, (7, 1)),
        Conv("tower_1.conv_2", width, (1, 7)),
        Conv("tower_1.conv_3", width, (7, 1)),
        Conv("tower_1.conv_4", 192, (1, 7)),
    )
    return Block(name, ((Conv("conv", 192),), once, twice, (_MEAN, Conv("tower_2.conv", 192))))


def _wide(name: str, pool: Pool) -> Block:
    """A block at 8 × 8, with 3 × 3 kernels in two halves."""
    fork = lambda tower: (Conv(f"{tower}_mixed_conv", 384, (1, 3)), Conv(f"{tower}_mixed_conv_1", 384, (3, 1)))
    once = Conv("tower_conv", 384), fork("tower")
    twice = Conv("tower_1_conv", 448), Conv("tower_1_conv_1", 384, (3, 3)), fork("tower_1")
    return Block(name, ((Conv("conv", 320),), once, twice, (pool, Conv("tower_2_conv", 192))))


_SMALLER = Block(  # from 35 × 35 to 17 × 17
    "mixed_3",
    (
        (Conv("conv", 384, (3, 3), 2, False),),
        (Conv("tower.conv", 64), Conv("tower.conv_1", 96, (3, 3)), Conv("tower.conv_2", 96, (3, 3), 2, False)),
        (_DOWN,),
    ),
)
_SMALLEST = Block(  # from 17 × 17 to 8 × 8
    "mixed_8",
    (
        (Conv("tower.conv", 192), Conv("tower.conv_1", 320, (3, 3), 2, False)),
        (
            Conv("tower_1.conv", 192),
            Conv("tower_1.conv_1", 192, (1, 7)),
            Conv("tower_1.conv_2", 192, (7, 1)),
            Conv("tower_1.conv_3", 192, (3, 3), 2, False),
        ),
        (_DOWN,),
    ),
)
BLOCKS = (
    Block("", (STEM,)),
    *(_small(name, pooled) for name, pooled in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64))),
    _SMALLER,
    *(_long(f"mixed_{i}", width) for i, width in ((4, 128), (5, 160), (6, 160), (7, 192))),
    _SMALLEST,
    _wide("mixed_9", _MEAN),
    _wide("mixed_10", _MAX),
)


def kernel_shapes(thin: int = 1) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Yield the full name of every convolution and the shape (out, in, height, width) of its kernel, in order.

    `thin` divides all numbers of channels except the image's.
    """
    channels = 3
    for block in BLOCKS:
        ends = 0
        for branch in block.branches:
            now = (channels,)
            for part in branch:
                if not isinstance(part, Pool):
                    convs = (part,) if isinstance(part, Conv) else part
                    for conv in convs:
                        yield _full(block, conv), (conv.out // thin, sum(now), *conv.kernel)
                    now = tuple(conv.out // thin for conv in convs)
            ends += sum(now)
        channels = ends


def folded(
    weight: Float[np.ndarray, "out in height width"],
    beta: Float[np.ndarray, "out"],
    mean: Float[np.ndarray, "out"],
    var: Float[np.ndarray, "out"],
) -> Folded:
    """Fold beta + (x ∗ weight − mean) / √(var + ε) into one convolution, rounded once."""
    scale = 1 / np.sqrt(var.astype(np.float64) + EPSILON)
    kernel = np.transpose(weight * scale[:, None, None, None], (2, 3, 1, 0))
    return Folded(jnp.asarray(kernel, jnp.float32), jnp.asarray(beta - mean * scale, jnp.float32))


def inception_features(
    convs: dict[str, Folded], images: UInt8[Array, "batch 3 height width"]
) -> Float[Array, "batch features"]:
    """Return the means of the last feature maps, 2048 numbers per image, in full float32 on every device."""
    with jax.default_matmul_precision("highest"):
        x = jnp.transpose(images, (0, 2, 3, 1)).astype(jnp.float32)
        x = (resized(x) - 128) / 128
        for block in BLOCKS:
            x = jnp.concatenate([_branch(convs, block, branch, x) for branch in block.branches], axis=-1)
        return jnp.mean(x, axis=(1, 2))


def resized(x: Float[Array, "batch height width channels"], side: int = SIDE) -> Array:
    """Resize bilinearly as in TensorFlow 1: pixel i of the result lies at i · size / side, not shifted by half."""
    rows, columns = (jnp.asarray(_interpolation(size, side)) for size in x.shape[1:3])
    x = jnp.einsum("xw,bhwc->bhxc", columns, x, precision="highest")
    return jnp.einsum("yh,bhxc->byxc", rows, x, precision="highest")


def _interpolation(size: int, side: int) -> Float[np.ndarray, "side size"]:
    """Return the weights of a row's pixels in each pixel of the resized row."""
    at = np.arange(side, dtype=np.float32) * np.float32(size / side)
    low = np.minimum(at.astype(np.int64), size - 1)
    high, part = np.minimum(low + 1, size - 1), at - low.astype(np.float32)
    matrix = np.zeros((side, size), np.float32)
    matrix[np.arange(side), low] += 1 - part
    matrix[np.arange(side), high] += part
    return matrix


def _branch(convs: dict[str, Folded], block: Block, branch: Branch, x: Array) -> Array:
    for part in branch:
        if isinstance(part, Conv):
            x = _conv(convs[_full(block, part)], part, x)
        elif isinstance(part, Pool):
            x = _pool(part, x)
        else:
            x = jnp.concatenate([_conv(convs[_full(block, conv)], conv, x) for conv in part], axis=-1)
    return x


def _conv(weights: Folded, conv: Conv, x: Array) -> Array:
    x = jax.lax.conv_general_dilated(
        x,
        weights.kernel,
        (conv.stride, conv.stride),
        "SAME" if conv.pad else "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return jax.nn.relu(x + weights.bias[None, None, None])


def _pool(pool: Pool, x: Array) -> Array:
    """Pool with stride 1, which keeps the size, or with stride 2 over whole windows only."""
    window, strides = (1, 3, 3, 1), (1, pool.stride, pool.stride, 1)
    padding = "SAME" if pool.stride == 1 else "VALID"
    if pool.kind == "max":
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, window, strides, padding)
    ones = np.ones((1, *x.shape[1:3], 1), np.float32)
    return total / jax.lax.reduce_window(jnp.asarray(ones), 0.0, jax.lax.add, window, strides, padding)


def _full(block: Block, conv: Conv) -> str:
    return f"{block.name}.{conv.name}" if block.name else conv.name
