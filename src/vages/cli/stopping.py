"""SIGTERM and SIGHUP as exceptions: a command that they stop ends with a line and an exit status of its own."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
    try:
        yield
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Stopped(signal.Signals(number))
