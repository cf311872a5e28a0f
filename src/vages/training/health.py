"""Checks of a run's health, from its curves, samples and latents; functions of arrays alone.

A warning means that something is wrong. A notice is about something that is not necessarily wrong.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg

from vages.evaluation.nearest import nearest_distances
from vages.training.dependence import lost_dependence

FEWEST = 12  # points of a curve, below which it is not judged
_SURE = 6.0  # standard errors
_PAIRS = 500  # samples that are compared with each other
_COLUMNS = 20  # most columns of a table, for which each one and all of them together are checked
_LOST, _STRONG = 0.25, 2.5  # least lost share, and least strength, of a dependence between columns for a warning
NOTICED_LOG_Z, _WRONG_LOG_Z = 0.02, 0.1  # |log Z| in nats of a normalized density, for a notice and a warning


class Finding(NamedTuple):
    """A finding: the part of a run that it is about, its level and a text of one line."""

    of: Literal["data", "loss", "posterior", "gradient", "samples", "averages", "latents"]
    level: Literal["warning", "notice"]
    told: str


class Baseline(NamedTuple):
    """A model that has learned nothing, and its loss with a standard error."""

    of: str
    loss: float
    error: float = 0.0


def look_at_loss(values: np.ndarray, baseline: Baseline | None = None, *, ended: bool = True) -> list[Finding]:
    """Check that a loss per chunk is finite, does not end above its start and, if the run has ended, does not rise.

    It must also be below the `baseline` of a model that has learned nothing.
    """
    if len(values) < FEWEST:
        return []
    if lost := int(np.sum(~np.isfinite(values))):
        return [_loss(f"is not finite at {lost} of {len(values)} points")]
    start, end = _window(values[: max(1, len(values) // 20)]), _window(values[-len(values) // 3 :])
    least = 0.01 * max(abs(start.median), abs(end.median))  # the smallest relevant change
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
    """Return the median of values, and their noise as estimated from differences of neighbors, which ignores trends."""
    steps = np.abs(np.diff(values))
    spread = float(np.median(steps)) / 0.954 if len(steps) else 0.0  # |N(0, 2)| has the median 0.954
    return _Window(float(np.median(values)), spread, len(values))


def _error(values: np.ndarray, one: _Window, other: _Window) -> float:
    """Return the standard error of the difference of two medians, with at least the noise of all values."""
    noise = max(_window(values).spread, one.spread, other.spread)
    return 1.2533 * noise * math.sqrt(1 / one.size + 1 / other.size)


def look_at_gradient(values: np.ndarray) -> list[Finding]:
    """Check that norms of the gradient have not grown by a factor of 30 since the first third."""
    if len(values) < FEWEST:
        return []
    before, after = np.median(values[: len(values) // 3]), np.median(values[-max(1, len(values) // 10) :])
    if not after > 30 * before:
        return []
    told = f"the gradient's norm has grown from {before:.3g} to {after:.3g}; clip it, or lower the learning rate"
    return [Finding("gradient", "warning", told)]


def look_at_divergence(values: np.ndarray) -> list[Finding]:
    """Check that a divergence of q, without an unknown constant, has not tripled since the second third."""
    if len(values) < FEWEST:
        return []
    third = len(values) // 3
    before, after = np.median(values[third : 2 * third]), np.median(values[-max(1, third // 2) :])
    if not after > 3 * max(before, 1e-3):
        return []
    told = f"the posterior lags: its divergence has grown from {before:.3g} to {after:.3g}; take more steps of it"
    return [Finding("posterior", "warning", told)]


def look_at_data(data: np.ndarray) -> list[Finding]:
    """Check that examples, one per row, differ."""
    return [Finding("data", "warning", "the data are constant: every example is the same")] * _is_constant(data)


def _is_constant(rows: np.ndarray) -> bool:
    return bool(np.all(rows == rows[:1]))


def look_at_samples(samples: np.ndarray, data: np.ndarray, noise: float = 0.0) -> list[Finding]:
    """Compare rows of samples with data: values, location, spread, duplicates, and dependence between columns.

    Tables with few columns are checked by column and in all directions. `noise` is the standard deviation of the noise
    that the model adds to the data, as after training by denoising.
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
        return warn(f"samples are far from the data: their mean is {off:.2g} standard deviations from that of the data")
    sets = [data] if len(usual) == len(data) else [data, usual]  # a few outliers may cause or hide a dependence
    found = [lost_dependence(samples, rows, noise=noise, each=table) for rows in sets]
    if any(strength < _STRONG or lost < _LOST + _SURE * error for lost, error, strength in found):
        return []
    lost = min(lost for lost, *_ in found)
    told = f"in how columns depend on each other, they are {100 * lost:.0f} % as far from the data as independent ones"
    return warn(f"samples lack the data's structure: {told}; train for longer")


def _unlike(samples: np.ndarray, data: np.ndarray, usual: np.ndarray, noise: float) -> str | None:
    """Return how the first two moments of columns or directions differ by more than in a rough model, or None.

    That is a mean by more than a standard deviation, or a variance by more than a factor of 10. Samples are too narrow
    only in comparison with the `usual` data, which are without outliers.
    """
    count, size = min(len(samples), len(data)), data.shape[1]
    if count < 50 * size:
        return None
    wide = data.std(axis=0)
    known = np.ptp(data, axis=0) > 0  # constants have no scale, and their deviation may not be 0 after rounding
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
    least = 1e-6 * np.eye(len(wide))  # for columns that depend on each other exactly
    broadest = scipy.linalg.eigvalsh(own, theirs + np.diag((noise / wide) ** 2) + least)[-1]
    narrowest = scipy.linalg.eigvalsh(own + least, lesser + least)[0]
    if broadest > 10 or narrowest < 0.1:
        times = math.sqrt(broadest if broadest > 10 else narrowest)
        return f"columns depend on each other in another way, and one direction is {times:.2g} times as wide"
    return None


def _without_outliers(data: np.ndarray, *, each: bool) -> np.ndarray:
    """Return the data without rows that are ten times as far from the median as is usual, at most 1 % of them.

    A single row can be most of a variance, and samples may lack it. With `each`, columns have their own units.
    """
    away = data - np.median(data, axis=0)
    squares = np.sum((away / np.maximum(away.std(axis=0), 1e-150)) ** 2 if each else away**2, axis=1)
    farthest = np.argsort(squares)[-math.ceil(len(data) / 100) :]
    return np.delete(data, farthest[squares[farthest] > 100 * np.median(squares)], axis=0)


def _spread(rows: np.ndarray) -> float:
    return float(np.sqrt(np.mean(rows.var(axis=0))))


def _duplicates(samples: np.ndarray, data: np.ndarray) -> str | None:
    """Return a text if most samples are close to another one, and more than in the data, which may have duplicates."""
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
    """Check that parameters and their averages are not further apart than half of the averages' norm."""
    size = lambda arrays: math.sqrt(sum(float(np.sum(np.square(x, dtype=np.float64))) for x in arrays))
    apart = size([a - b for a, b in zip(raw, averages, strict=True)]) / max(size(averages), 1e-30)
    if apart <= 0.5:
        return []
    told = f"weights and their averages are far apart, by {100 * apart:.0f} % of their size; train for longer"
    return [Finding("averages", "warning", told)]


def look_at_latents(joint: np.ndarray, *, learnt: bool = True) -> list[Finding]:
    """Check, from log p̃(v_i, h_j) with h_j ~ q(h | v_j), that h matters and that a learned q follows v.

    `joint` is a matrix, or one per group of examples (groups, i, j). Let s be the standard deviation of the interaction
    of i and j in log p̃. With h from the posterior, the mean for i = j is about s² above the others, with an error of
    s / √n. It is judged if s² is six errors or more. A mean significantly below the others is always wrong.
    """
    joint, size = np.asarray(joint, np.float64), joint.shape[-1]
    if not np.isfinite(joint).all():
        return [Finding("latents", "warning", "log p̃(v, h) is not finite for examples with latents of others")]
    over = lambda axes: joint.mean(axes, keepdims=True)
    centered = joint - over(-1) - over(-2) + over((-2, -1))
    matters = float(np.sqrt(np.mean(centered**2)))
    if matters < 0.05:
        told = f"latents are unused: which example they are of changes log p̃(v, h) by {matters:.1g} nats"
        return [Finding("latents", "notice", told)]
    own = np.diagonal(centered, axis1=-2, axis2=-1) * size / max(size - 1, 1)  # with own h, minus with other h
    error = float(own.std(ddof=1) / math.sqrt(own.size)) if own.size > 1 else math.inf
    below = own.mean() < -_SURE * error
    if not learnt or not (below or (matters >= _SURE / math.sqrt(own.size) and own.mean() <= 1.5 * error)):
        return []
    told = "the posterior lags: h of an example fits it no better than h of others"
    return [Finding("posterior", "warning", f"{told} ({own.mean():.2g} ± {error:.1g} nats); take more steps of it")]


def look_far_out(far: np.ndarray, further: np.ndarray, size: int) -> list[Finding]:
    """Check that log p̃, far away and ten times as far, falls faster than the volume of `size` dimensions grows.

    Otherwise p̃ cannot be normalized.
    """
    fallen = (further < far - size * math.log(10)) | (far == -np.inf)
    share = float(np.mean(~fallen))
    if share <= 0.25:
        return []
    told = f"log p̃ does not fall far from the data, in {100 * share:.0f} % of the directions: it has no normalizer"
    return [Finding("samples", "warning", f"{told}; add a term to the energy that grows")]


def look_at_mass(log_z: float) -> list[Finding]:
    """Check that the log-integral of a density that was trained to be normalized is 0."""
    if abs(log_z) <= NOTICED_LOG_Z:
        return []
    off = f"log-likelihoods are {abs(log_z):.2g} nats too {'high' if log_z > 0 else 'low'}"
    mass = f"e^{log_z:.3g}" if log_z > 700 else f"{math.exp(log_z):.3g}"  # exp overflows at 710
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
    """Return the findings from the curves of a run's log, for the first seed with each if there is an axis of seeds.

    `falls` means that the loss is expected to fall, and `divergence` that the divergence of q has no unknown constant.
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
