"""A baseline for densities: the Gaussian with the mean and covariance of the data."""

from typing import Any

import numpy as np
from jaxtyping import Float, Num

from vages.checks import check_some

_THIN = 1e-6  # least ratio of the smallest variance to the largest; below, the thinnest direction decides log p


def gaussian_log_density(
    train: Num[Any, "n ..."], v: Num[Any, "m ..."], noise: float = 0.0, *, noisy: bool = False
) -> Float[np.ndarray, "m"] | None:
    """Return log p(v) of the Gaussian with the mean and covariance of the rows of `train` with noise of std `noise`.

    With `noisy`, return the mean of log p over the same noise on v. Return None for fewer than two rows, or if the data
    lie almost on a hyperplane: log p would then only measure how thin they are.
    """
    check_some("v", v)
    if len(train) < 2:
        return None
    train, v = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (train, v))
    covariance = np.cov(train, rowvar=False).reshape(v.shape[1], -1) + noise**2 * np.eye(v.shape[1])
    variances, directions = np.linalg.eigh(covariance)
    if not variances[0] > _THIN * variances[-1]:
        return None
    squares = ((v - train.mean(axis=0)) @ directions) ** 2
    logs = -np.sum(squares / variances + np.log(2 * np.pi * variances), axis=1) / 2
    return logs - noise**2 * np.sum(1 / variances) / 2 if noisy else logs
