"""Networks conditioned on a noise level and a label: their protocol, the embedding, and one for vectors."""

import math
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.nets.network import check_size
from vages.nets.readout import Readout, at_least_float32
from vages.nets.scaling import UNIT_ENTRIES, normalized_along

Layer = TypeVar("Layer", bound=eqx.Module)

_LOWEST, HIGHEST = 0.5, 20.0  # frequencies, in radians per unit of the level
_BALL = 2.0  # bound of the root mean square of the inputs and features of `ConditionalMLP`
_DIRECTIONS = 16  # random directions per Fourier frequency
_SILU = 0.596  # the root mean square of silu(x) for standard normal x


@runtime_checkable
class ConditionalNetwork(Protocol):
    """A function of one example of shape `in_shape`, level and label to an array of that shape and features."""

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        ...

    @property
    def out_size(self) -> int:
        """Number of features."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes; 0 if the network takes no label. Labels are counted from 0."""
        ...

    def __call__(self, u: Array, level: Array, label: Array | None = None) -> tuple[Array, Array]:
        """Return the array and the features, in the dtype of u. `level` is ln(σ / σ_d) / 4, in float32."""
        ...


class Embedding(eqx.Module):
    """An embedding of a noise level, and of a label if there are classes, as a vector of `size` numbers.

    A label outside the classes, such as −1, stands for an example without a label.
    """

    linear: Float[Array, "size size"] = eqx.field(metadata=normalized_along(0))
    labels: Float[Array, "classes size"] | None = eqx.field(metadata=UNIT_ENTRIES)
    highest: float = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, size: int, classes: int = 0, highest: float = HIGHEST):
        check_size(embedding=size)
        if classes < 0:
            raise ValueError(f"classes: expected 0 or more, got {classes}; 0 is for examples without labels")
        linear, labels = jax.random.split(key)
        self.linear = jax.random.normal(linear, (size, size))
        self.labels = jax.random.normal(labels, (classes, size)) if classes else None
        self.highest = highest

    def __call__(self, level: Float[Array, ""], label: Array | None = None) -> Float[Array, "size"]:
        """The vector for one example, in the dtype of `level`."""
        x = unit(self.linear, level.dtype) @ waves(level, self.linear.shape[1], self.highest)
        if self.labels is not None and label is not None:
            table = self.labels.astype(level.dtype)
            x = blend(x, jax.nn.one_hot(label, len(table), dtype=level.dtype) @ table, 0.5)
        return silu(x)


class ConditionalBlock(eqx.Module):
    """A residual block of `ConditionalMLP`."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear
    scale: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray, width: int, embedding: int):
        first, second, scale = jax.random.split(key, 3)
        self.first = eqx.nn.Linear(width, width, key=first)
        self.second = eqx.nn.Linear(width, width, key=second)
        self.scale = eqx.nn.Linear(embedding, width, key=scale)

    def __call__(self, x: Float[Array, "width"], embedding: Float[Array, "size"]) -> Float[Array, "width"]:
        """The result for one example."""
        return x + self.second(silu(self.first(silu(x)) * (1 + self.scale(embedding))))


class ConditionalMLP(eqx.Module):
    """A residual MLP, for vectors, or for arrays of any shape, which it flattens.

    It has `depth` blocks of `width`: x + Linear(silu(Linear(silu(x)) · (1 + Linear(embedding)))). The array is a linear
    layer of silu(x) that starts at zero; the features are another.

    Its parameters are not bounded, so that its outputs could be arbitrary far from the training data. Levels are
    therefore clipped to `levels`, by default from 0.01 σ_d to 20 σ_d: hardly any training example is outside, where
    samplers begin and end. The inputs u and the features are mapped into a ball by x / √(1 + mean(x²) / 4), which is
    nearly x at unit scale. Array and features are thus bounded far from all data. Otherwise an energy quadratic in the
    features would be too steep there for the steps of a sampler.

    With `frequencies`, the first layer also takes sines and cosines of u in fixed random directions (random Fourier
    features) at these frequencies: (1.0, 3.0, 8.0) lets a network for points on a plane learn sharp edges.
    """

    embedding: Embedding
    first: eqx.nn.Linear
    blocks: list[ConditionalBlock]
    last: eqx.nn.Linear
    readout: Readout
    in_shape: tuple[int, ...] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    frequencies: tuple[float, ...] = eqx.field(static=True)
    levels: tuple[float, float] = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: int | tuple[int, ...],
        *,
        width: int,
        depth: int,
        out: int,
        embedding: int = 64,
        classes: int = 0,
        frequencies: tuple[float, ...] = (),
        levels: tuple[float, float] = (0.01, 20.0),
        level_frequency: float = HIGHEST,
    ):
        check_size(width=width, depth=depth, out=out)
        self.in_shape = (shape,) if isinstance(shape, int) else shape
        size = math.prod(self.in_shape)
        check_size(shape=size)
        for_embedding, first, last, readout, *keys = jax.random.split(key, 4 + depth)
        self.embedding = Embedding(for_embedding, embedding, classes, level_frequency)
        self.frequencies, self.levels = frequencies, levels
        self.first = eqx.nn.Linear(size + 2 * _DIRECTIONS * len(frequencies), width, key=first)
        self.blocks = [ConditionalBlock(key, width, embedding) for key in keys]
        self.last = zeroed(eqx.nn.Linear(width, size, key=last))
        self.readout = Readout(readout, width, out)
        self.out_size, self.classes = out, classes

    def __call__(
        self, u: Float[Array, "..."], level: Float[Array, ""], label: Array | None = None
    ) -> tuple[Float[Array, "..."], Float[Array, "out"]]:
        """The array and the features of one example."""
        low, high = (math.log(ratio) / 4 for ratio in self.levels)
        embedding = self.embedding(jnp.clip(level, low, high), label).astype(u.dtype)
        first, blocks, last = jax.tree.map(lambda leaf: leaf.astype(u.dtype), (self.first, self.blocks, self.last))
        x = within_ball(u.reshape(-1))
        if self.frequencies:
            x = jnp.concatenate([x, *_fourier(x, self.frequencies)])
        x = first(x)
        for block in blocks:
            x = block(x, embedding)
        x = silu(x)
        return last(x).reshape(self.in_shape), within_ball(self.readout(x))


def _fourier(u: Float[Array, "size"], frequencies: tuple[float, ...]) -> tuple[Array, Array]:
    """Sines and cosines of u in random directions that are the same for every network."""
    directions = np.random.default_rng(0).standard_normal((len(frequencies), _DIRECTIONS, u.size))
    scaled = (directions * np.asarray(frequencies)[:, None, None]).reshape(-1, u.size)
    angles = jnp.asarray(scaled, u.dtype) @ u
    return jnp.sin(angles), jnp.cos(angles)


def within_ball(x: Float[Array, "size"]) -> Float[Array, "size"]:
    """Scale x to a root mean square below `_BALL`, with nearly no change if that of x is well below it."""
    wide = x.astype(at_least_float32(x.dtype))
    return (wide * jax.lax.rsqrt(1 + jnp.mean((wide / _BALL) ** 2))).astype(x.dtype)


def waves(level: Float[Array, ""], size: int, highest: float = HIGHEST) -> Float[Array, "size"]:
    """Cosines and sines of the level at geometrically spaced frequencies, with mean square 1."""
    half = np.geomspace(_LOWEST, highest, (size + 1) // 2)
    angles = level * jnp.asarray(half, level.dtype)
    return math.sqrt(2) * jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])[:size]


def silu(x: Array) -> Array:
    """The SiLU, scaled so that standard normal numbers keep their mean square."""
    return jax.nn.silu(x) / _SILU


def blend(a: Array, b: Array, share: float) -> Array:
    """(1 − share) a + share b, scaled so that independent numbers keep their mean square."""
    return ((1 - share) * a + share * b) / math.hypot(1 - share, share)


def unit(weight: Array, dtype: jax.typing.DTypeLike, out: int = 0) -> Array:
    """Scale the weights of each output, along the axis `out`, to norm 1, computed in float32 or wider."""
    wide = weight.astype(at_least_float32(weight.dtype))
    others = tuple(axis for axis in range(wide.ndim) if axis != out % wide.ndim)
    square = jnp.sum(wide**2, axis=others, keepdims=True)
    return (wide * jax.lax.rsqrt(square + 1e-8)).astype(dtype)


def zeroed(layer: Layer) -> Layer:
    """The layer with all its parameters at zero."""
    return jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_inexact_array(x) else x, layer)
