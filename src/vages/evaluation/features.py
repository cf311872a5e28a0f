"""Moments of Inception features of a stream of images, in one pass and float64, with the memory of one batch."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Float64, UInt8

from vages.checks import check_count, check_kind
from vages.evaluation.inception import Inception
from vages.evaluation.statistics import Statistics
from vages.nets.inception import Folded, inception_features

GROUPS = 5  # images are assigned to groups in turn; statistics of fewer images use fewer groups
BATCH = 250
KEPT = 10_000  # features kept for the KID
_AHEAD = 2  # batches by which the host may run ahead of the device


class Moments(NamedTuple):
    """The sum of the features in each group, the sum of their outer products, and some features."""

    n: int
    total: Float64[np.ndarray, "groups d"]
    outer: Float64[np.ndarray, "groups d d"]
    features: Float32[np.ndarray, "kept d"]
    images: str
    weights: str

    def statistics(self, groups: int = GROUPS) -> Statistics:
        """Return the statistics of all images, or of those in the first `groups` groups."""
        n = sum(len(range(group, self.n, GROUPS)) for group in range(groups))
        if n < 2:
            raise ValueError(f"images: expected at least two, got {n}; one has no covariance")
        mean = self.total[:groups].sum(axis=0) / n
        covariance = (self.outer[:groups].sum(axis=0) - n * np.outer(mean, mean)) / (n - 1)
        return Statistics(n, mean, covariance, self.features, self.images, self.weights)


def feature_moments(
    network: Inception,
    images: Iterable[UInt8[np.ndarray, "_ 3 height width"]],
    most: int,
    *,
    batch: int = BATCH,
    kept: int = KEPT,
    progress: Callable[[int, int], object] | None = None,
) -> Moments:
    """Compute the moments of up to `most` images, given in pieces of any length, with the memory of one batch.

    The features of `kept` random positions are kept, so that the images may be sorted.
    """
    check_kind("network", network, Inception, "the FID network", "load it with vages.evaluation.load_inception()")
    if batch < GROUPS or batch % GROUPS:
        raise ValueError(f"batch: expected a multiple of {GROUPS}, got {batch}")
    check_count("most", most, 1, "say how many images there are")
    batch = min(batch, -(-most // GROUPS) * GROUPS)
    keep = np.zeros(most, bool)
    keep[np.random.default_rng(0).permutation(most)[:kept]] = True
    n, shape, sha256, chosen, pending = 0, (), hashlib.sha256(), [], deque()

    def settle() -> None:
        features, rows = pending.popleft()
        chosen.append(np.asarray(features)[rows])

    size = _feature_count(network)
    with jax.enable_x64(True):
        sums = [jnp.zeros((GROUPS, size), jnp.float64), jnp.zeros((GROUPS, size, size), jnp.float64)]
    for pixels, count in _batches(images, batch):
        if n + count > most:
            raise ValueError(f"images: expected at most {most}, got more; say how many there are")
        sha256.update(pixels[:count].data)
        with jax.enable_x64(True):  # for the sums; the network is float32, and `images` is iterated outside
            *sums, features = _add(*sums, network.convs, jnp.asarray(pixels), jnp.asarray(count, jnp.int32))
        pending.append((features, np.flatnonzero(keep[n : n + count])))
        n, shape = n + count, pixels.shape[1:]
        if len(pending) > _AHEAD:
            settle()
        if progress is not None:
            progress(n, most)
    while pending:
        settle()
    total, outer = (np.array(x) for x in sums)
    if not (np.isfinite(total).all() and np.isfinite(outer).all()):
        raise ValueError("features: expected finite numbers, got NaN or infinity; is the device faulty?")
    features = np.concatenate([np.zeros((0, size), np.float32), *chosen])
    return Moments(n, total, outer, features, _with_shape(sha256, (n, *shape)), network.sha256)


def images_digest(pieces: Iterable[UInt8[np.ndarray, "_ 3 height width"]]) -> str:
    """Return the SHA-256 of a set of images: of the pixels and the shape."""
    n, shape, sha256 = 0, (), hashlib.sha256()
    for piece in pieces:
        sha256.update(np.ascontiguousarray(piece).data)
        n, shape = n + len(piece), piece.shape[1:]
    return _with_shape(sha256, (n, *shape))


@partial(jax.jit, donate_argnums=(0, 1))
def _add(total: Array, outer: Array, convs: dict[str, Folded], images: Array, count: Array) -> tuple[Array, ...]:
    """Add the first `count` images of a batch to the sums; return the sums and the features of the batch."""
    features = inception_features(convs, images)
    there = jnp.arange(len(images), dtype=jnp.int32) < count
    rows = jnp.where(there[:, None], features, 0).astype(jnp.float64)
    rows = rows.reshape(-1, GROUPS, rows.shape[-1])
    outer = outer + jnp.einsum("kgi,kgj->gij", rows, rows, precision="highest")
    return total + jnp.sum(rows, axis=0), outer, features


def _feature_count(network: Inception) -> int:
    image = jax.ShapeDtypeStruct((1, 3, 8, 8), jnp.uint8)
    return jax.eval_shape(inception_features, network.convs, image).shape[-1]


def _batches(pieces: Iterable[np.ndarray], batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield batches of one shape, the last padded with zeros, and the number of real images in each."""
    waiting, held = [], 0
    for piece in pieces:
        if piece.dtype != np.uint8 or piece.ndim != 4 or piece.shape[1] != 3 or 0 in piece.shape[2:]:
            raise ValueError(
                f"images: expected uint8 of shape (n, 3, height, width), got {piece.dtype} of {list(piece.shape)}; "
                "as_pixels makes them so"
            )
        if waiting and piece.shape[1:] != waiting[0].shape[1:]:
            raise ValueError(
                f"images: expected one size, got {list(waiting[0].shape[1:])} and {list(piece.shape[1:])}; resize them"
            )
        waiting.append(piece)
        held += len(piece)
        while held >= batch:
            joined = np.concatenate(waiting)
            yield np.ascontiguousarray(joined[:batch]), batch
            waiting, held = [joined[batch:]], held - batch
    if held:
        rest = np.concatenate(waiting)
        yield np.concatenate([rest, np.zeros((batch - held, *rest.shape[1:]), rest.dtype)]), held


def _with_shape(sha256: Any, shape: tuple[int, ...]) -> str:
    sha256.update(repr(shape).encode())
    return sha256.hexdigest()
