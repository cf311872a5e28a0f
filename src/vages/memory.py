"""Memory limits, checked before anything is allocated."""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import jax

_GROUPS = Path("/sys/fs/cgroup")  # limits of containers and jobs
_OWN_GROUPS = Path("/proc/self/cgroup")


def memory_limit() -> int:
    """Return the bytes available to arrays: of the device's memory, or else of the host's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats["bytes_limit"]) if "bytes_limit" in stats else host_memory_limit()


def host_memory_limit() -> int:
    """Return the bytes available on the host: of the machine, the containers around this process, or the process."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_group_limits()]
    limits += [soft for soft in (resource.getrlimit(resource.RLIMIT_AS)[0],) if soft != resource.RLIM_INFINITY]
    return min(limits)


def _group_limits() -> list[int]:
    """Return the limits of the control groups of this process, and of the groups around them, of versions 1 and 2."""
    limits, groups = [], []
    with suppress(OSError):  # a system without control groups
        groups = [line.split(":", 2)[1:] for line in _OWN_GROUPS.read_text().splitlines()]
    for kinds, path in groups:
        if kinds and "memory" not in kinds.split(","):
            continue
        root, name = (_GROUPS / "memory", "memory.limit_in_bytes") if kinds else (_GROUPS, "memory.max")
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # "max" means no limit; a container does not see the groups around it
                limits.append(int((root / group / name).read_text()))
    return limits


def check_memory(needed: Mapping[str, int], advice: str, *, host: bool = False) -> None:
    """Raise ValueError if `needed`, lower bounds in bytes by purpose, add up to more than the limit.

    With `host`, that is the limit of the host's memory, even if arrays are computed on a device with its own.
    """
    total, limit = sum(needed.values()), host_memory_limit() if host else memory_limit()
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
