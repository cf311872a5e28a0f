"""Output of commands: results on standard output, as text or JSON; progress on standard error."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from json import dumps
from typing import Any

from vages.terminal import StandardError, escape_json, printable

_NEWLINE = "\n"


def say(text: object) -> None:
    """Print one line to standard output, with control characters escaped."""
    print(printable(text))


def say_error(text: str) -> None:
    """Print text to standard error, if it is open, with control characters except newlines escaped."""
    StandardError().write(f"{printable(text, keep=_NEWLINE)}{_NEWLINE}")


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on one line. Numbers that are not finite become null."""
    print(escape_json(dumps(_strict(record), ensure_ascii=False, allow_nan=False)))


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns. Where there is no room, the widest columns wrap."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    Console(highlight=False, markup=False).print(table)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str | None) else str(value)


@contextmanager
def bar(size: bool = False, then: str | None = None) -> Iterator[Any]:
    """Yield a function of the amount done and the total amount, which updates a progress bar on standard error.

    Without a terminal, nothing is shown. With `size`, the amounts are bytes. When all is done, `then` is shown with an
    indeterminate bar, for work that follows.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=StandardError())  # pyright: ignore[reportArgumentType]
    amount = DownloadColumn() if size else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), amount, BarColumn(bar_width=16), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def show(done: int, total: int | None) -> None:
            nonlocal task
            progress.update(task, completed=done, total=total)
            if then is not None and done == total:
                progress.remove_task(task)
                task = progress.add_task(then, total=None)

        yield show


class StageBar:
    """Progress of named stages on standard error, one after the other. Call it with the progress of a stage.

    On a terminal, it shows a bar with the name of the stage and the elapsed time; elsewhere, a line for each stage.
    Each thread has its own bar.
    """

    def __init__(self, progress: Any):
        self._progress, self._own, self._began = progress, threading.local(), time.monotonic()

    def stage(self, name: str) -> None:
        """Begin the next stage."""
        if self._progress.disable:
            say_error(f"{time.monotonic() - self._began:6.1f} s  {printable(name)}")
            return
        if (task := self._task) is not None:
            self._progress.remove_task(task)
        self._own.task = self._progress.add_task(_markup(name), total=None)

    def __call__(self, done: int, total: int | None) -> None:
        """Show how much of the stage is done, and how much there is in all."""
        if (task := self._task) is not None:
            self._progress.update(task, completed=done, total=total)

    @property
    def _task(self) -> Any:
        return getattr(self._own, "task", None)


@contextmanager
def stage_bar() -> Iterator[StageBar]:
    """Yield a `StageBar`, which disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=StandardError())  # pyright: ignore[reportArgumentType]
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield StageBar(progress)


def _markup(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))


@contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Show an animated line on standard error during work whose progress is unknown.

    The yielded function prints a line above it. Without a terminal, there is no animated line.
    """
    from rich.console import Console

    console = Console(file=StandardError(), highlight=False, soft_wrap=True)  # pyright: ignore[reportArgumentType]
    with console.status(_markup(text)) if console.is_terminal else nullcontext():
        yield lambda line: console.out(printable(line))
