"""Signals that stop training after the current chunk: SIGINT (Ctrl-C), SIGTERM and SIGHUP."""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 0.2  # seconds within which Python handles a signal if nothing blocks it
_ONE_REQUEST = 1.0  # seconds: timeout(1) and some schedulers signal a process and its group, so it arrives twice


class StopSignals:
    """A context that records the first signal for the training loop; a second one ends the program at once.

    Signals within a second of the first are the same request. Python handles signals only between two of its own
    instructions, and a compiled chunk may take minutes. So a thread listens as well, and ends the process if a second
    signal comes before the first was handled. Outside the main thread, where Python delivers no signals, the context
    has no effect. SIGTERM and SIGHUP stay ignored if they were (`nohup`). The previous handlers are restored in the
    end.
    """

    def __init__(self):
        self.seen: signal.Signals | None = None
        self._since = 0.0
        self._previous: dict[signal.Signals, Any] = {}
        self._ears: tuple[socket.socket, socket.socket] | None = None

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                previous = signal.getsignal(number)
                # None is a handler that was not set by Python, which cannot restore it
                if previous is not None and (number == signal.SIGINT or previous != signal.SIG_IGN):
                    self._previous[number] = previous
                    signal.signal(number, self._handle)
            self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ears is not None:
            signal.set_wakeup_fd(-1)
            for end in reversed(self._ears):  # closing the writing end stops the thread
                end.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def in_any_process(self) -> signal.Signals | None:
        """Return the signal that any process of the cluster has seen, or None. All processes get the same answer."""
        if jax.process_count() == 1:
            return self.seen
        number = np.max(multihost_utils.process_allgather(np.asarray(self.seen or 0, np.int32)))
        return signal.Signals(int(number)) if number else None

    def pass_on(self, number: signal.Signals | None) -> None:
        """Call the caller's own handler for SIGTERM or SIGHUP, after the run is saved.

        SIGINT is not passed on, since its default handler would raise KeyboardInterrupt.
        """
        if number is not None and number != signal.SIGINT and callable(handler := self._previous.get(number)):
            handler(int(number), None)

    def _listen(self) -> None:
        """Start a thread that receives signals, unless another wakeup descriptor is set."""
        ear, mouth = socket.socketpair()
        mouth.setblocking(False)
        if (other := signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)) != -1:
            signal.set_wakeup_fd(other)
            ear.close()
            mouth.close()
            return
        self._ears = (ear, mouth)
        threading.Thread(target=self._hear, args=(ear,), daemon=True).start()

    def _hear(self, ear: socket.socket) -> None:
        first = None
        with suppress(OSError):
            while told := ear.recv(1):
                if told[0] not in self._previous:
                    continue
                first = first or time.monotonic()
                if time.monotonic() - first > _ONE_REQUEST:
                    time.sleep(_PATIENCE)
                    if self.seen is None:
                        os.write(2, b"stopped at once; iterations since the last checkpoint are lost\n")
                        os._exit(128 + told[0])

    def _handle(self, number: int, frame: Any) -> None:
        if self.seen is None:
            self.seen, self._since = signal.Signals(number), time.monotonic()
        if time.monotonic() - self._since < _ONE_REQUEST:
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, self._previous[signal.Signals(number)])
        signal.raise_signal(number)
