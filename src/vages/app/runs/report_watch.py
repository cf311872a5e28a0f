"""`vages report --watch`: the page of a run is written again whenever the run has moved on."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vages.app.report.page.reading import Reader
from vages.app.report.page.summaries import largest_logged, run_status
from vages.app.runs.config import settings_of
from vages.app.runs.reports import write_report
from vages.storage.directory import Directory
from vages.training import RunFolder

_FILES = ("metrics.jsonl", "events.jsonl", "result.json")  # which change as a run moves on
_EVERY = 5.0  # seconds between two looks
_SHARE = 10  # times as long as writing the page took, at least, until it is written again


class Seen(NamedTuple):
    """A page that was written: where, the last step in it, how many steps are planned, and how the run stands."""

    path: Path
    step: int | None
    steps: int | None
    status: str
    ended: bool

    @property
    def line(self) -> str:
        """The same in a line."""
        of = "" if self.steps is None else f" of {self.steps:,}"
        step = "" if self.step is None else f"step {self.step:,}{of}: "
        return f"{step}{self.path} written" + (f"; the run has ended: {self.status}" if self.ended else "")

    @property
    def record(self) -> dict[str, Any]:
        """The same as a JSON object."""
        about = {"step": self.step, "steps": self.steps, "status": self.status, "ended": self.ended}
        return {"report": str(self.path), "bytes": self.path.stat().st_size, **about}


def watch_report(folder: Path, tell: Callable[[Seen], object], out: Path | None = None, every: float = _EVERY) -> None:
    """Write the page of a run now and whenever its files have changed, until no process has the folder.

    `tell` is called each time. Pages reload by themselves but for the last one, which is also written where a signal
    ends the watching.
    """
    live = False
    try:
        while True:
            live = RunFolder.in_use(folder)  # looked at first: the last page is written after the run has ended
            stamps, began = _stamps(folder), time.perf_counter()
            tell(_seen(folder, write_report(folder, out, live=live), live))
            if not live:
                return
            pause = max(every, _SHARE * (time.perf_counter() - began))
            time.sleep(pause)
            while _stamps(folder) == stamps and RunFolder.in_use(folder):
                time.sleep(pause)
    finally:
        if live:
            with suppress(ValueError, OSError):  # the first error is the one to tell
                write_report(folder, out)


def _stamps(folder: Path) -> list[Any]:
    with Directory(folder) as directory:
        return [directory.stamp(name) for name in _FILES]


def _seen(folder: Path, path: Path, live: bool) -> Seen:
    reader = Reader(Directory(folder))
    rows, settings = reader.rows("metrics.jsonl"), settings_of(reader.object("config.json"))
    step, steps = largest_logged(rows, "step"), settings.get("steps")
    status, _, _ = run_status(reader.rows("events.jsonl"), reader.object("result.json"), rows, live=live)
    planned = steps if isinstance(steps, int) else None
    return Seen(path, int(step) if np.isfinite(step) else None, planned, status, not live)
