"""The numbers of a run for TensorBoard, which the extra `tensorboard` installs what is needed to write."""

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np


class EventLog:
    """Takes what is logged, record by record, and writes event files in a folder made with the first record.

    A number becomes a curve of its name; of several seeds, a curve each, NAME/seed_0, NAME/seed_1, …. What is not
    finite is left out. Where steps are made again, as after a resume or a recovery, TensorBoard is told to forget the
    earlier ones.
    """

    def __init__(self, folder: Path):
        self._folder, self._last = folder, 0
        self._writer: Any = None

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, record: dict[str, Any]) -> None:
        """Write a record: its `step`, and numbers by name."""
        step = record["step"]
        writer = self._restarted(step) if self._writer is None or step <= self._last else self._writer
        self._last = step
        for name, value in record.items():
            if name == "step":
                continue
            seeds = np.atleast_1d(np.asarray(value, np.float64))
            for i in np.flatnonzero(np.isfinite(seeds)):
                writer.add_scalar(name if len(seeds) == 1 else f"{name}/seed_{i}", float(seeds[i]), step)
        writer.flush()

    def close(self) -> None:
        """End the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _restarted(self, step: int) -> Any:
        """A file of its own, which says that what was written of `step` and later holds no more."""
        from tensorboardX import SummaryWriter

        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in self._folder.iterdir())
        self._writer = SummaryWriter(str(self._folder), purge_step=step, filename_suffix=f".{number}")
        return self._writer
