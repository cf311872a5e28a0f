"""Training: compiled chunks of iterations, with the guard, the log, checkpoints and callbacks between them."""

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
from vages.training.cluster import check_same, digest
from vages.training.devices import any_process, auto, check_batch, everywhere, here, is_writer
from vages.training.folder import RunFolder
from vages.training.guard import Guard, largest_parameter
from vages.training.keeping import Keeper, Run, start_of
from vages.training.learner import Averages, Learner, LearnerState
from vages.training.learner_record import LearnerWarning, learner_record
from vages.training.loop import Loop
from vages.training.policy import Checkpoints
from vages.training.program import check_step, compile_chunk
from vages.training.recovery import recover
from vages.training.scale import ScaleWarning, scale_problem
from vages.training.seeds import as_keys, key_of, order_seeds, start_keys
from vages.training.selection import Selection, weights_of
from vages.training.signals import StopSignals
from vages.training.sources import Source, source_of
from vages.training.trees import check_names

Evaluate = Callable[[LearnerState], dict[str, Any]]
Callback = Callable[[dict[str, Any]], object]
Observe = Callable[[dict[str, Any], LearnerState], object]
_ORDER = "fit takes (key, model, posterior, data, learner), in this order"


@dataclass(frozen=True)
class Fitted:
    """The result of training: the final state, the number of iterations and the log.

    `model` and `posterior` are the ones to use: the best by the selected value, or the last; their averages, if the
    learner keeps them. `interrupted` is true if a signal stopped training, and `signal` is its name: SIGINT, SIGTERM or
    SIGHUP.
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
        """Return the logged (steps, values) of one quantity. With several seeds, values have a last axis of seeds."""
        rows = [row for row in self.history if name in row]
        if self.history and not rows:
            known = ", ".join(sorted({name for row in self.history for name in row}))
            raise ValueError(f"curve: expected a name that was logged, {known}, got {name!r}; choose one")
        return np.array([row["step"] for row in rows]), np.array([row[name] for row in rows], np.float64)

    def uninterrupted(self) -> "Fitted":
        """Return self, or raise KeyboardInterrupt if a signal stopped training, so that the result is incomplete."""
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
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    guard: Guard = Guard(),  # noqa: B008
    mesh: Mesh | None = None,
    data_fingerprint: dict[str, Any] | None = None,
) -> Fitted:
    """Train model and posterior until iteration `steps`.

    `data` is an array v (n, …), a `Batch(v, context)` of arrays or a dict with "v". Rows are visited in shuffled
    epochs, `batch` (100) at a time. Memory-mapped arrays (`np.load(…, mmap_mode="r")`) are read as they are visited.
    `data` can also be a function of the step, or an iterator, that returns a batch for each iteration.

    With several keys (n,), n runs are trained in one program. Model and posterior then have a leading axis of runs
    (`eqx.filter_vmap(make)(keys)`), and an array may have one too. `state`, from an earlier `fit`, continues that run
    including its optimizers: `steps` counts its iterations, and its model and posterior replace those given.

    `evaluate(state)` is called every `evaluate_every` iterations and at the end. It must copy what it keeps of the
    state, whose memory is reused. The model and posterior with the highest value named `maximize`, or the lowest named
    `minimize`, are kept. After each chunk, all `callbacks` are called with the record of the log, a dict with "step",
    "seconds" and the metrics; in a cluster, only in the first process. `vages.ProgressBar` is a callback.
    `observe(record, state)` is called after them.

    Ctrl-C, SIGTERM and SIGHUP end training after the current chunk, with a checkpoint. A second signal ends it at once.
    If a chunk takes more than a few seconds, later chunks are run in parts, and a signal ends training after a part. If
    the caller has a handler for SIGTERM or SIGHUP, it is called once the checkpoint is written. The default action,
    which ends the process, is not taken.

    With a `folder`, there is a log, and `resume` continues from its last checkpoint with identical results, if key,
    model, posterior, data and learner are the same. A `LearnerWarning` is given if plain values of the learner differ,
    such as a noise level or a constant learning rate. `checkpoints` defines when checkpoints are written and which are
    kept; None stands for `Checkpoints()`, and in a resumed run for the policy that it has. A resume never removes
    checkpoints that `keep_every` has kept before. An iterator continues exactly if it has `get_state` and `set_state`;
    otherwise the batches that were used are skipped. `guard` defines what is done when training diverges. With a
    `mesh`, batches are divided over all its axes. In a cluster, every process calls `fit` with the same arguments,
    which is checked, and the first process writes the folder. `data_fingerprint` is `fingerprint(v)`, if it is already
    known.
    """
    select, mesh = Selection.of(maximize, minimize), auto(mesh)
    _check_settings(steps, chunk, evaluate_every, callbacks)
    check_kind("learner", learner, Learner, "a Learner", _ORDER)
    keys, many = as_keys(key)
    seeds = order_seeds(keys)
    trained = (model, posterior) if state is None else (state.model, state.posterior)
    source = _source(data, batch, seeds, many, *trained, data_fingerprint)
    check_batch(source.batch, mesh)
    if (problem := scale_problem(learner.objective, source.examples, whole=source.whole)) is not None:
        warnings.warn(problem, ScaleWarning, stacklevel=2)
    state = _strong(_start(learner, keys, many, model, posterior, source, state))
    settings = {"chunk": chunk, "evaluate_every": evaluate_every if evaluate else None, "select": select}
    kept = {"resume": resume, "checkpoints": checkpoints and asdict(checkpoints), "guard": asdict(guard)}
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
    if folder is not None:
        check_names(state)
        selection = None if select is None else f"{select.word} {select.name}"
        about |= {"data": source.fingerprint(), "learner": learner_record(learner), "selection": selection}
    keeper = Keeper(folder, checkpoints, about, source)
    keeper.open(resume)
    bits = jax.random.key_data(key_of(keys, "training"))
    first = Run(state, weights_of(state) if select else None, jnp.full(len(seeds), -jnp.inf), bits)
    run, position = keeper.restore(first) if resume else (first, start_of(first))
    if keeper.problem is not None:
        warnings.warn(keeper.problem, LearnerWarning, stacklevel=2)
    if position.step > steps:
        raise ValueError(f"steps: expected at least the {position.step} already made, got {steps}; ask for more")
    history = keeper.resume(position.step) if resume else []

    start_size = largest_parameter(state, many=many)
    program = compile_chunk(learner, many=many, own_data=source.own_data, mesh=mesh, donate=True)
    run, loop = _own(run, mesh), Loop(program, source, mesh, many)
    cuts = [*([] if evaluate_every is None else [evaluate_every]), *keeper.cuts()]
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
                loop.ended = False  # the data may have gone back as well
                continue
            position = position._replace(step=end, seconds=time.perf_counter() - began)
            record = {name: _plain(values.mean(-1)) for name, values in metrics.items()}
            record |= {"step": end, "seconds": position.seconds}
            if evaluate is not None and (on_grid(end) or end == steps):
                numbers, looked = evaluate(here(run.state)), end
                check_metric_names(numbers, ("step", "seconds", *metrics))
                record |= {name: _plain(value) for name, value in numbers.items()}
                if select is not None:
                    chosen = select.better(run, numbers)
                    run, best = chosen if on_grid(end) else run, chosen.best  # a longer run evaluates only on the grid
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
    """Return the end of the chunk that starts at a step. It does not depend on where a run was interrupted.

    Chunks are counted from the last multiple of a cut, so that few different lengths are compiled.
    """
    origin = max([0, *(step // cut * cut for cut in cuts)])
    return min([origin + ((step - origin) // chunk + 1) * chunk, *((step // cut + 1) * cut for cut in cuts)])


def _source(
    data: Any, batch: int | None, seeds: tuple[int, ...], many: bool, model: Any, posterior: Any, known: Any
) -> Source:
    if not hasattr(getattr(model, "v", None), "shape"):
        check_kind("model", model, EBLVM, "an EBLVM", _ORDER)
    return source_of(data, batch, seeds, many, model, posterior, known)


def _start(
    learner: Learner, keys: Array, many: bool, model: Any, posterior: Any, source: Source, state: LearnerState | None
) -> LearnerState:
    """Return the given state, or the state before the first iteration, for each key if `many`."""
    if state is not None:
        shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype) if eqx.is_array(x) else x, tree)
        if model is not None and shapes((model, posterior)) != shapes((state.model, state.posterior)):
            raise ValueError("state: expected that of this model and posterior, got another; give those of the state")
        return state
    init = lambda key, model, posterior: learner.init(key, model, posterior, source.batch, source.one.context)
    begin = start_keys(keys)[1]
    if not many:
        return init(begin[0], model, posterior)
    return eqx.filter_jit(eqx.filter_vmap(init))(begin, model, posterior)


def _strong(state: LearnerState) -> LearnerState:
    """Return the state without weak types, which an iteration would remove, so that it would be compiled twice."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype) if getattr(x, "weak_type", False) else x, state)


def _noise_keys(bits: Array, like: Array, retries: int) -> Array:
    keys = jax.random.wrap_key_data(jnp.asarray(bits), impl=jax.random.key_impl(like))
    return keys if retries == 0 else jax.vmap(lambda key: jax.random.fold_in(key, retries))(keys)


def _own(run: Run, mesh: Mesh | None) -> Run:
    """Return the run with a copy of its state, whose memory may be donated."""
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
