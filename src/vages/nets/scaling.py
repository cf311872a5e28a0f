"""Metadata of a network's fields: which parameters are divided by their norm, and the size of their entries."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey
from jaxtyping import Array

_KEY = "vages.scaling"


class Scaling(NamedTuple):
    """How a parameter is scaled. `normalized` parameters are divided by their norm; `out` is the axis of outputs."""

    normalized: bool = False
    unit: bool = False  # entries have size 1
    out: int = 0


def normalized_along(out: int) -> dict[str, Scaling]:
    """Return the metadata of a field of weights that the network divides by their norm, per output along an axis."""
    return {_KEY: Scaling(normalized=True, unit=True, out=out)}


UNIT_ENTRIES = {_KEY: Scaling(unit=True)}  # for weights whose entries start at size 1, such as an embedding table


def map_scaling(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Map `function(scaling, array, …)` over a tree of modules, with the arrays of other trees at the same place."""

    def one(path: tuple[Any, ...], leaf: Array, *others: Any) -> Any:
        return function(_scaling(tree, path), leaf, *others)

    return jax.tree_util.tree_map_with_path(one, tree, *rest)


def _scaling(tree: Any, path: tuple[Any, ...]) -> Scaling:
    """Return the scaling of a parameter, as declared by the innermost module that holds it."""
    for key in path[:-1]:
        if isinstance(key, GetAttrKey):
            tree = getattr(tree, key.name)
        elif isinstance(key, SequenceKey):
            tree = tree[key.idx]
        elif isinstance(key, DictKey):
            tree = tree[key.key]
        else:
            return Scaling()
    if not (path and isinstance(path[-1], GetAttrKey) and dataclasses.is_dataclass(tree)):
        return Scaling()
    metadata = {field.name: field.metadata for field in dataclasses.fields(tree)}
    return metadata.get(path[-1].name, {}).get(_KEY, Scaling())
