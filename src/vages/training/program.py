"""A stretch of training as one compiled program: noise in blocks, a scan over iterations, `vmap` over seeds."""

from collections.abc import Callable
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray

from vages.learners import Learner, LearnerState, Metrics
from vages.training.devices import BATCH

_NOISE_BYTES = 2**23  # of a block of iterations: few calls of the generator, and still near the cores

Chunk = Callable[..., tuple[LearnerState, Metrics]]


@lru_cache(maxsize=4)  # a learner that is fitted again is not compiled again
def compile_chunk(
    learner: Learner, *, many: bool, own_data: bool = False, mesh: Mesh | None = None, donate: bool = False
) -> Chunk:
    """`chunk(state, data, indices, key, start)`: the state after len(indices) iterations, and each one's metrics.

    `indices` (iterations, batch) picks rows of `data`. Iteration i draws its noise from the key folded with start + i,
    so that a result depends on the iterations made, not on how they were cut into chunks. With `many`, state, indices
    and key carry a leading axis of seeds, and with `own_data` so does `data`. With a mesh, batches are divided over its
    devices, and state and metrics are the same on all. With `donate`, the memory of the state that is given goes to
    the one returned.
    """

    def laid_out(tree, *spec):
        return tree if mesh is None else eqx.filter_shard(tree, NamedSharding(mesh, PartitionSpec(*spec)))

    def chunk(state: LearnerState, data: Array, indices: Int[Array, "n batch"], key: PRNGKeyArray, start: Array):
        params, static = eqx.partition(state, eqx.is_array)
        block = _block_length(learner, state, data, indices)

        def iterate(params, inputs):
            rows, noise = inputs
            # without the barriers a loop of one iteration is fused with what surrounds it, and rounds differently
            params, batch, noise = jax.lax.optimization_barrier((params, laid_out(data[rows], BATCH), noise))
            state, metrics = learner.update(eqx.combine(params, static), batch, noise)
            return jax.lax.optimization_barrier((eqx.filter(state, eqx.is_array), metrics))

        def run_block(params, inputs):
            rows, iterations = inputs
            draw = lambda i: learner.draw(state, data[rows[0]], jax.random.fold_in(key, i))
            return jax.lax.scan(iterate, params, (rows, jax.vmap(draw)(iterations)))

        iterations = start + jnp.arange(len(indices), dtype=start.dtype)
        blocks = (indices.reshape(-1, block, indices.shape[1]), iterations.reshape(-1, block))
        params, metrics = jax.lax.scan(run_block, params, blocks)
        return eqx.combine(params, static), jax.tree.map(jnp.ravel, metrics)

    axes = (eqx.if_array(0), 0 if own_data else None, 0, 0, None)
    run = eqx.filter_vmap(chunk, in_axes=axes) if many else chunk

    def whole(arguments, state):
        return laid_out(run(state, *arguments))

    program = eqx.filter_jit(whole, donate="all-except-first" if donate else "none")
    return lambda state, *arguments: program(arguments, state)


def _block_length(learner: Learner, state: LearnerState, data: Array, indices: Array) -> int:
    noise = eqx.filter_eval_shape(learner.draw, state, data[indices[0]], jax.random.key(0))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(noise))
    most = max(1, _NOISE_BYTES // max(size, 1))
    return max(n for n in range(1, len(indices) + 1) if len(indices) % n == 0 and n <= most)
