"""Detection of copies: distances of samples to training examples, relative to distances between these."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vages.checks import check_count, check_finite, check_numbers

_BLOCK = 2**24  # distances, or numbers of examples, in memory at once


class Nearness(NamedTuple):
    """Median distances to the nearest training example.

    `ratio` is about 1 if samples are as far from the training examples as these are from each other, and near 0 if they
    are copies. A large model that is trained on few examples until convergence produces copies.
    """

    of_samples: float
    of_training: float
    """The median distance of a training example to the nearest other one."""

    @property
    def ratio(self) -> float | None:
        """of_samples / of_training; None if most training examples have duplicates, which hide copies."""
        return self.of_samples / self.of_training if self.of_training else None


def nearness(samples: np.ndarray, train: np.ndarray, *, most: int = 10_000) -> Nearness:
    """Return the nearness of the finite samples to the first `most` training examples."""
    for name, one in (("samples", samples), ("train", train)):
        check_numbers(name, one, floating=False)
    if not samples.ndim or not train.ndim or samples.shape[1:] != train.shape[1:]:
        raise ValueError(
            f"samples: expected rows like those of train, of shape {train.shape}, got {samples.shape}; reshape them"
        )
    check_count("most", most, 2, "10,000 is usual")
    check_finite("train", train)
    rows, others = (np.reshape(x, (len(x), math.prod(x.shape[1:]))) for x in map(np.asarray, (samples, train[:most])))
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows) or len(others) < 2:
        raise ValueError(
            f"samples: expected a finite one or more, and two training examples, got {len(rows)} and {len(others)}; "
            "give more"
        )
    between = nearest_distances(others[:1000], others, apart=True)
    return Nearness(float(np.median(nearest_distances(rows, others))), float(np.median(between)))


def nearest_distances(
    rows: Float[np.ndarray, "n ..."], others: Float[np.ndarray, "m ..."], *, apart: bool = False
) -> Float[np.ndarray, "n"]:
    """Return the distance of each row to the nearest of the others, in float64; 0 if it is within rounding errors.

    With `apart`, the rows are the first of the others, and a row is not compared with itself.
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
