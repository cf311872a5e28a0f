"""Checks for divergence between chunks: numbers that are not finite or have exploded."""

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.training.learner import LearnerState

_FEWEST, _WINDOW = 5, 100  # chunks, whose median is the usual size of a metric
_CALLED = {"divergence": "divergence of the posterior"}  # in messages, to distinguish it from divergence of training


class Diverged(ArithmeticError):
    """Error for training that has diverged."""


@dataclass(frozen=True)
class Guard:
    """What counts as divergence of training, and what to do about it.

    `stop` raises `Diverged`. `recover` returns to the last good checkpoint and continues with other noise and `lower`
    times the learning rates, at most `retries` times. Each retry is an event in the run's folder. A metric has exploded
    if its median over a chunk is `explosion` times its median over the last hundred chunks; a parameter, if it is that
    many times as large as the largest at the start. Reference values below 1 count as 1.
    """

    policy: Literal["stop", "recover"] = "stop"
    explosion: float = 1e4
    retries: int = 3
    lower: float = 0.5

    def __post_init__(self):
        if self.policy not in ("stop", "recover"):
            raise ValueError(f"policy: expected stop or recover, got {self.policy!r}; choose one")
        if not (self.explosion > 1 and self.retries >= 0 and 0 < self.lower <= 1):
            raise ValueError(
                "guard: expected explosion > 1, retries >= 0 and 0 < lower <= 1, got "
                f"{self.explosion}, {self.retries} and {self.lower}"
            )

    def problem(
        self,
        first: int,
        metrics: dict[str, np.ndarray],
        largest: np.ndarray,
        start: np.ndarray,
        history: list[dict[str, Any]],
        seeds: tuple[int, ...],
    ) -> str | None:
        """Return what is wrong with a chunk that began after iteration `first`; metrics are (seeds, iterations)."""
        found = []
        for name, values in metrics.items():
            values, called = values.reshape(len(seeds), -1), _CALLED.get(name, name)
            for i, when in np.argwhere(~np.isfinite(values))[:1].tolist():
                where = f"at iteration {first + when + 1}{_of(i, seeds)}"
                return f"expected a finite {called}, got {values[i, when]} {where}"
            past = [np.reshape(row[name], (-1,)) for row in history[-_WINDOW:] if name in row]
            if len(past) < _FEWEST:
                continue
            usual = np.maximum(np.median(np.abs(past), axis=0), 1)
            found += [
                f"expected a {called} near its usual {usual[i]:.3g}, got {now:.3g} up to iteration "
                f"{first + values.shape[1]}{_of(i, seeds)}"
                for i, now in enumerate(np.median(np.abs(values), axis=1))
                if now > self.explosion * usual[i]
            ]
        end = first + np.shape(next(iter(metrics.values())))[-1]
        for i, (now, then) in enumerate(zip(largest, start, strict=True)):
            if not now <= self.explosion * max(then, 1):
                found.append(
                    f"expected parameters near their start of {then:.3g} at most, got {now:.3g} at iteration {end}"
                    f"{_of(i, seeds)}"
                )
        return found[0] if found else None


def largest_parameter(state: LearnerState, *, many: bool) -> np.ndarray:
    """Return the largest absolute parameter of model, posterior and extras for each seed.

    It is infinite if any number of the state is not finite, in parameters, averages, optimizers or chains.
    """
    return np.asarray(_largest(state, many))


@eqx.filter_jit
def _largest(state: LearnerState, many: bool) -> Array:
    """A NaN counts as infinite, so the largest value of a leaf says also whether all are finite: one reduction each."""

    def largest(tree: Any) -> list[Array]:
        leaves = [x for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)) if x.size]
        sizes = [jnp.where(jnp.isnan(x), jnp.inf, jnp.abs(x)) for x in leaves]
        return [jax.lax.reduce_max(x, range(many, x.ndim)).astype(jnp.float32) for x in sizes]

    parameters = jnp.max(jnp.stack(largest((state.model, state.posterior, state.extras))), axis=0)
    others = jnp.max(jnp.stack(largest(state._replace(model=None, posterior=None, extras=None))), axis=0)
    return jnp.atleast_1d(jnp.where(jnp.isfinite(others), parameters, jnp.inf))


def _of(i: int, seeds: tuple[int, ...]) -> str:
    return f" of seed {seeds[i]}" if len(seeds) > 1 else ""
