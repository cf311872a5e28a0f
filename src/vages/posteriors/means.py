"""The means of q(h | v) for any number of v, in batches."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from vages.models import EBLVM
from vages.posteriors.posterior import Posterior, infer


def posterior_means(
    model: EBLVM,
    posterior: Posterior,
    images: Float32[np.ndarray, "n ..."],
    *,
    batch: int = 500,
    progress: Callable[[int, int], object] | None = None,
) -> Float32[np.ndarray, "n ..."]:
    """The mean of q(h | v) for each image; `progress(done, total)` is called after every batch."""
    means = [np.zeros((0, *model.h.shape), np.float32)]
    for i in range(0, len(images), batch):
        means.append(np.asarray(_means(model, posterior, jnp.asarray(images[i : i + batch]))))
        if progress is not None:
            progress(min(i + batch, len(images)), len(images))
    return np.concatenate(means)


@eqx.filter_jit
def _means(model: EBLVM, posterior: Posterior, v: Array) -> Array:
    return infer(model, posterior, v).mean
