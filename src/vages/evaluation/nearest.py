"""Whether samples are copies: how near they are to training examples, measured by how near these are to each other."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_BLOCK = 2**24  # distances at once, at most


class Nearness(NamedTuple):
    """Median distances to the nearest training example.

    `ratio` is about 1 where samples are as far from the training examples as these are from each other, and near 0
    where they are copies. With few examples and a large model, copies are what training to the end gives.
    """

    of_samples: float
    of_training: float
    """Of a training example to the nearest other one."""

    @property
    def ratio(self) -> float:
        """The first over the second."""
        return self.of_samples / self.of_training if self.of_training else float("nan")


def nearness(samples: np.ndarray, train: np.ndarray, *, most: int = 10_000) -> Nearness:
    """The nearness of samples that are finite to training examples, of which the first `most` are looked at."""
    rows, others = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (samples, train[:most]))
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows) or len(others) < 2:
        raise ValueError(
            f"samples: expected one or more, and two training examples, got {len(rows)} and {len(others)}; give more"
        )
    return Nearness(
        float(np.median(_nearest(rows, others))), float(np.median(_nearest(others[:1000], others, apart=True)))
    )


def _nearest(
    rows: Float[np.ndarray, "n d"], others: Float[np.ndarray, "m d"], *, apart: bool = False
) -> Float[np.ndarray, "n"]:
    """The distance of each row to the nearest of the others; rows `apart` are the first of these themselves."""
    squares, found = np.sum(others**2, axis=1), []
    block = max(1, _BLOCK // len(others))
    for begin in range(0, len(rows), block):
        some = rows[begin : begin + block]
        distance = np.sum(some**2, axis=1)[:, None] + squares - 2 * some @ others.T
        if apart:
            distance[np.arange(len(some)), np.arange(begin, begin + len(some))] = np.inf
        found.append(np.sqrt(np.maximum(distance.min(axis=1), 0)))
    return np.concatenate(found)
