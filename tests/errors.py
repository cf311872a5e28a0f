"""Errors are matched by type, argument and value. Sentences are not matched, so messages can be reworded freely."""

import re
from contextlib import contextmanager

import pytest


def without_progress(err: str) -> str:
    """Standard error without progress lines, `20/100  …`."""
    return "".join(line for line in err.splitlines(keepends=True) if not re.match(r"\d+/\d+  ", line))


@contextmanager
def refused(name: str, got: object = "", kind: type[Exception] | tuple[type[Exception], ...] = ValueError):
    """Check that the block raises `kind` with one line about the argument: `name: expected …, got <got>`.

    Yields what `pytest.raises` yields.
    """
    value = f"{re.escape(str(got))}(?!\\.?\\w)" if got != "" else ""
    with pytest.raises(kind, match=rf"^{re.escape(name)}: .*\bgot {value}") as caught:
        yield caught
    text = str(caught.value)
    assert text.splitlines() == [text]
    assert " expected " in text, text
