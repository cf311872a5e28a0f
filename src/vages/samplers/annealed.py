"""Annealed Langevin dynamics: v given h, v and h together, and v alone.

These are the paper's samplers of images. They end at temperature 0 and do not draw from p(v, h): `sample` does.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.models import EBLVM
from vages.samplers.checks import check_continuous, check_latents, check_run, held_pixels
from vages.samplers.langevin import chain_dtype
from vages.samplers.program import LangevinSamples, Progress, Run, anneal
from vages.samplers.schedule import Schedule

PAPER = Schedule()


@dataclass(frozen=True, eq=False)
class Annealed:
    """The paper's annealed Langevin dynamics as a sampler: from a high temperature to zero, then denoised.

    It draws pictures that look well, not from p(v): its last steps are at temperatures below 1. With `latents` (any
    number, …), h is drawn from them; see `sample_unconditional`.
    """

    schedule: Schedule = PAPER
    latents: Any = None


def sample_v(
    key: PRNGKeyArray,
    model: EBLVM,
    h: Array | np.ndarray,
    schedule: Schedule,
    *,
    shared_noise: bool = False,
    mask: Array | np.ndarray | None = None,
    known: Array | np.ndarray | None = None,
    record: int | None = None,
    batch: int = 500,
    chunk: int = 100,
    progress: Progress | None = None,
) -> LangevinSamples:
    """v ~ p(v | h) for each row of h (n, …).

    With `shared_noise` all chains have the same start and the same noise, and differ by h alone. Pixels where `mask`
    is true are held at `known` (see `Held`); both are of v's shape, or (n, …).

    `record` snapshots make the trajectory: after every 269th of 2,700 steps for 10 (see `Schedule.snapshots`), and
    last the result. At most `batch` chains run together, and draw their noise together: it is part of the seed.
    `progress(done, total)` is called every `chunk` steps; what it raises is dropped.
    """
    h = check_latents(model, h, chain_dtype(model))
    check_run(len(h), run := Run(schedule, record, batch, chunk, progress))
    held = held_pixels(model, mask, known, len(h), chain_dtype(model))
    return anneal(key, model, len(h), h, held, run, shared=shared_noise)


def sample_joint(
    key: PRNGKeyArray,
    model: EBLVM,
    count: int,
    schedule: Schedule,
    *,
    mask: Array | np.ndarray | None = None,
    known: Array | np.ndarray | None = None,
    record: int | None = None,
    batch: int = 500,
    chunk: int = 100,
    progress: Progress | None = None,
) -> LangevinSamples:
    """(v, h) ~ p(v, h), or given the known pixels of v; h must be continuous. The options are those of `sample_v`."""
    check_run(count, run := Run(schedule, record, batch, chunk, progress))
    check_continuous(model, chain_dtype(model))
    held = held_pixels(model, mask, known, count, chain_dtype(model))
    return anneal(key, model, count, None, held, run)


def sample_unconditional(
    key: PRNGKeyArray,
    model: EBLVM,
    count: int,
    schedule: Schedule,
    *,
    latents: Array | np.ndarray | None = None,
    record: int | None = None,
    batch: int = 500,
    chunk: int = 100,
    progress: Progress | None = None,
) -> LangevinSamples:
    """v ~ p(v | h) with h drawn from `latents` (any number, …), or without them from joint sampling.

    `latents` stand for the aggregate posterior: the posterior means of the training data, say. They are drawn with
    replacement. A chain that diverges in joint sampling counts as diverged. The options are those of `sample_v`.
    """
    check_run(count, run := Run(schedule, record, batch, chunk, progress))
    for_h, for_v = jax.random.split(key)
    if latents is not None:
        pool = check_latents(model, latents, chain_dtype(model), name="latents")
        h = pool[jax.random.randint(for_h, (count,), 0, len(pool))]
    elif model.h.size == 0:
        h = jnp.zeros((count, *model.h.shape), chain_dtype(model))
    else:
        h = sample_joint(for_h, model, count, schedule, batch=batch, chunk=chunk, progress=_half(progress, 0)).h
        run = run._replace(progress=_half(progress, 1))
    return anneal(for_v, model, count, h, None, run)


def _half(progress: Progress | None, half: int) -> Progress | None:
    """What tells `progress` of the first or the second of two runs of the same length."""
    return None if progress is None else lambda done, total: progress(half * total + done, 2 * total)
