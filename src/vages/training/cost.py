"""The cost of a learner's iteration: its time, measured alternately with others, and the memory of its program."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vages.data import Batches
from vages.objectives import Batch
from vages.timing import side_by_side
from vages.training.learner import Learner, LearnerState
from vages.training.program import compile_chunk


class Job(NamedTuple):
    """A learner, its state and data. If `seeds` > 0, the state has a leading axis of seeds."""

    learner: Learner
    state: LearnerState
    data: Array
    batch: int
    seeds: int = 0


class Cost(NamedTuple):
    """The cost of iterations in compiled chunks, as in training."""

    seconds: Float[np.ndarray, "rounds"]  # of an iteration (and seed), in each round
    bytes: int  # of the state, which is overwritten, the data and scratch space


def iteration_costs(jobs: dict[str, Job], *, iterations: int, rounds: int) -> dict[str, Cost]:
    """Return time and memory of an iteration of each job. In each of `rounds`, every job makes `iterations`."""
    trainings = {name: _Training(job, iterations) for name, job in jobs.items()}
    times = side_by_side({name: training.go_on for name, training in trainings.items()}, rounds)
    return {
        name: Cost(times[name] / iterations / max(jobs[name].seeds, 1), _bytes(training.compiled))
        for name, training in trainings.items()
    }


def seconds_per_iteration(jobs: dict[str, Job], *, iterations: int, rounds: int) -> dict[str, np.ndarray]:
    """Return seconds per iteration (and seed) in each of `rounds`, in which every job makes `iterations`."""
    return {name: cost.seconds for name, cost in iteration_costs(jobs, iterations=iterations, rounds=rounds).items()}


class _Training:
    """A job that is continued with the same batches each time."""

    def __init__(self, job: Job, iterations: int):
        count = max(job.seeds, 1)
        order = np.stack([Batches(len(job.data), job.batch, seed).indices(0, iterations) for seed in range(count)])
        keys = jax.vmap(jax.random.key)(jnp.arange(count, dtype=jnp.uint32))
        indices, key = (jnp.asarray(order), keys) if job.seeds else (jnp.asarray(order[0]), keys[0])
        self.arguments = (Batch(job.data), indices, key, jnp.zeros((), jnp.uint32))
        self.state = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, job.state)
        chunk = compile_chunk(job.learner, many=job.seeds > 0, donate=True)
        self.chunk, self.compiled = chunk.compile(self.state, *self.arguments)

    def go_on(self) -> Any:
        self.state, metrics = self.chunk(self.state, *self.arguments)
        return metrics


def step_bytes(job: Job) -> int:
    """Return the memory of one step in bytes: the state, which it overwrites, its batch and scratch space."""
    params, static = eqx.partition(job.state, eqx.is_array)

    def step(params, batch: Batch, key: Array):
        state, metrics = job.learner.step(key, eqx.combine(params, static), batch)
        return eqx.filter(state, eqx.is_array), metrics

    lowered = jax.jit(step, donate_argnums=0).lower(params, Batch(job.data[: job.batch]), jax.random.key(0))
    return _bytes(lowered.compile())


def _bytes(compiled: jax.stages.Compiled) -> int:
    sizes: Any = compiled.memory_analysis()
    used = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return used - sizes.alias_size_in_bytes
