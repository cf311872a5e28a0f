"""What `vages train` says at the end: the result, the health of the run, and how to continue or evaluate it."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from vages.app.cli.exit_status import Status
from vages.app.output.console import print_json, say

if TYPE_CHECKING:
    from vages.app.recipes import Recipe


@contextmanager
def saying_what_is_saved(folder: Path, recipe: "Recipe") -> Iterator[None]:
    """Add to a KeyboardInterrupt how far the run is saved, and the command that resumes it."""
    from vages.app.runs.commands import resume_command
    from vages.app.runs.saved import saved_progress
    from vages.training import is_writer
    from vages.training.folder import is_run

    try:
        yield
    except KeyboardInterrupt as stop:
        if is_writer() and is_run(folder):
            steps = recipe.settings.steps
            step, told = saved_progress(folder, steps)
            does = "draw the pictures" if step == steps else "resume"
            stop.args = (told, f"{does} with: {resume_command(recipe, folder)}")
        raise


def tell_trained(fitted: Any, recipe: "Recipe", folder: Path, json: bool, line: str) -> int:
    """Print the result of training, and return the exit status; `line` is the result in words."""
    from vages.training import is_writer
    from vages.training.folder import read_object

    status = Status(128 + Signals[fitted.signal]) if fitted.interrupted else Status.DONE
    if not is_writer():
        return status
    if json:
        print_json({"folder": folder, **read_object(folder, "result.json")})
        return status
    if fitted.interrupted:
        from vages.app.runs.commands import resume_command
        from vages.app.runs.saved import saved_progress

        by = "Ctrl-C" if status is Status.STOPPED else fitted.signal
        told = saved_progress(folder, recipe.settings.steps)[1]
        say(f"vages: stopped by {by}; {told}; resume with: {resume_command(recipe, folder)}")
    say(line)
    _say_health(read_object(folder, "result.json"), finished=not fitted.interrupted)
    if recipe.parts is None and not fitted.interrupted:
        say(f"samples of custom recipes are not checked; evaluate the model with: {_evaluate(recipe, folder)}")
    say(f"{fitted.step} iterations in {fitted.seconds:.1f} s; results and pictures in {folder}")
    return status


def _say_health(result: dict[str, Any], *, finished: bool) -> None:
    """Print the health of a run, with its warnings and notices."""
    from vages.app.report.page.summaries import health_in_words

    warnings, notices = (result["health"][name] for name in ("warnings", "notices"))
    if finished:
        say(f"finished, {health_in_words(result)}")
    for kind, lines in (("warning", warnings), ("notice", notices)):
        for line in lines:
            say(f"{kind}: {line}")


def _evaluate(recipe: "Recipe", folder: Path) -> str:
    """Return the command that evaluates a run."""
    from vages.app.runs.commands import recipe_file

    file = "" if recipe.origin is None else f" --recipe {shlex.quote(recipe_file(recipe.origin))}"
    return f"vages evaluate {shlex.quote(str(folder))}{file}"
