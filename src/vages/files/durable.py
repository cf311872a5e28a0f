"""Files that are whole after a crash: on the disk before they are named."""

import os
from pathlib import Path


class NotWritten(OSError):
    """What was computed could not be written; the message says what of it is safe, and what to do."""


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, content: bytes) -> None:
    """Write a file, whole, in the place of an older one or of none."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_durably(aside, content)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
