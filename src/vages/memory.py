"""How much memory there is, and a refusal of what cannot fit, before anything is allocated."""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

_CGROUP = Path("/sys/fs/cgroup/memory.max")  # what a container may use


def memory_limit() -> int:
    """Bytes that arrays can have: of the device's own memory, or of this machine's, container's or process's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):  # "max" is no limit
        limits.append(int(_CGROUP.read_text()))
    limits += [soft for soft in (resource.getrlimit(resource.RLIMIT_AS)[0],) if soft != resource.RLIM_INFINITY]
    return min(limits)


def check_memory(needed: Mapping[str, int], advice: str) -> None:
    """Raise ValueError where what is needed at least, in bytes by what it is for, is more than there is."""
    total, limit = sum(needed.values()), memory_limit()
    if total > limit:
        largest = max(needed, key=lambda name: needed[name])
        raise ValueError(
            f"memory: expected to need at most the {gibibytes(limit)} there are, got at least {gibibytes(total)}, "
            f"mostly for {largest}; {advice}"
        )


def shape_bytes(tree: Any) -> int:
    """Bytes of the arrays whose shapes are in a tree, as `eval_shape` gives them."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree) if isinstance(x, jax.ShapeDtypeStruct))


def gibibytes(size: int) -> str:
    """A size for a reader."""
    return f"{size / 2**30:,.1f} GiB"
