"""The share of the dependence between columns of the data that samples lack.

Let C be the covariance of one half of the data, in units of their spread, and D(x) = xᵀ(C + λ I)⁻¹x. The mean of D is
small for the other half, which varies in the same directions. It is large for data with permuted columns, which have
the same marginals and vary in all directions. Samples lie in between:

    lost = (D(samples) − D(data)) / (D(permuted) − D(data))

This is 0 for samples of the data's distribution and 1 for independent columns; 1 − r / ρ for two columns with
correlation r in place of ρ; and e / (1 + e) for standardized data with independent noise of variance e.
"""

import math
from typing import NamedTuple

import numpy as np

_RIDGE = 0.1  # λ, as a share of the mean variance: limits the weight of narrow directions
_ROWS = 300  # of samples, and of each half of the data
_COLUMNS = 2000  # that are used, chosen at random
_FEWEST = 30  # rows of samples and of each half, needed to estimate errors


class Dependence(NamedTuple):
    """The lost share, its standard error for a given C, and the strength of the dependence, D(permuted) / D(data)."""

    lost: float
    error: float
    strength: float


def lost_dependence(samples: np.ndarray, data: np.ndarray, *, noise: float = 0.0, each: bool = False) -> Dependence:
    """Return the dependence that rows of samples have lost compared with data, to which `noise` is added first.

    Each set is standardized as a whole, or with `each` per column, so means and spreads are not compared. With too few
    rows, or constant data, the result is unknown: the strength is 1 and the error infinite.
    """
    rng = np.random.default_rng(0)
    samples, data = samples[:_ROWS], rng.permutation(data)[: 2 * _ROWS]
    columns = np.flatnonzero(np.ptp(data, axis=0)) if each else rng.permutation(data.shape[1])[:_COLUMNS]
    if min(len(samples), len(data) // 2) < _FEWEST or not len(columns):
        return Dependence(0.0, math.inf, 1.0)
    data = data[:, columns] + noise * rng.normal(size=(len(data), len(columns)))
    samples, data = (_in_units(rows, each) for rows in (samples[:, columns], data))
    one, other = data[::2], data[1::2]
    inverse = np.linalg.inv(one @ one.T + _RIDGE * len(one) * np.eye(len(one)))  # by rows, as columns may be more

    def distances(rows: np.ndarray) -> tuple[float, float]:
        """Return the mean of D and its squared error, which includes that of the estimated units."""
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
    centered = rows - rows.mean(axis=0)
    scale = np.sqrt(np.mean(centered**2, axis=0 if each else None))  # not exactly 0 for constants, due to rounding
    return centered / np.maximum(scale, 1e-150)
