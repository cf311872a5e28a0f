"""Runs a process of a cluster in a child: JAX aborts it if another process is lost, and the parent reports that.

The child shares the parent's standard streams. The output of JAX's own libraries goes to the parent, which shows it
only with --debug. Over a socket, the child reports which signals reached it, when it has joined, and its exit status.
If the parent is killed, the socket closes and the child ends too.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

_JOINED, _LEAVING = 200, 201  # smaller bytes are signals; _LEAVING is followed by an exit status
_TICK = 0.2  # seconds in which a signal may reach the child directly
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_START = "from vages.app.cli.supervision import run_member; run_member()"
_LAST_WORDS = 2.0  # seconds that a failing process waits for others that fail too

_link: socket.socket | None = None  # to the parent, in a child


class ClusterFailed(RuntimeError):
    """A process of the cluster never joined, or is lost."""


def is_member() -> bool:
    """Whether this process is supervised already."""
    return _link is not None


def supervise(arguments: list[str], timeout: int) -> int:
    """Run the command in a child and return its exit status. Raise ClusterFailed if JAX aborted it."""
    link, childs_link = socket.socketpair()
    log, childs_log = os.pipe()
    descriptors = (childs_link.fileno(), childs_log)
    # -P: a module in the current folder is not imported in place of an installed one
    command = [sys.executable, "-P", "-c", _START, *map(str, descriptors), *arguments]
    child = subprocess.Popen(command, pass_fds=descriptors)
    childs_link.close()
    os.close(childs_log)
    with link, open(log, "rb", buffering=0) as printed:
        attended = _Attended(child, link, printed.fileno())
        with attended.signals():
            attended.until_end()
    code = child.wait()
    if attended.status is not None or code >= 0:
        return code if attended.status is None else attended.status
    if attended.impatient:
        raise KeyboardInterrupt
    if -code in attended.received:
        return 128 - code
    by_jax = any(word in attended.printed for word in (b"distributed service", b"oordination"))
    if code != -signal.SIGABRT or not by_jax:
        name = signal.Signals(-code).name
        raise ClusterFailed(f"cluster: expected this process to finish, got {name}; --debug shows what JAX printed")
    if not attended.joined:
        raise ClusterFailed(
            f"cluster: expected all processes to join within {timeout} s, got fewer; check that all were started, "
            "with the same address and number, and that process 0 can be reached"
        )
    raise ClusterFailed(lost(timeout))


def lost(timeout: int) -> str:
    """Return the error for a lost process."""
    return (
        f"cluster: expected every process to run to its end, got no answer from another one (waited up to {timeout} s);"
        " see what it printed, and start all of them again with --resume RUN"
    )


class _Attended:
    """A running child: its signals, its messages, and the end of its output."""

    def __init__(self, child: subprocess.Popen, link: socket.socket, log: int):
        self._child, self._link, self._log = child, link, log
        self._reached: Counter[int] = Counter()  # signals that reached the child
        self._tail: deque[bytes] = deque(maxlen=64)
        self.received: Counter[int] = Counter()  # signals that reached this process
        self.joined, self.status, self.impatient = False, None, False

    @property
    def printed(self) -> bytes:
        """The end of the output of JAX's libraries."""
        return b"".join(self._tail)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Count signals. Those that this process ignores, as under nohup, are ignored by the child as well."""
        heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, lambda n, _: self.received.update([n])) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def until_end(self) -> None:
        """Read the child's messages and forward signals, until it has ended."""
        due: dict[int, float] = {}
        while self._child.poll() is None:
            self._read()
            for number, times in list(self.received.items()):
                # Ctrl-C in a terminal and some schedulers signal the child too; a second signal would end it at once
                if times <= self._reached[number]:
                    due.pop(number, None)
                elif time.monotonic() >= due.setdefault(number, time.monotonic() + _TICK):
                    self._child.send_signal(number)
                    due[number] = time.monotonic() + 1  # the child reports its arrival before that
            if self.received[signal.SIGINT] >= (3 if self.joined else 1):
                self.impatient = True  # JAX may not react while it waits for others, and at the end
                self._child.kill()
        while self._read(0):
            pass

    def _read(self, seconds: float = _TICK) -> bool:
        """Read what is available; return whether there was anything."""
        ready, _, _ = select.select([self._link, self._log], [], [], seconds)
        told = self._link.recv(4096) if self._link in ready else b""
        printed = os.read(self._log, 65536) if self._log in ready else b""
        if printed:
            self._tail.append(printed)
            if "--debug" in sys.argv:
                os.write(2, printed)
        for at, byte in enumerate(told):
            if byte == _JOINED:
                self.joined = True
            elif byte == _LEAVING:
                self.status = told[at + 1]
                break
            else:
                self._reached[byte] += 1
        if ready and not (told or printed):
            time.sleep(seconds / 10)  # closed, and the child is about to end
        return bool(told or printed)


def run_member() -> NoReturn:
    """Run the command in the child, after its streams are connected to the parent."""
    global _link
    link, log, *arguments = sys.argv[1:]
    sys.argv = ["vages", *arguments]
    _link = socket.socket(fileno=int(link))
    sys.stdout, sys.stderr = _own(sys.stdout), _own(sys.stderr)
    for standard in (1, 2):
        os.dup2(int(log), standard)
    os.close(int(log))
    threading.Thread(target=_end_with_parent, args=(_link,), daemon=True).start()
    _link.setblocking(False)
    signal.set_wakeup_fd(_link.fileno(), warn_on_full_buffer=False)
    from vages.app.cli import main

    main(after_error=_leave)
    raise AssertionError


@contextmanager
def membership(timeout: int) -> Iterator[None]:
    """Context for the work in a cluster, which raises ClusterFailed if it fails because another process is lost."""
    _tell(_JOINED)
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if _is_lost(error):
            raise ClusterFailed(lost(timeout)) from error
        raise


def _is_lost(error: Exception) -> bool:
    """Whether an error of JAX's collectives or of its coordinator, `UNAVAILABLE: …`, means that a process is lost."""
    status, colon, text = str(error).partition(": ")
    known = ("gloo", "nccl", "coordination", "heartbeat", "connection")
    return bool(colon) and status.replace("_", "").isupper() and any(word in text.lower() for word in known)


def _leave(status: int) -> NoReturn:
    """Exit at once after an error: JAX would wait for the others, which may wait for this process."""
    _tell(_LEAVING, status)
    if "vages.training.cluster" in sys.modules:
        from vages.training.cluster import wait_for_others

        wait_for_others(_LAST_WORDS)
    os._exit(status)


def _tell(*words: int) -> None:
    if _link is not None:
        with suppress(OSError):  # the parent is gone, and this process ends too
            _link.send(bytes(words))


def _own(stream: Any) -> Any:
    """Return a copy of the stream on a new descriptor, which JAX's libraries do not use."""
    stream.flush()
    return open(os.dup(stream.fileno()), "w", encoding=stream.encoding, errors=stream.errors, buffering=1)


def _end_with_parent(link: socket.socket) -> None:
    select.select([link], [], [])  # the parent never writes: this returns when it ends
    os._exit(1)
