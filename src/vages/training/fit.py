"""Training: chunks of compiled iterations; between them the log, the guard, checkpoints and callbacks."""

import re
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Key, PRNGKeyArray

from vages.checks import check_context, check_count, check_finite, check_numbers
from vages.data import Batches
from vages.objectives import Batch
from vages.objectives.objective import check_metric_names
from vages.training.cluster import check_same, digest
from vages.training.devices import BATCH, any_process, check_batch, everywhere, here, is_writer, place
from vages.training.digests import fingerprint
from vages.training.folder import RunFolder
from vages.training.guard import Diverged, Guard, largest_parameter
from vages.training.keeping import Checkpoints, Keeper, Position, Run
from vages.training.learner import Averages, Learner, LearnerState
from vages.training.program import check_step, compile_chunk
from vages.training.signals import StopSignals
from vages.training.trees import key_bits

Evaluate = Callable[[LearnerState], dict[str, Any]]
Callback = Callable[[dict[str, Any]], object]
_LONG = 5.0  # seconds of compiled work, after which a signal should have been heard
_MOST_PARTS = 64  # of a chunk; each doubling of their number is another compilation


@dataclass(frozen=True)
class Fitted:
    """Where training ended: the state, how many iterations it made, and what was logged on the way.

    `interrupted` says that a signal stopped it, and `signal` which: SIGINT, SIGTERM or SIGHUP.
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
    signal: str | None = None

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The logged values of one quantity: (steps, values), values with a last axis of seeds where there are many."""
        rows = [row for row in self.history if name in row]
        if self.history and not rows:
            known = ", ".join(sorted({name for row in self.history for name in row}))
            raise ValueError(f"curve: expected a name that was logged, {known}, got {name!r}; choose one")
        return np.array([row["step"] for row in rows]), np.array([row[name] for row in rows], np.float64)

    def uninterrupted(self) -> "Fitted":
        """The same; KeyboardInterrupt where a signal stopped training, whose result is not that of the settings."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self


def init_seeds(
    learner: Learner,
    seeds: Sequence[int],
    make: Callable[[PRNGKeyArray], tuple[Any, Any]],
    batch: int,
    context: Any = None,
) -> LearnerState:
    """States of several runs, one a seed, along a leading axis; `make(key)` gives (model, posterior)."""

    def one(key):
        parts, start = jax.random.split(key)
        return learner.init(start, *make(parts), batch=batch, context=context)

    return eqx.filter_jit(eqx.filter_vmap(one))(seed_keys(seeds, "start"))


def one_seed(tree: Any, seed: int = 0) -> Any:
    """What belongs to one of the seeds, by its place: `init_seeds`, or part of it, without the leading axis."""
    return jax.tree.map(lambda x: x[seed] if eqx.is_array(x) else x, tree)


def seed_keys(seeds: Sequence[int], use: str) -> Key[Array, "seeds"]:
    """One key a seed, a stream of its own for each use: what starts a run shares no noise with what trains it."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return jax.vmap(lambda key: jax.random.fold_in(key, zlib.crc32(use.encode())))(keys)


def fit(
    learner: Learner,
    state: LearnerState,
    data: Array | Batch,
    *,
    steps: int,
    batch: int,
    seed: int | Sequence[int] = 0,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    select: str | None = None,
    chunk: int = 500,
    folder: RunFolder | None = None,
    data_fingerprint: dict[str, Any] | None = None,
    checkpoints: Checkpoints = Checkpoints(),  # noqa: B008
    resume: bool = False,
    guard: Guard = Guard(),  # noqa: B008
    mesh: Mesh | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fitted:
    """Train until iteration `steps` on batches of `data`, visited in shuffled epochs: v (n, …), or `Batch(v, context)`.

    With several seeds, `state` has a leading axis of them (see `init_seeds`), and `data` may have one too (its rows are
    then the second axis); all train in one program. `evaluate(state)` is called every `evaluate_every` iterations and
    at the end (copy what it keeps of the state, whose memory is used again); with `select`, the model and posterior
    with the highest value of that name are kept (their averages, if the learner has them).

    Ctrl-C, SIGTERM and SIGHUP end training after the chunk that is running, with a checkpoint; a second signal ends it
    at once. A chunk that takes more than a few seconds is run in parts from then on, and a signal ends it after a part.
    `interrupted` is then true, and `signal` names the signal. A SIGTERM or SIGHUP for which the caller has a handler is
    passed on to it once the checkpoint is written; the default action, to end the process, is not taken.

    With a `folder` there is a log, and checkpoints from which `resume` continues as if nothing had happened: give the
    same learner, first state and data. `data_fingerprint` is `fingerprint(v)`, where that is known already. `guard`
    says what is done when training diverges. With a `mesh` (`data_mesh`), batches are divided over its devices; in a
    cluster every process calls `fit` with the same arguments, which is checked, and the first writes the folder.

    After each chunk, every one of `callbacks` is called with the record of the log: a dict with "step", "seconds" and
    the metrics. In a cluster only the first process calls them. `vages.ProgressBar` is a callback.
    """
    rows = data if isinstance(data, Batch) else Batch(data)
    check_numbers("data", rows.v)
    many = not isinstance(seed, int)
    seeds = tuple(seed) if many else (seed,)
    check_same(
        lambda: {
            "steps": steps,
            "settings": {
                "batch": batch,
                "seed": seeds,
                "chunk": chunk,
                "evaluate_every": evaluate_every if evaluate else None,
                "select": select,
                "resume": resume,
                "checkpoints": asdict(checkpoints),
                "guard": asdict(guard),
                "devices": 1 if mesh is None else mesh.size,
            },
            "data": _fingerprint(rows, data_fingerprint),
            "first state": {"sha256": digest(state)},
        }
    )
    own_data = many and rows.v.ndim == len(state.model.v.shape) + 2
    _check(rows, state.model.v.shape, own_data, seeds)
    _check_settings(steps, batch, chunk, evaluate_every, mesh)
    _check_callbacks(callbacks)
    if (resume or guard.policy == "recover") and folder is None and is_writer():
        raise ValueError("folder: expected a run folder, to resume from or to recover with, got none; give one")
    check_step(learner, state, rows, batch, many=many, own_data=own_data, whole=folder is not None)
    order = [Batches(rows.v.shape[1 if own_data else 0], batch, one) for one in seeds]
    about: dict[str, Any] = {"seeds": list(seeds), "many": many, "batch": batch}
    if folder is not None:
        about["data"] = _fingerprint(rows, data_fingerprint)
    keeper = Keeper(folder, checkpoints, about)
    keeper.open(resume)

    keys = jax.random.key_data(seed_keys(seeds, "training"))
    first = Run(state, _selected(state) if select else None, jnp.full(len(seeds), -jnp.inf), keys)
    run, position = keeper.restore(first) if resume else (first, Position())
    if position.step > steps:
        raise ValueError(f"steps: expected at least the {position.step} already made, got {steps}; ask for more")
    history = keeper.resume(position.step) if resume else []

    start_size = largest_parameter(state, many=many)
    program = compile_chunk(learner, many=many, own_data=own_data, mesh=mesh, donate=True)
    run, rows = _own(run, mesh), everywhere(jax.tree.map(jnp.asarray, rows), mesh)
    cuts = [cut for cut in (chunk, evaluate_every, checkpoints.every, checkpoints.keep_every) if cut is not None]
    on_grid = lambda step: evaluate_every is not None and step % evaluate_every == 0
    best, looked, compared, began = run.best, None, False, time.perf_counter() - position.seconds
    parts, lengths = 1, set[int]()
    with StopSignals() as stop:
        while position.step < steps and stop.in_any_process() is None:
            # the ends of chunks are a function of the step alone, wherever a run was interrupted
            end = min([steps, *((position.step // cut + 1) * cut for cut in cuts)])
            keys = _keys(run.key, position.retries)
            made, slow = list[dict[str, np.ndarray]](), False
            for start, until in _parts(position.step, end, parts):
                indices = np.stack([one.indices(start, until - start) for one in order])
                arguments: tuple[Any, ...] = (
                    run.state,
                    rows,
                    place(indices if many else indices[0], mesh, PartitionSpec(*[None] * (1 + many), BATCH)),
                    everywhere(keys if many else keys[0], mesh),
                    everywhere(jnp.asarray(start, jnp.uint32), mesh),
                )
                if not compared:
                    check_same(lambda: {"program": {"sha256": program.digest(*arguments)}})  # noqa: B023
                    compared = True
                clock = time.perf_counter()
                after, metrics = program(*arguments)
                run = run._replace(state=after)
                made.append({name: np.asarray(values, np.float64) for name, values in here(metrics).items()})
                # the first part of a length is compiled, which says nothing of the time of an iteration
                slow |= until - start in lengths and time.perf_counter() - clock > _LONG
                lengths.add(until - start)
                if until < end and stop.in_any_process() is not None:
                    end = until
                    break
            if parts < _MOST_PARTS and any_process(slow):
                parts *= 2
            metrics = {name: np.concatenate([part[name] for part in made], axis=-1) for name in made[0]}
            sizes = largest_parameter(here(run.state), many=many)
            problem = guard.problem(position.step, metrics, sizes, start_size, history, seeds)
            if any_process(problem is not None):
                run, position = _recovered(guard, problem or "another process saw it", keeper, first, position)
                run, best, history = _own(run, mesh), run.best, keeper.rewind(position.step)
                continue
            position = position._replace(step=end, seconds=time.perf_counter() - began)
            record = {name: _plain(values.mean(-1)) for name, values in metrics.items()}
            record |= {"step": end, "seconds": position.seconds}
            if evaluate is not None and (on_grid(end) or end == steps):
                numbers, looked = evaluate(here(run.state)), end
                check_metric_names(numbers, ("step", "seconds"))
                record |= {name: _plain(value) for name, value in numbers.items()}
                if select is not None:
                    chosen = _better(run, select, numbers)
                    run, best = chosen if on_grid(end) else run, chosen.best  # a longer run looks on the grid alone
            history.append(record)
            keeper.log(record, here(run), position)
            for callback in callbacks if is_writer() else ():
                callback(dict(record))
        run = here(run)
        keeper.finish(run, position, interrupted=stop.in_any_process() is not None)
    signal = stop.in_any_process()  # it may have come while the checkpoint was written
    stop.pass_on(signal)
    if evaluate and select and looked != position.step and not on_grid(position.step):
        best = _better(run, select, evaluate(run.state)).best  # it was interrupted, or nothing was left to do
    seconds, name = time.perf_counter() - began, None if signal is None else signal.name
    return Fitted(run.state, position.step, seconds, name is not None, history, best, keeper.seconds, name)


def _parts(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The iterations from `start` to `end` in nearly equal parts of two or more, as one alone costs as much as two."""
    parts = max(1, min(parts, (end - start) // 2))
    cuts = [start + (end - start) * i // parts for i in range(parts + 1)]
    return list(pairwise(cuts))


def _keys(bits: Array, retries: int) -> Array:
    keys = jax.random.wrap_key_data(jnp.asarray(bits))
    return keys if retries == 0 else jax.vmap(lambda key: jax.random.fold_in(key, retries))(keys)


def _recovered(guard: Guard, problem: str, keeper: Keeper, first: Run, position: Position) -> tuple[Run, Position]:
    """The run at its last good checkpoint, with other noise and slower; or the end of it."""
    if guard.policy == "stop" or position.retries >= guard.retries:
        tried = f" after {position.retries} retries" if position.retries else ""
        keeper.tell("diverged", step=position.step, problem=problem)
        advice = (
            "at the start: the energy or the objective is not finite, or its gradient; look for log, division or √ at 0"
            if re.search(r"finite .* at iteration 1\b", problem)
            else "try a smaller learning rate, gradient clipping, larger noise, or the guard's policy recover"
        )
        raise Diverged(f"training diverged{tried}: {problem}; {advice}. {keeper.last_good()}".rstrip())
    run, back = keeper.restore(first)
    retries = position.retries + 1
    rate = run.state.rate * guard.lower ** (retries - back.retries)
    about = {"from": position.step, "to": back.step, "retry": retries, "rate": float(jnp.max(rate))}
    keeper.tell("recovered", problem=problem, **about)
    return run._replace(state=run.state._replace(rate=rate)), back._replace(retries=retries)


def _own(run: Run, mesh: Mesh | None) -> Run:
    """The run with a copy of its state, whose memory may be given away."""
    copy = jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, run.state)
    return run._replace(state=everywhere(copy, mesh))


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


def _plain(value: Any) -> Any:
    return np.asarray(value, np.float64).tolist()


def _fingerprint(data: Batch, of_v: dict[str, Any] | None) -> dict[str, Any]:
    """That of v, where it is not known already; with a context, that of its arrays beside it."""
    found = of_v or fingerprint(data.v)
    if data.context is None:
        return found
    return found | {"context": {name: fingerprint(key_bits(array)) for name, array in sorted(data.context.items())}}


def _check(data: Batch, shape: tuple[int, ...], own_data: bool, seeds: tuple[int, ...]) -> None:
    if own_data and len(data.v) != len(seeds):
        raise ValueError(f"data: expected one set of rows a seed, {len(seeds)}, got {len(data.v)}")
    if (found := data.v.shape[1 + own_data :]) != shape:
        raise ValueError(f"data: expected rows of the model's shape {shape}, got {found}; reshape them")
    check_finite("data", data.v)
    rows = data.v.shape[int(own_data)]
    check_context(data.context, rows, seeds=len(seeds) if own_data else None)
    for name, array in (data.context or {}).items():
        check_finite(f"context[{name!r}]", array)


def _check_settings(steps: int, batch: int, chunk: int, evaluate_every: int | None, mesh: Mesh | None) -> None:
    for name, value in {"steps": steps, "batch": batch, "chunk": chunk, "evaluate_every": evaluate_every}.items():
        if value is not None:
            check_count(name, value, 1, "give more")
    check_batch(batch, mesh)


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks: expected a list of functions, got {callbacks!r}; write [callback], say")
