"""Annealed Langevin chains that can be watched while they run, and stopped early; and draws by Heun's method."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vages.checks import check_count
from vages.models import EBLVM
from vages.samplers import Schedule
from vages.samplers.checks import check_continuous, check_langevin, check_latents, held_pixels
from vages.samplers.langevin import chain_dtype
from vages.samplers.program import start_chains

SLICE = 0.1  # seconds between snapshots, about, and so until a stop takes effect


class Snapshot(NamedTuple):
    """All chains after a step: v (n, …), NaN for diverged chains, and the temperature of that step, if any."""

    step: int
    steps: int
    temperature: float | None
    v: Float[np.ndarray, "n ..."]
    diverged: Bool[np.ndarray, "n"]

    @property
    def ended(self) -> bool:
        """Whether this is the final result, denoised if the schedule denoises."""
        return self.step == self.steps


class Stoppable:
    """A sequence of snapshots that can be stopped early. `stop` may be called from any thread."""

    def __init__(self):
        self._stopped = Event()

    def stop(self) -> None:
        """Stop after the computation in progress."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()


class Chain(Stoppable):
    """Snapshots of `sample_v` for the rows of h, or of `sample_joint` with `count` chains if h is None.

    Iteration yields the start, at least `frames` snapshots if there are enough steps, and the result, which is
    bit-identical to that of the sampler for the same key. Chains run only while the next snapshot is requested. The
    program is compiled for `room` moves: schedules that fit into the same room share one program.
    """

    def __init__(
        self,
        key: PRNGKeyArray,
        model: EBLVM,
        schedule: Schedule,
        count: int,
        *,
        h: Array | np.ndarray | None = None,
        mask: np.ndarray | None = None,
        known: np.ndarray | None = None,
        frames: int = 60,
        room: int = 0,
    ):
        super().__init__()
        check_langevin(model)
        check_count("frames", frames, 1, "60 is usual")
        dtype = chain_dtype(model)
        rows = None if h is None else check_latents(model, h, dtype)
        if rows is None:
            check_continuous(model, dtype)
        elif len(rows) != count:
            raise ValueError(f"h: expected a row for each of {count} chains, got {len(rows)}")
        held = held_pixels(model, mask, known, count, dtype)
        self._start = partial(start_chains, key, model, count, rows, held, schedule, room=room)
        self._schedule, self._frames = schedule, frames

    def __iter__(self) -> Iterator[Snapshot]:
        steps, temperatures = self._schedule.steps, self._schedule.temperatures()
        chains = self._start()
        longest = max(1, steps // self._frames)
        stretch = 1
        while not self.stopped:
            # The copy to NumPy waits for the device, so that the time of a stretch is measured correctly.
            v, diverged = np.array(chains.state.v), np.array(chains.state.diverged)
            yield Snapshot(chains.step, steps, float(temperatures[max(chains.step - 1, 0)]), v, diverged)
            if chains.step == steps or self.stopped:
                return
            began = time.perf_counter()
            stretch = min(stretch, steps - chains.step)
            chains = chains.advance(chains.step + stretch)
            jax.block_until_ready(chains.state)
            a_step = (time.perf_counter() - began) / stretch
            stretch = max(1, min(longest, 4 * stretch, int(SLICE / a_step)))


class Flowed(Stoppable):
    """Draws by Heun's method, which are fast and shown only when complete."""

    def __init__(self, draw: Callable[[], Array], steps: int):
        super().__init__()
        self._draw, self._steps = draw, steps

    def __iter__(self) -> Iterator[Snapshot]:
        if self.stopped:
            return
        v = np.array(self._draw(), np.float32)
        lost = np.asarray(~np.isfinite(v.reshape(len(v), -1)).all(axis=1))
        v[lost] = np.nan
        if not self.stopped:
            yield Snapshot(self._steps, self._steps, None, v, lost)
