"""A mixer network, conditioned on a noise level and a label, that is fast on a CPU."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.conditional import HIGHEST, Embedding, blend, silu, unit
from vages.nets.network import check_size
from vages.nets.readout import at_least_float32
from vages.nets.scaling import UNIT_ENTRIES, normalized_along

_RESIDUAL = 0.3  # share of the residual branch in the result of a layer


class MixerBlock(eqx.Module):
    """Two residual layers: one mixes patches for each channel, the other mixes channels for each patch."""

    spread: Float[Array, "hidden places"] = eqx.field(metadata=normalized_along(0))
    gather: Float[Array, "places hidden"] = eqx.field(metadata=normalized_along(0))
    first: Float[Array, "wide width"] = eqx.field(metadata=normalized_along(0))
    second: Float[Array, "width wide"] = eqx.field(metadata=normalized_along(0))
    scale: Float[Array, "wide embedding"] = eqx.field(metadata=normalized_along(0))
    gain: Float[Array, ""]

    def __init__(self, key: PRNGKeyArray, places: int, width: int, embedding: int):
        normal = lambda key, *shape: jax.random.normal(key, shape)
        spread, gather, first, second, scale = jax.random.split(key, 5)
        self.spread, self.gather = normal(spread, 2 * places, places), normal(gather, places, 2 * places)
        self.first, self.second = normal(first, 2 * width, width), normal(second, width, 2 * width)
        self.scale, self.gain = normal(scale, 2 * width, embedding), jnp.zeros(())

    def __call__(
        self, x: Float[Array, "places width"], embedding: Float[Array, "size"]
    ) -> Float[Array, "places width"]:
        """The result for one example."""
        weight = lambda w: unit(w, x.dtype)
        x = blend(x, weight(self.gather) @ silu(weight(self.spread) @ silu(x)), _RESIDUAL)
        scale = 1 + self.gain.astype(x.dtype) * (weight(self.scale) @ embedding)
        wide = silu(silu(x) @ weight(self.first).T * scale[None])
        return blend(x, wide @ weight(self.second).T, _RESIDUAL)


class Mixer(eqx.Module):
    """An MLP-Mixer from images (channels, height, width) of any size to an image of that shape and `out` features.

    An image is padded with zeros and cut into squares of side `patch`. Each becomes `width` numbers, and `depth` blocks
    mix patches and channels in turn (Tolstikhin et al. 2021). As in `UNet`, weights are normalized, sums and
    activations keep the mean square of their inputs, and the resulting image is multiplied by a gain that starts at
    zero. The features are a linear layer of all patches.
    """

    embedding: Embedding
    stem: Float[Array, "width patch"] = eqx.field(metadata=normalized_along(0))
    places: Float[Array, "places width"] = eqx.field(metadata=UNIT_ENTRIES)
    blocks: list[MixerBlock]
    last: Float[Array, "pixels width"] = eqx.field(metadata=normalized_along(0))
    gain: Float[Array, ""]
    readout: Float[Array, "out all"] = eqx.field(metadata=normalized_along(0))
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    patch: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        *,
        patch: int,
        width: int,
        depth: int,
        out: int,
        embedding: int = 64,
        classes: int = 0,
        level_frequency: float = HIGHEST,
    ):
        check_size(patch=patch, width=width, depth=depth, out=out)
        if len(shape) != 3 or min(shape) < 1 or min(shape[1:]) < patch:
            raise ValueError(
                f"shape: expected (channels, height, width) with sides of at least {patch}, the side of a patch, got "
                f"{shape}; give a smaller patch, or larger images"
            )
        for_embedding, stem, places, last, readout, *keys = jax.random.split(key, 5 + depth)
        self.in_shape, self.out_size, self.classes, self.patch = shape, out, classes, patch
        count, pixels = math.prod(self._grid), shape[0] * patch**2
        self.embedding = Embedding(for_embedding, embedding, classes, level_frequency)
        self.stem = jax.random.normal(stem, (width, pixels))
        self.places = jax.random.normal(places, (count, width))
        self.blocks = [MixerBlock(key, count, width, embedding) for key in keys]
        self.last = jax.random.normal(last, (pixels, width))
        self.gain = jnp.zeros(())
        self.readout = jax.random.normal(readout, (out, count * width))

    @property
    def _grid(self) -> tuple[int, int]:
        """Number of patches along the height and the width."""
        _, height, width = self.in_shape
        return -(-height // self.patch), -(-width // self.patch)

    def __call__(
        self, u: Float[Array, "channels height width"], level: Float[Array, ""], label: Array | None = None
    ) -> tuple[Float[Array, "channels height width"], Float[Array, "out"]]:
        """Return the resulting image and the features of one image."""
        embedding = self.embedding(level, label).astype(u.dtype)
        x = blend(self._cut(u) @ unit(self.stem, u.dtype).T, self.places.astype(u.dtype), 0.5)
        for block in self.blocks:
            x = block(x, embedding)
        x = silu(x)
        wide = at_least_float32(u.dtype)
        features = unit(self.readout, wide) @ x.reshape(-1).astype(wide)
        return self._joined(self.gain.astype(u.dtype) * (x @ unit(self.last, u.dtype).T)), features

    def _cut(self, u: Array) -> Float[Array, "places pixels"]:
        """Cut an image into patches, one per row."""
        (channels, height, width), (rows, columns), side = u.shape, self._grid, self.patch
        u = jnp.pad(u, ((0, 0), (0, rows * side - height), (0, columns * side - width)))
        u = u.reshape(channels, rows, side, columns, side)
        return u.transpose(1, 3, 0, 2, 4).reshape(rows * columns, -1)

    def _joined(self, x: Float[Array, "places pixels"]) -> Array:
        """Join patches to an image."""
        (channels, height, width), (rows, columns), side = self.in_shape, self._grid, self.patch
        x = x.reshape(rows, columns, channels, side, side).transpose(2, 0, 3, 1, 4)
        return x.reshape(channels, rows * side, columns * side)[:, :height, :width]
