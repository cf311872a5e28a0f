"""Means of q(h | v) for any number of v, computed in batches."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from vages.checks import check_context, check_own_context, on_shapes, struct_of, with_keys
from vages.models import EBLVM
from vages.posteriors.learnt import check_reads_context
from vages.posteriors.posterior import Posterior, infer


def posterior_means(
    model: EBLVM,
    posterior: Posterior,
    images: Float32[np.ndarray, "n ..."],
    *,
    context: Any = None,
    batch: int = 500,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Return the mean of q(h | v) for each image: an array (n, …), or a dict of arrays if h is a dict.

    `context` has a row for each image. `progress(done, total)` is called after every batch.
    """
    check_context(context, len(images))
    if context is not None:
        check_reads_context(posterior)
        check_own_context(context, posterior)
    expected, advice = f"q(h | v) of one image{with_keys(context)}", "are model and posterior made for these?"
    first = jax.tree.map(lambda x: struct_of(x, 1, drop=1), (images, context))
    on_shapes("posterior", expected, advice, infer, model, posterior, *first)
    means = [jax.tree.map(np.asarray, model.h.zeros(jnp.float32, 0))]
    for i in range(0, len(images), batch):
        some = slice(i, i + batch)
        rows = jax.tree.map(lambda x, some=some: jnp.asarray(x[some]), (images, context))
        means.append(jax.tree.map(np.asarray, _means(model, posterior, *rows)))
        if progress is not None:
            progress(min(i + batch, len(images)), len(images))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *means)


@eqx.filter_jit
def _means(model: EBLVM, posterior: Posterior, v: Array, context: Any) -> Any:
    return infer(model, posterior, v, context).mean
