"""What deep EBLVMs cost beside a plain EBM and beside BiMDSM: time, memory and arithmetic of an iteration; sampling."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from vages.models import Mixed
from vages.recipes.deep import CIFAR10, MNIST, DeepRecipe, job_of_deep
from vages.samplers import Schedule, sample_v
from vages.timing import ratio
from vages.training import Job, seconds_per_iteration, step_cost

CIFAR10_SHAPE, MNIST_SHAPE = (3, 32, 32), (1, 32, 32)
METHODS: dict[str, dict] = {
    "vages-mdsm": {},
    "ebm": {"method": "mdsm"},
    **{f"bimdsm N = {n}": {"method": "bimdsm", "unrolled": n} for n in (0, 2, 5)},
}


def run(rounds: int = 5) -> dict:
    """Milliseconds, GiB and TFLOP/s of an iteration at CIFAR10 size and MNIST size; seconds of 500 samples."""
    jobs = {name: job_of_deep(replace(CIFAR10, **change), CIFAR10_SHAPE) for name, change in METHODS.items()}
    cifar10 = measured(jobs, rounds)
    times = cifar10.pop("times")
    mnist = measured({"vages-mdsm": job_of_deep(MNIST, MNIST_SHAPE)}, rounds)
    del mnist["times"]
    return {
        "batch": CIFAR10.batch,
        "cifar10 size": cifar10,
        "mnist size": mnist,
        "cifar10 time, vages-mdsm / ebm": ratio(times["vages-mdsm"], times["ebm"]),
        "cifar10 time, vages-mdsm / bimdsm N = 5": ratio(times["vages-mdsm"], times["bimdsm N = 5"]),
        "sampling 500 images of cifar10 size, 2,700 steps, s": sampling_seconds(CIFAR10, jobs["vages-mdsm"], 500),
    }


def measured(jobs: dict[str, Job], rounds: int, iterations: int = 30) -> dict:
    """Time, memory and arithmetic of an iteration of each job; jobs are timed in turns."""
    times = seconds_per_iteration(jobs, iterations=iterations, rounds=rounds)
    costs = {name: step_cost(job) for name, job in jobs.items()}
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    return {
        "times": times,
        "ms an iteration, median": {name: 1e3 * seconds for name, seconds in medians.items()},
        "ms an iteration, min": {name: 1e3 * float(seconds.min()) for name, seconds in times.items()},
        "GiB of a step": {name: cost.bytes / 2**30 for name, cost in costs.items()},
        "TFLOP/s": {name: cost.flops / medians[name] / 1e12 for name, cost in costs.items()},
        "parameters": {name: sum(x.size for x in jax.tree.leaves(job.state.model)) for name, job in jobs.items()},
    }


def sampling_seconds(recipe: DeepRecipe, job: Job, count: int, schedule: Schedule = Schedule()) -> float:  # noqa: B008
    """Seconds of annealed Langevin sampling; those of the first chunk, which compiles, are taken as of the others."""
    model = Mixed(job.state.model, recipe.precision)
    seen = []
    told = lambda done, total: seen.append((done, time.perf_counter()))
    sample_v(jax.random.key(0), model, jnp.zeros((count, *model.h_shape)), schedule, progress=told)
    (first, start), (last, end) = seen[0], seen[-1]
    return (end - start) * last / (last - first)
