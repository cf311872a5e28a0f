"""Samples cached in a run's folder until they are evaluated, so that a stopped evaluation can be resumed."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from vages import __version__
from vages.app.recipes.samples import Drawn, Remember, block_size
from vages.app.runs.config import config_of
from vages.app.runs.loaded import Run
from vages.storage.directory import Directory
from vages.storage.errors import BadFile
from vages.training.cluster import digest

_LIMIT = 2**31


@contextmanager
def kept_blocks(run: Run, count: int, sampling: float | None, **how: Any) -> Iterator[Remember]:
    """Cache the blocks of `Samples.draw` in RUN/drawn-DIGEST; the folder is removed unless an error occurs.

    The digest depends on the weights, the sampler, the seed and the version. A damaged block is drawn again. If the
    folder cannot be written, the evaluation continues without the cache.
    """
    size = block_size(count)
    about = {
        "arrays": digest((run.model, run.posterior)),
        "config": config_of(run.recipe.with_sampling(sampling)),
        "data": run.fingerprint if run.other is None else run.about_data,
        "version": __version__,
        **how,
    }
    name = f"drawn-{hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode()).hexdigest()[:16]}"
    with Directory(run.path) as directory, directory / name as folder:

        def remember(begin: int, draw: Callable[[], Drawn]) -> Drawn:
            file = f"{begin:08}.safetensors"
            with suppress(OSError, BadFile):
                return _parsed(folder.read_bytes(file, _LIMIT), size, run.model.v.shape[-2:])
            pixels, lost = draw()
            with suppress(OSError, BadFile):
                folder.create()
                folder.write_bytes(file, safetensors.numpy.save({"pixels": pixels, "lost": lost}))
            return pixels, lost

        yield remember
        folder.close()
        with suppress(OSError, BadFile):
            directory.remove(name)


def _parsed(content: bytes, size: int, sides: tuple[int, ...]) -> Drawn:
    """Return the block in a file; raise BadFile if it has none."""
    try:
        arrays = safetensors.numpy.load(content)
        pixels, lost = arrays["pixels"], arrays["lost"]
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
        raise BadFile("expected a block of samples, got a damaged one") from None
    right = (pixels.dtype, lost.dtype, lost.shape) == (np.uint8, np.bool_, (size,))
    if not right or pixels.shape != (size - int(lost.sum()), 3, *sides):
        raise BadFile(f"expected a block of {size} samples, got another")
    return pixels, lost
