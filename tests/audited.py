"""The files that a process opens, makes, renames and removes below a folder, from Python's audit events."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
_watched: list[str] = []
_seen: list[tuple[str, str, str]] = []


def _audit(event, args):
    if not _watched or event not in EVENTS or not isinstance(args[0], str | os.PathLike):
        return
    path = os.path.realpath(os.fspath(args[0]))
    if any(path == folder or path.startswith(folder + os.sep) for folder in _watched):
        frame = sys._getframe(1)
        while frame is not None and f"{os.sep}vages{os.sep}" not in frame.f_code.co_filename:
            frame = frame.f_back
        where = "" if frame is None else frame.f_code.co_filename.rpartition(f"{os.sep}vages{os.sep}")[2]
        _seen.append((event, path, where))


@contextmanager
def opened_by_path(folder: Path) -> Iterator[list[tuple[str, str, str]]]:
    """Which files are opened by full path, and by which file of the library; names relative to a handle do not count.

    The process must run in another folder, or a relative name would be a path below its working folder.
    """
    assert not Path.cwd().is_relative_to(folder)
    if not _seen:
        sys.addaudithook(_audit)
        _seen.append(("begin", "", ""))
    start = len(_seen)
    seen: list[tuple[str, str, str]] = []
    _watched.append(os.path.realpath(folder))
    try:
        yield seen
    finally:
        _watched.pop()
        seen += _seen[start:]
