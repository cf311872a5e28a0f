"""SIGTERM and SIGHUP as exceptions, so that a stopped command ends with one line and a specific exit status.

Python discards an exception that a handler raises inside a finalizer or a callback of the garbage collector, and JAX
has such callbacks. `raising_signals` detects this and sends the signal again.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

_AGAIN = 0.05  # seconds until a lost signal is sent again


class Stopped(KeyboardInterrupt):
    """A signal that asks the program to end."""

    def __init__(self, number: signal.Signals):
        super().__init__()
        self.number = number


@contextmanager
def raising_signals() -> Iterator[None]:
    """Raise `Stopped` on SIGTERM and SIGHUP, unless they are ignored (`nohup`); Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) not in (signal.SIG_IGN, None)]
    previous = {one: signal.signal(one, _raise) for one in numbers}
    hook = sys.unraisablehook
    sys.unraisablehook = partial(_send_again, hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for one, handler in previous.items():
            signal.signal(one, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Stopped(signal.Signals(number))


def _send_again(show: Callable[[Any], Any], unraisable: Any) -> None:
    """Send a signal again if its exception was discarded; other exceptions are shown as usual."""
    error = unraisable.exc_value
    if not isinstance(error, KeyboardInterrupt):
        show(unraisable)
        return
    number = error.number if isinstance(error, Stopped) else signal.SIGINT
    # from a thread: an exception that is raised here would be discarded as well
    timer = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
