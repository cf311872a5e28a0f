"""A stretch of training as one compiled program: a scan over iterations, noise in blocks, `vmap` over seeds."""

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

# Loops, too, are graphs that a GPU launches in one go: small networks would wait for the host otherwise.
_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
}


class Chunk(NamedTuple):
    """A stretch of training: called with (state, data, indices, key, start)."""

    program: Any  # of all arguments but the first, and the first

    def __call__(self, state: LearnerState, *arguments: Any) -> tuple[LearnerState, Metrics]:
        """The state after these iterations, and each one's metrics."""
        return self.program(arguments, state)

    def compile(self, state: LearnerState, *arguments: Any) -> "tuple[Chunk, jax.stages.Compiled]":
        """The same for arguments of these shapes alone, compiled now, and what the compiler knows of it."""
        compiled = self.program.lower(arguments, state).compile()
        return Chunk(compiled), compiled.compiled

    def digest(self, state: LearnerState, *arguments: Any) -> str:
        """The SHA-256 of the program for arguments of these shapes, with all settings that it holds as constants."""
        return hashlib.sha256(self.program.lower(arguments, state).as_text().encode()).hexdigest()


@lru_cache(maxsize=4)  # a learner that is fitted again is not compiled again
def compile_chunk(
    learner: Learner, *, many: bool, own_data: bool = False, mesh: Mesh | None = None, donate: bool = False
) -> Chunk:
    """`chunk(state, data, indices, key, start)`: the state after len(indices) iterations, and each one's metrics.

    `indices` (iterations, batch) picks rows of `data`, a `Batch` of all examples. Iteration i draws its noise from the
    key folded with start + i, so that a result depends on the iterations made, not on how they were cut into chunks.
    With `many`, state, indices and key carry a leading axis of seeds, and with `own_data` so does `data`. With a mesh,
    batches are divided over its devices, and state and metrics are the same on all. With `donate`, the memory of the
    state that is given goes to the one returned.
    """

    def laid_out(tree, *spec):
        return tree if mesh is None else eqx.filter_shard(tree, NamedSharding(mesh, PartitionSpec(*spec)))

    def chunk(state: LearnerState, data: Batch, indices: Int[Array, "n batch"], key: PRNGKeyArray, start: Array):
        params, static = eqx.partition(state, eqx.is_array)
        # A loop of one iteration is no loop to the compiler, which then rounds differently: two are made, and one kept.
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
    """Raise, from shapes alone, where the context of a batch does not fit model and posterior.

    With `whole`, raise all that a step on the batch would raise: it is traced. That is worth it where a folder is about
    to be written.
    """
    cut = lambda drop: lambda x: struct_of(x, drop=drop) if hasattr(x, "shape") else x
    state = jax.tree.map(cut(int(many)), state)
    if batch.context is not None:
        check_contract(state.model, state.posterior, jax.tree.map(cut(1), batch.context))
    if whole:
        step, params = _step_of_arrays(learner, state)
        jax.eval_shape(step, jax.random.key(0), params, batch)


def split_step(learner: Learner, state: LearnerState, batch: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
    """`draw(key)`, the noise of a step, and `update(noise, params, batch)`, which returns (params, metrics).

    `params` are the arrays of the state. State and batch may be of shapes alone (`jax.ShapeDtypeStruct`).
    """
    step, params = _step_of_arrays(learner, state)
    return hoist(step, key, params, batch)


def _step_of_arrays(learner: Learner, state: LearnerState) -> tuple[Any, Any]:
    """`step(key, params, batch)`, which returns (params, metrics), and the params of the state.

    It is one function for each learner and each static part of its states, so that JAX traces it once: for the size of
    a run, for the check before it and for its program.
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
