"""A convolution as one product of matrices: for images of few channels, at which a GPU's convolutions are slow."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


def convolve_patches(
    conv: eqx.nn.Conv2d, x: Float[Array, "in height width"]
) -> Float[Array, "out height_out width_out"]:
    """`conv(x)`, the layer's weights times the patches of x that its kernel sees."""
    (down, right), (step, stride) = conv.kernel_size, conv.stride
    assert conv.bias is not None
    assert not isinstance(conv.padding, str)
    x = jnp.pad(x, ((0, 0), *conv.padding))
    rows, columns = x.shape[1] - down + 1, x.shape[2] - right + 1
    shifts = [x[:, i : i + rows : step, j : j + columns : stride] for i in range(down) for j in range(right)]
    patches = jnp.stack(shifts, axis=1)
    weights = conv.weight.reshape(*conv.weight.shape[:2], -1)
    return jnp.tensordot(weights, patches, axes=2) + conv.bias
