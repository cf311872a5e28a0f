"""One process of a cluster: `cluster_member.py PORT PROCESSES INDEX JOB …` trains and checkpoints, job after job.

A job is `FOLDER STEPS` or `FOLDER STEPS resume`.
"""

import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from vages.learners import make_learner
from vages.models import GRBM
from vages.objectives import DSM
from vages.posteriors import BernoulliPosterior, Variational
from vages.training import Checkpoints, RunFolder, by_writer, data_mesh, fit

BATCH = 20


@cache
def parts():
    """A learner, its first state and data: the same in every process."""
    learner = make_learner(DSM(0.3, Variational(2)), learning_rate=1e-2, posterior_steps=2, ema=0.9, clip=5.0)
    keys = jax.random.split(jax.random.key(0), 3)
    model, posterior = GRBM.init(keys[0], 3, 2), BernoulliPosterior.linear(keys[1], 3, 2)
    data = np.random.default_rng(0).uniform(size=(110, 3)).astype(np.float32)
    return learner, learner.init(keys[2], model, posterior, batch=BATCH), jnp.asarray(data)


def train(path, steps, resume, mesh):
    """Train over a mesh in a folder, which the first process writes."""
    folder = by_writer(lambda: RunFolder.reopen(path) if resume else RunFolder(path, {}))
    quality = lambda state: {"quality": -jnp.sum(state.model.weight**2)}
    learner, state, data = parts()
    fitted = fit(
        learner,
        state,
        data,
        steps=steps,
        batch=BATCH,
        seed=5,
        chunk=10,
        evaluate=quality,
        evaluate_every=20,
        select="quality",
        folder=folder,
        checkpoints=Checkpoints(every=10),
        resume=resume,
        mesh=mesh,
    )
    if folder is not None:
        folder.close()
    return fitted


if __name__ == "__main__":
    port, processes, index, *jobs = sys.argv[1:]
    jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(index))
    assert (jax.device_count(), jax.local_device_count()) == (2 * int(processes), 2)
    for job in jobs:
        path, steps, *resume = job.split()
        fitted = train(Path(path), int(steps), bool(resume), data_mesh())
        print(index, fitted.step, float(jnp.sum(fitted.state.model.weight)), flush=True)
