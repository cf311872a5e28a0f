"""A chunk of training as one compiled program: a scan over iterations, noise in blocks, `vmap` over seeds."""

import hashlib
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray

from vages.blocks import in_one, scan_in_blocks
from vages.checks import struct_of
from vages.hoist import hoist
from vages.objectives import Batch, Metrics
from vages.posteriors import check_contract
from vages.training.learner import Learner, LearnerState

# Loops, too, are launched as GPU graphs. Otherwise, small networks would wait for the host.
_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
}


class Chunk(NamedTuple):
    """A chunk of training: called with (state, data, indices, key, start)."""

    program: Any  # a function of (all arguments but the first, the first)

    def __call__(self, state: LearnerState, *arguments: Any) -> tuple[LearnerState, Metrics]:
        """Return the state after these iterations, and the metrics of each."""
        return self.program(arguments, state)

    def compile(self, state: LearnerState, *arguments: Any) -> "tuple[Chunk, jax.stages.Compiled]":
        """Compile for arguments of these shapes only. Return the compiled chunk and JAX's `Compiled` object."""
        compiled = self.program.lower(arguments, state).compile()
        return Chunk(compiled), compiled.compiled

    def digest(self, state: LearnerState, *arguments: Any) -> str:
        """Return the SHA-256 of the program for arguments of these shapes, including settings that are constants."""
        return hashlib.sha256(self.program.lower(arguments, state).as_text().encode()).hexdigest()


@lru_cache(maxsize=4)  # a learner that is used again is not compiled again
def compile_chunk(
    learner: Learner, *, many: bool, own_data: bool = False, mesh: Mesh | None = None, donate: bool = False
) -> Chunk:
    """Return `chunk(state, data, indices, key, start)`: the state after len(indices) iterations, and their metrics.

    `indices` (iterations, batch) selects rows of `data`, a `Batch` of all examples. Iteration i draws its noise from
    the key folded with start + i, so results do not depend on how iterations are divided into chunks. With `many`,
    state, indices and key have a leading axis of seeds, and with `own_data` so does `data`. With a mesh, batches are
    divided over its devices, and state and metrics are replicated. With `donate`, the memory of the given state is
    reused for the new one.
    """

    def laid_out(tree, *spec):
        return tree if mesh is None else eqx.filter_shard(tree, NamedSharding(mesh, PartitionSpec(*spec)))

    def chunk(state: LearnerState, data: Batch, indices: Int[Array, "n batch"], key: PRNGKeyArray, start: Array):
        params, static = eqx.partition(state, eqx.is_array)
        # The compiler removes a loop of one iteration and then rounds differently. So two are made, and one is kept.
        alone = len(indices) == 1
        indices = jnp.concatenate([indices, indices]) if alone else indices
        size = indices.shape[1]
        batch = jax.tree.map(lambda x: struct_of(x, size, drop=1), data)
        draw, update = split_step(learner, state, batch, key)
        if jax.default_backend() == "gpu" and mesh is None:
            draw, update = in_one(draw, update, key)

        def iterate(noise, params, rows):
            batch = laid_out(jax.tree.map(lambda x: x[rows], data), () if mesh is None else mesh.axis_names)
            params, batch, noise = jax.lax.optimization_barrier((params, batch, noise))
            params, metrics = jax.lax.optimization_barrier(update(noise, params, batch))
            return params, (metrics, params if alone else None)

        params, (metrics, each) = scan_in_blocks(draw, iterate, params, indices, key, start)
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


def check_step(learner: Learner, state: LearnerState, batch: Batch, *, many: bool, whole: bool) -> None:
    """Raise, from shapes alone, if the context of a batch does not fit model and posterior.

    With `whole`, a step on the batch is traced, so that all of its errors are raised before a folder is written.
    """
    cut = lambda drop: lambda x: struct_of(x, drop=drop) if hasattr(x, "shape") else x
    state = jax.tree.map(cut(int(many)), state)
    if batch.context is not None:
        check_contract(state.model, state.posterior, jax.tree.map(cut(1), batch.context))
    if whole:
        step, params = _step_of_arrays(learner, state)
        jax.eval_shape(step, jax.random.key(0), params, batch)


def split_step(learner: Learner, state: LearnerState, batch: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
    """Return `draw(key)`, the noise of a step, and `update(noise, params, batch)`, which returns (params, metrics).

    `params` are the arrays of the state. State and batch may be shapes (`jax.ShapeDtypeStruct`).
    """
    step, params = _step_of_arrays(learner, state)
    return hoist(step, key, params, batch)


def _step_of_arrays(learner: Learner, state: LearnerState) -> tuple[Any, Any]:
    """Return `step(key, params, batch)`, which returns (params, metrics), and the params of the state.

    The function is cached for each learner and static part of its state. So JAX traces it only once, for the memory
    check, the check of the step and the program.
    """
    params, static = eqx.partition(state, lambda x: eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct))
    leaves, tree = jax.tree.flatten(static)
    static_part = learner, tree, tuple(leaves), tuple(map(type, leaves))  # 1 and 1.0 are not the same
    try:
        hash(static_part)
    except TypeError:
        return _make_step.__wrapped__(*static_part), params
    return _make_step(*static_part), params


@lru_cache(maxsize=4)
def _make_step(learner: Learner, tree: Any, leaves: tuple[Any, ...], types: tuple[type, ...]) -> Any:
    static = jax.tree.unflatten(tree, leaves)

    def step(key: PRNGKeyArray, params: Any, batch: Batch) -> tuple[Any, Metrics]:
        after, metrics = learner.step(key, eqx.combine(params, static), batch)
        return eqx.filter(after, eqx.is_array), metrics

    return step
