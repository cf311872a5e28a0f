"""Annealed Langevin dynamics for v given h, for (v, h), and for v alone.

These are the paper's image samplers. They end at temperature 0 and do not draw from p(v, h); `sample` does.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.models import EBLVM
from vages.samplers.checks import check_continuous, check_langevin, check_latents, check_run, held_pixels
from vages.samplers.langevin import chain_dtype
from vages.samplers.program import LangevinSamples, Progress, Run, anneal
from vages.samplers.schedule import Schedule

PAPER = Schedule()


@dataclass(frozen=True, eq=False)
class Annealed:
    """The paper's annealed Langevin dynamics as a sampler: from a high temperature to zero, then denoised.

    Its images look good but are not draws from p(v), since the last steps are at temperatures below 1. With `latents`
    (any number, …), h is drawn from them; see `sample_unconditional`. v is real, and latents are one array.
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
    """Sample v given each row of h (n, …).

    With `shared_noise`, all chains have the same start and the same noise and differ only in h. Pixels where `mask`
    is true are held at `known` (see `Held`); both have the shape of v, or (n, …).

    The trajectory has `record` snapshots: 10, for example, are one after every 269th of 2,700 steps and finally the
    result (see `Schedule.snapshots`). At most `batch` chains run at once. Their noise is drawn together, so the result
    depends on `batch`. `progress(done, total)` is called every `chunk` steps; its exceptions are ignored.
    """
    check_langevin(model)
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
    """Sample (v, h), given the known pixels of v if any. h must be continuous. The options are those of `sample_v`."""
    check_langevin(model)
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
    mask: Array | np.ndarray | None = None,
    known: Array | np.ndarray | None = None,
    record: int | None = None,
    batch: int = 500,
    chunk: int = 100,
    progress: Progress | None = None,
) -> LangevinSamples:
    """Sample v given h, where h is drawn from `latents` (any number, …) or, without them, by `sample_joint`.

    `latents` represent the aggregate posterior, for example as posterior means of the training data. They are drawn
    with replacement. A chain that diverges in joint sampling counts as diverged. The options are those of `sample_v`;
    known pixels are held in both runs.
    """
    check_langevin(model)
    check_run(count, run := Run(schedule, record, batch, chunk, progress))
    held = held_pixels(model, mask, known, count, chain_dtype(model))
    for_h, for_v = jax.random.split(key)
    if latents is not None:
        pool = check_latents(model, latents, chain_dtype(model), name="latents")
        h = pool[jax.random.randint(for_h, (count,), 0, len(pool))]
    elif model.h.size == 0:
        h = jnp.zeros((count, *model.h.shape), chain_dtype(model))
    else:
        how: Any = {"mask": mask, "known": known, "batch": batch, "chunk": chunk}
        h = sample_joint(for_h, model, count, schedule, **how, progress=_half(progress, 0)).h
        run = run._replace(progress=_half(progress, 1))
    return anneal(for_v, model, count, h, held, run)


def _half(progress: Progress | None, half: int) -> Progress | None:
    """Return a callback that reports the first or second of two runs of equal length to `progress`."""
    return None if progress is None else lambda done, total: progress(half * total + done, 2 * total)
