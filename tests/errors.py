"""Errors are matched by type, argument and value, not by sentence: messages can be reworded without changing tests."""

import re
from contextlib import contextmanager

import pytest


def without_progress(err: str) -> str:
    """Standard error without the lines of progress, `20/100  …`."""
    return "".join(line for line in err.splitlines(keepends=True) if not re.match(r"\d+/\d+  ", line))


@contextmanager
def refused(name: str, got: object = "", kind: type[Exception] | tuple[type[Exception], ...] = ValueError):
    """The block raises `kind` with one line about the argument: `name: expected …, got <got>`.

    Yields what `pytest.raises` yields.
    """
    value = f"{re.escape(str(got))}(?!\\.?\\w)" if got != "" else ""
    with pytest.raises(kind, match=rf"^{re.escape(name)}: .*\bgot {value}") as caught:
        yield caught
    text = str(caught.value)
    assert text.splitlines() == [text]
    assert " expected " in text, text
