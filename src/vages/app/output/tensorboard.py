"""Logs for TensorBoard. Writing them needs the extra `vages[tensorboard]`."""

import socket
import struct
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from vages.storage.directory import Directory


class EventLog:
    """Callback that writes log records to event files, in a folder that is created with the first record.

    Each number becomes a curve with its name, or one curve per seed: NAME/seed_0, NAME/seed_1, …. Values that are not
    finite are left out. If steps are repeated, as after a resume or a recovery, TensorBoard discards the earlier ones.
    """

    def __init__(self, folder: Directory | Path):
        self._folder, self._last = Directory.of(folder), 0
        self._file: str | None = None

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, record: dict[str, Any]) -> None:
        """Write a record: its `step`, and numbers by name."""
        from tensorboardX.summary import scalar

        step, content = record["step"], b""
        if self._file is None or step <= self._last:
            self._file, content = self._restarted(step)
        self._last = step
        for name, value in record.items():
            if name == "step":
                continue
            seeds = np.atleast_1d(np.asarray(value, np.float64))
            for i in np.flatnonzero(np.isfinite(seeds)):
                tag = name if len(seeds) == 1 else f"{name}/seed_{i}"
                content += _record(step=step, summary=scalar(tag, float(seeds[i])))
        self._folder.append(self._file, content)

    def close(self) -> None:
        """Close the file."""
        self._file = None
        self._folder.close()

    def _restarted(self, step: int) -> tuple[str, bytes]:
        """Return the name and the beginning of a new file, which invalidates earlier events from `step` on."""
        self._folder.create()
        number = len(self._folder.names())
        begin = _record(file_version="brain.Event:2")
        begin += _record(step=step, session_log={"status": "START"})
        return f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{number}", begin


def _record(**event: Any) -> bytes:
    """Encode an event for TensorBoard's files: its length, the event, and a checksum of each."""
    from tensorboardX.record_writer import masked_crc32c

    data = import_module("tensorboardX.proto.event_pb2").Event(wall_time=time.time(), **event).SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
