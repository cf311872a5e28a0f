"""Posterior means as features of images, and how much a linear classifier reads from them."""

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_softmax

from vages.posteriors import posterior_means
from vages.runs.kept import Kept, keep, new_folder
from vages.runs.loaded import LoadedRun
from vages.samplers.program import Progress


class Probe(NamedTuple):
    """A classifier's accuracy on test examples, its binomial standard error, and whether training came to its end."""

    accuracy: float
    standard_error: float
    converged: bool


def embed(run: LoadedRun, out: Path | None = None, *, progress: Progress | None = None) -> Kept:
    """Write the posterior means of all images, and the accuracies of linear classifiers on the test images.

    The classifiers are trained on the training images alone: on their means, and on their pixels to compare with.
    """
    if not run.has_latents:
        raise ValueError(
            f"run: expected a model with latents, got {run.path}, a plain EBM, which has no means to embed"
        )
    splits, labels = run.images.splits, run.images.labels
    with new_folder(run, "embedding", out) as folder:
        began = time.perf_counter()
        means = posterior_means(run.model, run.posterior, np.concatenate(splits), progress=progress)
        cuts = np.cumsum([len(part) for part in splits])[:2]
        arrays = dict(zip(splits._fields, np.split(means, cuts), strict=True))
        about: dict[str, Any] = {"protocol": "the mean of q(h | v) for each image"}
        if labels is not None:
            arrays |= {f"{name}_labels": part for name, part in labels._asdict().items()}
            if len(labels.test):
                pixels = [part.reshape(len(part), -1) for part in (splits.train, splits.test)]
                about["linear probe"] = {
                    "trained on": len(labels.train),
                    "tested on": len(labels.test),
                    "means": linear_probe(arrays["train"], labels.train, arrays["test"], labels.test)._asdict(),
                    "pixels": linear_probe(pixels[0], labels.train, pixels[1], labels.test)._asdict(),
                    "most frequent class": majority_rate(labels.train, labels.test),
                }
        return keep(folder, "embedding", run, arrays, about | {"seconds": time.perf_counter() - began})


def linear_probe(
    train: Float[np.ndarray, "train dim"],
    train_labels: Int[np.ndarray, "train"],
    test: Float[np.ndarray, "test dim"],
    test_labels: Int[np.ndarray, "test"],
) -> Probe:
    """Multinomial logistic regression on standardised features, its accuracy on the test examples.

    The penalty is that of a standard normal prior of every weight; the intercepts are free. Nothing of it is tuned.
    """
    mean, std = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
    std[std == 0] = 1
    weights, converged = logistic_regression((train - mean) / std, train_labels)
    scores = ((test - mean) / std) @ weights[:-1] + weights[-1]
    rate = float((scores.argmax(axis=1) == test_labels).mean())
    return Probe(rate, math.sqrt(rate * (1 - rate) / len(test)), converged)


def logistic_regression(
    features: Float[np.ndarray, "n dim"], labels: Int[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "dim+1 classes"], bool]:
    """The weights, and last the intercepts, that minimise mean(−log p(label | features)) + |weights|² / 2n.

    L-BFGS in coordinates u = Lᵀ · weights, where L Lᵀ is the curvature at 0, so that it is the identity there. The
    second value says whether no entry of the gradient is above 1e-4, which leaves the loss right to some 1e-8.
    """
    rows, classes = len(features), int(labels.max()) + 1
    features = np.concatenate([features, np.ones((rows, 1))], axis=1)
    penalty = np.append(np.ones(features.shape[1] - 1), 0) / rows
    lower = cholesky(features.T @ features / (rows * classes) + np.diag(penalty), lower=True)
    right = np.eye(classes)[labels]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = solve_triangular(lower, flat.reshape(-1, classes), lower=True, trans=1)
        log_p = log_softmax(features @ weights, axis=1)
        gradient = features.T @ (np.exp(log_p) - right) / rows + penalty[:, None] * weights
        value = 0.5 * np.sum(penalty[:, None] * weights**2) - np.sum(log_p * right) / rows
        return value, solve_triangular(lower, gradient, lower=True).reshape(-1)

    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 0.0, "gtol": 1e-4}
    found = minimize(loss, np.zeros(len(lower) * classes), jac=True, method="L-BFGS-B", options=options)
    weights = solve_triangular(lower, found.x.reshape(-1, classes), lower=True, trans=1)
    return weights, bool(np.abs(found.jac).max() <= options["gtol"])


def majority_rate(train_labels: Int[np.ndarray, "train"], test_labels: Int[np.ndarray, "test"]) -> float:
    """The accuracy of always guessing the most frequent class of the training examples."""
    return float((test_labels == np.bincount(train_labels).argmax()).mean())
