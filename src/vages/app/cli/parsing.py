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
_NUMBER = re.compile(
    "^Error parsing (--[a-z-]+): "
    "(?:(invalid literal for int|could not convert string to float)[^:]*: |Exceeds the limit.*)"
)
_RULE = re.compile(r"[─-╿-]*")  # a line of a box, in Unicode or ASCII


def parse(name: str, words: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Parse the words into arguments of the command. --help is answered; a parse error is raised as ValueError."""
    command = COMMANDS[name]
    if any(word == "" or _EMPTY.fullmatch(word) for word in words):
        raise ValueError("expected arguments that are not empty, got an empty one; is a variable of the shell unset?")

    about = (inspect.getdoc(command.run) or "").partition("\nArgs:")[0].rstrip()
    texts: dict[str, Any] = {"prog": f"vages {name}", "description": f"{about}\n\nExample: {command.example}"}

    @functools.wraps(command.run)
    def collected(*positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return positional, named

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            if command.parse is not None:
                return command.parse(words, **texts)
            return tyro.cli(collected, args=words, config=(tyro.conf.FlagCreatePairsOff,), **texts)
    except SystemExit as stop:
        if not stop.code:
            raise
        line, refused = _in_one_line(said.getvalue()), re.compile("Error parsing (settings|how): ")
        if refused.match(line):  # raised by the settings themselves, with advice
            raise ValueError(refused.sub("", line)) from None
        line = _NUMBER.sub(_told_number, line)
        near = re.search(r"Perhaps you meant:\W+(--[a-z-]+)", said.getvalue())
        hint = f"did you mean {near[1]}?" if near else f"see vages {name} --help"
        raise ValueError(f"{line}; {hint}") from None


def _in_one_line(message: str) -> str:
    """Return the first paragraph in a box of tyro's as one line."""
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


def _told_number(found: re.Match[str]) -> str:
    """Return the error for a number that cannot be parsed, in place of Python's message."""
    if found[2] is None:
        return f"{found[1]}: expected INT, got too many digits"
    return f"{found[1]}: expected {'INT' if found[2].endswith('int') else 'FLOAT'}, got "


def _sorted_choices(quoted: str) -> str:
    """Sort the choices, without None."""
    return ", ".join(sorted(word for word in re.findall("'([^']*)'", quoted) if word != "None"))
