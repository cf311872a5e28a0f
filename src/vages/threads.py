"""Two parts of a piece of work in two threads: XLA compiles on one core, and the other is free meanwhile."""

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
    """What both return. The calling thread only waits, so that it hears signals while XLA computes.

    The first error of either, or that of a signal, is raised at once. Both are given a function, which raises
    KeyboardInterrupt from then on: the other ends when it calls it, and may still compute until then.
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
    """Whether this is a signal's exception, and JAX let go of a program: XLA compiles on, and would crash as well."""
    within = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, KeyboardInterrupt) and any(name.startswith("jax._src.compiler") for name in within)


def are_computing() -> bool:
    """Whether a part was given up, and computes still: the interpreter would end in the middle of it, and crash."""
    return any(thread.name == _NAME for thread in threading.enumerate())
