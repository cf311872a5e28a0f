"""Keys of runs: one, or one for each of several seeds that train in one program; and keys derived from them."""

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from vages.training.learner import Learner, LearnerState


def as_keys(key: Any) -> tuple[Key[Array, "seeds"], bool]:
    """Return keys along an axis, and whether there were several. Keys may be typed, or uint32 as in older JAX."""
    if isinstance(key, jax.Array | np.ndarray):
        keys = jax.random.wrap_key_data(jnp.asarray(key)) if key.dtype == jnp.uint32 else key
        if isinstance(keys, jax.Array) and jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) and keys.ndim <= 1:
            if str(jax.random.key_impl(keys)) == "unsafe_rbg":  # under vmap, its noise depends on the size of the batch
                raise ValueError("key: expected threefry2x32 or rbg, got unsafe_rbg, whose runs could not be resumed")
            return (keys, True) if keys.ndim else (keys[None], False)
    raise TypeError(
        f"key: expected a key, jax.random.key(0) say, or an array of keys, got {type(key).__name__}; fit takes (key, "
        "model, posterior, data, learner), in this order"
    )


def order_seeds(keys: Key[Array, "seeds"]) -> tuple[int, ...]:
    """Return an integer for each key that decides the order of the data: the seed, for `jax.random.key(seed)`."""
    words = np.asarray(jax.random.key_data(keys), np.uint64)
    if words.shape[1] == 2:
        return tuple(int(high) << 32 | int(low) for high, low in words)
    return tuple(int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "big") for row in words)


def key_of(keys: Key[Array, "seeds"], use: str) -> Key[Array, "seeds"]:
    """Return keys for one use, so that the start of a run and its training share no noise."""
    return jax.vmap(lambda key: jax.random.fold_in(key, zlib.crc32(use.encode())))(keys)


def seed_keys(seeds: Sequence[int], use: str) -> Key[Array, "seeds"]:
    """Return keys for one use, one for each seed."""
    return key_of(jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32)), use)


def start_keys(keys: Key[Array, "seeds"]) -> tuple[Key[Array, "seeds"], Key[Array, "seeds"]]:
    """Return keys for making models and posteriors, and keys with which `fit` begins."""
    both = jax.vmap(jax.random.split)(key_of(keys, "start"))
    return both[:, 0], both[:, 1]


def make_seeds(
    seeds: Sequence[int], make: Callable[[PRNGKeyArray], tuple[Any, Any]]
) -> tuple[Key[Array, "seeds"], Any, Any]:
    """Return keys, models and posteriors of several runs along an axis; `make(key)` returns (model, posterior)."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return keys, *eqx.filter_jit(eqx.filter_vmap(make))(start_keys(keys)[0])


def init_seeds(
    learner: Learner, seeds: Sequence[int], make: Callable[[PRNGKeyArray], tuple[Any, Any]], batch: int
) -> LearnerState:
    """Return the states of several runs before their first iteration, along an axis."""
    keys, models, posteriors = make_seeds(seeds, make)
    init = lambda key, model, posterior: learner.init(key, model, posterior, batch)
    return eqx.filter_jit(eqx.filter_vmap(init))(start_keys(keys)[1], models, posteriors)


def one_seed(tree: Any, seed: int = 0) -> Any:
    """Return the part of a tree that belongs to one seed, by its index on the leading axis."""
    return jax.tree.map(lambda x: x[seed] if eqx.is_array(x) else x, tree)
