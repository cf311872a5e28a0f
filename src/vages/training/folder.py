"""A run's folder, which describes itself: config, environment, metrics, events, checkpoints, figures."""

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from vages.environment import environment
from vages.files.bad import read_bytes
from vages.files.durable import replace_durably
from vages.files.objects import read_json

_LARGEST = 2**30  # bytes of a log that are read at most


class RunFolder:
    """`config.json`, `environment.json`, a line of `metrics.jsonl` a chunk, and whatever is saved beside them.

    `events.jsonl` tells what happened to the run: started, resumed, recovered, finished. One process at a time has a
    folder. `dataset` says which data the run was trained on, and checkpoints repeat it.
    """

    def __init__(self, path: Path, config: dict[str, Any], dataset: dict[str, Any] | None = None):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"out: expected a new or empty folder, got {path}, which holds something; choose another")
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.config, self.dataset = path, config, dataset
        self._held: int | None = _hold(path)
        self.save("environment", environment())
        self.save("config", config)
        self.tell("started", **({} if dataset is None else {"dataset": dataset}))

    @classmethod
    def reopen(cls, path: Path) -> "RunFolder":
        """The folder of a run that began earlier."""
        folder = cls.__new__(cls)
        folder.path, folder.config, folder.dataset = path, cls.peek(path), None
        folder._held = _hold(path)
        return folder

    @staticmethod
    def peek(path: Path) -> dict[str, Any]:
        """The config of a run, whoever may be writing it."""
        if not (path / "config.json").is_file():
            raise ValueError(f"run: expected the folder of a run, got {path}, which holds no config.json; check it")
        return read_json(path / "config.json", 2**24)

    @staticmethod
    def events(path: Path) -> list[dict[str, Any]]:
        """The events of a run, oldest first; lines that cannot be read are left out."""
        if not (path / "events.jsonl").is_file():
            return []
        rows = []
        for line in read_bytes(path / "events.jsonl", _LARGEST).splitlines():
            with suppress(ValueError, RecursionError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict)]

    def configure(self, config: dict[str, Any]) -> None:
        """Take other settings from now on. events.jsonl names them before config.json has them, also on the disk."""
        changed = {name: [self.config.get(name), value] for name, value in config.items()}
        self.tell("other settings", **{name: pair for name, pair in changed.items() if pair[0] != pair[1]})
        with open(self.path / "events.jsonl", "rb") as file:
            os.fsync(file.fileno())
        self.config = config
        self.save("config", config)

    @property
    def checkpoints(self) -> Path:
        """Where the run's checkpoints are."""
        return self.path / "checkpoints"

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        _append(self.path / "metrics.jsonl", record)

    def tell(self, event: str, **about: Any) -> None:
        """Append a line to events.jsonl."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        _append(self.path / "events.jsonl", {"time": now, "event": event, **about})

    def rewind(self, step: int) -> list[dict[str, Any]]:
        """Forget what was logged after `step`, or was not wholly written; the rest."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        whole, rows, bad = [], [], 0
        for line in read_bytes(path, _LARGEST).splitlines(keepends=True):
            try:
                row = json.loads(line)
                late = row["step"] > step
            except (ValueError, TypeError, KeyError, RecursionError):
                bad += line.endswith(b"\n")  # the last may have been torn by the end of the process
                continue
            if not late and line.endswith(b"\n"):
                whole.append(line)
                rows.append(row)
        if bad or (rows[-1]["step"] if rows else 0) != step:
            self.tell("log incomplete", step=step, last=rows[-1]["step"] if rows else 0, unreadable=bad)
        replace_durably(path, b"".join(whole))
        return rows

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Write `name`.json."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        replace_durably(self.path / f"{name}.json", (text + "\n").encode())

    def close(self) -> None:
        """Let another process have the folder."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def numbered_folder(parent: Path, name: str) -> Path:
    """`parent/name-1`, or the first number that is free."""
    number = 1
    while (path := parent / f"{name}-{number}").exists():
        number += 1
    return path


def _hold(path: Path) -> int:
    """The handle of a lock that the system lets go when the process ends, however it ends."""
    handle = os.open(path / ".lock", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ValueError(f"{path}: expected a run that is not being written, got one in use; wait or stop it") from None
    except OSError:  # a file system without locks
        pass
    return handle


def _append(path: Path, record: dict[str, Any]) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(record) + "\n")
