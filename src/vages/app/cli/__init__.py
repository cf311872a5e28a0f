"""The command line. JAX is imported only by a command that computes."""

import os
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper

from vages.app.cli.benches import bench
from vages.app.cli.commands import COMMANDS, overview
from vages.app.cli.comparing import compare
from vages.app.cli.completing import completion
from vages.app.cli.datasets import data
from vages.app.cli.devices import parse_cluster
from vages.app.cli.evaluation import evaluate, inception
from vages.app.cli.exit_status import Status, line_of, status_of
from vages.app.cli.experiments import reproduce
from vages.app.cli.exploring import explore
from vages.app.cli.images import embed, inpaint, interpolate, sample
from vages.app.cli.parsing import parse
from vages.app.cli.reporting import report
from vages.app.cli.starting import new
from vages.app.cli.stopping import ignore_signals, raising_signals, stop_behind
from vages.app.cli.supervision import is_member, supervise
from vages.app.cli.training import train
from vages.app.output.console import say_error
from vages.threads import are_computing, is_compiling

__all__ = [
    "bench",
    "compare",
    "completion",
    "data",
    "embed",
    "evaluate",
    "explore",
    "inception",
    "inpaint",
    "interpolate",
    "main",
    "new",
    "report",
    "reproduce",
    "sample",
    "train",
]


def _leave(status: int) -> None:
    """Exit, and skip the interpreter's cleanup if threads are still computing, since it would crash."""
    (os._exit if are_computing() else sys.exit)(status)


def main(after_error: Callable[[int], None] = _leave) -> None:
    """Run `vages …`. An error is printed as one line, or with --debug as a traceback."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # no error for characters outside its encoding
    with raising_signals():  # also while an error is printed
        status, end = _ended(arguments, after_error)
        ignore_signals()
        _flush()
        end(int(status))


def _ended(arguments: list[str], after_error: Callable[[int], None]) -> tuple[int, Callable[[int], None]]:
    """Run a command and print its error; return the exit status, and the function that exits."""
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status, sys.exit
    except SystemExit as stop:  # after --help, or from rich if the pipe is closed
        closed = isinstance(stop.__context__, BrokenPipeError)
        return Status.CLOSED if closed else Status.DONE if stop.code is None else Status(stop.code), sys.exit
    except (Exception, KeyboardInterrupt) as raised:
        error = stop_behind(raised)
        status = status_of(error)
        if status is Status.CLOSED:
            sys.stdout = None  # otherwise the interpreter would write the rest on exit
        if len(arguments) < len(sys.argv) - 1:
            say_error(traceback.format_exc().rstrip())
        elif line := line_of(error):
            say_error(f"vages: {line}")
        return status, os._exit if after_error is _leave and is_compiling(error) else after_error


def _flush() -> None:
    """Flush the standard streams and drop closed ones, for which the interpreter would change the exit status."""
    for name in ("stdout", "stderr"):
        try:
            if (stream := getattr(sys, name)) is not None:
                stream.flush()
        except OSError:
            setattr(sys, name, None)


def _run(arguments: list[str]) -> int:
    match arguments:
        case []:
            print(overview(), file=sys.stderr)
            return Status.REFUSED
        case ["-h" | "--help", *_]:
            print(overview())
            return Status.DONE
        case ["--version", *_]:
            from vages import __version__

            print(f"vages {__version__}")
            return Status.DONE
        case [name, *rest] if name in COMMANDS:
            positional, named = parse(name, rest)
            if named.get("cluster") and not named["dry_run"] and not is_member():
                parse_cluster(named["cluster"], named["cluster_timeout"])
                return supervise(sys.argv[1:], named["cluster_timeout"])
            return COMMANDS[name].run(*positional, **named)
    from difflib import get_close_matches

    near = get_close_matches(arguments[0], COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else "see vages --help"
    raise ValueError(f"expected one of {', '.join(COMMANDS)}, got {arguments[0]!r}; {hint}")
