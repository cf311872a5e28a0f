"""The members of a zip archive, one after the other, in memory.

Python's zipfile reads the directory before it can be counted, and puts up with gaps, overlaps and bytes behind the
end; here every byte has its place: members, each within its own bytes, then the directory, then the end record.
"""

import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from typing import NamedTuple

from vages.files.deflate import inflate
from vages.files.errors import BadFile
from vages.files.names import member_name

_END, _END64, _LOCATOR64_SIZE = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), 20
_ENTRY, _LOCAL = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 0x2041, 0x0008, 0x0800
_STORED, _DEFLATED = 0, 8
_MAX_DESCRIPTOR = 24
_ENTRY_BYTES = 2048  # of the directory, a member, on average: the fixed part, the name and a few dates


class _Member(NamedTuple):
    name: str
    raw: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def zip_members(
    file: BufferedIOBase, name: str, limit: int, count: int, wanted: Callable[[str], bool] = lambda member: True
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files in a zip archive, in the order in which they lie there.

    At most `count` members, whose wanted ones have at most `limit` bytes together: both are checked before anything is
    inflated. `name` is for errors. Links, encrypted members and names outside the archive's folder are refused.
    """
    total = file.seek(0, 2)
    members, directory = _directory(file, name, total, count)
    size = sum(member.size for member in members if wanted(member.name))
    if size > limit:
        raise BadFile(f"{name}: expected at most {limit} bytes when unpacked, got {size}; is it the right file?")
    end = spare = 0
    for member in members:
        start = _data_start(file, name, member, total)
        if not end <= member.offset <= end + spare or start + member.packed > directory:
            raise BadFile(f"{name}: expected members side by side, got {member.name!r} elsewhere; make it again")
        end, spare = start + member.packed, _MAX_DESCRIPTOR if member.flags & _DESCRIPTOR else 0
        if wanted(member.name) and not member.raw.endswith(b"/"):
            yield member.name, _content(_at(file, start, member.packed), f"{name}, member {member.name!r}", member)
    if not end <= directory <= end + spare:
        raise BadFile(f"{name}: expected members alone, got {directory - end} bytes more; make the archive again")


def _directory(file: BufferedIOBase, name: str, total: int, count: int) -> tuple[list[_Member], int]:
    """The members in the order of their places, and where the directory begins."""
    tail = _at(file, max(total - _END.size - 0xFFFF, 0), min(total, _END.size + 0xFFFF))
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise BadFile(f"{name}: expected a zip archive, got none, or one that is cut short; get the file again")
    _, disk, first, here, entries, size, start, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        raise BadFile(f"{name}: expected the end record at the end, got other bytes behind it; get the file again")
    end = total - len(tail) + at
    large = _END64.size + _LOCATOR64_SIZE
    if end >= large and _at(file, end - _LOCATOR64_SIZE, 4) == b"PK\x06\x07":
        end -= large
        magic, _, _, _, disk, first, here, entries, size, start = _END64.unpack(_at(file, end, _END64.size))
        if magic != b"PK\x06\x06":
            raise BadFile(f"{name}: expected a large archive's end record, got {magic!r}; make the archive again")
    if disk or first or here != entries or start + size != end:
        raise BadFile(f"{name}: expected one archive of one piece, got an end record of another; make it again")
    if entries > count or size > entries * _ENTRY_BYTES:
        raise BadFile(f"{name}: expected at most {count} members, got {entries} in {size} bytes; is it the right file?")
    entry_bytes, at, members, names = _at(file, start, size), 0, [], set()
    for _ in range(entries):
        member, at = _entry(entry_bytes, at, name)
        if member.name in names:
            raise BadFile(f"{name}: expected each name once, got {member.name!r} twice; make the archive again")
        names.add(member.name)
        members.append(member)
    if at != size:
        raise BadFile(f"{name}: expected {entries} members, got {size - at} bytes more; make the archive again")
    return sorted(members, key=lambda member: member.offset), start


def _entry(data: bytes, at: int, name: str) -> tuple[_Member, int]:
    """One member by what the directory says, and the position behind it."""
    if len(data) - at < _ENTRY.size:
        raise BadFile(f"{name}: expected a whole directory, got one that is cut short; make the archive again")
    (magic, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment, disk, _, mode, offset) = (
        _ENTRY.unpack_from(data, at)
    )
    end = (extra_at := at + _ENTRY.size + name_size) + extra_size
    if magic != b"PK\x01\x02" or end + comment > len(data) or disk:
        raise BadFile(f"{name}: expected a member's entry, got something else; make the archive again")
    raw = data[at + _ENTRY.size : extra_at]
    try:
        text = raw.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise BadFile(f"{name}: expected names in UTF-8, got {raw[:80]!r}; make the archive again") from None
    member, folder = member_name(text, name), raw.endswith(b"/")
    if not folder and stat.S_IFMT(mode >> 16) not in (0, stat.S_IFREG):
        raise BadFile(f"{name}: expected files, got {member!r}, a link or a device; make the archive again")
    size, packed, offset = _large(data[extra_at:end], (size, packed, offset), name)
    if (folder and size) or not (folder or member):
        raise BadFile(f"{name}: expected files, got {text!r} with {size} bytes; make the archive again")
    known = method == _DEFLATED or (method == _STORED and packed == size)
    if flags & _ENCRYPTED or not known or packed > 2 * size + 64:
        raise BadFile(
            f"{name}: expected stored or deflated members, got {member!r} by method {method} with flags {flags:#x}, "
            f"{packed} for {size} bytes; make the archive again"
        )
    return _Member(member, raw, flags, method, crc, packed, size, offset), end + comment


def _large(extra: bytes, sizes: tuple[int, int, int], name: str) -> tuple[int, ...]:
    """The sizes and the offset, those that do not fit in 32 bits taken from the extra field."""
    found = list(sizes)
    while 0xFFFFFFFF in found and len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1:
            missing = [i for i, size in enumerate(found) if size == 0xFFFFFFFF]
            if length < 8 * len(missing) or len(extra) < 4 + length:
                break
            for i, value in zip(missing, struct.unpack_from(f"<{len(missing)}Q", extra, 4), strict=True):
                found[i] = value
            return tuple(found)
        extra = extra[4 + length :]
    if 0xFFFFFFFF in found:
        raise BadFile(f"{name}: expected the size of a large member, got none; make the archive again")
    return tuple(found)


def _data_start(file: BufferedIOBase, name: str, member: _Member, total: int) -> int:
    """Where a member's bytes begin: behind its own header, which must agree with the directory."""
    fixed = _at(file, member.offset, _LOCAL.size) if member.offset + _LOCAL.size <= total else bytes(_LOCAL.size)
    magic, _, _, method, _, _, _, _, _, name_size, extra_size = _LOCAL.unpack(fixed)
    if magic != b"PK\x03\x04" or method != member.method or name_size != len(member.raw):
        raise BadFile(f"{name}: expected the member {member.name!r}, got something else there; make the archive again")
    if _at(file, member.offset + _LOCAL.size, name_size) != member.raw:
        raise BadFile(f"{name}: expected the name {member.name!r}, got another there; make the archive again")
    return member.offset + _LOCAL.size + name_size + extra_size


def _content(packed: bytes, name: str, member: _Member) -> bytes:
    content = packed if member.method == _STORED else inflate(packed, name, member.size, "raw")
    if len(content) != member.size or zlib.crc32(content) != member.crc:
        raise BadFile(f"{name}: expected {member.size} bytes of its checksum, got others; get the file again")
    return content


def _at(file: BufferedIOBase, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)
