"""What `vages` ends with: its exit statuses, and the one line that is said of an error."""

from enum import IntEnum

from vages.cli.supervision import ClusterFailed


class Status(IntEnum):
    """The exit statuses; `said` is what --help says of each."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    FAULT = 70
    CLOSED = 141
    STOPPED = 130

    @property
    def said(self) -> str:
        """What it means."""
        return {
            Status.DONE: "done",
            Status.FAILED: "training diverged, a process of a cluster is gone, a result is not sound, or (reproduce "
            "--strict) a claim does not hold",
            Status.REFUSED: "bad input: an option, a file or data that cannot be used; nothing was computed",
            Status.FAULT: "a fault of vages itself",
            Status.CLOSED: "nobody reads the output any more",
            Status.STOPPED: "stopped by Ctrl-C; what was learnt is kept",
        }[self]


def status_of(error: BaseException) -> Status:
    """The exit status that an error means."""
    if isinstance(error, KeyboardInterrupt):
        return Status.STOPPED
    if isinstance(error, BrokenPipeError):
        return Status.CLOSED
    if isinstance(error, ValueError | OSError):
        return Status.REFUSED
    failed = isinstance(error, ClusterFailed) or _diverged(error) or _out_of_memory(error)
    return Status.FAILED if failed else Status.FAULT


def line_of(error: BaseException) -> str:
    """What is said of an error, in one line with what to do."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    if isinstance(error, BrokenPipeError):
        return ""
    if _out_of_memory(error):
        return "out of memory; try a smaller --batch, --width or --count, or another device (--debug shows where)"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if status_of(error) is Status.FAULT:
        return f"{type(error).__name__}: {lines[0]}; this is a fault of vages, please report what --debug shows"
    return lines[0] if len(lines) == 1 else f"{lines[0]} … (--debug shows all)"


def _diverged(error: BaseException) -> bool:
    if not isinstance(error, ArithmeticError):  # JAX is not loaded for the sake of other errors
        return False
    from vages.training import Diverged

    return isinstance(error, Diverged)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error))
