"""Parses a command line into the arguments of a command's function."""

import contextlib
import functools
import inspect
import io
import re
from typing import Any

import tyro

from vages.app.cli.commands import COMMANDS

_EMPTY = re.compile("--[a-z-]+=")
_RULE = re.compile(r"[─-╿-]*")  # what divides a box, drawn with one set of characters or another


def parse(name: str, words: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that the words give the command; --help is answered, and what cannot be read is a ValueError."""
    command = COMMANDS[name]
    if any(word == "" or _EMPTY.fullmatch(word) for word in words):
        raise ValueError("expected arguments that are not empty, got an empty one; is a variable of the shell unset?")

    @functools.wraps(command.run)
    def collected(*positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return positional, named

    about = (inspect.getdoc(command.run) or "").partition("\nArgs:")[0].rstrip()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                collected,
                prog=f"vages {name}",
                description=f"{about}\n\nExample: {command.example}",
                args=words,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(f"{_in_one_line(said.getvalue())}; see vages {name} --help") from None


def _in_one_line(message: str) -> str:
    """The first paragraph of what stands in a box."""
    words: list[str] = []
    for line in message.splitlines()[1:]:  # the first is its title
        text = line.strip(" │|")
        if not _RULE.fullmatch(text):
            words.append(text)
        elif words:
            break
    text = " ".join(words).replace("{None}|", "")
    text = re.sub(r"\((('[^']*'(, )?)+)\)", lambda found: _sorted_choices(found[1]), text)
    return text.rstrip(".:") or "expected other arguments"


def _sorted_choices(quoted: str) -> str:
    """Choices in one order, without that of leaving the option out."""
    return ", ".join(sorted(word for word in re.findall("'([^']*)'", quoted) if word != "None"))
