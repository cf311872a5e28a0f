"""Conversion between a state and its arrays by name, as stored in a file."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")
_RENAMED = {
    "optimiser": "optimizer",
    "posterior_optimiser": "posterior_optimizer",
    "extra": "extras",
    "memory": "carry",
}


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Return all arrays of a tree by path, on the host: `model/weight`, `optimizer/0/mu/…`."""
    return {name: np.asarray(key_bits(leaf)) for name, leaf in _named(eqx.filter(tree, eqx.is_array))}


def check_names(tree: Any) -> None:
    """Raise ValueError if two arrays have one name, as those of {"a/b": …, "a": {"b": …}}."""
    seen = set[str]()
    for name, _ in _named(eqx.filter(tree, eqx.is_array)):
        if name in seen:
            raise ValueError(f"{name}: expected one array of this name, got two; rename the keys that contain '/'")
        seen.add(name)


def with_arrays(template: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """Return the template with its arrays replaced. Names, shapes and dtypes must be the same."""
    dynamic, static = eqx.partition(template, eqx.is_array)
    wanted = {name: key_bits(leaf) for name, leaf in _named(dynamic)}
    arrays = {name if name in wanted else _renamed(name): array for name, array in arrays.items()}
    missing, unknown = sorted(set(wanted) - set(arrays)), sorted(set(arrays) - set(wanted))
    if missing or unknown:
        raise ValueError(
            f"state: expected the arrays of this model, learner and settings, got a checkpoint without {missing[:3]} "
            f"and with {unknown[:3]}; build the same ones"
        )
    for name, leaf in wanted.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise ValueError(
                f"state: expected {leaf.dtype}{list(leaf.shape)} for {name}, "
                f"got {arrays[name].dtype}{list(arrays[name].shape)} in the checkpoint; build the same model"
            )

    def restored(path: Any, leaf: Any) -> Any:
        array = jnp.asarray(arrays[_name(path)])
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else array

    return eqx.combine(jax.tree_util.tree_map_with_path(restored, dynamic), static)


def key_bits(leaf: Any) -> Any:
    """Return the data of a key, which a file can hold. Other arrays are unchanged."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _renamed(name: str) -> str:
    """Return a name with the field of an older state renamed. Names further down are the user's own."""
    parts = name.split("/")
    first = next((i for i, part in enumerate(parts) if part in _RENAMED), None)
    return name if first is None else "/".join([*parts[:first], _RENAMED[parts[first]], *parts[first + 1 :]])


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
