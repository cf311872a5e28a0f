"""The means of q(h | v) for any number of v, in batches."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
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
) -> Any:
    """The mean of q(h | v) for each image, an array (n, …), or a dict of them where h is one.

    `progress(done, total)` is called after every batch.
    """
    means = [jax.tree.map(np.asarray, model.h.zeros(jnp.float32, 0))]
    for i in range(0, len(images), batch):
        means.append(jax.tree.map(np.asarray, _means(model, posterior, jnp.asarray(images[i : i + batch]))))
        if progress is not None:
            progress(min(i + batch, len(images)), len(images))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *means)


@eqx.filter_jit
def _means(model: EBLVM, posterior: Posterior, v: Array) -> Any:
    return infer(model, posterior, v).mean
