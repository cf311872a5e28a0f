"""Training: chunks of compiled iterations, and between them the progress bar, the log and the look at the numbers."""

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from vages.data import Batches
from vages.learners import Learner, LearnerState
from vages.models import check_finite
from vages.training.folder import RunFolder
from vages.training.program import compile_chunk
from vages.training.progress import Progress

Evaluate = Callable[[LearnerState], dict[str, Any]]


class Diverged(ArithmeticError):
    """A metric stopped being finite."""


@dataclass(frozen=True)
class Fitted:
    """Where training ended: the state, how many iterations it made, and what was logged on the way."""

    state: LearnerState
    step: int
    seconds: float
    interrupted: bool
    history: list[dict[str, Any]] = field(repr=False)

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The logged values of one quantity: (steps, values), values with a last axis of seeds where there are many."""
        rows = [row for row in self.history if name in row]
        return np.array([row["step"] for row in rows]), np.array([row[name] for row in rows], np.float64)


def init_seeds(
    learner: Learner, seeds: Sequence[int], make: Callable[[PRNGKeyArray], tuple[Any, Any]], batch: int
) -> LearnerState:
    """States of several runs, one a seed, along a leading axis; `make(key)` gives (model, posterior)."""

    def one(key):
        parts, start = jax.random.split(key)
        return learner.init(start, *make(parts), batch=batch)

    return eqx.filter_jit(eqx.filter_vmap(one))(seed_keys(seeds, "start"))


def seed_keys(seeds: Sequence[int], use: str) -> Key[Array, "seeds"]:
    """One key a seed, a stream of its own for each use: what starts a run shares no noise with what trains it."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return jax.vmap(lambda key: jax.random.fold_in(key, zlib.crc32(use.encode())))(keys)


def fit(
    learner: Learner,
    state: LearnerState,
    data: Array,
    *,
    steps: int,
    batch: int,
    seed: int | Sequence[int] = 0,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    chunk: int = 500,
    folder: RunFolder | None = None,
    progress: bool = False,
) -> Fitted:
    """Train for `steps` iterations on batches of `data`, visited in shuffled epochs.

    With several seeds, `state` has a leading axis of them (see `init_seeds`), and `data` may have one too (its rows are
    then the second axis); all train in one program. `evaluate(state)` is called every `evaluate_every` iterations and
    at the end. Ctrl-C ends training at the last whole chunk. A metric that is not finite raises `Diverged`.
    """
    many = not isinstance(seed, int)
    seeds = tuple(seed) if many else (seed,)
    own_data = many and data.ndim == len(state.model.v_shape) + 2
    _check(data, state.model.v_shape, steps, batch, own_data, seeds)
    rows = data.shape[1] if own_data else data.shape[0]
    order = [Batches(rows, batch, one) for one in seeds]
    keys = seed_keys(seeds, "training")
    program = compile_chunk(learner, many=many, own_data=own_data)
    data, keys = jnp.asarray(data), keys if many else keys[0]

    history: list[dict[str, Any]] = []
    step, interrupted, start = 0, False, time.perf_counter()
    bar = Progress(steps, visible=progress)
    with bar:
        try:
            for length, look in _chunks(steps, chunk, evaluate_every if evaluate else None):
                indices = np.stack([one.indices(step, length) for one in order])
                state, metrics = program(
                    state, data, jnp.asarray(indices if many else indices[0]), keys, jnp.asarray(step, jnp.uint32)
                )
                record = _record(step, metrics, seeds if many else None)
                step += length
                record |= {"step": step, "seconds": time.perf_counter() - start}
                if look and evaluate is not None:
                    record |= {name: _plain(value) for name, value in evaluate(state).items()}
                history.append(record)
                if folder is not None:
                    folder.log(record)
                bar.show(step, record)
        except KeyboardInterrupt:
            interrupted = True
    return Fitted(state, step, time.perf_counter() - start, interrupted, history)


def _chunks(steps: int, chunk: int, every: int | None) -> Iterator[tuple[int, bool]]:
    """Lengths that add up to `steps`, cut where there is something to look at: few different ones, to compile few."""
    step = 0
    while step < steps:
        end = min(step + chunk, steps)
        if every is not None:
            end = min(end, (step // every + 1) * every)
        yield end - step, every is not None and (end % every == 0 or end == steps)
        step = end


def _record(first: int, metrics: dict[str, Array], seeds: tuple[int, ...] | None) -> dict[str, Any]:
    """Means over the chunk, one a seed; raise where a value is not finite, saying which, when and what to try."""
    record = {}
    for name, values in metrics.items():
        values = np.asarray(values, np.float64)
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            where = bad[np.argmin(bad[:, -1])]
            whose = f" of seed {seeds[where[0]]}" if seeds else ""
            raise Diverged(
                f"training diverged: expected a finite {name}, got {values[tuple(where)]} at iteration "
                f"{first + int(where[-1]) + 1}{whose}; try a smaller learning rate or larger noise"
            )
        record[name] = _plain(values.mean(-1))
    return record


def _plain(value: Any) -> Any:
    return np.asarray(value, np.float64).tolist()


def _check(
    data: Array, v_shape: tuple[int, ...], steps: int, batch: int, own_data: bool, seeds: tuple[int, ...]
) -> None:
    if steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}")
    if own_data and len(data) != len(seeds):
        raise ValueError(f"data: expected one set of rows a seed, {len(seeds)}, got {len(data)}")
    if (rows := data.shape[1 + own_data :]) != v_shape:
        raise ValueError(f"data: expected rows of the model's shape {v_shape}, got {rows}; reshape them")
    check_finite("data", data)
    if batch < 1:
        raise ValueError(f"batch: expected at least 1, got {batch}")
