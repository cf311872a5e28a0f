"""Files that are whole after a crash: on the disk before they are named."""

from pathlib import Path

from vages.storage.directory import Directory


class NotWritten(OSError):
    """What was computed could not be written; the message says what of it is safe, and what to do."""


def replace_durably(path: Path, content: bytes) -> None:
    """Write a file, whole, in the place of an older one or of none."""
    with Directory(path.parent) as folder:
        folder.write_bytes(path.name, content)
