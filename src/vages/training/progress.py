"""One line that says how far, how fast, how long still, and the numbers that matter."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """A progress bar on standard error; it never raises, and it is silent where there is no terminal."""

    def __init__(self, steps: int, *, visible: bool):
        console = Console(stderr=True)
        self._bar = Bar(
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            transient=True,
            disable=not (visible and console.is_terminal),
        )
        self._task = self._bar.add_task("", total=steps, rate="", numbers="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, step: int, record: dict[str, Any]) -> None:
        """Move on to `step` with the newest numbers; of several seeds, their means."""
        numbers = "  ".join(
            f"{name} {np.mean(value):.4g}" for name, value in record.items() if name not in ("step", "seconds")
        )
        self._bar.update(self._task, completed=step, rate=f"{step / record['seconds']:.0f} it/s", numbers=numbers)
