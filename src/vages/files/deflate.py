"""Compressed bytes, inflated within a limit: a small file can stand for a thousand times its size."""

import zlib
from typing import Literal

from vages.files.errors import BadFile

_WINDOW = {"zlib": 15, "gzip": 31, "raw": -15}


def inflate(content: bytes | memoryview, name: str, limit: int, form: Literal["zlib", "gzip", "raw"]) -> bytes:
    """The one deflate stream that `content` is, of at most `limit` bytes; its checksum is verified where it has one."""
    stream = zlib.decompressobj(_WINDOW[form])
    try:
        inflated = stream.decompress(content, limit + 1)
    except zlib.error as error:
        raise BadFile(
            f"{name}: expected {form} compressed bytes, got damaged ones ({error}); get the file again"
        ) from None
    if len(inflated) > limit:
        raise BadFile(f"{name}: expected at most {limit} bytes when inflated, got more; is it the right file?")
    if not stream.eof:
        raise BadFile(f"{name}: expected {form} compressed bytes, got a file that is cut short; get the file again")
    if stream.unused_data:
        raise BadFile(
            f"{name}: expected {form} compressed bytes alone, got {len(stream.unused_data)} bytes behind their end; "
            "get the file again"
        )
    return inflated
