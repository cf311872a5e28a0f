"""The exit statuses of `vages`, and the one-line message for an error."""

import errno
import signal
from enum import IntEnum

from vages.app.cli.stopping import Stopped
from vages.app.cli.supervision import ClusterFailed
from vages.terminal import printable

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # a full disk, or one that became read-only
_DEVICE = ("CUDA_ERROR", "CUDNN_STATUS", "CUBLAS_STATUS")  # in JAX's errors if the driver or its libraries fail
_LONGEST = 1000  # characters of a line


class Status(IntEnum):
    """The exit statuses; `said` is the description in --help."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    FAULT = 70
    HUNG_UP = 129
    STOPPED = 130
    CLOSED = 141
    TERMINATED = 143

    @property
    def said(self) -> str:
        """Description of the status."""
        return {
            Status.DONE: "done",
            Status.FAILED: "training diverged, a process of a cluster was lost, a result is not finite, memory or the "
            "disk is full, the GPU failed, or (reproduce --strict) a claim does not hold",
            Status.REFUSED: "bad input: an option, a file or data that cannot be used; nothing was computed",
            Status.FAULT: "a bug in vages",
            Status.HUNG_UP: "stopped by SIGHUP, sent when a terminal is closed; progress is saved",
            Status.STOPPED: "stopped by Ctrl-C; progress is saved",
            Status.CLOSED: "the output was closed by its reader",
            Status.TERMINATED: "stopped by SIGTERM, sent by kill; progress is saved",
        }[self]


_OF_SIGNALS = {signal.SIGHUP: Status.HUNG_UP, signal.SIGTERM: Status.TERMINATED}


def status_of(error: BaseException) -> Status:
    """Return the exit status for an error."""
    if isinstance(error, Stopped):
        return _OF_SIGNALS[error.number]
    if isinstance(error, KeyboardInterrupt):
        return Status.STOPPED
    if isinstance(error, BrokenPipeError):
        return Status.CLOSED
    if isinstance(error, OSError) and _not_written(error):
        return Status.FAILED
    if isinstance(error, ValueError | OSError):
        return Status.REFUSED
    failed = isinstance(error, ClusterFailed) or _diverged(error) or _out_of_memory(error) or _device_failed(error)
    return Status.FAILED if failed else Status.FAULT


def line_of(error: BaseException) -> str:
    """Return the message for an error: one line, with advice and without control characters."""
    if isinstance(error, KeyboardInterrupt):
        by = error.number.name if isinstance(error, Stopped) else "Ctrl-C"
        return printable("; ".join([f"stopped by {by}", *map(str, error.args)]))
    if isinstance(error, BrokenPipeError):
        return ""
    if _out_of_memory(error):
        return "out of memory; try a smaller --batch, --width or --count, or another device (--debug shows where)"
    if _device_failed(error):
        return "the GPU failed; run it again, or resume from the last checkpoint with --resume RUN (--debug shows more)"
    if isinstance(error, OSError) and error.errno in _DISK:
        from vages.storage.errors import advice_for

        what = error.filename or "the results"
        return printable(f"expected to write {what}, got {error.strerror}; {advice_for(error)} and run it again")
    lines = str(error).strip().split("\n")
    first = printable(lines[0].strip() or type(error).__name__)
    first = first if len(first) <= _LONGEST else f"{first[: _LONGEST // 2]} … {first[-_LONGEST // 2 :]}"
    if status_of(error) is Status.FAULT:
        return f"{type(error).__name__}: {first}; this is a bug in vages, please report the output of --debug"
    return first if len(lines) == 1 else f"{first} … (--debug shows all)"


def _not_written(error: OSError) -> bool:
    """Whether a result that may have been computed could not be written."""
    from vages.storage.durable import NotWritten

    return isinstance(error, NotWritten) or error.errno in _DISK


def _diverged(error: BaseException) -> bool:
    if not isinstance(error, ArithmeticError):  # JAX is not imported for other errors
        return False
    from vages.training import Diverged

    return isinstance(error, Diverged)


def _device_failed(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and any(code in str(error) for code in _DEVICE)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error))
