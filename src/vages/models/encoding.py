"""Features of a batch, computed once and shared by several functions of v."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array

from vages.models.eblvm import EBLVM


class Along(NamedTuple):
    """Arrays for v and real entries of the context: a direction to differentiate in, or slopes of log p̃.

    Along(z, {"sigma": weight})
    """

    v: Array
    context: dict[str, Array]


Slope = Array | Along


class Linearization(NamedTuple):
    """Linear maps of a forward pass, which give gradients in the parameters without a second pass.

    `kept` are the residuals of the pullback that depend on v.
    """

    kept: list[Array]
    pull: Callable[[list[Array], Any], tuple[Any, Slope]]  # (kept, cotangent of features) → cotangents of parameters, v
    push: Callable[[Slope], tuple[Any, list[Array]]]  # tangent of v → tangents of the features and of `kept`


class Encoding(NamedTuple):
    """A batch, its features, and their pullback to v.

    Functions that accept `Array | Encoding` as v can share one forward pass through an encoding.
    """

    v: Array
    context: Any
    features: Any
    pullback: Callable[[Any], tuple[Any]]
    linear: Linearization | None = None
    along: tuple[str, ...] = ()  # entries of the context that the pullback covers besides v

    @property
    def point(self) -> Slope:
        """The input that is differentiated: v, with the entries `along` of the context if there are any."""
        return _point(self.v, self.context, self.along)


def encode(model: EBLVM, v: Array | Encoding, context: Any = None, along: tuple[str, ...] = ()) -> Encoding:
    """Encode a batch by one forward pass through `features`. An encoding is returned unchanged.

    With `along`, the pullback returns `Along(…)` for v and these entries of the context.
    """
    if isinstance(v, Encoding):
        return v
    of = lambda point: _features_at(model, point, context)
    return Encoding(v, context, *jax.vjp(of, _point(v, context, along)), along=along)


def linearize(model: EBLVM, v: Array, context: Any = None, along: tuple[str, ...] = ()) -> Encoding:
    """Return the encoding with its linearization. Features must be floating-point arrays."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    split: dict[str, Any] = {}

    def forward(point):
        of = lambda params, point: _features_at(eqx.combine(params, static), point, context)
        features, pullback = jax.vjp(of, params, point)
        leaves, split["tree"] = jax.tree.flatten(pullback)
        # Only leaves that depend on v are traced like v. Tangents of zeros for the others would cost as much as any.
        traced = type(jax.tree.leaves(point)[0])
        split["rest"] = [None if type(leaf) is traced else leaf for leaf in leaves]
        return features, [leaf for leaf in leaves if type(leaf) is traced]

    (features, kept), push = jax.linearize(forward, _point(v, context, along))

    def pull(kept, cotangent):
        moving = iter(kept)
        leaves = [next(moving) if leaf is None else leaf for leaf in split["rest"]]
        return jax.tree.unflatten(split["tree"], leaves)(cotangent)

    linear = Linearization(kept, pull, push)
    return Encoding(v, context, features, lambda cotangent: pull(kept, cotangent)[1:], linear, along)


def push_forward(model: EBLVM, v: Array, context: Any, z: Slope) -> tuple[Any, Any]:
    """Return the features of a batch and their tangents along z."""
    along = tuple(z.context) if isinstance(z, Along) else ()
    return jax.jvp(lambda point: _features_at(model, point, context), (_point(v, context, along),), (z,))


def features_of(model: EBLVM, v: Array, context: Any = None) -> Any:
    """Return the features of a batch v (batch, …), with a context of as many rows if there is one."""
    return jax.vmap(model.features)(v) if context is None else jax.vmap(model.features)(v, context)


def _point(v: Array, context: Any, along: tuple[str, ...]) -> Slope:
    return Along(v, {name: context[name] for name in along}) if along else v


def _features_at(model: EBLVM, point: Slope, context: Any) -> Any:
    if isinstance(point, Along):
        return features_of(model, point.v, context | point.context)
    return features_of(model, point, context)
