"""Memory limits, checked before anything is allocated."""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

_CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container


def memory_limit() -> int:
    """Return the bytes available to arrays: of the device's memory, or of the machine, container or process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):  # "max" means no limit
        limits.append(int(_CGROUP.read_text()))
    limits += [soft for soft in (resource.getrlimit(resource.RLIMIT_AS)[0],) if soft != resource.RLIM_INFINITY]
    return min(limits)


def check_memory(needed: Mapping[str, int], advice: str) -> None:
    """Raise ValueError if `needed`, lower bounds in bytes by purpose, add up to more than the limit."""
    total, limit = sum(needed.values()), memory_limit()
    if total > limit:
        largest = max(needed, key=lambda name: needed[name])
        raise ValueError(
            f"memory: expected at most the {gibibytes(limit)} available, got a need of at least {gibibytes(total)}, "
            f"mostly for {largest}; {advice}"
        )


def shape_bytes(tree: Any) -> int:
    """Return the total bytes of the `jax.ShapeDtypeStruct`s in a tree."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree) if isinstance(x, jax.ShapeDtypeStruct))


def gibibytes(size: int) -> str:
    """Format a size in GiB."""
    return f"{size / 2**30:,.1f} GiB"
