"""Two parts of a piece of work beside each other: XLA compiles on one core, and the other is free meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Here = TypeVar("Here")
There = TypeVar("There")
Check = Callable[[], None]


def side_by_side(here: Callable[[], Here], there: Callable[[Check], There]) -> tuple[Here, There]:
    """What both return; `there` runs in a thread of its own.

    An error of either is raised, that of `here` first. Where `here` is stopped or fails, the function that `there` is
    given raises KeyboardInterrupt when it is called next, and `there` ends as well.
    """
    failed = threading.Event()

    def check() -> None:
        if failed.is_set():
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as another:
        started = another.submit(there, check)
        try:
            return here(), started.result()
        except BaseException:
            failed.set()
            raise
