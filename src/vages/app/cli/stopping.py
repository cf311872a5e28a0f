"""Signals as exceptions, so that a stopped command ends with one line and a specific exit status.

Python discards an exception that a handler raises inside a finalizer or a callback of the garbage collector, and JAX
has such callbacks. An extension module that is being imported, such as JAX's, turns the exception into an ImportError.
`raising_signals` detects both, and sends the signal again.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Any

_AGAIN = 0.05  # seconds until a signal is sent again
_IMPORTS = {method.__code__ for method in (ExtensionFileLoader.create_module, ExtensionFileLoader.exec_module)}


class Stopped(KeyboardInterrupt):
    """A signal that asks the program to end."""

    def __init__(self, number: signal.Signals):
        super().__init__()
        self.number = number


@contextmanager
def raising_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, and `Stopped` on SIGTERM and SIGHUP. Ignored signals (`nohup`) stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [one for one in stopping if signal.getsignal(one) not in (signal.SIG_IGN, None)]
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
    while frame is not None:
        if frame.f_code in _IMPORTS:
            _send_later(number)
            return
        frame = frame.f_back
    raise KeyboardInterrupt if number == signal.SIGINT else Stopped(signal.Signals(number))


def _send_again(show: Callable[[Any], Any], unraisable: Any) -> None:
    """Send a signal again if its exception was discarded; other exceptions are shown as usual."""
    error = unraisable.exc_value
    if not isinstance(error, KeyboardInterrupt):
        show(unraisable)
        return
    _send_later(error.number if isinstance(error, Stopped) else signal.SIGINT)


def _send_later(number: int) -> None:
    """Send a signal to this process from a thread: an exception that is raised here would be lost."""
    timer = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
