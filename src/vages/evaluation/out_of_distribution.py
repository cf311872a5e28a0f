"""Out-of-distribution detection by a density: AUROC of log p(v), and of typicality.

AUROC is the area under the ROC curve: the probability that an example of other data has a higher outlier score than one
of the model's own data. It is 1 for perfect separation, 0.5 for chance, and 0 if all pairs are wrong. Common scores:

    −log p(v)                                an unknown log Z shifts all scores equally, so that energies suffice
    |log p(v) − mean log p(training data)|   typicality (Nalisnick et al. 2019), which also detects too high a density
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from vages.checks import told
from vages.evaluation.estimate import Estimate


class OutOfDistribution(NamedTuple):
    """AUROC of two scores for one set of other data, each with its standard error."""

    density: Estimate  # of −log p(v)
    typicality: Estimate  # of the distance of log p(v) from its mean over training examples


def out_of_distribution(train: Any, test: Any, other: Any) -> OutOfDistribution:
    """Compute how well log p(v) separates `other` data from `test` data.

    **Arguments**

    - `train`: log p(v) of training examples, whose mean is the typical value.
    - `test`: log p(v) of examples of the same data that were not trained on.
    - `other`: log p(v) of examples of other data. All three may omit the same constant.
    """
    test, other = _checked("test", test), _checked("other", other)
    return OutOfDistribution(auroc(-test, -other), auroc(typicality(test, train), typicality(other, train)))


def typicality(log_density: Any, train: Any) -> Float64[np.ndarray, "n"]:
    """Return |log p(v) − its mean over training examples|, which is large if v is less or more likely than these."""
    typical = float(_checked("train", train).mean())
    if not math.isfinite(typical):
        raise ValueError(
            f"train: expected log densities with a finite mean, got {typical}; the model excludes training examples"
        )
    return np.abs(_checked("log_density", log_density) - typical)


def auroc(inside: Any, outside: Any) -> Estimate:
    """Return the probability that a score of `outside` is above one of `inside`, counting ties half, and its error.

    The standard error is that of DeLong et al. (1988), over both sets. It is 0 if the sets do not overlap: then, with n
    scores in the smaller set, the true value is within about 3 / n of 0 or 1 at 95 % confidence.
    """
    inside, outside = _checked("inside", inside), _checked("outside", outside)
    ranks = _midranks(np.concatenate([inside, outside]))
    # for each score, the fraction of the other set below it, with ties counted half
    beaten_by = (ranks[: len(inside)] - _midranks(inside)) / len(outside)
    beats = (ranks[len(inside) :] - _midranks(outside)) / len(inside)
    error = math.sqrt(beaten_by.var(ddof=1) / len(inside) + beats.var(ddof=1) / len(outside))
    return Estimate(float(beats.mean()), error)


def _midranks(scores: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Return ranks from 1; equal scores share the mean of their ranks."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _checked(name: str, values: Any) -> Float64[np.ndarray, "n"]:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"{name}: expected a row of two numbers or more, got {told(values.shape)}; give more")
    if missing := int(np.isnan(values).sum()):
        raise ValueError(f"{name}: expected numbers, got NaN {missing} times in {len(values)}; leave these out")
    return values
