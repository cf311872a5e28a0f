"""Annealed Langevin chains that are watched while they run, and stopped when enough is seen."""

import time
from collections.abc import Iterator
from threading import Event
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vages.models import EBLVM
from vages.samplers import Schedule
from vages.samplers.checks import check_continuous, check_latents, held_pixels
from vages.samplers.langevin import Move, chain_dtype
from vages.samplers.program import _advance, _start

SLICE = 0.1  # seconds of a stretch, about: how long a stop is waited for


class Snapshot(NamedTuple):
    """All chains after a step: v (n, *v_shape), NaN where a chain has diverged, and the temperature just left."""

    step: int
    steps: int
    temperature: float
    v: Float[np.ndarray, "n ..."]
    diverged: Bool[np.ndarray, "n"]

    @property
    def ended(self) -> bool:
        """Whether this is the result, denoised where the schedule says so."""
        return self.step == self.steps


class Chain:
    """`sample_v` for the rows of h, or `sample_joint` of `count` chains without one, seen on the way.

    An iteration gives the start, up to some `frames` snapshots and the result, which is that of the sampler for the
    same key: how the steps are cut changes no bit. Nothing runs but while the next snapshot is asked for. `stop` may
    come from any thread; no further snapshot follows. `room`, of moves, is what the program is compiled for:
    schedules that fit into the same room share one program.
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
        if frames < 1:
            raise ValueError(f"frames: expected at least 1, got {frames}")
        dtype = chain_dtype(model)
        self._h = None if h is None else check_latents(model, h, dtype)
        if h is None:
            check_continuous(model, dtype)
        elif len(h) != count:
            raise ValueError(f"h: expected a row for each of {count} chains, got {len(h)}")
        self._held = held_pixels(model, mask, known, count, dtype)
        self._key, self._model, self._schedule, self._count = key, model, schedule, count
        self._frames, self._room = frames, room
        self._stopped = Event()

    def stop(self) -> None:
        """End after the stretch that is running."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether somebody had enough."""
        return self._stopped.is_set()

    def __iter__(self) -> Iterator[Snapshot]:
        dtype, steps = chain_dtype(self._model), self._schedule.steps
        moves = self._schedule.moves()
        last = len(moves.drift)
        padding = (0, max(self._room - last, 0))
        moves = Move(*(jnp.asarray(np.pad(x, padding), dtype) for x in moves))
        box = jnp.asarray(self._schedule.box, dtype)
        temperatures = self._schedule.temperatures()
        for_start, for_steps = jax.random.split(jax.random.fold_in(self._key, 0))
        state = _start(for_start, self._model, self._count, self._h, held=self._held, shared=False)
        longest = max(1, steps // self._frames)
        done, stretch = 0, 0
        while not self._stopped.is_set():
            # NumPy's copy waits for the device, so that a stretch is measured, and the device is never far ahead.
            v, diverged = np.array(state.v), np.array(state.diverged)
            yield Snapshot(min(done, steps), steps, float(temperatures[max(min(done, steps) - 1, 0)]), v, diverged)
            if done == last or self._stopped.is_set():
                return
            began = time.perf_counter()
            stretch = max(1, stretch)
            end = last if done + stretch >= steps else done + stretch  # denoising belongs to the last stretch
            span = jnp.asarray([done, end], jnp.int32)
            state, _ = _advance(
                for_steps,
                self._model,
                state,
                None,
                moves,
                None,
                self._held,
                box,
                span,
                joint=self._h is None,
                shared=False,
            )
            jax.block_until_ready(state)
            a_step = (time.perf_counter() - began) / (end - done)
            done, stretch = end, min(longest, 4 * stretch, int(SLICE / a_step))
