"""Signals as exceptions, so that a stopped command ends with one line and a specific exit status.

Python discards an exception that a handler raises inside a finalizer or a callback of the garbage collector, and JAX
has such callbacks. An extension module that is being imported, such as JAX's, turns the exception into an ImportError.
`raising_signals` detects both, and sends the signal again. timeout(1) and some schedulers signal a process and its
group, so it gets each signal twice: within a second it is the same request, and neither cleaning up nor the report of
the first is interrupted.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Any

_AGAIN = 0.05  # seconds until a signal is sent again
_ONE_REQUEST = 1.0  # seconds in which signals are the same request
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
    numbers = [one for one in _STOPPING if signal.getsignal(one) not in (signal.SIG_IGN, None)]
    requests = _Requests(sys.unraisablehook)
    previous = {one: signal.signal(one, requests.receive) for one in numbers}
    sys.unraisablehook = requests.not_raised
    try:
        yield
    finally:
        sys.unraisablehook = requests.show
        for one, handler in previous.items():
            signal.signal(one, handler)


def _is_stopping() -> bool:
    """Whether an earlier KeyboardInterrupt is being handled. Otherwise it was lost, for example in C code."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def stop_behind(error: BaseException) -> BaseException:
    """Return the KeyboardInterrupt that C code turned into another error, as NumPy's does; other errors as they are."""
    stop = error.__cause__
    return stop if isinstance(error, SystemError | RuntimeError) and isinstance(stop, KeyboardInterrupt) else error


def ignore_signals() -> None:
    """Ignore signals from now on, and while the interpreter exits; one that comes a second later ends it at once.

    Functions that run at exit, such as JAX's, would be interrupted, with a traceback. They run in reverse order: call
    this last.
    """
    _ignore()
    atexit.register(_ignore)  # the handlers of the caller are restored in the meantime


def _ignore() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    began = time.monotonic()

    def receive(number: int, _: FrameType | None) -> None:
        if time.monotonic() - began > _ONE_REQUEST:
            os._exit(128 + number)

    for one in _STOPPING:
        if signal.getsignal(one) not in (signal.SIG_IGN, None):
            signal.signal(one, receive)


class _Requests:
    """Requests to stop. `receive` is the handler of signals, and `not_raised` the hook for discarded exceptions."""

    def __init__(self, show: Callable[[Any], Any]):
        self.show = show  # the hook for all other exceptions
        self._since: float | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._since is not None and now - self._since < _ONE_REQUEST and _is_stopping():
            return
        while frame is not None:
            if frame.f_code in _IMPORTS:
                _send_later(number)
                return
            frame = frame.f_back
        self._since = now
        raise KeyboardInterrupt if number == signal.SIGINT else Stopped(signal.Signals(number))

    def not_raised(self, unraisable: Any) -> None:
        error = unraisable.exc_value
        if not isinstance(error, KeyboardInterrupt):
            self.show(unraisable)
            return
        _send_later(error.number if isinstance(error, Stopped) else signal.SIGINT)


def _send_later(number: int) -> None:
    """Send a signal to this process from a thread: an exception that is raised here would be lost."""
    timer = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
