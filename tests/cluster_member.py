"""One process of a cluster: `cluster_member.py PORT PROCESSES INDEX JOB …` trains and checkpoints, job after job.

A job is `FOLDER STEPS`, `FOLDER STEPS resume` or `FOLDER STEPS other:WHAT`. With `other`, all processes but the first
use a different WHAT, and each process prints the error.
"""

import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fitting import fit_state
from vages.models import GRBM
from vages.objectives import DSM, Variational
from vages.optimizers import adam
from vages.posteriors import BernoulliPosterior
from vages.training import Checkpoints, RunFolder, by_writer, cluster, data_mesh, join_cluster
from vages.training.learner import Learner

BATCH = 20


@cache
def parts(learning_rate=1e-2):
    """A learner, its first state and data. They are the same in every process."""
    learner = Learner(DSM(0.3, Variational(2)), adam(learning_rate, clip=5.0), posterior_steps=1, ema=0.9)
    keys = jax.random.split(jax.random.key(0), 3)
    model, posterior = GRBM.init(keys[0], 3, 2), BernoulliPosterior.linear(keys[1], 3, 2)
    data = np.random.default_rng(0).uniform(size=(110, 3)).astype(np.float32)
    return learner, learner.init(keys[2], model, posterior, batch=BATCH), jnp.asarray(data)


def train(path, steps, resume, mesh, other=None):
    """Train over a mesh in a folder that the first process writes; `other` is what differs in this process."""
    folder = by_writer(lambda: RunFolder.reopen(path) if resume else RunFolder(path, {}))
    quality = lambda state: {"quality": -jnp.sum(state.model.weight**2)}
    learner, state, data = parts(2e-2 if other == "learner" else 1e-2)
    state = state._replace(rate=state.rate / 2) if other == "state" else state
    fitted = fit_state(
        learner,
        state,
        data[:-1] if other == "data" else data,
        steps=steps + (other == "steps"),
        batch=BATCH,
        seed=6 if other == "seed" else 5,
        chunk=10,
        evaluate=quality,
        evaluate_every=20,
        maximize="quality",
        folder=folder,
        checkpoints=Checkpoints(every=10),
        resume=resume,
        mesh=mesh,
    )
    if folder is not None:
        folder.close()
    return fitted


def refused(path, steps, other, mesh):
    """The error of a job in which WHAT differs between processes."""
    own, (versions, client) = jax.process_index() == 0, (cluster.versions, cluster._client)
    if other == "versions" and not own:
        cluster.versions = lambda: {**versions(), "optax": "0"}
    if other == "collectives":  # compared in another way, as if JAX's private client did not exist
        cluster._client, other = lambda: None, "steps"
    try:
        train(path, steps, False, mesh, None if own else other)
    except ValueError as error:
        return str(error)
    finally:
        cluster.versions, cluster._client = versions, client


if __name__ == "__main__":
    port, processes, index, *jobs = sys.argv[1:]
    join_cluster(f"127.0.0.1:{port}", int(processes), int(index), timeout=60)
    assert (jax.device_count(), jax.local_device_count()) == (2 * int(processes), 2)
    for job in jobs:
        path, steps, *how = job.split()
        if how and how[0].startswith("other:"):
            print("refused", refused(Path(path), int(steps), how[0].removeprefix("other:"), data_mesh()), flush=True)
            continue
        fitted = train(Path(path), int(steps), bool(how), data_mesh())
        print(index, fitted.step, float(jnp.sum(fitted.state.model.weight)), flush=True)
