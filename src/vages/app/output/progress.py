"""A progress bar for training: the step, the speed, the time left and the main numbers."""

import time
import weakref
from collections import deque
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from vages.app.output.console import say_error
from vages.terminal import StandardError

_BETWEEN = 30.0  # seconds between two lines
_RECENT = 20  # chunks over which the rate is averaged


class Speed:
    """Iterations per second over recent chunks, without the time of compilation.

    The first chunk of each length includes its compilation, and the chunk after the first record with new numbers that
    of an evaluation. Both are left out. The slowest of several chunks is left out too: something else may have been
    compiled in it, or a picture drawn.
    """

    def __init__(self, done: int = 0):
        self._step, self._seconds, self._evaluated = done, 0.0, False
        self._lengths, self._names = set[int](), set[str]()
        self._recent = deque[tuple[float, int]](maxlen=_RECENT)  # seconds and iterations

    def add(self, record: dict[str, Any]) -> None:
        """Count the chunk that ends with this record."""
        length, passed = record["step"] - self._step, record["seconds"] - self._seconds
        if length in self._lengths and not self._evaluated and length > 0 and passed > 0:
            self._recent.append((passed, length))
        self._evaluated = bool(self._names) and not self._names.issuperset(record)
        self._lengths.add(length)
        self._names.update(record)
        self._step, self._seconds = record["step"], record["seconds"]

    @property
    def rate(self) -> float | None:
        """Iterations per second, or None before the first chunk that counts."""
        if not self._recent:
            return None
        counted = sorted(self._recent, key=lambda chunk: chunk[0] / chunk[1])
        seconds, iterations = np.sum(counted[: max(1, len(counted) - 1)], axis=0)
        return float(iterations / seconds)


def _duration(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 5 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


class ProgressBar:
    """Progress bar on standard error, for use as a callback: `fit(..., callbacks=[ProgressBar(3000)])`.

    It appears with the first record, or at the start of a `with` statement, and disappears after the last step or at
    the end of that statement. It never raises. Without a terminal, it prints nothing, or occasionally a line of text.

    **Arguments:**

    - `steps`: the step at which training ends.
    - `visible`: whether to show anything.
    - `done`: the step at which training starts, if it is resumed.
    - `lines`: whether to print lines without a terminal: at the first record, then every half minute, and at the end.
    """

    def __init__(self, steps: int, *, visible: bool = True, done: int = 0, lines: bool = False):
        console = Console(file=StandardError())  # pyright: ignore[reportArgumentType]
        self._lines, self._next_line = lines and visible and not console.is_terminal, 0.0
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            transient=True,
            disable=not (visible and console.is_terminal),
        )
        weakref.finalize(self, self._bar.stop)  # restores the cursor if training ends early without `with`
        self._steps, self._done, self._speed = steps, done, Speed(done)
        self._numbers: dict[str, str] = {}
        self._task = self._bar.add_task("", total=steps, completed=done, rate="", left="", numbers="compiling…")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        if self._lines:
            say_error(f"{self._done}/{self._steps}  compiling…")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record: its step, rate and time left, the loss and log-likelihoods, averaged over seeds."""
        self._speed.add(record)
        step, speed = record["step"], self._speed.rate
        rate = "" if speed is None else f"{speed:.{0 if speed >= 10 else 2}f} it/s"
        left = "time left not known yet" if speed is None else f"about {_duration((self._steps - step) / speed)} left"
        left = left if step < self._steps else ""
        for name, value in record.items():
            if name == "loss" or name.endswith("log_likelihood"):
                self._numbers[name.replace("_log_likelihood", " log-lik.")] = f"{np.mean(value):.4g}"
        numbers = "  ".join(f"{name} {value}" for name, value in self._numbers.items())
        self._bar.start()  # does nothing if it has started
        self._bar.update(self._task, completed=step, rate=rate, left=left, numbers=numbers)
        if self._lines and (time.monotonic() >= self._next_line or step >= self._steps):
            self._next_line = time.monotonic() + _BETWEEN
            say_error("  ".join(filter(None, (f"{step}/{self._steps}", rate, left, numbers))))
        if step >= self._steps:
            self._bar.stop()
