"""Figures of Markov chains: traces, autocorrelations and marginals.

`chains_figure` draws all three for the coordinates whose chains agree least:

    chains_figure(samples.trace)

The other functions take the chains of one coordinate as an array (chains, draws).
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vages.app.report.figures import COLORS

_LAGS = 100
_SHOWN = 8  # chains that are drawn individually


def chains_figure(trace: dict[str, Any] | None, coordinates: int = 4) -> Figure:
    """Draw trace, autocorrelation and marginals of the coordinates whose chains agree least, one row for each.

    `trace` holds arrays (chains, draws, …), as that of `Samples` does.
    """
    if trace is None:
        raise ValueError("trace: expected chains, got None, of independent draws; sample with MCMC() or Gibbs()")
    rows = _worst(trace, coordinates)
    figure = Figure(figsize=(9.6, 1.9 * len(rows) + 0.5), layout="constrained")
    grid = figure.subplots(len(rows), 3, squeeze=False, width_ratios=(3, 1.4, 1.4))
    for axes, (name, chains) in zip(grid, rows.items(), strict=True):
        draw_trace(axes[0], chains)
        draw_autocorrelation(axes[1], chains)
        draw_marginals(axes[2], chains)
        axes[0].set_ylabel(f"{name}, share of ones" if _binary(chains) else name)
    low, high = grid[0, 2].get_ylim()
    grid[0, 2].set_ylim(low, 1.25 * high)  # room for the legend
    for axes in grid[0, 1:]:
        axes.legend(fontsize=8, frameon=False, loc="best")
    for axes, title in zip(grid[0], ("trace", "autocorrelation", "marginal of each chain"), strict=True):
        axes.set_title(title, fontsize=11)
    for axes, label in zip(grid[-1], ("draw", "lag", "value"), strict=True):
        axes.set_xlabel(label)
    return figure


def draw_trace(axes: Axes, chains: Float[np.ndarray, "chains draws"]) -> None:
    """Draw values over draws, one line for each chain; for zeros and ones, the running mean."""
    lines = np.cumsum(chains, axis=1) / np.arange(1, chains.shape[1] + 1) if _binary(chains) else chains
    for i, chain in enumerate(_some(lines)):
        axes.plot(chain, color=COLORS[i % len(COLORS)], lw=0.6, alpha=0.8)
    axes.set_xlim(0, chains.shape[1] - 1)
    axes.spines[["top", "right"]].set_visible(False)


def draw_autocorrelation(axes: Axes, chains: Float[np.ndarray, "chains draws"]) -> None:
    """Draw the autocorrelation of each chain, and their mean in black.

    Deviations are from the mean of all chains, so that chains that do not mix never fall to 0. The unit is the variance
    of all chains, or of the one chain if that is larger, as it may be the only one with a rare state.
    """
    each = np.stack([autocorrelation(chain, chains.mean(), chains.var()) for chain in chains])
    for i, one in enumerate(_some(each)):
        bounded = np.clip(one / max(one[0], 1.0), -1, 1)
        axes.plot(bounded, color=COLORS[i % len(COLORS)], lw=0.6, alpha=0.5)
    axes.plot(each.mean(0), color="black", lw=1.4, label="mean of the chains")
    axes.axhline(0, color="0.6", lw=0.8)
    axes.set_ylim(-0.3, 1.05)
    axes.set_xlim(0, each.shape[1] - 1)
    axes.spines[["top", "right"]].set_visible(False)


def draw_marginals(axes: Axes, chains: Float[np.ndarray, "chains draws"]) -> None:
    """Draw a histogram of all draws in gray, and the outline of each chain's histogram."""
    low, high = chains.min(), chains.max()
    edges = np.linspace(low, high if high > low else low + 1, 31)
    axes.hist(chains.ravel(), edges, density=True, color="0.85", label="all chains")
    for i, chain in enumerate(_some(chains)):
        axes.hist(chain, edges, density=True, histtype="step", color=COLORS[i % len(COLORS)], lw=0.8)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def autocorrelation(
    chain: Float[np.ndarray, "draws"], mean: float, variance: float, lags: int = _LAGS
) -> Float[np.ndarray, "lags"]:
    """Return the autocorrelation of one chain about `mean`, in units of `variance`, at the lags from 0 on."""
    centered = chain - mean
    size = len(centered)
    spectrum = np.abs(np.fft.rfft(centered, 2 * size)) ** 2
    sums = np.fft.irfft(spectrum)[: min(lags, size)]
    return sums / np.arange(size, size - len(sums), -1) / max(variance, np.finfo(float).tiny)


def _worst(trace: dict[str, Any], count: int) -> dict[str, np.ndarray]:
    """Return the coordinates (chains, draws) with the largest share of their variance between chains."""
    named: dict[str, np.ndarray] = {}
    for name, values in trace.items():
        values, shape = np.asarray(values, np.float64), np.shape(values)[2:]
        for place in np.ndindex(shape):
            label = f"{name}[{', '.join(map(str, place))}]" if math.prod(shape) > 1 else name
            named[label] = values[:, :, *place]
    share = {name: x.mean(1).var() / x.var() for name, x in named.items() if x.var() > 0}
    if not share:
        raise ValueError("trace: expected chains that move, got none that do; sample with MCMC() or Gibbs()")
    return {name: named[name] for name in sorted(share, key=lambda name: -share[name])[:count]}


def _binary(chains: np.ndarray) -> bool:
    return bool(np.all((chains == 0) | (chains == 1)))


def _some(rows: np.ndarray) -> np.ndarray:
    return rows[:: -(-len(rows) // _SHOWN)]
