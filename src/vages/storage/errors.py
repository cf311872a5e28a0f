"""`BadFile`, the error for a file that cannot be used, and reading bytes within a limit."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class BadFile(ValueError):
    """A file that cannot be used. The message names the file, what was expected, what was found and what to do."""


class Unexpected(ValueError):
    """What was found in a file. `reading` adds its name, what was expected and what to do."""


@contextmanager
def reading(name: str, expected: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into a `BadFile` of one line; a disk's errors pass.

    The library's own words are in the traceback.
    """
    try:
        yield
    except BadFile:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL is a seek to before 0
            raise
        got = str(error) if isinstance(error, Unexpected) else "something else or a damaged one"
        raise BadFile(f"{name}: expected {expected}, got {got}; get the file again") from error


def check_file(path: Path) -> None:
    """Raise `FileNotFoundError` unless the path is a regular file, or a link to one."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none" if not path.exists() else "something else"
        raise FileNotFoundError(f"{path}: expected a file, got {found}; check the path")


def read_bytes(path: Path, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes; more are never read."""
    check_file(path)
    with path.open("rb") as file:
        return read_open(file, path, limit)


def read_open(file: BinaryIO, path: Path, limit: int) -> bytes:
    """The same of an open file; `path` is for errors."""
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise BadFile(f"{path}: expected at most {limit} bytes, got {size}; is it the right file?")
    if len(content := file.read(size + 1)) != size:
        raise BadFile(f"{path}: expected {size} bytes, got another number of them; is it still being written?")
    return content
