"""`BadFile`, the error for a file that cannot be used, and reading bytes within a limit."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class BadFile(ValueError):
    """A file that cannot be used. The message names the file, what was expected, what was found and what to do."""


_ADVICE = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "make the file system writable",
}


def advice_for(error: OSError) -> str:
    """Return what to do before a file that could not be written is written again."""
    return _ADVICE.get(error.errno or 0, "fix that")


class Unexpected(ValueError):
    """Unexpected content of a file. `reading` adds the file's name, what was expected and what to do."""


@contextmanager
def reading(name: str, expected: str) -> Iterator[None]:
    """Convert any error of a library on a damaged file to a one-line `BadFile`, except errors of the disk.

    The library's own error is in the traceback.
    """
    try:
        yield
    except BadFile:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a seek to before 0
            raise
        got = str(error) if isinstance(error, Unexpected) else "something else or a damaged one"
        raise BadFile(f"{name}: expected {expected}, got {got}; get the file again") from error


def check_file(path: Path) -> None:
    """Raise `FileNotFoundError` unless the path is a regular file, or a link to one."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none" if not path.exists() else "something else"
        raise FileNotFoundError(f"{path}: expected a file, got {found}; check the path")


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a regular file. Raise `BadFile` if it has more than `limit` bytes, without reading it."""
    check_file(path)
    with path.open("rb") as file:
        return read_open(file, path, limit)


def read_open(file: BinaryIO, path: Path, limit: int) -> bytes:
    """Like `read_bytes`, for an open file. `path` is for errors."""
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise BadFile(f"{path}: expected at most {limit} bytes, got {size}; is it the right file?")
    if len(content := file.read(size + 1)) != size:
        raise BadFile(f"{path}: expected {size} bytes, got a different number; is it still being written?")
    return content
