"""When a run is checkpointed, what a checkpoint of it holds, and how the run comes back."""

import hashlib
import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from vages.environment import environment
from vages.learners import LearnerState
from vages.training.checkpoint import Checkpoint, newest_checkpoint, prune, sweep, write_checkpoint
from vages.training.folder import RunFolder
from vages.training.trees import named_arrays, with_arrays

_SHARE = 0.01  # of the time, that checkpoints by the clock take at most


@dataclass(frozen=True)
class Checkpoints:
    """How often, and which stay: every `every` iterations, or by the clock, where they cost a hundredth of the time.

    The `keep_last` newest are kept, and those whose step `keep_every` divides. At the end, and when it is interrupted,
    a run is always checkpointed.
    """

    every: int | None = None
    seconds: float = 60.0
    keep_last: int = 2
    keep_every: int | None = None

    def __post_init__(self):
        for name in ("every", "keep_last", "keep_every"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")


class Run(NamedTuple):
    """All that a run is made of between two chunks."""

    state: LearnerState
    best: Any  # the averages or the model and posterior with the highest value so far, of each seed
    best_value: Array  # (seeds,)
    key: Array  # the random bits of the keys


class Position(NamedTuple):
    """How far a run is."""

    step: int = 0
    retries: int = 0
    seconds: float = 0.0


class Keeper:
    """The checkpoints of one run folder."""

    def __init__(self, folder: RunFolder, policy: Checkpoints, about: dict[str, Any]):
        self._folder, self._policy, self._about = folder, policy, about
        self._last, self._cost, self._saved = time.monotonic(), 0.0, None
        sweep(folder.checkpoints)

    def due(self, step: int) -> bool:
        """Whether it is time."""
        if self._policy.every is not None:
            return step % self._policy.every == 0
        return time.monotonic() - self._last >= max(self._policy.seconds, self._cost / _SHARE)

    def save(self, run: Run, position: Position) -> None:
        """Checkpoint the run, once a step; the log first, so that a checkpoint's log is on the disk before it."""
        if self._saved == position.step:
            return
        start = time.monotonic()
        _sync(self._folder.path / "metrics.jsonl")
        about = {**self._about, **position._asdict(), "config": self._folder.config, "versions": environment()}
        about["data"] = {**self._about["data"], "position": position.step * self._about["batch"]}
        try:
            write_checkpoint(self._folder.checkpoints, position.step, named_arrays(run), about)
        except OSError as error:
            raise OSError(
                f"checkpoint: expected to write step {position.step} in {self._folder.checkpoints}, got {error}; "
                f"{self.last_good()} Make room and resume"
            ) from error
        prune(self._folder.checkpoints, self._policy.keep_last, self._policy.keep_every)
        self._saved = position.step
        self._last = time.monotonic()
        self._cost = self._last - start

    def load(self, template: Run) -> tuple[Run, Position] | None:
        """The newest checkpoint that can be verified, if there is one, as a run like the template."""
        found = newest_checkpoint(
            self._folder.checkpoints, lambda why: self._folder.tell("checkpoint refused", why=why)
        )
        if found is None:
            return None
        self._check(found)
        self._saved = found.step
        position = Position(found.step, int(found.about["retries"]), float(found.about["seconds"]))
        return with_arrays(template, found.arrays), position

    def last_good(self) -> str:
        """A sentence that names the last good checkpoint."""
        found = newest_checkpoint(self._folder.checkpoints, lambda why: None)
        return "There is no earlier checkpoint." if found is None else f"The last good checkpoint is {found.path}."

    def _check(self, found: Checkpoint) -> None:
        """Refuse a checkpoint of another run: other data, batches or seeds would make another result in silence."""
        differing = [name for name, value in self._about.items() if found.about.get(name) != value and name != "data"]
        was = found.about.get("data")
        if not isinstance(was, dict) or {k: v for k, v in was.items() if k != "position"} != self._about["data"]:
            differing.append("data")
        if differing:
            told = "; ".join(f"{name} {self._about[name]} in place of {found.about.get(name)}" for name in differing)
            raise ValueError(f"resume: expected the run as it was, got another {told[:500]}; start a new run")
        versions = environment()
        changed = {k: [v, versions.get(k)] for k, v in found.about["versions"].items() if versions.get(k) != v}
        if changed:
            self._folder.tell("other environment", changed=changed)


def fingerprint(data: Any) -> dict[str, Any]:
    """What tells one dataset from another."""
    host = np.ascontiguousarray(np.asarray(jax.device_get(data)))
    return {
        "shape": list(host.shape),
        "dtype": host.dtype.name,
        "sha256": hashlib.sha256(host.data if host.size else b"").hexdigest(),
    }


def _sync(path: Any) -> None:
    if path.exists():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
