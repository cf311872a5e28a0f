"""Access to the files of a run, by names relative to the handle of their folder and never through a link.

A run folder may be untrusted. Only regular files in it are read and written: symbolic links, pipes and devices are
refused with `UnsafeFile`. Files are replaced atomically: written under a new name, flushed and renamed.
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

# Without handles of folders, names are joined to the folder's path, and every folder in it is checked each time.
HANDLES = {os.open, os.stat, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd and os.listdir in os.supports_fd
_flag = lambda *names: sum(getattr(os, name, 0) for name in names)
_SAFE = _flag("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # opening a pipe does not block
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
    """An entry of a folder that would lead out of it, or block when it is opened."""


class Directory:
    """A folder, opened on first use. It need not exist before `create`.

    `Directory(path)` is a folder that the user named, and `path` may be a link. `directory / name` is a subfolder,
    which may not be a link. Names are single components.
    """

    def __init__(self, path: Path, parent: "Directory | None" = None):
        self._handle: int | None = None
        self.path, self._parent = path, parent

    @classmethod
    def of(cls, folder: "Directory | Path") -> "Directory":
        """Return a `Directory` unchanged, or the `Directory` of a path."""
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
        """Close the handle. It is opened again when needed."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    # the folder

    def exists(self) -> bool:
        """Whether the folder exists. A link or a file in place of a subfolder is refused."""
        try:
            self._opened()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self) -> list[str]:
        """Return the sorted names of its entries; none if the folder does not exist."""
        if not self.exists():
            return []
        return sorted(os.listdir(self._opened() if HANDLES else self.path))

    def create(self) -> bool:
        """Create the folder and its parents unless it exists. Return whether it was created."""
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
        """Create a subfolder. Raise FileExistsError if the name is taken."""
        where, handle = self._at(name)
        os.mkdir(where, dir_fd=handle)
        self.sync()
        return self / name

    def make_numbered(self, name: str) -> "Directory":
        """Create the subfolder `name-1`, or with the first free number, even if others create some at the same time."""
        for number in count(1):
            with suppress(FileExistsError):
                return self.make(f"{name}-{number}")
        raise AssertionError

    def remove_empty(self) -> None:
        """Remove the folder if it is empty."""
        self.close()
        with suppress(OSError):
            if self._parent is None:
                self.path.rmdir()
            else:
                where, handle = self._parent._at(self.path.name)
                os.rmdir(where, dir_fd=handle)

    def sync(self) -> None:
        """Flush the names of the folder's entries to disk."""
        if HANDLES:
            os.fsync(self._opened())

    # its entries

    def kind(self, name: str) -> str | None:
        """Return the kind of an entry: `FILE`, `FOLDER`, "a symbolic link", …, or None if there is none."""
        try:
            where, handle = self._at(name)
            mode = os.stat(where, dir_fd=handle, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _KINDS.get(stat.S_IFMT(mode), "a device")

    def stamp(self, name: str) -> tuple[int, int, int] | None:
        """Return inode, size and modification time of a file, which change when it is written, or None."""
        try:
            where, handle = self._at(name)
            found = os.stat(where, dir_fd=handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def has_file(self, name: str) -> bool:
        """Whether there is a regular file of this name. Anything but a file or a folder is refused."""
        return self.kind(name) != FOLDER and self.check_file(name)

    def check_file(self, name: str, *, appended: bool = False) -> bool:
        """Raise unless the name is free or that of a regular file. Return whether there is one.

        A file to be `appended` to may not have another hard link, as that would be changed too.
        """
        if (kind := self.kind(name)) is None:
            return False
        if kind != FILE:
            error = BadFile if kind == FOLDER else UnsafeFile
            raise error(f"{self.path / name}: expected a regular file, got {kind}; remove it, or put a copy there")
        where, handle = self._at(name)
        if appended and os.stat(where, dir_fd=handle, follow_symlinks=False).st_nlink > 1:
            raise UnsafeFile(
                f"{self.path / name}: expected a file without hard links, got a hard link, so that another "
                "file would change too; put a copy there"
            )
        return True

    def check_folder(self, name: str) -> bool:
        """Raise unless the name is free or that of a folder. Return whether there is one."""
        if (kind := self.kind(name)) not in (None, FOLDER):
            error = BadFile if kind == FILE else UnsafeFile
            raise error(f"{self.path / name}: expected a folder, got {kind}; remove it, or put a copy there")
        return kind is not None

    def read_bytes(self, name: str, limit: int) -> bytes:
        """Read a file. Raise `BadFile` if it has more than `limit` bytes, without reading it."""
        with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
            return read_open(file, self.path / name, limit)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file atomically, replacing an older one."""
        with self.writing(name) as file:
            file.write(content)

    def write_json(self, name: str, value: dict[str, Any], *, allow_nan: bool = True) -> None:
        """Write a JSON file atomically."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=allow_nan)
        try:
            content = (text + "\n").encode()
        except UnicodeEncodeError as error:  # a path that is not UTF-8
            got = ascii(text[max(error.start - 40, 0) : error.end])
            raise ValueError(f"{name}: expected names in UTF-8, got {got}; rename the file or folder") from None
        self.write_bytes(name, content)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for writing, which takes its name once it is all on disk. A link of that name is replaced."""
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
        """Write a new file and flush it to disk. Raise FileExistsError if the name is taken."""
        file = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with _named(self.path / name):
            try:
                _write(file, content)
            finally:
                _sync(file)

    def append(self, name: str, content: bytes, *, lines: bool = False) -> None:
        """Append to a file, or create it. All or nothing is written. With `lines`, a torn last line is ended first."""
        file = self._open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, appended=True)
        try:
            size = os.fstat(file).st_size
            if lines and size and os.pread(file, 1, size - 1) != b"\n":
                content = b"\n" + content
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
        """Flush a file to disk, if there is one."""
        if self.check_file(name):
            _sync(self._open(name, os.O_RDONLY))

    def rename(self, name: str, new: str) -> None:
        """Rename an entry of the folder. A file of the new name is replaced."""
        (before, handle), (after, _) = self._at(name), self._at(new)
        os.replace(before, after, src_dir_fd=handle, dst_dir_fd=handle)

    def remove(self, name: str) -> None:
        """Remove a file, a link itself, or a folder with its contents, if there is one."""
        kind, (where, handle) = self.kind(name), self._at(name)
        if kind == FOLDER:
            shutil.rmtree(where, dir_fd=handle)
        elif kind is not None:
            os.unlink(where, dir_fd=handle)

    def lock(self, name: str, *, create: bool) -> int | None:
        """Lock a file and return its handle. The system releases the lock when the process ends, however it ends.

        Raise BlockingIOError if another process has it. Return None if there is no such file and `create` is False.
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
        """Return the handle of the folder, or -1 if the system has none. Raise if it is missing or an unsafe link."""
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
        """Return a name as the functions of `os` take it, and the handle that it is relative to."""
        handle = self._opened()
        return (_component(name), handle) if HANDLES else (str(self.path / _component(name)), None)

    def _open(self, name: str, flags: int, *, appended: bool = False) -> int:
        """Open a regular file. Its kind is checked before, as opening a device may have effects, and afterwards."""
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
            raise UnsafeFile(f"{self.path / name}: expected a regular file without hard links, got another; remove it")
        return file


def _component(name: str) -> str:
    if name in ("", ".", "..") or any(mark in name for mark in (os.sep, os.altsep or os.sep, "\0")):
        raise ValueError(f"name: expected the name of a file in a folder, got {name!r}; leave the folders out")
    return name


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the file's name to errors of its handle, which have none."""
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
