"""What any model should beat: the Gaussian with the mean and covariance of the data."""

from typing import Any

import numpy as np
from jaxtyping import Float, Num

_THIN = 1e-6  # the least variance over the largest; below it, a likelihood is that of the thinnest direction


def gaussian_log_density(
    train: Num[Any, "n ..."], v: Num[Any, "m ..."], noise: float = 0.0, *, noisy: bool = False
) -> Float[np.ndarray, "m"] | None:
    """log p(v) of the Gaussian with the mean and covariance of the rows of `train` with `noise` on them.

    `noisy` takes the mean over noise on v as well. None where the data lie on a plane, or nearly: such a Gaussian is as
    likely as the plane is thin.
    """
    train, v = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (train, v))
    if len(train) < 2:
        return None
    covariance = np.cov(train, rowvar=False).reshape(v.shape[1], -1) + noise**2 * np.eye(v.shape[1])
    variances, directions = np.linalg.eigh(covariance)
    if not variances[0] > _THIN * variances[-1]:
        return None
    squares = ((v - train.mean(axis=0)) @ directions) ** 2
    logs = -np.sum(squares / variances + np.log(2 * np.pi * variances), axis=1) / 2
    return logs - noise**2 * np.sum(1 / variances) / 2 if noisy else logs
