"""Samples cached in a run's folder until they are evaluated, so that a stopped evaluation can be resumed."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from vages.app.recipes.samples import Drawn, Remember, block_size
from vages.app.runs.config import config_of
from vages.app.runs.loaded import Run
from vages.environment import environment
from vages.storage.directory import Directory
from vages.storage.errors import BadFile
from vages.training.cluster import digest

_HEADER = 2**12  # bytes of a block's file at most, besides its pixels and flags


@contextmanager
def kept_blocks(run: Run, count: int, sampling: float | None, **how: Any) -> Iterator[tuple[Remember, list[float]]]:
    """Cache the blocks of `Samples.draw` in RUN/drawn-DIGEST until an evaluation has used them.

    Yield also a list of the seconds that blocks which were found there took to be drawn; it grows as they are read.
    The digest depends on the weights, the sampler, the seed, the block size, the versions and the kind of device. A
    damaged block is drawn again. If the folder cannot be written, the evaluation continues without the cache. After a
    successful evaluation the blocks that it used are removed, and no others.
    """
    size, used, earlier = block_size(count), set(), list[float]()
    about = {
        "arrays": digest((run.model, run.posterior)),
        "config": config_of(run.recipe.with_sampling(sampling)),
        "data": run.fingerprint if run.other is None else run.about_data,
        "size": size,
        "environment": {name: found for name, found in environment().items() if name in ("vages", "jax", "device")},
        **how,
    }
    name = f"drawn-{hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode()).hexdigest()[:16]}"
    with Directory(run.path) as directory, directory / name as folder:

        def remember(begin: int, draw: Callable[[], Drawn]) -> Drawn:
            file = f"{begin:08}.safetensors"
            used.add(file)
            sides = run.model.v.shape[-2:]
            folder.close()  # another evaluation may have removed the folder since
            with suppress(OSError, BadFile):
                content = folder.read_bytes(file, _HEADER + size * (1 + 3 * math.prod(sides)))
                drawn, seconds = _parsed(content, size, sides)
                earlier.append(seconds)
                return drawn
            began = time.perf_counter()
            pixels, lost = draw()
            seconds = np.array(time.perf_counter() - began)
            with suppress(OSError, BadFile):
                folder.create()
                arrays = {"pixels": pixels, "lost": lost, "seconds": seconds}
                folder.write_bytes(file, safetensors.numpy.save(arrays | {"sha256": _sha256(arrays)}))
            return pixels, lost

        yield remember, earlier
        folder.close()
        with suppress(OSError, BadFile):
            for file in used:
                folder.remove(file)
            folder.remove_empty()


def _parsed(content: bytes, size: int, sides: tuple[int, ...]) -> tuple[Drawn, float]:
    """Return the block in a file, and the seconds that it took; raise BadFile if it has none."""
    try:
        arrays = safetensors.numpy.load(content)
        found = arrays.pop("sha256")
        pixels, lost, seconds = arrays["pixels"], arrays["lost"], float(arrays["seconds"])
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
        raise BadFile("expected a block of samples, got a damaged one") from None
    right = (pixels.dtype, lost.dtype, lost.shape) == (np.uint8, np.bool_, (size,)) and 0 <= seconds < math.inf
    if not right or not np.array_equal(found, _sha256(arrays)) or pixels.shape != (size - int(lost.sum()), 3, *sides):
        raise BadFile(f"expected a block of {size} samples, got another")
    return (pixels, lost), seconds


def _sha256(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The digest of a block's arrays, as an array beside them."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(arrays[name].tobytes())
    return np.frombuffer(found.digest(), np.uint8)
