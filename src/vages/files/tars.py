"""The members of a tar archive, one after the other, in memory: POSIX and GNU, as plain bytes or through gzip."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase

from vages.files.errors import BadFile
from vages.files.names import member_name

_BLOCK, _CHUNK = 512, 2**20
_FILE, _FOLDER, _LONG_NAME, _PAX, _GLOBAL_PAX = (b"0", b"\0", b"7"), b"5", b"L", b"x", b"g"
_MAX_HEADER = 65_536
_MAX_PADDING = 2**20
_RECORD = re.compile(rb"(\d{1,6}) ([^=\n\0]+)=")


def tar_members(
    file: BufferedIOBase,
    name: str,
    limit: int,
    count: int,
    gzipped: bool,
    wanted: Callable[[str], bool] = lambda member: True,
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files in a tar archive, read once from its beginning to its end.

    At most `count` members of at most `limit` bytes together, wanted or not: a member's size is checked before it is
    read. `name` is for errors. Links, devices and names outside the archive's folder are refused.
    """
    stream = gzip.GzipFile(fileobj=file, mode="rb") if gzipped else file
    names, headers, left, long_name = set(), 0, limit, None
    while (header := _take(stream, _BLOCK, name)) != bytes(_BLOCK):
        headers += 1
        size = _checked_size(header, name)
        left -= size
        if left < 0 or headers > 2 * count:  # a long name has a header of its own
            raise BadFile(f"{name}: expected at most {count} members of {limit} bytes, got more; is it the right file?")
        kind = header[156:157]
        if kind in (_LONG_NAME, _PAX, _GLOBAL_PAX):
            if size > _MAX_HEADER or (long_name is not None and kind != _GLOBAL_PAX):
                raise BadFile(f"{name}: expected one name a member, got more, or a long one; make the archive again")
            extended = _take(stream, size, name)
            _take(stream, -size % _BLOCK, name)
            if kind == _LONG_NAME:
                long_name = extended.rstrip(b"\0")
            elif (path := _pax_path(extended, name)) is not None:
                if kind == _GLOBAL_PAX:
                    raise BadFile(f"{name}: expected a name a member, got one for all; make the archive again")
                long_name = path
            continue
        member, folder = _member(header, long_name, name)
        long_name = None
        if folder:
            if size:
                raise BadFile(f"{name}: expected an empty folder {member!r}, got {size} bytes; make the archive again")
            continue
        if member in names or not member:
            raise BadFile(f"{name}: expected each name once, got {member!r} again; make the archive again")
        names.add(member)
        content = _take(stream, size, name, keep := wanted(member))
        _take(stream, -size % _BLOCK, name)
        if keep:
            yield member, content
    _check_end(stream, name, long_name)


def _checked_size(header: bytes, name: str) -> int:
    """The size of what follows a header, whose magic and checksum are right."""
    if header[257:262] != b"ustar":
        raise BadFile(f"{name}: expected a tar archive, got another format; is it the right file?")
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _octal(header[148:156], name) != total:
        raise BadFile(f"{name}: expected a member's header, got a damaged one; get the file again")
    field = header[124:136]
    return int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field, name)


def _octal(field: bytes, name: str) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(b"[0-7]+", digits):
        raise BadFile(f"{name}: expected an octal number, got {field!r}; get the file again")
    return int(digits, 8)


def _pax_path(records: bytes, name: str) -> bytes | None:
    """The name in an extended header, if it has one; a size there would be a second opinion."""
    path, at = None, 0
    while at < len(records):
        record = _RECORD.match(records, at)
        end = at + int(record[1]) if record else 0
        if record is None or end <= record.end() or records[end - 1 : end] != b"\n":
            raise BadFile(f"{name}: expected an extended header, got a damaged one; get the file again")
        if record[2] == b"size" or record[2].startswith(b"GNU.sparse") or (path and record[2] == b"path"):
            raise BadFile(f"{name}: expected plain files, got the field {record[2]!r}; make the archive again")
        if record[2] == b"path":
            path = records[record.end() : end - 1]
        at = end
    return path


def _member(header: bytes, long_name: bytes | None, name: str) -> tuple[str, bool]:
    """A member's name, and whether it is a folder."""
    kind = header[156:157]
    if kind not in _FILE and kind != _FOLDER:
        raise BadFile(
            f"{name}: expected files, got {header[:80].rstrip(bytes(1))!r}, a link or a device; make it again"
        )
    raw = header[:100].split(b"\0")[0]
    if header[262:263] == b"\0" and header[345]:  # POSIX; GNU keeps dates there
        raw = header[345:500].split(b"\0")[0] + b"/" + raw
    raw = raw if long_name is None else long_name
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise BadFile(f"{name}: expected names in UTF-8, got {raw[:80]!r}; make the archive again") from None
    return member_name(text, name), kind == _FOLDER or text.endswith("/")


def _check_end(stream: BufferedIOBase, name: str, long_name: bytes | None) -> None:
    """Another block of zeros, and then zeros alone; the end of a gzip stream verifies its checksum."""
    rest = _read(stream, _MAX_PADDING + 1, name)
    if len(rest) < _BLOCK or len(rest) > _MAX_PADDING or rest.strip(b"\0") or long_name is not None:
        raise BadFile(f"{name}: expected zeros behind the last member, got too few or other bytes; get the file again")


def _take(stream: BufferedIOBase, size: int, name: str, keep: bool = True) -> bytes:
    """Exactly `size` bytes; memory grows with what is there, not with what is asked for."""
    pieces, left = [], size
    while left:
        piece = _read(stream, min(left, _CHUNK), name)
        if not piece:
            raise BadFile(f"{name}: expected {size} bytes, got {size - left} and the end; get the file again")
        left -= len(piece)
        if keep:
            pieces.append(piece)
    return b"".join(pieces)


def _read(stream: BufferedIOBase, size: int, name: str) -> bytes:
    try:
        return stream.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadFile(f"{name}: expected a gzip stream, got a damaged one ({error}); get the file again") from None
