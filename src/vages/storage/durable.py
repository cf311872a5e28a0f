"""Files that are complete after a crash: on disk before they get their names."""

from pathlib import Path

from vages.storage.directory import Directory


class NotWritten(OSError):
    """A result could not be written. The message says what of it is safe, and what to do."""


def replace_durably(path: Path, content: bytes) -> None:
    """Write a file atomically, replacing an older one."""
    with Directory(path.parent) as folder:
        folder.write_bytes(path.name, content)
