"""The one error of a file that is not what it should be, and the one way to read bytes: within a limit."""

import os
from pathlib import Path


class BadFile(ValueError):
    """A file that cannot be used; the message names it, says what was expected and what was found."""


def check_file(path: Path) -> None:
    """A regular file is there, or a link to one."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none" if not path.exists() else "something else"
        raise FileNotFoundError(f"{path}: expected a file, found {found}; check the path")


def read_bytes(path: Path, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes; more are never read."""
    check_file(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise BadFile(f"{path}: expected at most {limit} bytes, got {size}; is it the right file?")
        content = file.read(size + 1)
    if len(content) != size:
        raise BadFile(f"{path}: expected {size} bytes, got another number of them; is it still being written?")
    return content
