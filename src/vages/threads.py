"""Running two functions in two threads, as XLA compiles on a single core."""

import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, as_completed
from typing import Any, TypeVar

One = TypeVar("One")
Another = TypeVar("Another")
Check = Callable[[], None]

_NAME = "vages computes"


def in_threads(one: Callable[[Check], One], another: Callable[[Check], Another]) -> tuple[One, Another]:
    """Run two functions in threads and return both results. The calling thread only waits, so it can handle signals.

    The first error of either function, or of a signal, is raised at once. Both functions are passed a check, which
    raises KeyboardInterrupt from then on: the other function computes until it next calls the check.
    """
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    def compute(part: Callable[[Check], Any], found: Future) -> None:
        try:
            found.set_result(part(check))
        except BaseException as error:
            found.set_exception(error)

    first, second = Future[One](), Future[Another]()
    for part, found in ((one, first), (another, second)):
        threading.Thread(target=compute, args=(part, found), name=_NAME, daemon=True).start()
    try:
        for found in as_completed((first, second)):
            found.result()
    except BaseException:
        stopped.set()
        raise
    return first.result(), second.result()


def is_compiling(error: BaseException) -> bool:
    """Whether a signal interrupted JAX while compiling. XLA still compiles, and the interpreter would crash at exit."""
    within = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, KeyboardInterrupt) and any(name.startswith("jax._src.compiler") for name in within)


def are_computing() -> bool:
    """Whether an abandoned function is still computing, so that the interpreter would crash at exit."""
    return any(thread.name == _NAME for thread in threading.enumerate())
