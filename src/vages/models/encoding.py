"""Features of a batch, computed once and shared by all that needs v."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array

from vages.models.eblvm import EBLVM


class Along(NamedTuple):
    """v and real entries of the context: a direction to differentiate in, or the slopes of log p̃ in each of them.

    Along(z, {"sigma": weight})
    """

    v: Array
    context: dict[str, Array]


Slope = Array | Along


class Linearization(NamedTuple):
    """The forward pass as linear maps, from which gradients in the parameters are made without a second one.

    `kept` are the arrays that the pullback keeps of the forward pass and that change with v.
    """

    kept: list[Array]
    pull: Callable[[list[Array], Any], tuple[Any, Slope]]  # (kept, cotangent of features) to those of parameters and v
    push: Callable[[Slope], tuple[Any, list[Array]]]  # a tangent of v to those of the features and of `kept`


class Encoding(NamedTuple):
    """A batch with its features, and what carries a cotangent of the features back to v.

    Every function that takes v takes an encoding in its place, so that one forward pass serves them all.
    """

    v: Array
    context: Any
    features: Any
    pullback: Callable[[Any], tuple[Any]]
    linear: Linearization | None = None
    along: tuple[str, ...] = ()  # entries of the context that the pullback goes to beside v

    @property
    def point(self) -> Slope:
        """What the features are a function of: v, with the entries `along` of the context where there are any."""
        return _point(self.v, self.context, self.along)


def encode(model: EBLVM, v: Array | Encoding, context: Any = None, along: tuple[str, ...] = ()) -> Encoding:
    """One forward pass through `features`, to be shared by all that needs v; an encoding stays as it is.

    With `along`, its pullback gives `Along(…)` for v and these entries of the context.
    """
    if isinstance(v, Encoding):
        return v
    of = lambda point: _features_at(model, point, context)
    return Encoding(v, context, *jax.vjp(of, _point(v, context, along)), along=along)


def linearize(model: EBLVM, v: Array, context: Any = None, along: tuple[str, ...] = ()) -> Encoding:
    """The encoding with its linearization. Features must be floating numbers."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    split: dict[str, Any] = {}

    def forward(point):
        of = lambda params, point: _features_at(eqx.combine(params, static), point, context)
        features, pullback = jax.vjp(of, params, point)
        leaves, split["tree"] = jax.tree.flatten(pullback)
        # Only what depends on v is traced as v is. A tangent of zeros for the others would cost as much as any.
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
    """The features of a batch, and their tangents along z."""
    along = tuple(z.context) if isinstance(z, Along) else ()
    return jax.jvp(lambda point: _features_at(model, point, context), (_point(v, context, along),), (z,))


def features_of(model: EBLVM, v: Array, context: Any = None) -> Any:
    """The features of a batch v (batch, …), with a context of as many rows where there is one."""
    return jax.vmap(model.features)(v) if context is None else jax.vmap(model.features)(v, context)


def _point(v: Array, context: Any, along: tuple[str, ...]) -> Slope:
    return Along(v, {name: context[name] for name in along}) if along else v


def _features_at(model: EBLVM, point: Slope, context: Any) -> Any:
    if isinstance(point, Along):
        return features_of(model, point.v, context | point.context)
    return features_of(model, point, context)
