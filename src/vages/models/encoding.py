"""Features of a batch, computed once and shared by all that needs v."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from vages.models.eblvm import EBLVM


class Encoding(NamedTuple):
    """A batch with its features, and what carries a cotangent of the features back to v.

    Every function that takes v takes an encoding in its place, so that one forward pass serves them all.
    """

    v: Array
    context: Any
    features: Any
    pullback: Callable[[Any], tuple[Array]]


def encode(model: EBLVM, v: Array | Encoding, context: Any = None) -> Encoding:
    """One forward pass through `features`, to be shared by all that needs v; an encoding stays as it is."""
    if isinstance(v, Encoding):
        return v
    return Encoding(v, context, *jax.vjp(lambda v: features_of(model, v, context), v))


def features_of(model: EBLVM, v: Array, context: Any = None) -> Any:
    """The features of a batch v (batch, …), with a context of as many rows where there is one."""
    return jax.vmap(model.features)(v) if context is None else jax.vmap(model.features)(v, context)
