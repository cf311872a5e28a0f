"""A limit on the memory of this process, for tests of files that would fill it."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

HEADROOM = 2**26  # how much the process may grow while it reads files whose limit is 1 MiB


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Any allocation beyond 64 MiB fails with MemoryError (on Linux; elsewhere there is no such limit)."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(pages.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + HEADROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
