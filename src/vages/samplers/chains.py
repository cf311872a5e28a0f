"""Chains as one compiled loop that keeps every so many states."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray

from vages.models import EBLVM
from vages.samplers.target import State

Carry = TypeVar("Carry")


class Job(NamedTuple):
    """What a sampler is to run: the targets' fields along their first axis, and starts (targets, chains, …)."""

    model: EBLVM
    given: dict[str, Any]
    start: State
    draws: int


class Drawn(NamedTuple):
    """States kept (draws, targets, chains, …), and how the chains fared."""

    states: State
    acceptance: Float[Array, "targets chains"]
    diverged: Integer[Array, "targets chains"]
    gradients: Integer[Array, "targets chains"]
    log_prob: Float[Array, "draws targets chains"]  # of every state
    swapped: Float[Array, "targets chains"] | None = None  # of the exchanges proposed to a neighbouring temperature


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
    """The last carry, and what is read of it after every `thin`-th step behind the warm-up, along the first axis."""
    kept = jax.tree.map(lambda x: jnp.zeros((draws + 1, *x.shape), x.dtype), jax.eval_shape(read, carry))

    def body(i, state):
        carry, kept = state
        carry = step(jax.random.fold_in(key, i), i, carry)
        behind = i + 1 - warmup
        slot = jnp.where((behind > 0) & (behind % thin == 0), behind // thin - 1, draws)  # the last is thrown away
        put = lambda kept, x: jax.lax.dynamic_update_index_in_dim(kept, x, slot, 0)
        return carry, jax.tree.map(put, kept, read(carry))

    carry, kept = jax.lax.fori_loop(0, warmup + draws * thin, body, (carry, kept))
    return carry, jax.tree.map(lambda x: x[:draws], kept)
