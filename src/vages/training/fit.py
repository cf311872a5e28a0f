"""Training: chunks of compiled iterations; between them the log, the guard, checkpoints and callbacks."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from vages.checks import check_count, check_kind
from vages.models import EBLVM
from vages.objectives.objective import check_metric_names
from vages.posteriors import check_labels
from vages.training.cluster import check_same, digest
from vages.training.devices import any_process, auto, check_batch, everywhere, here, is_writer
from vages.training.folder import RunFolder
from vages.training.guard import Guard, largest_parameter
from vages.training.keeping import Checkpoints, Keeper, Run, start_of
from vages.training.learner import Averages, Learner, LearnerState
from vages.training.loop import Loop
from vages.training.program import check_step, compile_chunk
from vages.training.recovery import recover
from vages.training.scale import ScaleWarning, scale_problem
from vages.training.seeds import as_keys, key_of, order_seeds, start_keys
from vages.training.selection import Selection, weights_of
from vages.training.signals import StopSignals
from vages.training.sources import Source, source_of

Evaluate = Callable[[LearnerState], dict[str, Any]]
Callback = Callable[[dict[str, Any]], object]
Observe = Callable[[dict[str, Any], LearnerState], object]
_ORDER = "fit takes (key, model, posterior, data, learner), in this order"


@dataclass(frozen=True)
class Fitted:
    """Where training ended: the state, how many iterations it made, and what was logged on the way.

    `model` and `posterior` are those that count: the best by what was selected, or the last; their averages, where the
    learner keeps them. `interrupted` says that a signal stopped it, and `signal` which: SIGINT, SIGTERM or SIGHUP.
    """

    state: LearnerState
    step: int
    seconds: float
    interrupted: bool
    history: list[dict[str, Any]] = field(repr=False)
    best: Averages | None = None
    keeping_seconds: float = 0.0  # spent on the log and the checkpoints
    signal: str | None = None

    @property
    def model(self) -> Any:
        """The model to use."""
        return (self.best or weights_of(self.state)).model

    @property
    def posterior(self) -> Any:
        """The posterior to use."""
        return (self.best or weights_of(self.state)).posterior

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


def fit(
    key: Any,
    model: Any,
    posterior: Any,
    data: Any,
    learner: Learner,
    *,
    steps: int,
    batch: int | None = None,
    state: LearnerState | None = None,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    maximize: str | None = None,
    minimize: str | None = None,
    callbacks: Sequence[Callback] = (),
    observe: Observe | None = None,
    chunk: int = 500,
    folder: RunFolder | None = None,
    checkpoints: Checkpoints = Checkpoints(),  # noqa: B008
    resume: bool = False,
    guard: Guard = Guard(),  # noqa: B008
    mesh: Mesh | None = None,
    data_fingerprint: dict[str, Any] | None = None,
) -> Fitted:
    """Train model and posterior until iteration `steps`.

    **Data** are an array v (n, …), a `Batch(v, context)` of arrays or a dict with "v": rows are visited in shuffled
    epochs, `batch` (100) at a time; an array that is memory-mapped (`np.load(…, mmap_mode="r")`) is read as it is
    visited. Or a function of the step, or an iterator, which give a batch for each iteration.

    With several keys (n,), n runs are trained in one program: model and posterior have a leading axis of them
    (`eqx.filter_vmap(make)(keys)`), and an array may have one too. `state` continues from that of an earlier `fit`,
    optimizers included: `steps` counts its iterations, and its model and posterior take the place of those given.

    `evaluate(state)` is called every `evaluate_every` iterations and at the end (copy what it keeps of the state, whose
    memory is used again). The model and posterior with the highest value of the name `maximize`, or the lowest of
    `minimize`, are kept. After each chunk, every one of `callbacks` is called with the record of the log: a dict with
    "step", "seconds" and the metrics; in a cluster only in the first process. `vages.ProgressBar` is a callback.
    `observe(record, state)` is called after them, and sees the state too.

    Ctrl-C, SIGTERM and SIGHUP end training after the chunk that is running, with a checkpoint; a second signal ends it
    at once. A chunk that takes more than a few seconds is run in parts from then on, and a signal ends it after a part.
    A SIGTERM or SIGHUP for which the caller has a handler is passed on to it once the checkpoint is written; the
    default action, to end the process, is not taken.

    With a `folder` there is a log, and checkpoints from which `resume` continues as if nothing had happened: give the
    same key, model, posterior, data and learner. An iterator goes on exactly where it has `get_state` and `set_state`;
    else the batches that were used are passed over. `guard` says what is done when training diverges. With a `mesh`,
    batches are divided over all its axes; in a cluster every process calls `fit` with the same arguments, which is
    checked, and the first writes the folder. `data_fingerprint` is `fingerprint(v)`, where that is known already.
    """
    select, mesh = Selection.of(maximize, minimize), auto(mesh)
    _check_settings(steps, chunk, evaluate_every, callbacks)
    check_kind("learner", learner, Learner, "a Learner", _ORDER)
    keys, many = as_keys(key)
    seeds = order_seeds(keys)
    source = _source(data, batch, seeds, many, model if state is None else state.model, data_fingerprint)
    check_batch(source.batch, mesh)
    if (problem := scale_problem(learner.objective, source.examples, whole=source.whole)) is not None:
        warnings.warn(problem, ScaleWarning, stacklevel=2)
    check_labels(posterior if state is None else state.posterior, source.context)
    state = _strong(_start(learner, keys, many, model, posterior, source, state))
    settings = {"chunk": chunk, "evaluate_every": evaluate_every if evaluate else None, "select": select}
    kept = {"resume": resume, "checkpoints": asdict(checkpoints), "guard": asdict(guard)}
    about = {"keys": np.asarray(jax.random.key_data(keys)).tolist(), "many": many, "batch": source.batch}
    check_same(
        lambda: {
            "steps": steps,
            "settings": {**about, **settings, **kept, "devices": 1 if mesh is None else mesh.size},
            "data": source.fingerprint(),
            "first state": {"sha256": digest(state)},
        }
    )
    if (resume or guard.policy == "recover") and folder is None and is_writer():
        raise ValueError("folder: expected a run folder, to resume from or to recover with, got none; give one")
    check_step(learner, state, source.one, many=many, whole=folder is not None)
    keeper = Keeper(folder, checkpoints, about | ({"data": source.fingerprint()} if folder is not None else {}), source)
    keeper.open(resume)
    bits = jax.random.key_data(key_of(keys, "training"))
    first = Run(state, weights_of(state) if select else None, jnp.full(len(seeds), -jnp.inf), bits)
    run, position = keeper.restore(first) if resume else (first, start_of(first))
    if position.step > steps:
        raise ValueError(f"steps: expected at least the {position.step} already made, got {steps}; ask for more")
    history = keeper.resume(position.step) if resume else []

    start_size = largest_parameter(state, many=many)
    program = compile_chunk(learner, many=many, own_data=source.own_data, mesh=mesh, donate=True)
    run, loop = _own(run, mesh), Loop(program, source, mesh, many)
    cuts = [cut for cut in (evaluate_every, checkpoints.every, checkpoints.keep_every) if cut is not None]
    on_grid = lambda step: evaluate_every is not None and step % evaluate_every == 0
    best, looked, began = run.best, None, time.perf_counter() - position.seconds
    with StopSignals() as stop:
        while position.step < steps and stop.in_any_process() is None and not loop.ended:
            until = min(steps, _end_of_chunk(position.step, chunk, cuts))
            noise = _noise_keys(run.key, keys, position.retries)
            after, metrics, end = loop.advance(run.state, noise, position.step, until, stop)
            run = run._replace(state=after)
            if end == position.step:  # the data ended at a chunk's beginning
                break
            sizes = largest_parameter(here(run.state), many=many)
            problem = guard.problem(position.step, metrics, sizes, start_size, history, seeds)
            if any_process(problem is not None):
                run, position = recover(guard, problem or "another process saw it", keeper, first, position)
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
                    chosen = select.better(run, numbers)
                    run, best = chosen if on_grid(end) else run, chosen.best  # a longer run looks on the grid alone
            history.append(record)
            keeper.log(record, here(run), position)
            for callback in callbacks if is_writer() else ():
                callback(dict(record))
            if observe is not None and is_writer():
                observe(dict(record), here(run.state))
        run = here(run)
        keeper.finish(run, position, interrupted=stop.in_any_process() is not None or loop.ended)
    if loop.ended:
        saved = "" if folder is None else f"; the run is saved in {folder.path}"
        raise ValueError(
            f"data: expected batches until step {steps}, got an end after {position.step}{saved}; give more, repeat "
            f"them (itertools.cycle), or ask for steps={position.step}"
        )
    signal = stop.in_any_process()  # it may have come while the checkpoint was written
    stop.pass_on(signal)
    if evaluate and select and looked != position.step and not on_grid(position.step):
        best = select.better(run, evaluate(run.state)).best  # it was interrupted, or nothing was left to do
    seconds, name = time.perf_counter() - began, None if signal is None else signal.name
    return Fitted(run.state, position.step, seconds, name is not None, history, best, keeper.seconds, name)


def _end_of_chunk(step: int, chunk: int, cuts: Sequence[int]) -> int:
    """A function of the step alone, wherever a run was interrupted.

    Chunks are counted from the last multiple of a cut, so that they have few lengths: each is compiled.
    """
    origin = max([0, *(step // cut * cut for cut in cuts)])
    return min([origin + ((step - origin) // chunk + 1) * chunk, *((step // cut + 1) * cut for cut in cuts)])


def _source(data: Any, batch: int | None, seeds: tuple[int, ...], many: bool, model: Any, known: Any) -> Source:
    if not hasattr(getattr(model, "v", None), "shape"):
        check_kind("model", model, EBLVM, "an EBLVM", _ORDER)
    return source_of(data, batch, seeds, many, model, known)


def _start(
    learner: Learner, keys: Array, many: bool, model: Any, posterior: Any, source: Source, state: LearnerState | None
) -> LearnerState:
    """The state before the first iteration, of each key where there are many; or the one that is given."""
    if state is not None:
        shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype) if eqx.is_array(x) else x, tree)
        if model is not None and shapes((model, posterior)) != shapes((state.model, state.posterior)):
            raise ValueError("state: expected that of this model and posterior, got one of others; give those it is of")
        return state
    init = lambda key, model, posterior: learner.init(key, model, posterior, source.batch, source.one.context)
    begin = start_keys(keys)[1]
    if not many:
        return init(begin[0], model, posterior)
    return eqx.filter_jit(eqx.filter_vmap(init))(begin, model, posterior)


def _strong(state: LearnerState) -> LearnerState:
    """The same without weak types, as `jnp.array(0.0)` has one: an iteration has none, and would be compiled again."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype) if getattr(x, "weak_type", False) else x, state)


def _noise_keys(bits: Array, like: Array, retries: int) -> Array:
    keys = jax.random.wrap_key_data(jnp.asarray(bits), impl=jax.random.key_impl(like))
    return keys if retries == 0 else jax.vmap(lambda key: jax.random.fold_in(key, retries))(keys)


def _own(run: Run, mesh: Mesh | None) -> Run:
    """The run with a copy of its state, whose memory may be given away."""
    copy = jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, run.state)
    return run._replace(state=everywhere(copy, mesh))


def _plain(value: Any) -> Any:
    return np.asarray(value, np.float64).tolist()


def _check_settings(steps: int, chunk: int, evaluate_every: int | None, callbacks: Any) -> None:
    for name, value in {"steps": steps, "chunk": chunk, "evaluate_every": evaluate_every}.items():
        if value is not None:
            check_count(name, value, 1, "give more")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks: expected a list of functions, got {callbacks!r}; write [callback], say")
