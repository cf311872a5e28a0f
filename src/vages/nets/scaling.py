"""Which parameters of a network it divides by their norm, as the network's own fields say."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey
from jaxtyping import Array

_KEY = "vages.scaling"


class Scaling(NamedTuple):
    """How a parameter's size matters: not at all where it is normalized; `out` is the axis of its outputs."""

    normalized: bool = False
    unit: bool = False  # entries are of size 1 throughout
    out: int = 0


def normalized_along(out: int) -> dict[str, Scaling]:
    """The metadata of a field of weights that the network divides by their norm, for each output along an axis."""
    return {_KEY: Scaling(normalized=True, unit=True, out=out)}


UNIT_ENTRIES = {_KEY: Scaling(unit=True)}  # of a field of weights whose entries start at size 1, a table of vectors say


def map_scaling(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """function(scaling, array, …) of every array of a tree of modules, with those of other trees at the same place."""

    def one(path: tuple[Any, ...], leaf: Array, *others: Any) -> Any:
        return function(_scaling(tree, path), leaf, *others)

    return jax.tree_util.tree_map_with_path(one, tree, *rest)


def _scaling(tree: Any, path: tuple[Any, ...]) -> Scaling:
    """What the innermost module on the way says of the parameter."""
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
