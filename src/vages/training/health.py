"""Is a run well? What its curves, its samples and its latents say; functions of numbers alone.

A warning says that something is wrong. A notice says what a model can be well without.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg

from vages.evaluation.nearest import nearest_distances
from vages.training.dependence import lost_dependence

FEWEST = 12  # points of a curve that are judged
_SURE = 6.0  # standard errors
_PAIRS = 500  # samples that are compared with each other
_COLUMNS = 20  # of a table, up to which each one is looked at, and all of them together
_LOST, _STRONG = 0.25, 2.5  # of a dependence between columns, and the strength from which on it is looked at
NOTICED_LOG_Z, _WRONG_LOG_Z = 0.02, 0.1  # nats of a normalized density that are noticed, and warned of


class Finding(NamedTuple):
    """What was seen, in a line: of which part of a run, and whether something is wrong with it."""

    of: Literal["data", "loss", "posterior", "gradient", "samples", "averages", "latents"]
    level: Literal["warning", "notice"]
    told: str


class Baseline(NamedTuple):
    """A model that has learnt nothing, and its loss, with a standard error."""

    of: str
    loss: float
    error: float = 0.0


def look_at_loss(values: np.ndarray, baseline: Baseline | None = None, *, ended: bool = True) -> list[Finding]:
    """Of a loss that is meant to fall, at the ends of chunks: whether it did, and, once it has ended, is not rising.

    `baseline` is that of a model that has learnt nothing.
    """
    if len(values) < FEWEST:
        return []
    if lost := int(np.sum(~np.isfinite(values))):
        return [_loss(f"is not finite at {lost} of {len(values)} points")]
    start, end = _window(values[: max(1, len(values) // 20)]), _window(values[-len(values) // 3 :])
    least = 0.01 * max(abs(start.median), abs(end.median))  # a change that counts
    if end.median - start.median > max(_SURE * _error(values, start, end), least):
        return [_loss(f"is above its start: {end.median:.4g} over the last third, {start.median:.4g} at first")]
    if baseline is not None:
        error = math.hypot(end.spread / math.sqrt(end.size), baseline.error)
        if end.median > 1.02 * baseline.loss + _SURE * error:
            told = f"{end.median:.4g} over the last third, not {baseline.loss:.4g}"
            return [_loss(f"is above that of {baseline.of}: {told}")]
    return _rising(values, start.median) if ended else []


def _rising(values: np.ndarray, start: float) -> list[Finding]:
    third = values[-len(values) // 3 :]
    parts = [_window(part) for part in np.array_split(third, 4)]
    before, after = parts[0], parts[-1]
    lowest = min(one.median for one in map(_window, np.array_split(values, 12)))
    rise, gained = after.median - before.median, max(start - lowest, 0.0)
    least = max(0.1 * gained, 0.002 * abs(after.median))
    grows = all(one.median < other.median for one, other in pairwise(parts))
    if grows and rise > max(_SURE * _error(third, before, after), least):
        return [_loss(f"rises over the last third, from {before.median:.4g} to {after.median:.4g}")]
    return []


def _loss(told: str) -> Finding:
    return Finding("loss", "warning", f"the loss {told}; try a smaller learning rate")


class _Window(NamedTuple):
    median: float
    spread: float
    size: int


def _window(values: np.ndarray) -> _Window:
    """The median of a stretch, and the noise of a point: of the differences of neighbours, which no trend touches."""
    steps = np.abs(np.diff(values))
    spread = float(np.median(steps)) / 0.954 if len(steps) else 0.0  # |N(0, 2)| has the median 0.954
    return _Window(float(np.median(values)), spread, len(values))


def _error(values: np.ndarray, one: _Window, other: _Window) -> float:
    """The standard error of the difference of two medians, where the noise is that of all the values."""
    noise = max(_window(values).spread, one.spread, other.spread)
    return 1.2533 * noise * math.sqrt(1 / one.size + 1 / other.size)


def look_at_gradient(values: np.ndarray) -> list[Finding]:
    """Of the norms of the gradient: whether they grew thirtyfold after the first third."""
    if len(values) < FEWEST:
        return []
    before, after = np.median(values[: len(values) // 3]), np.median(values[-max(1, len(values) // 10) :])
    if not after > 30 * before:
        return []
    told = f"the gradient's norm has grown from {before:.3g} to {after:.3g}; clip it, or lower the learning rate"
    return [Finding("gradient", "warning", told)]


def look_at_divergence(values: np.ndarray) -> list[Finding]:
    """Of a divergence of q that has no unknown constant: whether it tripled since the second third."""
    if len(values) < FEWEST:
        return []
    third = len(values) // 3
    before, after = np.median(values[third : 2 * third]), np.median(values[-max(1, third // 2) :])
    if not after > 3 * max(before, 1e-3):
        return []
    told = f"the posterior lags: its divergence has grown from {before:.3g} to {after:.3g}; take more steps of it"
    return [Finding("posterior", "warning", told)]


def look_at_data(data: np.ndarray) -> list[Finding]:
    """Of examples, a row each: whether they differ."""
    return [Finding("data", "warning", "the data are constant: every example is the same")] * _is_constant(data)


def _is_constant(rows: np.ndarray) -> bool:
    return bool(np.all(rows == rows[:1]))


def look_at_samples(samples: np.ndarray, data: np.ndarray, noise: float = 0.0) -> list[Finding]:
    """Of rows of samples beside data: whether they are finite, where the data are, as wide, differ, and are not noise.

    A short row is looked at column by column, and in every direction; `noise` is what a model of the data adds to each,
    as one that was trained by denoising does.
    """
    warn = lambda told: [Finding("samples", "warning", told)]
    table = data.ndim == 2 and data.shape[1] <= _COLUMNS
    samples, data = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (samples, data))
    finite = np.isfinite(samples).all(axis=1)
    if not finite.all():
        return warn(f"{np.sum(~finite)} of {len(samples)} samples are not finite")
    low, high = data.min(), data.max()
    reach = high - low + 3 * noise
    outside = float(np.mean((samples < low - reach) | (samples > high + reach)))
    ranges = f"from {samples.min():.3g} to {samples.max():.3g}, where the data go from {low:.3g} to {high:.3g}"
    if outside > 0.01:
        return warn(f"samples lie outside the data: {100 * outside:.0f} % of their values, which go {ranges}")
    usual = _without_outliers(data, each=table)
    own, theirs = _spread(samples), _spread(usual)
    noisy = math.hypot(_spread(data), noise)
    if own < 0.05 * theirs:
        return warn(f"samples are constant: their standard deviation is {own:.2g}, that of the data {theirs:.2g}")
    if told := _duplicates(samples, data):
        return warn(f"samples are duplicates: {told}")
    if not 0.5 * theirs < own < 2 * noisy:
        how, right = ("narrower", theirs) if own < theirs else ("wider", noisy)
        return warn(f"samples are {how} than the data: a standard deviation of {own:.3g}, not {right:.3g}")
    if table and (told := _unlike(samples, data, usual, noise)):
        return warn(f"samples are unlike the data: {told}; train for longer, or with a lower rate")
    off = float(np.sqrt(np.mean((samples.mean(axis=0) - data.mean(axis=0)) ** 2))) / noisy
    if off > 1 + _SURE / math.sqrt(len(samples)):
        return warn(f"samples are beside the data: their mean is {off:.2g} standard deviations from that of the data")
    sets = [data] if len(usual) == len(data) else [data, usual]  # few outliers may be all of a dependence, or hide it
    found = [lost_dependence(samples, rows, noise=noise, each=table) for rows in sets]
    if any(strength < _STRONG or lost < _LOST + _SURE * error for lost, error, strength in found):
        return []
    lost = min(lost for lost, *_ in found)
    told = f"in how columns depend on each other, they are {100 * lost:.0f} % as far from the data as independent ones"
    return warn(f"samples lack the data's structure: {told}; train for longer")


def _unlike(samples: np.ndarray, data: np.ndarray, usual: np.ndarray, noise: float) -> str | None:
    """How the first two moments differ, of a column by itself, or of all: by more than they may in a rough model.

    A mean by more than a standard deviation, a variance or that of a direction by more than a factor of 10. They are
    too narrow where they are narrower than `usual` data.
    """
    count, size = min(len(samples), len(data)), data.shape[1]
    if count < 50 * size:
        return None
    wide = data.std(axis=0)
    known = np.ptp(data, axis=0) > 0  # the others are constant, and have no scale; their deviation may be rounded
    samples, data, usual, wide = samples[:, known], data[:, known], usual[:, known], wide[known]
    names, noisy, widths, narrow = np.flatnonzero(known), np.hypot(wide, noise), samples.std(axis=0), usual.std(axis=0)
    far = np.abs(samples.mean(axis=0) - data.mean(axis=0)) / noisy
    times = np.maximum(widths / noisy, narrow / np.maximum(widths, 1e-30 * wide))  # wider or narrower
    if times.max() > math.sqrt(10):
        worst = times.argmax()
        right = (wide if widths[worst] > wide[worst] else narrow)[worst]
        return f"column {names[worst]} has a standard deviation of {widths[worst]:.3g}, not {right:.3g}"
    if far.max() > 1:
        return f"the mean of column {names[far.argmax()]} is {far.max():.2g} standard deviations off"
    own, theirs, lesser = (np.cov(x / wide, rowvar=False).reshape(len(wide), -1) for x in (samples, data, usual))
    least = 1e-6 * np.eye(len(wide))  # a variance where columns depend on each other exactly
    broadest = scipy.linalg.eigvalsh(own, theirs + np.diag((noise / wide) ** 2) + least)[-1]
    narrowest = scipy.linalg.eigvalsh(own + least, lesser + least)[0]
    if broadest > 10 or narrowest < 0.1:
        times = math.sqrt(broadest if broadest > 10 else narrowest)
        return f"columns depend on each other in another way, and one direction is {times:.2g} times as wide"
    return None


def _without_outliers(data: np.ndarray, *, each: bool) -> np.ndarray:
    """Less the rows that are ten times as far from the median as half of them are, a hundredth of all at most.

    One row can be most of a variance, and samples are well without it. `each` column has units of its own.
    """
    away = data - np.median(data, axis=0)
    squares = np.sum((away / np.maximum(away.std(axis=0), 1e-150)) ** 2 if each else away**2, axis=1)
    farthest = np.argsort(squares)[-math.ceil(len(data) / 100) :]
    return np.delete(data, farthest[squares[farthest] > 100 * np.median(squares)], axis=0)


def _spread(rows: np.ndarray) -> float:
    return float(np.sqrt(np.mean(rows.var(axis=0))))


def _duplicates(samples: np.ndarray, data: np.ndarray) -> str | None:
    """That most samples are near to another, as few of the data are: these may be sorted, and have duplicates too."""
    count = min(len(samples), len(data), _PAIRS)
    near, usual = (
        nearest_distances(rows[:count], rows[:count], apart=True)
        for rows in (samples, np.random.default_rng(0).permutation(data))
    )
    own, theirs = float(np.median(near)), float(np.median(usual))
    share, right = (float(np.mean(distances < 0.05 * theirs)) for distances in (near, usual))
    error = math.sqrt((share * (1 - share) + right * (1 - right)) / count)
    if not (own < 0.05 * theirs and share - right > _SURE * error):
        return None
    return f"the nearest of another is {own:.2g} away, of the data {theirs:.2g}"


def look_at_averages(raw: Sequence[np.ndarray], averages: Sequence[np.ndarray]) -> list[Finding]:
    """Of parameters and their averages: whether they are further apart than half of the averages' size."""
    size = lambda arrays: math.sqrt(sum(float(np.sum(np.square(x, dtype=np.float64))) for x in arrays))
    apart = size([a - b for a, b in zip(raw, averages, strict=True)]) / max(size(averages), 1e-30)
    if apart <= 0.5:
        return []
    told = f"weights and their averages are far apart, by {100 * apart:.0f} % of their size; train for longer"
    return [Finding("averages", "warning", told)]


def look_at_latents(joint: np.ndarray, *, learnt: bool = True) -> list[Finding]:
    """Of log p̃(v_i, h_j), h_j drawn from q for the example j: whether h matters, and a q that is learnt follows v.

    It is a matrix, or one for each group of examples (groups, i, j). Let s be the standard deviation of what i and j do
    together to log p̃. With h of the posterior, the mean of i = j is about s² above the others', and its error s / √n:
    it is judged where that is six errors or more. It is never below them.
    """
    joint, size = np.asarray(joint, np.float64), joint.shape[-1]
    if not np.isfinite(joint).all():
        return [Finding("latents", "warning", "log p̃(v, h) is not finite for examples with latents of others")]
    over = lambda axes: joint.mean(axes, keepdims=True)
    centred = joint - over(-1) - over(-2) + over((-2, -1))
    matters = float(np.sqrt(np.mean(centred**2)))
    if matters < 0.05:
        told = f"latents are unused: which example they are of changes log p̃(v, h) by {matters:.1g} nats"
        return [Finding("latents", "notice", told)]
    own = np.diagonal(centred, axis1=-2, axis2=-1) * size / max(size - 1, 1)  # with its own h, less that with others
    error = float(own.std(ddof=1) / math.sqrt(own.size)) if own.size > 1 else math.inf
    below = own.mean() < -_SURE * error
    if not learnt or not (below or (matters >= _SURE / math.sqrt(own.size) and own.mean() <= 1.5 * error)):
        return []
    told = "the posterior lags: h of an example fits it no better than h of others"
    return [Finding("posterior", "warning", f"{told} ({own.mean():.2g} ± {error:.1g} nats); take more steps of it")]


def look_far_out(far: np.ndarray, further: np.ndarray, size: int) -> list[Finding]:
    """Of log p̃ far from the data and ten times as far: whether it falls as fast as `size` dimensions grow.

    Else it cannot be integrated.
    """
    fallen = (further < far - size * math.log(10)) | (far == -np.inf)
    share = float(np.mean(~fallen))
    if share <= 0.25:
        return []
    told = f"log p̃ does not fall far from the data, in {100 * share:.0f} % of the directions: it has no normalizer"
    return [Finding("samples", "warning", f"{told}; add a term to the energy that grows")]


def look_at_mass(log_z: float) -> list[Finding]:
    """Of the log of the integral of a density that was learnt to be normalized: whether it is 0."""
    if abs(log_z) <= NOTICED_LOG_Z:
        return []
    off = f"log-likelihoods are {abs(log_z):.2g} nats too {'high' if log_z > 0 else 'low'}"
    mass = f"e^{log_z:.3g}" if log_z > 700 else f"{math.exp(log_z):.3g}"  # which overflows at 710
    told = f"the density integrates to {mass}, not to 1: {off}; train for longer"
    return [Finding("samples", "notice" if abs(log_z) <= _WRONG_LOG_Z else "warning", told)]


def look_at_history(
    history: list[dict[str, Any]],
    *,
    falls: bool,
    divergence: bool = False,
    baseline: Baseline | None = None,
    ended: bool = True,
) -> list[Finding]:
    """Of the log of a run, whose values may have an axis of seeds: what is found of each curve, of the first such seed.

    `falls` says that the loss is meant to, and `divergence` that that of q has no unknown constant.
    """
    found: list[Finding] = []
    looks = {
        "loss": lambda values: look_at_loss(values, baseline, ended=ended) if falls else [],
        "gradient_norm": look_at_gradient,
        "divergence": lambda values: look_at_divergence(values) if divergence else [],
    }
    for name, look in looks.items():
        rows = [np.reshape(row[name], (-1,)) for row in history if name in row]
        seeds = np.stack(rows, axis=1).astype(np.float64) if rows else np.zeros((0, 0))
        each = [(i, finding) for i, values in enumerate(seeds) for finding in look(values)]
        if each:
            of = "" if len(seeds) == 1 else f" (seed {each[0][0] + 1} of {len(seeds)}, {len(each)} like it)"
            found.append(each[0][1]._replace(told=each[0][1].told + of))
    return found
