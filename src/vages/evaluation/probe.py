"""Linear probes: the accuracy of a linear classifier on features of examples."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_softmax

from vages.checks import check_classes, check_rows, check_some


class Probe(NamedTuple):
    """A classifier's accuracy on test examples, its binomial standard error, and whether training converged."""

    accuracy: float
    standard_error: float
    converged: bool


def linear_probe(
    train: Float[np.ndarray, "train dim"],
    train_labels: Int[np.ndarray, "train"],
    test: Float[np.ndarray, "test dim"],
    test_labels: Int[np.ndarray, "test"],
) -> Probe:
    """Fit multinomial logistic regression to standardized features and return its accuracy on the test examples.

    The penalty corresponds to a standard normal prior on every weight, with free intercepts. Nothing is tuned.
    """
    check_rows("train", train)
    check_rows("test", test, train.shape[1])
    check_classes("train_labels", train_labels, len(train))
    check_classes("test_labels", test_labels, len(test))
    train, test, train_labels, test_labels = map(np.asarray, (train, test, train_labels, test_labels))
    mean, std = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
    std[std == 0] = 1
    weights, converged = logistic_regression((train - mean) / std, train_labels)
    scores = ((test - mean) / std) @ weights[:-1] + weights[-1]
    rate = float((scores.argmax(axis=1) == test_labels).mean())
    return Probe(rate, math.sqrt(rate * (1 - rate) / len(test)), converged)


def logistic_regression(
    features: Float[np.ndarray, "n dim"], labels: Int[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "dim+1 classes"], bool]:
    """Return the weights, and last the intercepts, that minimize mean(−log p(label | features)) + |weights|² / 2n.

    The method is L-BFGS in coordinates u = Lᵀ · weights, where L Lᵀ is the curvature at 0 for weights with zero sum
    over classes. The second value is whether no entry of the gradient is above 1e-4; the loss is then accurate to about
    1e-8.
    """
    check_rows("features", features)
    check_classes("labels", labels, len(features))
    features, labels = np.asarray(features), np.asarray(labels)
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
    """Return the accuracy of always predicting the most frequent class of the training examples."""
    for name, labels in (("train_labels", train_labels), ("test_labels", test_labels)):
        check_classes(name, labels, np.size(labels))
        check_some(name, labels)
    return float((test_labels == np.bincount(train_labels).argmax()).mean())
