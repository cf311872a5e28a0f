"""A progress bar for training: how far, how fast, how much longer, and the numbers that matter."""

import time
import weakref
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vages.app.output.console import say_error
from vages.terminal import StandardError

_BETWEEN = 30.0  # seconds between two lines


class ProgressBar:
    """A progress bar on standard error, to be given to `fit` as a callback: `fit(..., callbacks=[ProgressBar(3000)])`.

    It appears with the first record, or earlier in a `with` statement, and goes with the last step or at the end of
    that statement. It never raises. Where there is no terminal it is silent, or a line of text now and then.

    **Arguments:**

    - `steps`: the step at which training ends.
    - `visible`: whether to show anything.
    - `done`: the step at which training starts, if it is resumed.
    - `lines`: whether to write lines where there is no terminal: at the first record, and half a minute after the last.
    """

    def __init__(self, steps: int, *, visible: bool = True, done: int = 0, lines: bool = False):
        console = Console(file=StandardError())  # pyright: ignore[reportArgumentType]
        self._lines, self._next_line = lines and visible and not console.is_terminal, 0.0
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            transient=True,
            disable=not (visible and console.is_terminal),
        )
        weakref.finalize(self, self._bar.stop)  # training that ends early, without `with`: the cursor comes back
        self._steps, self._last = steps, (done, None)
        self._numbers: dict[str, str] = {}
        self._task = self._bar.add_task("", total=steps, completed=done, rate="", numbers="compiling…")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        if self._lines:
            say_error(f"{self._last[0]}/{self._steps}  compiling…")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record: its step, the rate since the last one, the loss and log-likelihoods, averaged over seeds."""
        step, (last_step, last_seconds) = record["step"], self._last
        passed = 0.0 if last_seconds is None else record["seconds"] - last_seconds
        speed = (step - last_step) / passed if passed > 0 else 0.0
        rate = f"{speed:.{0 if speed >= 10 else 2}f} it/s" if speed > 0 else ""
        self._last = (step, record["seconds"])
        for name, value in record.items():
            if name == "loss" or name.endswith("log_likelihood"):
                self._numbers[name.replace("_log_likelihood", " log-lik.")] = f"{np.mean(value):.4g}"
        numbers = "  ".join(f"{name} {value}" for name, value in self._numbers.items())
        self._bar.start()  # does nothing if it is shown already
        self._bar.update(self._task, completed=step, rate=rate, numbers=numbers)
        if self._lines and (time.monotonic() >= self._next_line or step >= self._steps):
            self._next_line = time.monotonic() + _BETWEEN
            left = f"about {(self._steps - step) / speed:.0f} s left" if speed > 0 and step < self._steps else ""
            say_error("  ".join(filter(None, (f"{step}/{self._steps}", rate, left, numbers))))
        if step >= self._steps:
            self._bar.stop()
