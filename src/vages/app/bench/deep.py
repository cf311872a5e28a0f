"""Cost of deep EBLVMs compared with a plain EBM and BiMDSM: time, memory and FLOPs of an iteration, and sampling."""

import time
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vages.app.recipes import as_recipe, job_on_noise
from vages.app.recipes.chains import chains_of
from vages.app.settings import CIFAR10, MNIST, DeepSettings
from vages.checks import struct_of
from vages.samplers import sample_v
from vages.timing import ratio
from vages.training import Cost, Job, iteration_costs

CIFAR10_SHAPE, MNIST_SHAPE = (3, 32, 32), (1, 32, 32)
METHODS: dict[str, dict] = {
    "vages-mdsm": {},
    "ebm": {"method": "mdsm"},
    **{f"bimdsm N = {n}": {"method": "bimdsm", "unrolled": n} for n in (0, 2, 5)},
}
PASSES = 7  # forward and back for VaES; along z, and back from there: two pullbacks, two gradients of weights


def run(rounds: int = 5) -> dict:
    """Measure ms, GiB and TFLOP/s of an iteration at CIFAR10 size and MNIST size, and seconds of 500 samples."""
    jobs = {name: job_on_noise(replace(CIFAR10, **change), CIFAR10_SHAPE) for name, change in METHODS.items()}
    small = {name: job_on_noise(replace(MNIST, **METHODS[name]), MNIST_SHAPE) for name in ("vages-mdsm", "ebm")}
    cifar10, mnist = (iteration_costs(these, iterations=30, rounds=rounds) for these in (jobs, small))
    time_over = lambda costs, name: ratio(costs["vages-mdsm"].seconds, costs[name].seconds)
    return {
        "batch": CIFAR10.batch,
        "cifar10 size": summary(jobs, cifar10),
        "mnist size": summary(small, mnist),
        "cifar10 time, vages-mdsm / ebm": time_over(cifar10, "ebm"),
        "cifar10 time, vages-mdsm / bimdsm N = 5": time_over(cifar10, "bimdsm N = 5"),
        "mnist time, vages-mdsm / ebm": time_over(mnist, "ebm"),
        "sampling 500 images of cifar10 size, 2,700 steps, s": sampling_seconds(CIFAR10, jobs["vages-mdsm"], 500),
    }


def summary(jobs: dict[str, Job], costs: dict[str, Cost]) -> dict:
    """Return time, memory and FLOP/s of an iteration of each job, and its parameters."""
    milliseconds = {name: 1e3 * float(np.median(cost.seconds)) for name, cost in costs.items()}
    return {
        "ms an iteration, median": milliseconds,
        "ms an iteration, min": {name: 1e3 * float(cost.seconds.min()) for name, cost in costs.items()},
        "GiB": {name: cost.bytes / 2**30 for name, cost in costs.items()},
        f"TFLOP/s in {PASSES} passes through the network": {
            name: PASSES * features_flops(job) / milliseconds[name] / 1e9
            for name, job in jobs.items()
            if not name.startswith("bimdsm")  # it takes other passes
        },
        "parameters": {name: sum(x.size for x in jax.tree.leaves(job.state.model)) for name, job in jobs.items()},
    }


def features_flops(job: Job) -> float:
    """Return the FLOPs of one pass of a batch through the features, counted by the CPU's compiler: a GPU's does not."""
    arrays, static = eqx.partition((job.state.model, job.data[: job.batch]), eqx.is_array)

    def features(arrays):
        model, v = eqx.combine(arrays, static)
        return jax.vmap(model.features)(v)

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        counted = jax.jit(features).lower(jax.tree.map(struct_of, arrays))
    return (counted.cost_analysis() or {}).get("flops", float("nan"))


def sampling_seconds(recipe: DeepSettings, job: Job, count: int) -> float:
    """Return seconds of annealed Langevin sampling, extrapolated from the chunks after the first, which compiles."""
    model, schedule = chains_of(as_recipe(recipe), job.state.model)
    seen = []
    told = lambda done, total: seen.append((done, time.perf_counter()))
    sample_v(jax.random.key(0), model, jnp.zeros((count, *model.h.shape)), schedule, progress=told)
    (first, start), (last, end) = seen[0], seen[-1]
    return (end - start) * last / (last - first)
