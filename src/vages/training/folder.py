"""A run's folder: config, environment, metrics, events, checkpoints, figures."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from vages.environment import environment
from vages.files.json_files import parse_json
from vages.storage.directory import FILE, Directory

_LARGEST = 2**30  # bytes of a log at most
_LOCK, _LOGS = ".lock", ("events.jsonl", "metrics.jsonl")
_PATIENCE = 0.2  # seconds to wait for the lock
_FILES = re.compile(r".*\.(json|jsonl|png|html)")  # read or written when a run is resumed
_FOLDERS = ("checkpoints", "tensorboard")
_BEGUN = ("events.jsonl", "config.json", "environment.json", _LOCK)  # written at the start of a run, the last one first


class RunFolder:
    """The folder of a run: `config.json`, `environment.json`, `metrics.jsonl` with one line per chunk, and other files.

    `events.jsonl` records what happened to the run: started, resumed, recovered, finished. A folder is locked by one
    process at a time. A failed start leaves no files. `dataset` describes the data that the run is trained on, and is
    repeated in checkpoints.
    """

    def __init__(self, path: Path | str, config: dict[str, Any], dataset: dict[str, Any] | None = None):
        path = Path(path)
        check_new(path)
        self._open(path, config)
        self.dataset = dataset
        made, begun = self.directory.create(), ()
        try:
            self._hold(create=True)
            check_new(path)  # again, now that the folder is locked
            begun = _BEGUN
            self.save("environment", environment())
            self.save("config", config)
            self.tell("started", **({} if dataset is None else {"dataset": dataset}))
        except BaseException:
            with suppress(OSError):
                for name in begun:
                    if self.directory.kind(name) == FILE:
                        self.directory.remove(name)
            self.close()
            if made:
                self.directory.remove_empty()
            raise

    @classmethod
    def reopen(cls, path: Path | str) -> "RunFolder":
        """Open the folder of an earlier run. Nothing in it changes before `begin`."""
        folder, path = cls.__new__(cls), Path(path)
        folder._open(path, cls.peek(path))
        folder._check()
        folder._hold(create=False)
        folder._waiting = []
        return folder

    @staticmethod
    def peek(path: Path | str) -> dict[str, Any]:
        """Return the config of a run, without locking its folder."""
        path = Path(path)
        if not is_run(path):
            raise ValueError(f"run: expected the folder of a run, got {path}, which holds no config.json; check it")
        return read_object(path, "config.json")

    @staticmethod
    def in_use(path: Path | str) -> bool:
        """Whether a process has locked the folder, for example to train the run."""
        with Directory(Path(path)) as directory:
            try:
                handle = directory.lock(_LOCK, create=False)
            except BlockingIOError:
                return True
        if handle is not None:
            os.close(handle)
        return False

    def _open(self, path: Path, config: dict[str, Any]) -> None:
        self.path, self.config, self.directory = path, config, Directory(path)
        self.checkpoints = self.directory / "checkpoints"
        self.dataset: dict[str, Any] | None = None
        self._held: int | None = None
        self._waiting: list[tuple[str, dict[str, Any]]] | None = None
        self._reconfigured = False

    @staticmethod
    def events(path: Path | str) -> list[dict[str, Any]]:
        """Return the events of a run, oldest first. Lines that cannot be read are left out."""
        with Directory(Path(path)) as directory:
            there = directory.check_file("events.jsonl")
            content = directory.read_bytes("events.jsonl", _LARGEST) if there else b""
        rows = []
        for line in content.splitlines():
            with suppress(ValueError, RecursionError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict)]

    @staticmethod
    def metrics(path: Path | str) -> list[dict[str, Any]]:
        """Return the records that a run has logged, oldest first. Lines that cannot be read are left out."""
        with Directory(Path(path)) as directory:
            there = directory.check_file("metrics.jsonl")
            content = directory.read_bytes("metrics.jsonl", _LARGEST) if there else b""
        shapes: dict[str, Any] = {}
        rows = (_metrics(line, shapes) for line in content.splitlines(keepends=True))
        return [row for row in rows if row is not None]

    def configure(self, config: dict[str, Any]) -> None:
        """Change the settings. In a reopened folder, they are written by `begin`."""
        before, now = (one.get("settings", one) for one in (self.config, config))
        changed = {name: [before.get(name), value] for name, value in now.items()}
        self.tell("other settings", **{name: pair for name, pair in changed.items() if pair[0] != pair[1]})
        self.config, self._reconfigured = config, True
        if self._waiting is None:
            self.begin()

    def begin(self) -> None:
        """Write the pending events and settings of a reopened folder, after all checks of the run have passed."""
        waiting, self._waiting = self._waiting or [], None
        if self._held is None:
            self._hold(create=True)
        for event, about in waiting:
            self.tell(event, **about)
        if self._reconfigured:  # the event that names the settings must be on disk before them
            self._reconfigured = False
            self.directory.sync_file("events.jsonl")
            self.save("config", self.config)

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        self._begun()
        self.directory.append("metrics.jsonl", _line(record))

    def tell(self, event: str, **about: Any) -> None:
        """Append a line to events.jsonl. In a reopened folder, events are pending until something else is written."""
        if self._waiting is not None:
            self._waiting.append((event, about))
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.directory.append("events.jsonl", _line({"time": now, "event": event, **about}), lines=True)

    def rewind(self, step: int) -> list[dict[str, Any]]:
        """Remove records that were logged after `step` or are incomplete, and return the others."""
        there = self.directory.check_file("metrics.jsonl")
        content = self.directory.read_bytes("metrics.jsonl", _LARGEST) if there else b""
        whole, rows, bad, shapes = [], [], 0, {}
        for line in content.splitlines(keepends=True):
            row = _metrics(line, shapes)
            if row is None:
                bad += line.endswith(b"\n")  # the last line may be incomplete if the process was killed
            elif row["step"] <= step and line.endswith(b"\n"):
                whole.append(line)
                rows.append(row)
        self.begin()
        if not there:
            return []
        if bad or (rows[-1]["step"] if rows else 0) != step:
            self.tell("log incomplete", step=step, last=rows[-1]["step"] if rows else 0, unreadable=bad)
        self.directory.write_bytes("metrics.jsonl", b"".join(whole))
        return rows

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Write `name`.json."""
        self._begun()
        self.directory.write_json(f"{name}.json", value, allow_nan=False)

    def close(self) -> None:
        """Unlock and close the folder."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
        self.checkpoints.close()
        self.directory.close()

    def _begun(self) -> None:
        if self._waiting is not None:
            self.begin()

    def _check(self) -> None:
        """Raise if anything that a resume would open is not a regular file or folder, before anything is written."""
        for name in self.directory.names():
            if name in _FOLDERS:
                self.directory.check_folder(name)
            elif name == _LOCK or _FILES.fullmatch(name):
                self.directory.check_file(name, appended=name == _LOCK or name in _LOGS)

    def _hold(self, *, create: bool) -> None:
        """Lock the folder. If another process only checks whether it is `in_use`, the lock is free again at once."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self._held = self.directory.lock(_LOCK, create=create)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(
                        f"{self.path}: expected a run that is not being written, got one in use; wait or stop it"
                    ) from None
            time.sleep(_PATIENCE / 20)


@contextmanager
def numbered_folder(parent: Path, name: str) -> Iterator[Path]:
    """Make a new folder `parent/name-1`, or with the first free number, for this process alone.

    It is removed at the end if it is empty, and so is `parent` if it is new.
    """
    above, new, made = Directory(parent), None, False
    while new is None:
        made = above.create() or made
        with suppress(FileNotFoundError):  # another process may remove the empty folder above
            new = above.make_numbered(name)
        above.close()
    try:
        yield new.path
    finally:
        new.remove_empty()
        if made:
            above.remove_empty()


def is_run(path: Path) -> bool:
    """Whether `path` is the folder of a run."""
    with Directory(path) as directory:
        return directory.has_file("config.json")


def read_object(path: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of a run."""
    with Directory(path) as directory:
        return parse_json(directory.read_bytes(name, 2**24), str(path / name))


def check_new(path: Path) -> None:
    """Raise ValueError unless a run can be started in `path`: a new or empty folder, or the rest of a failed start."""
    with Directory(path) as directory:
        names = directory.names()
        if not names and (directory.exists() or not os.path.lexists(path)):
            return
        parts = {name for name in names if not re.fullmatch(r"\.(config|environment)\.json\.[0-9a-f-]+", name)}
        failed = _LOCK in parts and parts <= set(_BEGUN) and ("config.json" not in parts or "environment.json" in parts)
        if failed and all(directory.check_file(name) for name in parts):
            told = "events.jsonl" in parts and directory.read_bytes("events.jsonl", _LARGEST)
            if not told:  # no event was written yet
                return
    hint = f"resume it with --resume {path}, or choose another" if "config.json" in names else "choose another"
    raise ValueError(f"out: expected a new or empty folder, got {path}, which is not empty; {hint}")


def _metrics(line: bytes, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any] | None:
    """Return a valid row of metrics.jsonl, or None. It has a step, and numbers of the same shapes as earlier rows."""
    try:
        row = json.loads(line)
        found = {name: np.asarray(value, np.float64).shape for name, value in row.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    step = row.get("step")
    if type(step) is not int or step < 0 or any(len(shape) > 1 for shape in found.values()):
        return None
    return row if all(shapes.setdefault(name, shape) == shape for name, shape in found.items()) else None


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record) + "\n").encode()
