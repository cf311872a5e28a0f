"""One line that says how far, how fast, how long still, and the numbers that matter."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from vages.terminal import StandardError


class Progress:
    """A progress bar on standard error; it never raises, and it is silent where there is no terminal."""

    def __init__(self, steps: int, *, visible: bool, done: int = 0):
        console = Console(file=StandardError())  # pyright: ignore[reportArgumentType]
        self._bar = Bar(
            MofNCompleteColumn(),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            transient=True,
            disable=not (visible and console.is_terminal),
        )
        self._last = (done, None)
        self._numbers: dict[str, str] = {}
        self._task = self._bar.add_task("", total=steps, completed=done, rate="", numbers="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, step: int, record: dict[str, Any]) -> None:
        """Move on to `step`: the rate since the last call, the loss and any log-likelihood; of several seeds, means."""
        last_step, last_seconds = self._last
        passed = 0.0 if last_seconds is None else record["seconds"] - last_seconds
        speed = (step - last_step) / passed if passed > 0 else 0.0
        rate = f"{speed:.{0 if speed >= 10 else 2}f} it/s" if speed else ""
        self._last = (step, record["seconds"])
        for name, value in record.items():
            if name == "loss" or name.endswith("log_likelihood"):
                self._numbers[name.replace("_log_likelihood", " log-lik.")] = f"{np.mean(value):.4g}"
        numbers = "  ".join(f"{name} {value}" for name, value in self._numbers.items())
        self._bar.update(self._task, completed=step, rate=rate, numbers=numbers)
