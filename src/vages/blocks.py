"""Scans over iterations in blocks, with the noise of a block drawn in one call."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, PRNGKeyArray

from vages.memory import shape_bytes

NOISE_BYTES = 2**23  # per block: few calls of the generator, and small enough for the cache of a CPU
_ON_GPU = 2**26  # where each call launches several kernels, and memory is uniformly fast
_FEW_BYTES = 2**18  # per iteration: copied faster than a kernel starts


def in_one(
    draw: Callable[[PRNGKeyArray], Any], update: Callable[..., Any], key: PRNGKeyArray
) -> tuple[Callable[[PRNGKeyArray], Any], Callable[..., Any]]:
    """Return `draw(key)` and `update(drawn, …)` with the arrays of each dtype packed in a flat one, if they are small.

    On a GPU, a loop launches one kernel per array to copy its slice, which takes a tenth of the time of a small model.
    """
    shapes, tree = jax.tree.flatten(jax.eval_shape(draw, key))
    if shape_bytes(shapes) > _FEW_BYTES:
        return draw, update
    groups: dict[Any, list[int]] = {}
    for i, shape in enumerate(shapes):
        groups.setdefault(shape.dtype, []).append(i)

    def draw_in_one(key: PRNGKeyArray) -> list[Array]:
        leaves = jax.tree.leaves(draw(key))
        return [jnp.concatenate([leaves[i].reshape(-1) for i in group]) for group in groups.values()]

    def update_of_one(drawn: list[Array], *arguments: Any) -> Any:
        leaves: dict[int, Array] = {}
        for flat, group in zip(drawn, groups.values(), strict=True):
            ends = np.cumsum([shapes[i].size for i in group])
            for i, part in zip(group, jnp.split(flat, ends[:-1]), strict=True):
                leaves[i] = part.reshape(shapes[i].shape)
        return update(jax.tree.unflatten(tree, [leaves[i] for i in range(len(shapes))]), *arguments)

    return draw_in_one, update_of_one


def scan_in_blocks(
    draw: Callable[[PRNGKeyArray], Any],
    update: Callable[[Any, Any, Any], tuple[Any, Any]],
    carry: Any,
    inputs: Array,
    key: PRNGKeyArray,
    start: Integer[Array, ""],
) -> tuple[Any, Any]:
    """Run `jax.lax.scan` on `update(draw(fold_in(key, start + i)), carry, inputs[i])`, which returns (carry, output).

    The noise of an iteration depends only on the key and the iteration's number, not on the blocks.
    """
    size = shape_bytes(jax.eval_shape(draw, key))
    iterations = start + jnp.arange(len(inputs), dtype=start.dtype)

    def iterate(carry, inputs):
        row, drawn = inputs
        return update(drawn, carry, row)

    def run_block(carry, inputs):
        rows, iterations = inputs
        drawn = jax.vmap(lambda i: draw(jax.random.fold_in(key, i)))(iterations)
        return jax.lax.scan(iterate, carry, (rows, drawn))

    done, parts = 0, []
    most = _ON_GPU if jax.default_backend() == "gpu" else NOISE_BYTES
    for count, length in block_lengths(len(inputs), most // max(size, 1)):
        these = slice(done, done := done + count * length)
        blocks = tuple(x[these].reshape(count, length, *x.shape[1:]) for x in (inputs, iterations))
        carry, outputs = jax.lax.scan(run_block, carry, blocks)
        parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), outputs))
    return carry, jax.tree.map(lambda *parts: jnp.concatenate(parts), *parts)


def block_lengths(iterations: int, fitting: int) -> list[tuple[int, int]]:
    """Return (number of blocks, iterations per block), with at least two iterations and about as many as fit.

    If fewer than two fit, all blocks have one iteration. These are not compiled as loops and round differently, so they
    are never mixed with longer ones.
    """
    if fitting < 2 or iterations == 1:
        return [(iterations, 1)]
    divisor = max((n for n in range(2, min(iterations, fitting) + 1) if iterations % n == 0), default=1)
    if divisor > 1 and 4 * divisor >= min(iterations, fitting):
        return [(iterations // divisor, divisor)]
    count, rest = divmod(iterations, fitting)
    if rest == 1:
        count, rest = count - 1, fitting + 1
    return [(count, fitting), (1, rest)] if count else [(1, rest)]
