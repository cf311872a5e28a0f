"""R̂ and effective sample sizes of chains (Vehtari et al. 2021), in NumPy, since JAX would compile for each shape."""

import numpy as np
from jaxtyping import Float, Shaped
from scipy.fft import next_fast_len
from scipy.special import ndtri

_BLOCK = 2**22  # numbers processed at a time


def rhat_and_ess(x: Shaped[np.ndarray, "n chains draws"]) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return the rank-normalized split-R̂, and the smaller of the ESS of the bulk and of the tails.

    If rank-normalized R̂ is undefined, as for zeros and ones, plain split-R̂ is returned.
    """
    rows = max(1, _BLOCK // max(1, x[0].size))
    blocks = [_of_block(x[i : i + rows]) for i in range(0, len(x), rows)]
    rhat, ess = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return rhat, ess


def _of_block(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, chains, draws = x.shape
    x = x - x[:, :1, :1]  # float32 cannot resolve differences of numbers far from 0
    x = x.astype(np.float32)
    halves = _halves(x)
    split = halves if chains > 1 else _halves(halves)
    middle = np.median(split, axis=(1, 2), keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ranked = np.maximum(_rhat(_ranked(split)), _rhat(_ranked(np.abs(split - middle))))
        plain = _rhat(halves.astype(np.float64))
    least = np.minimum(np.maximum(_ess(_ranked(halves)), 1.0), _tail_ess(halves))
    still = np.all(x == 0, axis=(1, 2))  # held entries, or a state that no chain leaves
    worst = np.where(still, 1.0, np.where(np.isnan(ranked), plain, ranked))
    return worst, np.where(still, 1.0 * chains * draws, least)


def _halves(x: np.ndarray) -> np.ndarray:
    """Split each chain into two halves."""
    half = x.shape[2] // 2
    return np.concatenate([x[:, :, :half], x[:, :, half : 2 * half]], axis=1)


def _ranked(x: np.ndarray) -> np.ndarray:
    """Return normal scores of the ranks among all draws of all chains. Equal draws get their mean rank."""
    ranks = np.empty((len(x), x[0].size))
    for row, values in zip(ranks, x.reshape(ranks.shape), strict=True):
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        row[:] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ndtri((ranks - 3 / 8) / (ranks.shape[1] + 1 / 4)).reshape(x.shape)


def _rhat(x: np.ndarray) -> np.ndarray:
    """Return the R̂ of Gelman and Rubin."""
    draws, start = x.shape[2], x[:, :, :1]
    moved = x - start  # exactly 0 if a chain does not move
    within = moved.var(axis=2, ddof=1).mean(axis=1)
    between = draws * (start[:, :, 0] + moved.mean(axis=2)).var(axis=1, ddof=1)
    return np.sqrt((between / within + draws - 1) / draws)


def _ess(x: np.ndarray) -> np.ndarray:
    """Return the ESS from autocorrelations, summed by Geyer's initial monotone sequence; 0 if no chain moves."""
    n, chains, draws = x.shape
    means = x.mean(axis=2, keepdims=True)
    length = next_fast_len(2 * draws, real=True)
    spectrum = np.fft.rfft(x - means, n=length, axis=2)
    covariance = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, n=length, axis=2)[:, :, :draws].mean(axis=1) / draws
    variance = covariance[:, :1] * draws / (draws - 1)
    total = covariance[:, :1] + (means[:, :, 0].var(axis=1, ddof=1)[:, None] if chains > 1 else 0.0)
    stands = ~np.any(x != x[:, :, :1], axis=(1, 2)) | (variance[:, 0] <= 0)
    total = np.where(stands[:, None], 1.0, total)
    rho = 1 - (variance - covariance[:, : draws - draws % 2]) / total
    rho[:, 0] = 1.0
    even, odd = rho[:, 0::2], rho[:, 1::2]
    positive = np.logical_and.accumulate(even + odd > 0, axis=1)
    count = positive.sum(axis=1)
    row, after = np.arange(n), np.minimum(np.maximum(count, 1), even.shape[1] - 1)  # the first pair that is left out
    kept = positive.copy()
    kept[row, after] |= (even[row, after] > 0) & (count <= after)
    even, odd = np.where(kept, even, 0.0), np.where(positive, odd, 0.0)
    falling = np.minimum.accumulate(even + odd, axis=1)
    left = np.where(falling < even + odd, falling / 2, even)[row, after]
    time = np.maximum(2 * falling.sum(axis=1) - 1 - left, 1 / np.log10(chains * draws))
    return np.where(stands, 0.0, chains * draws / time)


def _tail_ess(halves: np.ndarray) -> np.ndarray:
    """Return the smaller ESS of the indicators of the lowest and highest 5 %; infinite if ties leave no tail."""
    low, high = np.quantile(halves, np.asarray([0.05, 0.95], halves.dtype), axis=(1, 2), keepdims=True)
    least = np.full(len(halves), np.inf)
    for tail in (halves <= low, halves >= high):
        known = np.any(tail != tail[:, :1, :1], axis=(1, 2))
        least = np.where(known, np.minimum(least, np.maximum(_ess(tail.astype(np.float64)), 1.0)), least)
    return least
