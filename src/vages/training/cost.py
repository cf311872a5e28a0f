"""What a learner's iteration costs: time side by side with others, and the memory its compiled program asks for."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.data import Batches
from vages.learners import Learner, LearnerState
from vages.timing import side_by_side
from vages.training.program import compile_chunk


class Job(NamedTuple):
    """A learner, its state and data, ready to be run; with a leading axis of seeds in the state where `seeds` > 0."""

    learner: Learner
    state: LearnerState
    data: Array
    batch: int
    seeds: int = 0


def seconds_per_iteration(jobs: dict[str, Job], *, iterations: int, rounds: int) -> dict[str, np.ndarray]:
    """Seconds of an iteration (and seed) in each of `rounds` turns, a turn being `iterations` of every job."""

    def program(job: Job):
        chunk = compile_chunk(job.learner, many=job.seeds > 0)
        count = max(job.seeds, 1)
        order = np.stack([Batches(len(job.data), job.batch, seed).indices(0, iterations) for seed in range(count)])
        keys = jax.vmap(jax.random.key)(jnp.arange(count, dtype=jnp.uint32))
        indices, key = (jnp.asarray(order), keys) if job.seeds else (jnp.asarray(order[0]), keys[0])
        return lambda: chunk(job.state, job.data, indices, key, jnp.zeros((), jnp.uint32))[1]

    times = side_by_side({name: program(job) for name, job in jobs.items()}, rounds)
    return {name: seconds / iterations / max(jobs[name].seeds, 1) for name, seconds in times.items()}


class StepCost(NamedTuple):
    """What one compiled step asks for."""

    bytes: int  # the state, which it writes over, its batch and scratch space
    flops: float  # its arithmetic, as XLA counts it


def step_cost(job: Job) -> StepCost:
    """The memory and the arithmetic of one step."""
    compiled = _compiled(job)
    sizes, counted = compiled.memory_analysis(), compiled.cost_analysis()
    used = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return StepCost(used - sizes.alias_size_in_bytes, float((counted or {}).get("flops", np.nan)))


def step_bytes(job: Job) -> int:
    """The memory of one step."""
    return step_cost(job).bytes


def _compiled(job: Job) -> Any:
    params, static = eqx.partition(job.state, eqx.is_array)

    def step(params, batch: Array, key: Array):
        state, metrics = job.learner.step(eqx.combine(params, static), batch, key)
        return eqx.filter(state, eqx.is_array), metrics

    return jax.jit(step, donate_argnums=0).lower(params, job.data[: job.batch], jax.random.key(0)).compile()
