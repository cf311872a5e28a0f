"""How much of the dependence between the columns of data is lost in samples: the smallest test that sees noise.

With C the covariance of a half of the data, in units of their spread, and D(x) = xᵀ(C + λ I)⁻¹x, the mean of D is small
for the other half, which varies where C does, and large where columns are permuted, which have the same marginals and
vary everywhere. Samples stand between them:

    lost = (D(samples) − D(data)) / (D(permuted) − D(data))

It is 0 for samples of the data's distribution and 1 for independent columns; 1 − r / ρ for two columns with the
correlation r in place of ρ; and e / (1 + e) for standardized data with independent noise of variance e.
"""

import math
from typing import NamedTuple

import numpy as np

_RIDGE = 0.1  # λ, of the mean variance: directions that are narrower count as this wide
_ROWS = 300  # of samples, and of each half of the data
_COLUMNS = 2000  # that are looked at, chosen at random
_FEWEST = 30  # rows of samples and of each half, for errors that can be told


class Dependence(NamedTuple):
    """What samples have lost, its standard error for a given C, and how strong it is, D(permuted) / D(data)."""

    lost: float
    error: float
    strength: float


def lost_dependence(samples: np.ndarray, data: np.ndarray, *, noise: float = 0.0, each: bool = False) -> Dependence:
    """Of rows of samples beside rows of data, to which `noise` is added, as samples have it.

    The mean and the spread are those of each set, or of `each` column of it, and are not compared. With too few rows,
    or none that vary, nothing is known: the strength is 1, and the error infinite.
    """
    rng = np.random.default_rng(0)
    samples, data = samples[:_ROWS], rng.permutation(data)[: 2 * _ROWS]
    columns = np.flatnonzero(np.ptp(data, axis=0)) if each else rng.permutation(data.shape[1])[:_COLUMNS]
    if min(len(samples), len(data) // 2) < _FEWEST or not len(columns):
        return Dependence(0.0, math.inf, 1.0)
    data = data[:, columns] + noise * rng.normal(size=(len(data), len(columns)))
    samples, data = (_in_units(rows, each) for rows in (samples[:, columns], data))
    one, other = data[::2], data[1::2]
    inverse = np.linalg.inv(one @ one.T + _RIDGE * len(one) * np.eye(len(one)))  # of rows, as columns may be more

    def distances(rows: np.ndarray) -> tuple[float, float]:
        """The mean of D, and the square of its error, where the units of the rows are estimates too."""
        products = rows * (rows - rows @ one.T @ inverse @ one) / _RIDGE
        share = products.mean(axis=0) if each else products.mean()
        return float(products.sum(axis=1).mean()), float(np.sum(products - share * rows**2, axis=1).var() / len(rows))

    found = [distances(rows) for rows in (samples, other, rng.permuted(other, axis=0))]
    own, usual, most = (mean for mean, _ in found)
    if not most > usual:
        return Dependence(0.0, math.inf, 1.0)
    lost = (own - usual) / (most - usual)
    variance = sum(slope**2 * square for slope, (_, square) in zip((1, 1 - lost, lost), found, strict=True))
    return Dependence(lost, math.sqrt(variance) / (most - usual), most / usual)


def _in_units(rows: np.ndarray, each: bool) -> np.ndarray:
    centred = rows - rows.mean(axis=0)
    scale = np.sqrt(np.mean(centred**2, axis=0 if each else None))  # about 0, where the mean of a constant is rounded
    return centred / np.maximum(scale, 1e-150)
