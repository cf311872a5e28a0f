"""Download of a file, with a size limit and a verified checksum."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from vages.files import BadFile

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and, if the server reports it, the total."""

_CHUNK = 2**18
_TIMEOUT = 30.0


def download(url: str, path: Path, limit: int, digest: str, progress: Progress | None = None) -> None:
    """Stream a URL to a file of at most `limit` bytes, whose `digest` is "md5:…" or "sha256:…".

    The bytes go to a temporary file next to `path`, which is renamed once the digest is correct and removed otherwise.
    A failed or interrupted connection raises `ConnectionError`; a wrong or too large file raises `BadFile`.
    """
    kind, expected = digest.split(":")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside, hashed = path.with_name(f".{path.name}.{os.getpid()}.part"), hashlib.new(kind, usedforsecurity=False)
    try:
        with aside.open("wb") as file:
            for chunk in _chunks(url, limit, progress):
                hashed.update(chunk)
                file.write(chunk)
        if (got := hashed.hexdigest()) != expected:
            raise BadFile(f"{url}: expected a file with {kind} {expected}, got {got}; try again later")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _chunks(url: str, limit: int, progress: Progress | None) -> Iterator[bytes]:
    request = urllib.request.Request(url, headers={"User-Agent": "vages"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            come = 0
            while chunk := response.read(_CHUNK):
                come += len(chunk)
                if max(come, total or 0) > limit:
                    raise BadFile(f"{url}: expected at most {limit} bytes, got more; try again later")
                yield chunk
                if progress is not None:
                    progress(come, total)
            if total is not None and come != total:
                raise ConnectionError(f"the connection ended after {come} of {total} bytes")
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it keeps the connection open
        reason = str(getattr(error, "reason", "") or error or type(error).__name__).splitlines()[0]
        raise ConnectionError(f"{url}: expected a download, got none ({reason})") from None
