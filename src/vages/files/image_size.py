"""What an image's bytes say of themselves before anything is decoded: its format and size, and that they are whole."""

import re
import struct
import zlib

from vages.files.errors import BadFile

_MAX_SCANS = 100  # of a progressive JPEG, which usually has 10; each costs a pass over the image
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # in a JPEG's scan: not an escaped byte, nor a restart


def image_size(content: bytes, name: str) -> tuple[str, int, int]:
    """The format, width and height of a PNG, JPEG or BMP image that fills its bytes exactly; `name` is for errors."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        kind, (width, height) = "PNG", _png(content, name)
    elif content.startswith(b"\xff\xd8\xff"):
        kind, (width, height) = "JPEG", _jpeg(content, name)
    elif content.startswith(b"BM"):
        kind, (width, height) = "BMP", _bmp(content, name)
    else:
        raise BadFile(f"{name}: expected a PNG, JPEG or BMP image, got {content[:8]!r}; convert it to PNG")
    if width < 1 or height < 1:
        raise BadFile(f"{name}: expected an image with pixels, got {width} × {height}; save it again")
    return kind, width, height


def _png(content: bytes, name: str) -> tuple[int, int]:
    """Walk over the chunks: each has a length, a type, data and a checksum."""
    at, size = 8, None
    while at + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        end = at + 12 + length
        if end > len(content):
            break
        if zlib.crc32(memoryview(content)[at + 4 : end - 4]) != int.from_bytes(content[end - 4 : end], "big"):
            raise BadFile(f"{name}: expected PNG chunks, got a damaged one at byte {at}; get the file again")
        if (kind == b"IHDR") != (size is None) or (kind == b"IHDR" and length != 13) or kind == b"acTL":
            raise BadFile(f"{name}: expected one still PNG image, got the chunk {kind!r} out of place; save it again")
        if size is None:
            size = struct.unpack_from(">II", content, at + 8)
        at = end
        if kind == b"IEND":
            if at != len(content):
                raise BadFile(f"{name}: expected a PNG image alone, got {len(content) - at} bytes more; save it again")
            return size
    raise BadFile(f"{name}: expected a whole PNG image, got one that is cut short; get the file again")


def _jpeg(content: bytes, name: str) -> tuple[int, int]:
    """Walk over the segments, and from marker to marker where a scan's data lie between."""
    at, size, scans = 2, None, 0
    while at + 2 <= len(content) and content[at] == 0xFF:
        code = content[at + 1]
        if code == 0xFF:  # a byte to fill
            at += 1
            continue
        if code == 0xD9:
            if at + 2 != len(content):
                raise BadFile(
                    f"{name}: expected a JPEG image alone, got {len(content) - at - 2} bytes more; save it again"
                )
            if size is None or not scans:
                break
            return size
        length = int.from_bytes(content[at + 2 : at + 4], "big")
        if code < 0xC0 or 0xD0 <= code <= 0xD8 or length < 2 or at + 2 + length > len(content):
            break
        if 0xC0 <= code <= 0xCF and code not in (0xC4, 0xC8, 0xCC):
            if code > 0xC2 or size is not None or length < 11 or content[at + 4] != 8:
                raise BadFile(f"{name}: expected one JPEG image of 8 bits, got another kind; convert it to PNG")
            height, width = struct.unpack_from(">HH", content, at + 5)
            size = width, height
        at += 2 + length
        if code == 0xDA:
            scans += 1
            following = _MARKER.search(content, at)
            if following is None or scans > _MAX_SCANS:
                break
            at = following.start()
    raise BadFile(
        f"{name}: expected a whole JPEG image, got a damaged one or one that is cut short; get the file again"
    )


def _bmp(content: bytes, name: str) -> tuple[int, int]:
    """Rows of whole words without compression, which fill the rest of the file."""
    if len(content) >= 54:
        total, start, header, width, height, planes, bits, packing = struct.unpack_from("<I4xIIiiHHI", content, 2)
        rows = (width * bits + 31) // 32 * 4 * abs(height)
        known = header in (40, 52, 56, 108, 124) and planes == 1 and bits in (1, 4, 8, 16, 24, 32) and packing in (0, 3)
        if known and start >= 14 + header and width > 0 and total == start + rows == len(content):
            return width, abs(height)
    raise BadFile(f"{name}: expected a whole, uncompressed BMP image, got something else; convert it to PNG")
