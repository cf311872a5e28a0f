"""Convolution as one matrix product, faster than library convolutions for few channels or small images."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

_ALIGNED = 8  # matrix products are fast on GPUs and CPUs if the columns are a multiple of this


def convolve_patches(
    conv: eqx.nn.Conv2d, x: Float[Array, "height width in"]
) -> Float[Array, "height_out width_out out"]:
    """Apply `conv` to a channels-last image, as the product of the patches under its kernel and its weights.

    Each patch is padded with a 1 for the bias, so that its gradient is part of a product too, and with zeros.
    """
    (down, right), (step, stride) = conv.kernel_size, conv.stride
    assert conv.bias is not None
    assert not isinstance(conv.padding, str)
    x = jnp.pad(x, (*conv.padding, (0, 0)))
    rows, columns = x.shape[0] - down + 1, x.shape[1] - right + 1
    shifts = [x[i : i + rows : step, j : j + columns : stride] for i in range(down) for j in range(right)]
    weights = jnp.transpose(conv.weight, (2, 3, 1, 0)).reshape(-1, conv.out_channels)
    spare = _ALIGNED - len(weights) % _ALIGNED
    one = jnp.zeros((*shifts[0].shape[:2], spare), x.dtype).at[..., 0].set(1)
    bias = jnp.zeros((spare, conv.out_channels), weights.dtype).at[0].set(conv.bias.reshape(-1))
    return jnp.concatenate([*shifts, one], axis=-1) @ jnp.concatenate([weights, bias])
