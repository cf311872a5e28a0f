"""Zip and tar archives and compressed bytes, unpacked in memory within limits; nothing is written to the disk."""

import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from vages.files.limits import MAX_HEADER, max_unpacked
from vages.storage.errors import BadFile, check_file, reading

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
Wanted = Callable[[str], bool]
_Entry = tuple[str, int, str, Callable[[], bytes]]  # name, size, kind, reader of its contents
everything: Wanted = lambda member: True


def archive_members(
    path: Path, limit: int, count: int, wanted: Wanted = everything, largest: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the wanted files in a .zip, .tar, .tar.gz or .tgz archive.

    There may be at most `count` files. The wanted ones may have at most `limit` bytes in total (see `max_unpacked`) and
    `largest` bytes each. Links, devices, encrypted members, duplicate names and names outside the archive's folder are
    refused.
    """
    kind = path.name.lower()
    if not kind.endswith(ARCHIVES):
        raise BadFile(f"{path}: expected a name that ends in {', '.join(ARCHIVES)}, got {path.name!r}; rename it")
    check_file(path)
    limit = max_unpacked(path.stat().st_size, limit)
    with path.open("rb") as file:
        stream = gzip.GzipFile(fileobj=file) if kind.endswith("gz") else file
        read = zip_members if kind.endswith(".zip") else tar_members
        yield from read(stream, str(path), limit, count, wanted, largest)


def zip_members(
    file: BufferedIOBase, name: str, limit: int, count: int, wanted: Wanted = everything, largest: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an open zip archive like `archive_members`. `name` is for errors."""
    limit = max_unpacked(file.seek(0, 2), limit)
    with reading(name, "a zip archive"), zipfile.ZipFile(file) as archive:
        yield from _checked(_zip_entries(archive), name, limit, count, wanted, largest)


def tar_members(
    file: BufferedIOBase, name: str, limit: int, count: int, wanted: Wanted = everything, largest: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an open tar archive like `archive_members`. `name` is for errors."""
    with reading(name, "a tar archive"):
        stream = _Metered(file)
        yield from _checked(_tar_entries(stream), name, limit, count, wanted, largest)
        # tarfile does not read beyond the last header, and gzip verifies its checksum only at the end of the data.
        end = stream.last + file.read(MAX_HEADER)
        if not 2 * tarfile.BLOCKSIZE <= len(end) <= MAX_HEADER or end.strip(b"\0"):
            raise BadFile(f"{name}: expected a header or zeros at the end, got a damaged archive; get the file again")


def inflate(content: bytes | memoryview, name: str, limit: int) -> bytes:
    """Unpack a single gzip or zlib stream to at most `limit` bytes (see `max_unpacked`)."""
    limit = max_unpacked(len(content), limit)
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    with reading(name, "compressed bytes"):
        unpacked = stream.decompress(content, limit + 1)
    if len(unpacked) > limit:
        raise BadFile(f"{name}: expected at most {limit} bytes when unpacked, got more; is it the right file?")
    if not stream.eof or stream.unused_data:
        raise BadFile(f"{name}: expected one compressed stream, got a part or more than one; get the file again")
    return unpacked


def _checked(
    entries: Iterator[_Entry], name: str, limit: int, count: int, wanted: Wanted, largest: int | None
) -> Iterator[tuple[str, bytes]]:
    seen, left = set(), limit
    for raw, size, kind, read in entries:
        parts = raw.replace("\\", "/").split("/")
        if raw[:1] in ("", "/", "\\") or raw[1:2] == ":" or ".." in parts or len(raw) > 1024 or not raw.isprintable():
            raise BadFile(f"{name}: expected names inside its folder, got {raw[:80]!r}; make the archive again")
        if kind not in ("a file", "a folder") or size < 0:
            raise BadFile(f"{name}: expected plain files, got {raw!r}, {kind}; make the archive again")
        if kind == "a folder":
            continue
        member = "/".join(part for part in parts if part not in ("", "."))
        if member in seen or not member:
            raise BadFile(f"{name}: expected each name once, got {member!r} again; make the archive again")
        seen.add(member)
        keep = wanted(member)
        left -= size if keep else 0
        if left < 0 or len(seen) > count or (keep and size > (largest or limit)):
            most = f"{count} files and {limit} bytes when unpacked, {largest or limit} in each"
            raise BadFile(f"{name}: expected at most {most}, got more at {member!r}; is it the right file?")
        if keep:
            content = read()
            if len(content) != size:
                raise BadFile(f"{name}: expected {size} bytes in {member!r}, got {len(content)}; get the file again")
            yield member, content


def _zip_entries(archive: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in archive.infolist():
        kind = "a folder" if info.is_dir() else "a file"
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            kind = "encrypted or packed by another method than deflate"
        elif stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a link or a device"
        # Without a size, zipfile inflates beyond the declared one.
        yield info.filename, info.file_size, kind, lambda info=info: archive.open(info).read(info.file_size)


def _tar_entries(stream: "_Metered") -> Iterator[_Entry]:
    archive = tarfile.TarFile(fileobj=stream, tarinfo=_Header)
    while (info := archive.next()) is not None:
        plain = info.isreg() and not info.issparse()
        kind = "a folder" if info.isdir() else "a file" if plain else "a link, a device or a sparse file"
        contents = archive.extractfile(info) if plain else None
        stream.left = max(info.size, 0)
        yield info.name, info.size, kind, contents.read if contents else bytes
        stream.left = MAX_HEADER
        archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]; tarfile keeps all members
        archive.pax_headers = {}


class _Header(tarfile.TarInfo):
    """A tar header that raises an error if it is damaged, where tarfile would take it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if type(error).__name__ in ("EOFHeaderError", "EmptyHeaderError"):  # a block of zeros, or the end
                raise
            raise tarfile.ReadError(str(error)) from None


class _Metered(BufferedIOBase):
    """A stream for tarfile that refuses to read more than `left`, whatever sizes a header declares."""

    def __init__(self, file: BufferedIOBase):
        self.file, self.seek, self.tell = file, file.seek, file.tell
        self.left, self.last = MAX_HEADER, b""

    def read(self, size: int | None = -1, /) -> bytes:
        size = -1 if size is None else size
        self.left -= size
        if self.left < 0 or size < 0:
            raise tarfile.ReadError("a header that is too long")
        self.last = self.file.read(size)
        return self.last
