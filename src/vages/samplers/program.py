"""Annealed chains as one compiled program, which the host runs in chunks.

    chains = start_chains(key, model, count, h, held, schedule)
    chains = chains.advance(100)                   to step 100 of the schedule; the result is chains.state

The noise of a step is a function of the key and the step's number, and the ends of a chunk are arguments of the
program. So results do not depend on the chunks, and one compilation serves all schedules of the same length.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from vages.hoist import hoist
from vages.memory import shape_bytes
from vages.models import EBLVM
from vages.samplers.langevin import Held, LangevinState, Move, chain_dtype, langevin_init, langevin_move
from vages.samplers.schedule import Schedule

_BLOCK = 100  # steps whose noise is drawn in one call
_NOISE_BYTES = 2**26  # bytes of noise in a block at most

Progress = Callable[[int, int], object]  # takes the number of steps done and of all steps


class LangevinSamples(NamedTuple):
    """The final states of the chains, v (n, …) and h (n, …), and snapshots of v if requested.

    `trajectory` (snapshots, n, …) holds v at evenly spaced steps; the last snapshot is the result. A chain that was
    ever non-finite or outside the schedule's box is marked in `diverged`, and is NaN from then on. Leave such chains
    out with `v[~diverged]`, and report how many there were.
    """

    v: Array
    h: Array
    trajectory: Array | None
    diverged: Bool[Array, "n"]


class Run(NamedTuple):
    """Options of a run of chains."""

    schedule: Schedule
    record: int | None
    batch: int
    chunk: int
    progress: Progress | None


def anneal(
    key: PRNGKeyArray, model: EBLVM, count: int, h: Array | None, held: Held | None, run: Run, *, shared: bool = False
) -> LangevinSamples:
    """Run chains of v given h, or of (v, h) if h is None, and return their final states."""
    steps = run.schedule.steps
    parts = -(-count // run.batch)
    size = -(-count // parts)  # batches of equal size share one program and add few extra chains
    states, trajectories = [], []
    for part in range(parts):
        rows = np.minimum(np.arange(part * size, (part + 1) * size), count - 1)
        own_h, own_held = jax.tree.map(itemgetter(rows), (h, held))
        how = {"part": part, "record": run.record, "shared": shared}
        chains = start_chains(key, model, size, own_h, own_held, run.schedule, **how)
        for step in (*range(run.chunk, steps, run.chunk), steps):
            chains = chains.advance(step)
            _tell(run.progress, part * steps + step, parts * steps, chains.state)
        states.append(chains.state)
        trajectories.append(chains.frames)
    ends_of_chains = jax.tree.map(lambda *parts: jnp.concatenate(parts)[:count], *states)
    trajectory = None if run.record is None else jnp.concatenate(trajectories, axis=1)[:, :count]
    return LangevinSamples(ends_of_chains.v, ends_of_chains.h, trajectory, ends_of_chains.diverged)


@dataclass(frozen=True, eq=False)
class Chains:
    """Chains after `step` steps of their schedule, with everything that further steps depend on."""

    step: int
    state: LangevinState
    frames: Array | None  # snapshots so far
    key: PRNGKeyArray
    model: EBLVM
    held: Held | None
    schedule: Schedule
    moves: Move
    slots: Int[Array, "moves"] | None
    joint: bool
    shared: bool

    def advance(self, step: int) -> "Chains":
        """Return the chains at a later step. The last step includes denoising. Stops in between change no bit."""
        last = self.schedule.steps + (self.schedule.denoise is not None)
        span = jnp.asarray([self.step, step if step < self.schedule.steps else last], jnp.int32)
        box = jnp.asarray(self.schedule.box, self.moves.drift.dtype)
        state, frames = _advance(
            self.key,
            self.model,
            self.state,
            self.frames,
            self.moves,
            self.slots,
            self.held,
            box,
            span,
            joint=self.joint,
            shared=self.shared,
        )
        return replace(self, step=step, state=state, frames=frames)


def start_chains(
    key: PRNGKeyArray,
    model: EBLVM,
    count: int,
    h: Array | None,
    held: Held | None,
    schedule: Schedule,
    *,
    part: int = 0,
    record: int | None = None,
    shared: bool = False,
    room: int = 0,
) -> Chains:
    """Return chains before their first step, of v given h, or of (v, h) if h is None.

    `part` is the number of a batch; each batch has its own noise unless all chains share it. The program is compiled
    for at least `room` moves, so that shorter schedules share one program.
    """
    dtype, moves = chain_dtype(model), schedule.moves()
    for_start, for_steps = jax.random.split(key if shared else jax.random.fold_in(key, part))
    state = _start(for_start, model, count, h, held=held, shared=shared)
    slots = None if record is None else _slots(schedule, len(moves.drift), record)
    frames = None if record is None else jnp.zeros((record, *state.v.shape), dtype)
    padding = (0, max(room - len(moves.drift), 0))
    moves = Move(*(jnp.asarray(np.pad(x, padding), dtype) for x in moves))
    return Chains(0, state, frames, for_steps, model, held, schedule, moves, slots, h is None, shared)


_start = eqx.filter_jit(langevin_init)


@eqx.filter_jit
def _advance(
    key: PRNGKeyArray,
    model: EBLVM,
    state: LangevinState,
    frames: Array | None,
    moves: Move,
    slots: Int[Array, "moves"] | None,
    held: Held | None,
    box: Array,
    span: Int[Array, "2"],
    *,
    joint: bool,
    shared: bool,
) -> tuple[LangevinState, Array | None]:
    """Return the state and the snapshots after the moves from span[0] up to span[1]."""

    def move(key, state, move):
        return langevin_move(key, model, state, move, joint=joint, held=held, shared=shared, box=box)

    draw, update = hoist(move, key, state, jax.tree.map(lambda x: x[0], moves))
    block = min(_BLOCK, max(1, _NOISE_BYTES // shape_bytes(jax.eval_shape(draw, key))))
    begin, end = span[0], span[1]

    def run_block(i, carry):
        first = begin + i * block
        steps = first + jnp.arange(block, dtype=jnp.int32)
        noise = jax.vmap(lambda step: draw(jax.random.fold_in(key, step)))(steps)

        def step(j, carry):
            state, frames = carry
            now, move = jax.tree.map(lambda x: x[j], noise), jax.tree.map(lambda x: x[first + j], moves)
            state = update(now, state, move)
            if frames is not None and slots is not None:
                frames = jax.lax.dynamic_update_index_in_dim(frames, state.v, slots[first + j], 0)
            return state, frames

        return jax.lax.fori_loop(0, jnp.minimum(block, end - first), step, carry)

    return jax.lax.fori_loop(0, (end - begin + block - 1) // block, run_block, (state, frames))


def _slots(schedule: Schedule, moves: int, record: int) -> Int[Array, "moves"]:
    """Return the snapshot that each move writes to. Moves without one write to the last, which the result replaces."""
    slots = np.full(moves, record - 1, np.int32)
    slots[schedule.snapshots(record)[:-1] - 1] = np.arange(record - 1)
    return jnp.asarray(slots)


def _tell(progress: Progress | None, done: int, total: int, state: LangevinState) -> None:
    if progress is not None:
        jax.block_until_ready(state)
        with contextlib.suppress(Exception):  # an error in the callback must not end the chains
            progress(done, total)
