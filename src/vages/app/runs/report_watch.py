"""`vages report --watch`: rewrite the page of a run whenever its files change."""

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
from vages.app.runs.saved import current_result
from vages.storage.directory import Directory
from vages.training import RunFolder

_FILES = ("metrics.jsonl", "events.jsonl", "result.json")  # which change during training
_EVERY = 5.0  # seconds between two checks
_SHARE = 10  # smallest pause between two pages, as a multiple of the time to write one


class Seen(NamedTuple):
    """A page that was written: its path, the last step in it, the planned steps, and the status of the run."""

    path: Path
    step: int | None
    steps: int | None
    status: str
    ended: bool

    @property
    def line(self) -> str:
        """Summary in one line."""
        of = "" if self.steps is None else f" of {self.steps:,}"
        step = "" if self.step is None else f"step {self.step:,}{of}: "
        return f"{step}{self.path} written" + (f"; the run has ended: {self.status}" if self.ended else "")

    @property
    def record(self) -> dict[str, Any]:
        """Summary as a JSON object."""
        about = {"step": self.step, "steps": self.steps, "status": self.status, "ended": self.ended}
        return {"report": str(self.path), "bytes": self.path.stat().st_size, **about}


def watch_report(folder: Path, tell: Callable[[Seen], object], out: Path | None = None, every: float = _EVERY) -> None:
    """Write the page of a run now and whenever its files have changed, until no process uses the folder.

    `tell` is called after each page. All pages but the last reload themselves; the last one is also written if a signal
    ends the watch.
    """
    live = False
    try:
        while True:
            live = RunFolder.in_use(folder)  # checked first, so that the last page is written after the run has ended
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
            with suppress(ValueError, OSError):  # the first error is the one to report
                write_report(folder, out)


def _stamps(folder: Path) -> list[Any]:
    with Directory(folder) as directory:
        return [directory.stamp(name) for name in _FILES]


def _seen(folder: Path, path: Path, live: bool) -> Seen:
    reader = Reader(Directory(folder))
    rows, settings = reader.rows("metrics.jsonl"), settings_of(reader.object("config.json"))
    step, steps = largest_logged(rows, "step"), settings.get("steps")
    result = current_result(folder, reader.object("result.json"), rows)
    status, _, _ = run_status(reader.rows("events.jsonl"), result, rows, live=live)
    planned = steps if isinstance(steps, int) else None
    return Seen(path, int(step) if np.isfinite(step) else None, planned, status, not live)
