"""Features of a batch, computed once and shared by all that needs v."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array

from vages.models.eblvm import EBLVM


class Linearization(NamedTuple):
    """The forward pass as linear maps, from which gradients in the parameters are made without a second one.

    `kept` are the arrays that the pullback keeps of the forward pass and that change with v.
    """

    kept: list[Array]
    pull: Callable[[list[Array], Any], tuple[Any, Array]]  # (kept, cotangent of features) to those of parameters and v
    push: Callable[[Array], tuple[Any, list[Array]]]  # a tangent of v to those of the features and of `kept`


class Encoding(NamedTuple):
    """A batch with its features, and what carries a cotangent of the features back to v.

    Every function that takes v takes an encoding in its place, so that one forward pass serves them all.
    """

    v: Array
    context: Any
    features: Any
    pullback: Callable[[Any], tuple[Array]]
    linear: Linearization | None = None


def encode(model: EBLVM, v: Array | Encoding, context: Any = None) -> Encoding:
    """One forward pass through `features`, to be shared by all that needs v; an encoding stays as it is."""
    if isinstance(v, Encoding):
        return v
    return Encoding(v, context, *jax.vjp(lambda v: features_of(model, v, context), v))


def linearize(model: EBLVM, v: Array, context: Any = None) -> Encoding:
    """The encoding with its linearization. Features must be floating numbers."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    split: dict[str, Any] = {}

    def forward(v):
        of = lambda params, v: features_of(eqx.combine(params, static), v, context)
        features, pullback = jax.vjp(of, params, v)
        leaves, split["tree"] = jax.tree.flatten(pullback)
        # Only what depends on v is traced as v is. A tangent of zeros for the others would cost as much as any.
        split["rest"] = [None if type(leaf) is type(v) else leaf for leaf in leaves]
        return features, [leaf for leaf in leaves if type(leaf) is type(v)]

    (features, kept), push = jax.linearize(forward, v)

    def pull(kept, cotangent):
        moving = iter(kept)
        leaves = [next(moving) if leaf is None else leaf for leaf in split["rest"]]
        return jax.tree.unflatten(split["tree"], leaves)(cotangent)

    return Encoding(v, context, features, lambda cotangent: pull(kept, cotangent)[1:], Linearization(kept, pull, push))


def features_of(model: EBLVM, v: Array, context: Any = None) -> Any:
    """The features of a batch v (batch, …), with a context of as many rows where there is one."""
    return jax.vmap(model.features)(v) if context is None else jax.vmap(model.features)(v, context)
