"""Training: chunks of compiled iterations, and between them the log, the guard, the checkpoint and the progress bar."""

import signal
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Key, PRNGKeyArray

from vages.data import Batches
from vages.learners import Averages, Learner, LearnerState
from vages.models import check_finite
from vages.training.devices import BATCH, everywhere, from_writer, here, is_writer, place
from vages.training.folder import RunFolder
from vages.training.guard import Diverged, Guard, largest_parameter
from vages.training.keeping import Checkpoints, Keeper, Position, Run, fingerprint
from vages.training.program import compile_chunk
from vages.training.progress import Progress

Evaluate = Callable[[LearnerState], dict[str, Any]]


@dataclass(frozen=True)
class Fitted:
    """Where training ended: the state, how many iterations it made, and what was logged on the way.

    `best` is the model and posterior (of each seed) with the highest value of what was selected by, where that was
    asked for.
    """

    state: LearnerState
    step: int
    seconds: float
    interrupted: bool
    history: list[dict[str, Any]] = field(repr=False)
    best: Averages | None = None
    keeping_seconds: float = 0.0  # spent on the log and the checkpoints

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
    select: str | None = None,
    chunk: int = 500,
    folder: RunFolder | None = None,
    checkpoints: Checkpoints = Checkpoints(),  # noqa: B008
    resume: bool = False,
    guard: Guard = Guard(),  # noqa: B008
    mesh: Mesh | None = None,
    progress: bool = False,
) -> Fitted:
    """Train until iteration `steps` on batches of `data`, visited in shuffled epochs.

    With several seeds, `state` has a leading axis of them (see `init_seeds`), and `data` may have one too (its rows are
    then the second axis); all train in one program. `evaluate(state)` is called every `evaluate_every` iterations and
    at the end; with `select`, the model and posterior with the highest value of that name are kept (their averages, if
    the learner has them). Ctrl-C ends training after the chunk that is running; a second Ctrl-C at once.

    With a `folder` there is a log, and checkpoints from which `resume` continues as if nothing had happened: give the
    same learner, first state and data. `guard` says what is done when training diverges. With a `mesh` (`data_mesh`),
    batches are divided over its devices; in a cluster every process calls `fit`, and the first writes the folder.
    """
    many = not isinstance(seed, int)
    seeds = tuple(seed) if many else (seed,)
    own_data = many and data.ndim == len(state.model.v_shape) + 2
    _check(data, state.model.v_shape, steps, batch, own_data, seeds, mesh)
    if (resume or guard.policy == "recover") and folder is None and is_writer():
        raise ValueError("folder: expected a run folder, to resume from or to recover with, got none; give one")
    rows = data.shape[1] if own_data else data.shape[0]
    order = [Batches(rows, batch, one) for one in seeds]
    keys = jax.random.key_data(seed_keys(seeds, "training"))
    program = compile_chunk(learner, many=many, own_data=own_data, mesh=mesh, donate=True)
    keeper = None
    if folder is not None and is_writer():
        about = {"seeds": list(seeds), "many": many, "batch": batch, "data": fingerprint(data)}
        keeper = Keeper(folder, checkpoints, about)

    start_size = largest_parameter(state, many=many)
    first = Run(state, _selected(state) if select else None, jnp.full(len(seeds), -jnp.inf), keys)
    run, position = first, Position()
    if resume:
        run, position = _restored(keeper, first)
    if position.step > steps:
        raise ValueError(f"steps: expected at least the {position.step} already made, got {steps}; ask for more")
    history = _rewound(folder, position.step) if resume else []
    if folder is not None and resume and is_writer():
        folder.tell("resumed", step=position.step)
    run = _own(run, mesh)
    data = everywhere(jnp.asarray(data), mesh)

    best, began_at, keeping, began = run.best, position.step, 0.0, time.perf_counter() - position.seconds
    with Progress(steps, visible=progress and is_writer(), done=position.step) as bar, _Interrupt() as interrupt:
        while position.step < steps and not interrupt.seen:
            length, look = _next(position.step, steps, chunk, evaluate_every if evaluate else None, checkpoints.every)
            indices = np.stack([one.indices(position.step, length) for one in order])
            keys = _keys(run.key, position.retries)
            after, metrics = program(
                run.state,
                data,
                place(indices if many else indices[0], mesh, PartitionSpec(*[None] * (1 + many), BATCH)),
                everywhere(keys if many else keys[0], mesh),
                everywhere(jnp.asarray(position.step, jnp.uint32), mesh),
            )
            run = run._replace(state=after)
            metrics = {name: np.asarray(values, np.float64) for name, values in here(metrics).items()}
            sizes = largest_parameter(here(after), many=many)
            problem = guard.problem(position.step, metrics, sizes, start_size, history, seeds)
            if problem is not None:
                run, position = _recovered(guard, problem, keeper, folder, first, position)
                run = _own(run, mesh)
                history = _rewound(folder, position.step)
                continue
            position = position._replace(step=position.step + length, seconds=time.perf_counter() - began)
            record = {name: _plain(values.mean(-1)) for name, values in metrics.items()}
            record |= {"step": position.step, "seconds": position.seconds}
            if look and evaluate is not None:
                numbers = evaluate(here(run.state))
                chosen = run if select is None else _better(run, select, numbers)
                best = chosen.best
                if evaluate_every and position.step % evaluate_every == 0:  # else a longer run would not have looked
                    run = chosen
                record |= {name: _plain(value) for name, value in numbers.items()}
            history.append(record)
            if keeper is not None and folder is not None:
                writing = time.perf_counter()
                folder.log(record)
                if keeper.due(position.step):
                    keeper.save(here(run), position)
                keeping += time.perf_counter() - writing
            bar.show(position.step, record)
        run = here(run)
        if select and evaluate and began_at == position.step and position.step % (evaluate_every or 1):
            best = _better(run, select, evaluate(run.state)).best  # nothing was left to do but this
        if keeper is not None and folder is not None:
            writing = time.perf_counter()
            keeper.save(run, position)
            keeping += time.perf_counter() - writing
            folder.tell("interrupted" if interrupt.seen else "finished", step=position.step)
    seconds = time.perf_counter() - began
    return Fitted(run.state, position.step, seconds, interrupt.seen, history, best, keeping)


def _next(step: int, steps: int, *cuts: int | None) -> tuple[int, bool]:
    """How many iterations to the next multiple of any cut, and whether it is one of the second cut, or the end.

    The ends of chunks are a function of the step alone, wherever a run was interrupted.
    """
    end = min([steps, *((step // cut + 1) * cut for cut in cuts if cut is not None)])
    every = cuts[1]
    return end - step, every is not None and (end % every == 0 or end == steps)


def _keys(bits: Array, retries: int) -> Array:
    keys = jax.random.wrap_key_data(jnp.asarray(bits))
    return keys if retries == 0 else jax.vmap(lambda key: jax.random.fold_in(key, retries))(keys)


def _restored(keeper: Keeper | None, template: Run) -> tuple[Run, Position]:
    """The run at its newest good checkpoint, or at its start; every process gets what the writer read."""
    found = None if keeper is None else keeper.load(template)
    run, position = (template, Position()) if found is None else found
    if jax.process_count() > 1:
        step, retries, seconds = from_writer(tuple(position))
        position = Position(int(step), int(retries), float(seconds))
        arrays, static = eqx.partition(run, eqx.is_array)
        run = eqx.combine(from_writer(arrays), static)
    return run, position


def _recovered(
    guard: Guard, problem: str, keeper: Keeper | None, folder: RunFolder | None, first: Run, position: Position
) -> tuple[Run, Position]:
    """The run at its last good checkpoint, with other noise and slower; or the end of it."""
    if guard.policy == "stop" or position.retries >= guard.retries:
        tried = f" after {position.retries} retries" if position.retries else ""
        good = "" if keeper is None else " " + keeper.last_good()
        if folder is not None and is_writer():
            folder.tell("diverged", step=position.step, problem=problem)
        raise Diverged(
            f"training diverged{tried}: {problem}; try a smaller learning rate, gradient clipping, larger noise, or "
            f"the guard's policy recover.{good}"
        )
    run, back = _restored(keeper, first)
    retries = position.retries + 1
    rate = run.state.rate * guard.lower ** (retries - back.retries)
    if folder is not None and is_writer():
        about = {"from": position.step, "to": back.step, "retry": retries, "rate": float(jnp.max(rate))}
        folder.tell("recovered", problem=problem, **about)
    return run._replace(state=run.state._replace(rate=rate)), back._replace(retries=retries)


def _own(run: Run, mesh: Mesh | None) -> Run:
    """The run with a copy of its state, whose memory may be given away."""
    copy = jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, run.state)
    return run._replace(state=everywhere(copy, mesh))


def _rewound(folder: RunFolder | None, step: int) -> list[dict[str, Any]]:
    return folder.rewind(step) if folder is not None and is_writer() else []


def _selected(state: LearnerState) -> Averages:
    return Averages(state.model, state.posterior) if state.averages is None else state.averages


def _better(run: Run, select: str, numbers: dict[str, Any]) -> Run:
    """The run with its best model and posterior replaced, seed by seed, where the value is higher."""
    if select not in numbers:
        raise ValueError(f"select: expected one of {', '.join(numbers)}, which are evaluated, got {select!r}")
    now, best = jnp.reshape(jnp.asarray(numbers[select], jnp.float32), (-1,)), run.best_value
    better = (now > best) | jnp.isneginf(best)  # until there is a number, anything will do; after it, NaN will not
    many = run.state.step.ndim > 0
    pick = lambda new, old: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)) if many else better[0], new, old)
    best = jax.tree.map(
        lambda new, old: pick(new, old) if eqx.is_array(new) else new, _selected(here(run.state)), run.best
    )
    return run._replace(best=best, best_value=jnp.fmax(now, run.best_value))


class _Interrupt:
    """Ctrl-C once: `seen`, for the loop to end in good order. Twice: KeyboardInterrupt, as ever."""

    def __init__(self):
        self.seen = False

    def __enter__(self) -> "_Interrupt":
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: Any) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True


def _plain(value: Any) -> Any:
    return np.asarray(value, np.float64).tolist()


def _check(
    data: Array,
    v_shape: tuple[int, ...],
    steps: int,
    batch: int,
    own_data: bool,
    seeds: tuple[int, ...],
    mesh: Mesh | None,
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
    if mesh is not None and batch % mesh.size:
        raise ValueError(f"batch: expected a multiple of the {mesh.size} devices, got {batch}; change either")
