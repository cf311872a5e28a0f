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
    """One line on standard output; control characters in it are escaped."""
    print(printable(text))


def say_error(text: str) -> None:
    """Text on standard error, if anybody is there to read it; control characters but newlines are escaped."""
    StandardError().write(f"{printable(text, keep=_NEWLINE)}{_NEWLINE}")


def print_json(record: dict[str, Any]) -> None:
    """One JSON object on one line, as every parser reads it: numbers that are not finite are null."""
    print(escape_json(dumps(_strict(record), ensure_ascii=False, allow_nan=False)))


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Rows in columns; the last column may be folded."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in rows[0][:-1]:
        table.add_column(no_wrap=True)
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
    """A function of how much is done and how much there is in all, which moves a bar on standard error.

    It is silent where there is no terminal. With `size`, the amounts are bytes. What comes after all is done, and does
    not say how far it is, may be named: `then` is shown beside a bar that moves to and fro.
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
    """Shows named parts of the work on standard error, one after the other; it is called with how far a part is.

    On a terminal, a bar with the name of the part and how long it has taken; elsewhere, a line for each part. Each
    thread that has parts has a bar of its own.
    """

    def __init__(self, progress: Any):
        self._progress, self._own, self._began = progress, threading.local(), time.monotonic()

    def stage(self, name: str) -> None:
        """Begin the next part."""
        if self._progress.disable:
            say_error(f"{time.monotonic() - self._began:6.1f} s  {printable(name)}")
            return
        if (task := self._task) is not None:
            self._progress.remove_task(task)
        self._own.task = self._progress.add_task(_markup(name), total=None)

    def __call__(self, done: int, total: int | None) -> None:
        """How much of the part is done, and how much there is in all."""
        if (task := self._task) is not None:
            self._progress.update(task, completed=done, total=total)

    @property
    def _task(self) -> Any:
        return getattr(self._own, "task", None)


@contextmanager
def stage_bar() -> Iterator[StageBar]:
    """A `StageBar`, which goes at the end."""
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
    """A line that moves on standard error while something is done that does not say how far it is.

    The function it gives says something above that line. Where there is no terminal, nothing moves.
    """
    from rich.console import Console

    console = Console(file=StandardError(), highlight=False, soft_wrap=True)  # pyright: ignore[reportArgumentType]
    with console.status(_markup(text)) if console.is_terminal else nullcontext():
        yield lambda line: console.out(printable(line))
