"""A stretch of training as one compiled program: noise in blocks, a scan over iterations, `vmap` over seeds."""

import hashlib
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray

from vages.training.devices import BATCH
from vages.training.learner import Learner, LearnerState, Metrics

# Loops, too, are graphs that a GPU launches in one go: small networks would wait for the host otherwise.
_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
}
_NOISE_BYTES = 2**23  # of a block of iterations: few calls of the generator, and still near the cores


class Chunk(NamedTuple):
    """A stretch of training: called with (state, data, indices, key, start)."""

    program: Any  # of all arguments but the first, and the first

    def __call__(self, state: LearnerState, *arguments: Array) -> tuple[LearnerState, Metrics]:
        """The state after these iterations, and each one's metrics."""
        return self.program(arguments, state)

    def compile(self, state: LearnerState, *arguments: Array) -> "tuple[Chunk, jax.stages.Compiled]":
        """The same for arguments of these shapes alone, compiled now, and what the compiler knows of it."""
        compiled = self.program.lower(arguments, state).compile()
        return Chunk(compiled), compiled.compiled

    def digest(self, state: LearnerState, *arguments: Array) -> str:
        """The SHA-256 of the program for arguments of these shapes, with all settings that it holds as constants."""
        return hashlib.sha256(self.program.lower(arguments, state).as_text().encode()).hexdigest()


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
        # A loop of one iteration is no loop to the compiler, which then rounds differently: two are made, and one kept.
        alone = len(indices) == 1
        indices = jnp.concatenate([indices, indices]) if alone else indices
        segments = block_lengths(len(indices), _fitting(learner, state, data[indices[0]]))

        def iterate(params, inputs):
            rows, noise = inputs
            params, batch, noise = jax.lax.optimization_barrier((params, laid_out(data[rows], BATCH), noise))
            state, metrics = learner.update(eqx.combine(params, static), batch, noise)
            params, metrics = jax.lax.optimization_barrier((eqx.filter(state, eqx.is_array), metrics))
            return params, (metrics, params if alone else None)

        def run_block(params, inputs):
            rows, iterations = inputs
            draw = lambda i: learner.draw(state, data[rows[0]], jax.random.fold_in(key, i))
            return jax.lax.scan(iterate, params, (rows, jax.vmap(draw)(iterations)))

        iterations, done, parts = start + jnp.arange(len(indices), dtype=start.dtype), 0, []
        for count, length in segments:
            these = slice(done, done := done + count * length)
            blocks = (indices[these].reshape(count, length, -1), iterations[these].reshape(count, length))
            params, outputs = jax.lax.scan(run_block, params, blocks)
            parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), outputs))
        metrics, each = jax.tree.map(lambda *parts: jnp.concatenate(parts), *parts)
        if alone:
            params, metrics = jax.tree.map(lambda x: x[0], each), jax.tree.map(lambda x: x[:1], metrics)
        return eqx.combine(params, static), metrics

    axes = (eqx.if_array(0), 0 if own_data else None, 0, 0, None)
    run = eqx.filter_vmap(chunk, in_axes=axes) if many else chunk

    def whole(arguments, state):
        return laid_out(run(state, *arguments))

    options: Any = {"compiler_options": _GRAPHS} if jax.default_backend() == "gpu" else {}
    program = eqx.filter_jit(whole, donate="all-except-first" if donate else "none", **options)
    return Chunk(program)


def block_lengths(iterations: int, fitting: int) -> list[tuple[int, int]]:
    """How many blocks of how many iterations, two or more and about as many as fit; of one where no more fit.

    Blocks of one iteration are no loop, and round differently: they are all so, or none is.
    """
    if fitting < 2:
        return [(iterations, 1)]
    divisor = max((n for n in range(2, min(iterations, fitting) + 1) if iterations % n == 0), default=1)
    if divisor > 1 and 4 * divisor >= min(iterations, fitting):
        return [(iterations // divisor, divisor)]
    count, rest = divmod(iterations, fitting)
    if rest == 1:
        count, rest = count - 1, fitting + 1
    return [(count, fitting), (1, rest)] if count else [(1, rest)]


def _fitting(learner: Learner, state: LearnerState, batch: Array) -> int:
    """How many iterations' noise fits in a block."""
    noise = eqx.filter_eval_shape(learner.draw, state, batch, jax.random.key(0))
    return _NOISE_BYTES // max(sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(noise)), 1)
