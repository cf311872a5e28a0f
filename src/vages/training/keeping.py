"""Logging, checkpointing and resuming of a run in `fit`.

In a cluster, the first process reads and writes. The others receive what it read, and fail if it fails.
"""

import math
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from vages.environment import environment
from vages.files import BadFile
from vages.storage.errors import advice_for
from vages.training.checkpoint import (
    Checkpoint,
    checkpoints,
    checksum,
    has_checkpoints,
    newest_checkpoint,
    prune,
    set_aside_later,
    sweep,
    write_checkpoint,
)
from vages.training.devices import by_writer, from_writer, is_writer
from vages.training.digests import settings_digest
from vages.training.folder import RunFolder
from vages.training.learner import LearnerState
from vages.training.learner_record import learner_changes
from vages.training.policy import Checkpoints, PolicyHistory, read_policies
from vages.training.sources import Source
from vages.training.trees import named_arrays, with_arrays

_SHARE = 0.01  # of the time at most, for checkpoints by the clock


class Run(NamedTuple):
    """The state of a run between two chunks."""

    state: LearnerState
    best: Any  # averages, or model and posterior, with the best value so far for each seed
    best_value: Array  # (seeds,)
    key: Array  # the key data


def has_selected(found: Checkpoint, seed: int = 0) -> bool:
    """Whether a model was evaluated before this checkpoint. Otherwise, its `best` is the initial model."""
    values = found.arrays.get("best_value")
    if values is None:
        return False
    if values.ndim != 1 or seed >= len(values):
        raise BadFile(f"{found.path}: expected one best value per seed, got {list(values.shape)}; was it changed?")
    return bool(values[seed] > -np.inf)


class Position(NamedTuple):
    """The position of a run."""

    step: int = 0
    retries: int = 0
    seconds: float = 0.0


def start_of(run: Run) -> Position:
    """Return the position of a run without a checkpoint."""
    return Position(int(np.max(np.asarray(run.state.step))))


class Keeper:
    """The log and the checkpoints of a run. Without a folder, it only synchronizes with the other processes."""

    def __init__(self, folder: RunFolder | None, given: Checkpoints | None, about: dict[str, Any], source: Source):
        self._folder, self._source, self._found = folder if is_writer() else None, source, None
        self._given, self._about = given, about
        self._policies = PolicyHistory()
        self._policy = given or Checkpoints()  # of a resumed run: set by `open`
        self._last, self._cost, self._saved = time.monotonic(), 0.0, None
        self._sum: str | None = None  # of the arrays of the last checkpoint that was written or read
        self.seconds = 0.0  # spent here
        self.problem: str | None = None  # of the resumed run, for a warning

    def open(self, resume: bool) -> None:
        """Begin a new run, or find the policy of the one that is resumed.

        Raise ValueError if the folder of a new run has another run.
        """

        def begin() -> None:
            if self._folder is None:
                return
            if resume:
                self._policies = read_policies(self._folder.directory)
                self._policy = self._given or self._policies.latest or Checkpoints()
                return
            if checkpoints(self._folder.checkpoints) or self._folder.directory.kind("metrics.jsonl") is not None:
                path = self._folder.path
                raise ValueError(f"folder: expected one without a run, got {path}; resume it or take another")
            self._folder.begin()
            self._record_policy(0)

        by_writer(begin)

    def cuts(self) -> list[int]:
        """Return the numbers of iterations at whose multiples checkpoints are due, in every process."""
        numbers = from_writer((self._policy.every or 0, self._policy.keep_every or 0))
        return [int(number) for number in numbers if number]

    def restore(self, template: Run) -> tuple[Run, Position]:
        """Return the run at the newest checkpoint that can be verified, or at the start, in every process.

        The data are moved to the same position.
        """
        self._found = None
        run, position = by_writer(lambda: self._load(template)) or (template, start_of(template))
        if jax.process_count() > 1:
            step, retries, seconds = from_writer(tuple(position))
            position = Position(int(step), int(retries), float(seconds))
            arrays, static = eqx.partition(run, eqx.is_array)
            run = eqx.combine(from_writer(arrays), static)
        self._source.go_to(position.step - start_of(template).step, self._found)  # fit may begin with a later state
        return run, position

    def resume(self, step: int) -> list[dict[str, Any]]:
        """Continue from `step`, and return the log. This is the first change to the folder, after all checks."""

        def write() -> list[dict[str, Any]]:
            if self._folder is None:
                return []
            rows = self._rewind(self._folder, step)
            if self._policy != self._policies.latest:
                self._record_policy(0 if self._saved is None else step + 1)
            sweep(self._folder.checkpoints)
            self._folder.tell("resumed", step=step, **self._told_sum())
            return rows

        return by_writer(write) or []

    def rewind(self, step: int) -> list[dict[str, Any]]:
        """Remove what was logged after `step`, and return the rest."""
        return by_writer(lambda: [] if self._folder is None else self._rewind(self._folder, step)) or []

    def tell(self, event: str, **about: Any) -> None:
        """Record an event."""
        if self._folder is not None:
            self._folder.tell(event, **about)

    def log(self, record: dict[str, Any], run: Run, position: Position) -> None:
        """Log a chunk, and write a checkpoint if one is due."""

        def write() -> None:
            if self._folder is not None:
                self._folder.log(record)
                if self._due(position.step):
                    self._save(run, position)

        self._timed(write)

    def finish(self, run: Run, position: Position, *, interrupted: bool) -> None:
        """Write a checkpoint at the end of the run."""

        def write() -> None:
            if self._folder is not None:
                self._save(run, position)
                event = "interrupted" if interrupted else "finished"
                self._folder.tell(event, step=position.step, **self._told_sum())

        self._timed(write)

    def last_good(self) -> str:
        """Return a sentence that names the last good checkpoint."""
        if self._folder is None:
            return ""
        try:
            found = newest_checkpoint(self._folder.checkpoints, lambda why: None)
        except (BadFile, OSError) as error:
            return str(error)
        return "There is no earlier checkpoint." if found is None else f"The last good checkpoint is {found.path}."

    def _rewind(self, folder: RunFolder, step: int) -> list[dict[str, Any]]:
        rows = folder.rewind(step)
        set_aside_later(folder.checkpoints, step)
        return rows

    def _record_policy(self, first: int) -> None:
        """Record the policy as that of the run from step `first` on."""
        if self._folder is not None:
            self._policies = self._policies.then(first, self._policy)
            self._policies.write(self._folder.directory)

    def _told_sum(self) -> dict[str, str]:
        """Return the checksum for events, by which a run that is moved to another machine can be verified."""
        return {} if self._sum is None else {"sha256": self._sum}

    def _timed(self, write: Any) -> None:
        start = time.monotonic()
        by_writer(write)
        self.seconds += time.monotonic() - start

    def _due(self, step: int) -> bool:
        policy = self._policy
        if policy.keep_every is not None and step % policy.keep_every == 0:
            return True
        if policy.every is not None:
            return step % policy.every == 0
        return time.monotonic() - self._last >= max(policy.seconds, self._cost / _SHARE)

    def _save(self, run: Run, position: Position) -> None:
        """Write a checkpoint, once per step. The log is written to disk first."""
        if self._folder is None or self._saved == position.step:
            return
        start, where = time.monotonic(), self._folder.checkpoints
        self._folder.directory.sync_file("metrics.jsonl")
        about = {**self._about, **position._asdict(), "config": self._folder.config, "versions": environment()}
        about["data"] = {**self._about["data"], "position": position.step * self._about["batch"]}
        if (state := self._source.state()) is not None:
            about["data"]["iterator"] = state
        about["settings_sha256"] = settings_digest(self._folder.config)
        if self._folder.dataset is not None:
            about["dataset"] = self._folder.dataset
        try:
            write_checkpoint(where, position.step, named_arrays(run), about)
            self._sum = checksum(where, position.step)
        except OSError as error:
            raise OSError(
                f"checkpoint: expected to write step {position.step} in {where}, got {error.strerror or error}; "
                f"{advice_for(error)} and resume. {self.last_good()}"
            ) from error
        prune(where, position.step, self._policy.keep_last, self._policies.keeps)
        self._saved, self._last = position.step, time.monotonic()
        self._cost = self._last - start

    def _load(self, template: Run) -> tuple[Run, Position] | None:
        self._saved = None
        if self._folder is None:
            return None
        where, refused = self._folder.checkpoints, []
        found = newest_checkpoint(where, refused.append)
        if found is None and has_checkpoints(where):
            raise BadFile(
                f"{where}: expected a checkpoint that can be verified, got none; start a new run, or copy one from a "
                f"backup; the newest: {refused[0]}"
            )
        for why in refused:
            self.tell("checkpoint refused", why=why)
        if found is None:
            return None
        self._check(found)
        self._saved, self._sum = found.step, checksum(where, found.step)
        retries, seconds = found.about.get("retries"), found.about.get("seconds")
        if not (type(retries) is int and 0 <= retries < 2**31 and type(seconds) is float and 0 <= seconds < math.inf):
            raise BadFile(f"{found.path}: expected retries and seconds, got others; is it a checkpoint of fit?")
        self._found = found.about["data"].get("iterator")
        return with_arrays(template, found.arrays), Position(found.step, retries, seconds)

    def _check(self, found: Checkpoint) -> None:
        """Raise if a checkpoint is of another run: other data, batches or seeds would silently change the result."""
        before, apart = _of_first_edition(found.about) or found.about, ("data", "learner")
        own = {"selection": self._about["selection"], **before}  # earlier versions did not record it
        differing = [name for name, value in self._about.items() if own.get(name) != value and name not in apart]
        was = found.about.get("data")
        moving = ("position", "iterator")
        if not isinstance(was, dict) or {k: v for k, v in was.items() if k not in moving} != self._about["data"]:
            differing.append("data")
        if differing:
            told = "; ".join(f"{name} {self._about[name]} in place of {before.get(name)}" for name in differing)
            raise ValueError(f"resume: expected the run's own settings, got another {told[:500]}; start a new run")
        if before is not found.about:
            self.tell("other noise", step=found.step, why="the first edition of vages drew it in another way")
        if changed := learner_changes(found.about.get("learner"), self._about["learner"]):
            self.tell("other learner", step=found.step, changed=changed)
            told = "; ".join(f"{name} {now} in place of {was}" for name, (was, now) in changed.items())
            self.problem = (
                f"learner: expected that of the run, got another {told:.500}; the result will not be the same"
            )
        was, now = found.about.get("versions"), environment()
        if was != now and isinstance(was, dict):
            changed = {
                name: [was.get(name), now.get(name)] for name in {**was, **now} if was.get(name) != now.get(name)
            }
            self.tell("other environment", changed=changed)


def _of_first_edition(about: dict[str, Any]) -> dict[str, Any] | None:
    """Return the metadata of a checkpoint of the first edition with its seeds as keys, or None for any other."""
    seeds = about.get("seeds")
    if "keys" in about or not (isinstance(seeds, list) and all(type(s) is int and 0 <= s < 2**32 for s in seeds)):
        return None
    return about | {"keys": [[0, seed] for seed in seeds]}
