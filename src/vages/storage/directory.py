"""The one way to the files of a run: by names relative to the handle of their folder, and never through a link.

A run folder may come from anywhere. What lies in it is read and written as regular files alone: a symbolic link, a pipe
or a device is refused with `UnsafeFile`. Files are replaced whole: written under a new name, flushed and renamed.
"""

import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from vages.storage.errors import BadFile, read_open

try:
    import fcntl
except ImportError:  # a system without POSIX locks
    fcntl = None

# Without handles of folders, names are joined to the folder's path, and every folder on the way is checked each time.
HANDLES = {os.open, os.stat, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd and os.listdir in os.supports_fd
_flag = lambda *names: sum(getattr(os, name, 0) for name in names)
_SAFE = _flag("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # a pipe is opened at once, to be refused
_FOLDER = _flag("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
FILE, FOLDER = "a file", "a folder"
_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class UnsafeFile(BadFile):
    """Something in a folder that would lead out of it, or block whoever opens it."""


class Directory:
    """A folder, opened when it is first used; it need not exist before `create`.

    `Directory(path)` is a folder that the user named, and `path` may be a link; `directory / name` is one below it,
    which may not. Names are single components.
    """

    def __init__(self, path: Path, parent: "Directory | None" = None):
        self._handle: int | None = None
        self.path, self._parent = path, parent

    @classmethod
    def of(cls, folder: "Directory | Path") -> "Directory":
        """The folder itself, or the one that a path names."""
        return folder if isinstance(folder, Directory) else cls(folder)

    def __truediv__(self, name: str) -> "Directory":
        return Directory(self.path / _component(name), self)

    def __str__(self) -> str:
        return str(self.path)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the handle; it is opened again when it is needed."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    # the folder

    def exists(self) -> bool:
        """Whether it is there; a link or a file in the place of a folder below another is refused."""
        try:
            self._opened()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self) -> list[str]:
        """What lies in it, in order; nothing where it is not there."""
        if not self.exists():
            return []
        return sorted(os.listdir(self._opened() if HANDLES else self.path))

    def create(self) -> bool:
        """Make it, and all above it, unless it is there; whether it was made."""
        try:
            if self._parent is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir()
                Directory(self.path.parent).sync()
            else:
                self._parent.create()
                self._parent.make(self.path.name)
        except FileExistsError:
            self._opened()
            return False
        return True

    def make(self, name: str) -> "Directory":
        """A new folder; FileExistsError where there is anything of that name."""
        where, handle = self._at(name)
        os.mkdir(where, dir_fd=handle)
        self.sync()
        return self / name

    def make_numbered(self, name: str) -> "Directory":
        """The new folder `name-1`, or with the first number that is free, whoever else makes some at the same time."""
        for number in count(1):
            with suppress(FileExistsError):
                return self.make(f"{name}-{number}")
        raise AssertionError

    def remove_empty(self) -> None:
        """Remove the folder if nothing lies in it."""
        self.close()
        with suppress(OSError):
            if self._parent is None:
                self.path.rmdir()
            else:
                where, handle = self._parent._at(self.path.name)
                os.rmdir(where, dir_fd=handle)

    def sync(self) -> None:
        """Wait until the disk has the folder's names."""
        if HANDLES:
            os.fsync(self._opened())

    # what lies in it

    def kind(self, name: str) -> str | None:
        """What bears a name: `FILE`, `FOLDER`, "a symbolic link", …, or None for nothing."""
        try:
            where, handle = self._at(name)
            mode = os.stat(where, dir_fd=handle, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _KINDS.get(stat.S_IFMT(mode), "a device")

    def stamp(self, name: str) -> tuple[int, int, int] | None:
        """What changes when a file is written: its inode, its size and its time; None for nothing."""
        try:
            where, handle = self._at(name)
            found = os.stat(where, dir_fd=handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def has_file(self, name: str) -> bool:
        """Whether there is a regular file; anything but a file or a folder is refused."""
        return self.kind(name) != FOLDER and self.check_file(name)

    def check_file(self, name: str, *, appended: bool = False) -> bool:
        """Raise unless the name is free or that of a regular file; whether it is one.

        One that is to be `appended` to has no other name: its bytes would be another file's.
        """
        if (kind := self.kind(name)) is None:
            return False
        if kind != FILE:
            error = BadFile if kind == FOLDER else UnsafeFile
            raise error(f"{self.path / name}: expected a regular file, got {kind}; remove it, or put a copy there")
        where, handle = self._at(name)
        if appended and os.stat(where, dir_fd=handle, follow_symlinks=False).st_nlink > 1:
            raise UnsafeFile(
                f"{self.path / name}: expected a file of one name, got a hard link, through which another file would "
                "be written; put a copy there"
            )
        return True

    def check_folder(self, name: str) -> bool:
        """Raise unless the name is free or that of a folder; whether it is one."""
        if (kind := self.kind(name)) not in (None, FOLDER):
            error = BadFile if kind == FILE else UnsafeFile
            raise error(f"{self.path / name}: expected a folder, got {kind}; remove it, or put a copy there")
        return kind is not None

    def read_bytes(self, name: str, limit: int) -> bytes:
        """All of a file of at most `limit` bytes; more are never read."""
        with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
            return read_open(file, self.path / name, limit)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file, whole, in the place of an older one or of none."""
        with self.writing(name) as file:
            file.write(content)

    def write_json(self, name: str, value: dict[str, Any], *, allow_nan: bool = True) -> None:
        """Write a file of JSON."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=allow_nan)
        try:
            content = (text + "\n").encode()
        except UnicodeEncodeError as error:  # a path whose bytes are no text
            got = ascii(text[max(error.start - 40, 0) : error.end])
            raise ValueError(f"{name}: expected names in UTF-8, got {got}; rename the file or folder") from None
        self.write_bytes(name, content)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file to be written, which takes its name when all of it is on the disk. A link of that name is replaced."""
        aside = f".{_component(name)}.{os.getpid()}-{secrets.token_hex(4)}"
        try:
            with (
                _named(self.path / name),
                os.fdopen(self._open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL), "w+b") as file,
            ):
                yield file
                file.flush()
                os.fsync(file.fileno())
            self.rename(aside, name)
        except BaseException:
            with suppress(OSError):
                self.remove(aside)
            raise
        self.sync()

    def create_file(self, name: str, content: bytes) -> None:
        """Write a new file and wait until the disk has it; FileExistsError where there is anything of that name."""
        file = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with _named(self.path / name):
            try:
                _write(file, content)
            finally:
                _sync(file)

    def append(self, name: str, content: bytes) -> None:
        """Append to a file, or begin it; all or nothing is written."""
        file = self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, appended=True)
        try:
            size = os.fstat(file).st_size
            try:
                with _named(self.path / name):
                    _write(file, content)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)
                raise
        finally:
            os.close(file)

    def sync_file(self, name: str) -> None:
        """Wait until the disk has a file, where there is one."""
        if self.check_file(name):
            _sync(self._open(name, os.O_RDONLY))

    def rename(self, name: str, new: str) -> None:
        """Give something in the folder another name; a file of that name is replaced."""
        (before, handle), (after, _) = self._at(name), self._at(new)
        os.replace(before, after, src_dir_fd=handle, dst_dir_fd=handle)

    def remove(self, name: str) -> None:
        """Remove a file, a link itself, or a folder with all that lies in it; nothing where nothing is."""
        kind, (where, handle) = self.kind(name), self._at(name)
        if kind == FOLDER:
            shutil.rmtree(where, dir_fd=handle)
        elif kind is not None:
            os.unlink(where, dir_fd=handle)

    def lock(self, name: str, *, create: bool) -> int | None:
        """The handle of a lock that the system lets go when the process ends, however it ends.

        BlockingIOError where another has it; None where there is no such file and it is not to be made.
        """
        if not create and not self.check_file(name):
            return None
        file = self._open(name, os.O_WRONLY | (os.O_CREAT if create else 0), appended=True)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise
        except OSError:  # a file system without locks
            pass
        return file

    def _opened(self) -> int:
        """The handle of the folder, or -1 where the system has none; it is there, and no link but the user's own."""
        if self._handle is None or not HANDLES:
            if self._parent is not None and not self._parent.check_folder(self.path.name):
                raise FileNotFoundError(f"{self.path}: expected a folder, got none; check the path")
            if not HANDLES:
                if not self.path.is_dir():
                    raise FileNotFoundError(f"{self.path}: expected a folder, got none; check the path")
                return -1
            where, above = (self.path, None) if self._parent is None else self._parent._at(self.path.name)
            self._handle = os.open(where, _FOLDER | (0 if above is None else os.O_NOFOLLOW), dir_fd=above)
        return self._handle

    def _at(self, name: str) -> tuple[str, int | None]:
        """A name as the functions of `os` take it, and the handle that it is relative to."""
        handle = self._opened()
        return (_component(name), handle) if HANDLES else (str(self.path / _component(name)), None)

    def _open(self, name: str, flags: int, *, appended: bool = False) -> int:
        """The handle of a regular file: looked at before it is opened, as a device may act on that, and after it."""
        there = self.check_file(name, appended=appended)
        if not there and not flags & os.O_CREAT:
            raise FileNotFoundError(f"{self.path / name}: expected a file, got none; check the path")
        where, handle = self._at(name)
        try:
            file = os.open(where, flags | _SAFE, 0o666, dir_fd=handle)
        except OSError:
            self.check_file(name)  # it may have become a link since
            raise
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or (appended and status.st_nlink > 1):
            os.close(file)
            raise UnsafeFile(f"{self.path / name}: expected a regular file of one name, got another kind; remove it")
        return file


def _component(name: str) -> str:
    if name in ("", ".", "..") or any(mark in name for mark in (os.sep, os.altsep or os.sep, "\0")):
        raise ValueError(f"name: expected the name of a file in a folder, got {name!r}; leave the folders out")
    return name


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of a handle, which knows no name, with the file's."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _sync(file: int) -> None:
    try:
        os.fsync(file)
    finally:
        os.close(file)
