"""Draws from a model, with diagnostics and warnings."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.samplers.diagnostics import rhat_and_ess
from vages.samplers.target import State

WORST_RHAT = 1.05  # a warning is given if more than 1 % of the coordinates are above this
_BY_CHANCE = 1.1  # or if any coordinate is above this
LEAST_ESS = 100  # or if the ESS is below this


class SamplingWarning(UserWarning):
    """Warning about draws that may be wrong, for example from chains that have not mixed."""


class Samples(NamedTuple):
    """Draws v (n, …) and h (n, …), ordered by step, then by chain. For a posterior, h is (batch, n, …).

    `rhat` and `ess` have one number per coordinate, under the names of the variables: "v", and "h", or "h.z" for mixed
    latents. They are computed from the whole chains: the rank-normalized split-R̂, and the smaller of the effective
    sample sizes of the bulk and of the 5 % tails, at most n (Vehtari et al. 2021). Independent draws have none;
    `worst_rhat` is then 1, and `least_ess` n.

    `acceptance` is the mean over all moves, `diverged` the number of moves that diverged, and `gradients` the total
    number of gradients. `trace` holds the whole chains after the warm-up, (chains, draws, …), under the same names.

    For a posterior, and for `sample` with one row per draw, the coordinates are those of every v or row: `rhat` and
    `ess` have shape (rows, …), and `trace` has shape (chains, draws, rows, …).
    """

    v: Any
    h: Any
    acceptance: float
    rhat: dict[str, Array]
    ess: dict[str, Array]
    diverged: int
    gradients: int
    trace: State | None = None
    draws: int = 0  # n; for a posterior, the number of draws for each v

    def __repr__(self) -> str:
        numbers = [f"R̂ at most {self.worst_rhat:.4g}"] if self.rhat else []
        numbers += [
            f"ESS at least {self.least_ess:.4g}",
            f"acceptance {self.acceptance:.2g}",
            f"{_moves(self.diverged)} diverged",
        ]
        lines = [
            f"Samples: {_shapes({'v': self.v, 'h': self.h})}",
            f"{', '.join(numbers)}, {self.gradients:,} gradients",
        ]
        return "\n  ".join(lines if self.trace is None else [*lines, f"trace: {_shapes(self.trace)}"])

    @property
    def worst_rhat(self) -> float:
        """The largest R̂. It is 1 for exact draws, and infinite if chains are stuck in different states."""
        return max((float(np.max(x)) for x in self.rhat.values()), default=1.0)

    @property
    def least_ess(self) -> float:
        """The smallest effective sample size."""
        return min((float(np.min(x)) for x in self.ess.values()), default=float(self.draws))

    def to_arviz(self) -> Any:
        """Return the chains as ArviZ's InferenceData, for its plots and summaries: `pip install 'vages[arviz]'`."""
        if self.trace is None:
            raise ValueError("trace: expected chains, got independent draws; sample with MCMC() or Gibbs()")
        try:
            import arviz  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("arviz: expected it to be installed, got none; pip install 'vages[arviz]'") from None
        return arviz.from_dict(posterior={name: np.asarray(x) for name, x in self.trace.items()})


def _shapes(named: dict[str, Any]) -> str:
    return ", ".join(f"{name} {jax.tree.map(np.shape, x)}" for name, x in named.items() if x is not None)


def _moves(count: int) -> str:
    return f"{count:,} move" + "s" * (count != 1)


def diagnose(trace: State) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return R̂ and ESS of each coordinate of chains (targets, chains, draws, …) as arrays (targets, …)."""
    rhat, ess = dict[str, Array](), dict[str, Array]()
    for name, x in trace.items():
        if x.size:
            last = np.moveaxis(np.asarray(x), (1, 2), (-2, -1))  # (targets, …, chains, draws)
            both = rhat_and_ess(last.reshape(-1, *last.shape[-2:]))
            rhat[name], ess[name] = (jnp.asarray(one.reshape(last.shape[:-2]), jnp.float32) for one in both)
    return rhat, ess


def check_drawn(trace: State, log_prob: Array | None) -> None:
    """Raise ValueError if draws (targets, chains, draws, …) or their log p̃ (draws, targets, chains) are not finite."""
    logs = [] if log_prob is None else [np.moveaxis(np.asarray(log_prob), 0, 2)]
    finite = [np.isfinite(np.asarray(x)).all(axis=tuple(range(2, x.ndim))) for x in (*trace.values(), *logs)]
    bad = ~np.logical_and.reduce(finite)
    if bad.any():
        raise ValueError(
            f"sample: expected draws with a finite energy, got {bad.sum()} of {bad.size} chains without; "
            "is the energy finite where they start, and does it grow far away?"
        )


def warn(
    samples: Samples, swapped: float | None = None, *, chains: int, ess: float = np.inf, kept: int = LEAST_ESS
) -> Samples:
    """Return the samples, and warn if chains disagree, do not move or diverge. `ess` is that of the whole chains."""
    said = []
    values = np.concatenate([np.ravel(x) for x in samples.rhat.values()])
    high = int(np.sum(~(values <= WORST_RHAT)))
    if high > len(values) // 100 or not samples.worst_rhat <= _BY_CHANCE:
        who = "the chains disagree" if chains > 1 else "the halves of the chain disagree"
        said.append(
            f"R̂ is {samples.worst_rhat:.5g}, expected at most {WORST_RHAT}, and above it in {high} of {len(values)} "
            f"coordinates: {who}; draw more, or use temperatures where there are separate modes"
        )
    elif ess < min(LEAST_ESS, kept):
        said.append(
            f"the effective sample size is {ess:.3g}, expected at least {min(LEAST_ESS, kept)} in the bulk and in the "
            "tails: means and spreads are rough; draw more, or thin"
        )
    if samples.acceptance < 0.1:
        said.append(
            f"only {samples.acceptance:.2g} of the moves were accepted; give a longer warm-up or a better start"
        )
    if samples.diverged:
        said.append(
            f"{_moves(samples.diverged)} diverged: the chains may stay away from where the density is narrow, and "
            "spreads come out wrong; give a target_acceptance closer to 1, other coordinates, or temperatures"
        )
    if swapped is not None and swapped < 0.1:
        said.append(f"only {swapped:.2g} of the exchanges were accepted; put the temperatures closer together")
    for line in said:
        warnings.warn(f"sample: {line}", SamplingWarning, stacklevel=4)
    return samples
