"""Markov chains as one compiled loop that keeps every `thin`-th state."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray

from vages.models import EBLVM
from vages.samplers.target import State

Carry = TypeVar("Carry")


class Job(NamedTuple):
    """The input of a sampler: the targets' fields along their first axis, and starts (targets, chains, …)."""

    model: EBLVM
    given: dict[str, Any]
    start: State
    draws: int


class Drawn(NamedTuple):
    """Kept states (draws, targets, chains, …), and statistics of the chains."""

    states: State
    acceptance: Float[Array, "targets chains"]
    diverged: Integer[Array, "targets chains"]
    gradients: Integer[Array, "targets chains"]
    log_prob: Float[Array, "draws targets chains"] | None = None  # log p̃ of each state; None if it was not computed
    swapped: Float[Array, "targets chains"] | None = None  # acceptance of exchanges between temperatures


def collect(
    step: Callable[[PRNGKeyArray, Integer[Array, ""], Carry], Carry],
    key: PRNGKeyArray,
    carry: Carry,
    read: Callable[[Carry], Any],
    *,
    warmup: int,
    draws: int,
    thin: int,
) -> tuple[Carry, Any]:
    """Return the last carry, and `read(carry)` of every `thin`-th step after the warm-up, along a new first axis."""
    kept = jax.tree.map(lambda x: jnp.zeros((draws + 1, *x.shape), x.dtype), jax.eval_shape(read, carry))

    def body(i, state):
        carry, kept = state
        carry = step(jax.random.fold_in(key, i), i, carry)
        behind = i + 1 - warmup
        slot = jnp.where((behind > 0) & (behind % thin == 0), behind // thin - 1, draws)  # the last slot is discarded
        put = lambda kept, x: jax.lax.dynamic_update_index_in_dim(kept, x, slot, 0)
        return carry, jax.tree.map(put, kept, read(carry))

    carry, kept = jax.lax.fori_loop(0, warmup + draws * thin, body, (carry, kept))
    return carry, jax.tree.map(lambda x: x[:draws], kept)
