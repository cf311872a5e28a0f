"""Errors are matched by type, argument and value, not by sentence: a message can be reworded without a test."""

import re
from contextlib import contextmanager

import pytest


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
