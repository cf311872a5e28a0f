"""Whether samples are copies: how near they are to training examples, measured by how near these are to each other."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_BLOCK = 2**24  # distances, or numbers of examples, at once


class Nearness(NamedTuple):
    """Median distances to the nearest training example.

    `ratio` is about 1 where samples are as far from the training examples as these are from each other, and near 0
    where they are copies. With few examples and a large model, copies are what training to the end gives.
    """

    of_samples: float
    of_training: float
    """Of a training example to the nearest other one."""

    @property
    def ratio(self) -> float | None:
        """The first over the second; None where most training examples have a duplicate, and copies cannot be told."""
        return self.of_samples / self.of_training if self.of_training else None


def nearness(samples: np.ndarray, train: np.ndarray, *, most: int = 10_000) -> Nearness:
    """The nearness of samples that are finite to training examples, of which the first `most` are looked at."""
    rows, others = (np.asarray(x).reshape(len(x), -1) for x in (samples, train[:most]))
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows) or len(others) < 2:
        raise ValueError(
            f"samples: expected one or more, and two training examples, got {len(rows)} and {len(others)}; give more"
        )
    between = nearest_distances(others[:1000], others, apart=True)
    return Nearness(float(np.median(nearest_distances(rows, others))), float(np.median(between)))


def nearest_distances(
    rows: Float[np.ndarray, "n ..."], others: Float[np.ndarray, "m ..."], *, apart: bool = False
) -> Float[np.ndarray, "n"]:
    """The distance of each row to the nearest of the others, in float64; 0 where it is within the rounding of squares.

    Rows `apart` are the first of the others themselves.
    """
    center = others.mean(axis=0, dtype=np.float64)
    rows = (rows - center).reshape(len(rows), -1)
    own, found = np.sum(rows**2, axis=1)[:, None], np.full(len(rows), np.inf)
    rounding = (10 + rows.shape[1]) * np.finfo(np.float64).eps
    block = max(1, _BLOCK // max(rows.shape))
    for begin in range(0, len(others), block):
        some = (others[begin : begin + block] - center).reshape(-1, rows.shape[1])
        sums = own + np.sum(some**2, axis=1)
        distances = sums - 2 * rows @ some.T
        distances[distances < rounding * sums] = 0
        if apart:
            both = np.arange(begin, min(begin + block, len(rows)))
            distances[both, both - begin] = np.inf
        found = np.minimum(found, distances.min(axis=1))
    return np.sqrt(found)
