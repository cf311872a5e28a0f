"""Iterations in blocks: the noise of a block is drawn in one call, and a scan makes its iterations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, PRNGKeyArray

from vages.memory import shape_bytes

NOISE_BYTES = 2**23  # of a block: few calls of the generator, and still near the cores
_ON_GPU = 2**26  # where each call costs the start of some kernels, and memory is fast wherever it is
_FEW_BYTES = 2**18  # of an iteration: copied faster than a kernel starts


def in_one(
    draw: Callable[[PRNGKeyArray], Any], update: Callable[..., Any], key: PRNGKeyArray
) -> tuple[Callable[[PRNGKeyArray], Any], Callable[..., Any]]:
    """`draw(key)` and `update(drawn, …)` with all that is drawn of a dtype in one flat array, if it is not much.

    A loop on a GPU copies its part of each array by a kernel of its own: a small model spends a tenth of its time so.
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
    """`jax.lax.scan` of `update(draw(fold_in(key, start + i)), carry, inputs[i])`, which returns (carry, output).

    The noise of an iteration depends on the key and on the iteration's number alone, not on the blocks.
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
    """How many blocks of how many iterations, two or more and about as many as fit; of one where no more fit.

    Blocks of one iteration are no loop, and round differently: they are all so, or none is.
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
