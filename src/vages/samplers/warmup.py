"""Warm-up adaptation of step size and mass matrix in Stan's windows, shared by the chains of a target."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer


class Tuning(NamedTuple):
    """The step size and the variances of the coordinates, which the chains of a target share.

    Dual averaging uses the mean acceptance of the chains (Hoffman & Gelman 2014). The variances are those of all
    chains in the previous window, slightly shrunk towards a small value.
    """

    averaging: Any
    variance: Float[Array, "size"]
    number: Float[Array, ""]  # of states in the window, followed by their moments
    mean: Float[Array, "size"]
    square: Float[Array, "size"]

    @property
    def step_size(self) -> Array:
        """The step size during adaptation."""
        return jnp.exp(self.averaging.log_step_size)

    @property
    def final_step_size(self) -> Array:
        """The step size after the warm-up: the average."""
        return jnp.exp(self.averaging.log_step_size_avg)


class Windows(NamedTuple):
    """For each warm-up step, whether it counts for the variances and whether a window ends with it; then one False."""

    slow: Bool[Array, "steps"]
    end: Bool[Array, "steps"]

    @staticmethod
    def of(steps: int) -> "Windows":
        """Return Stan's windows: a fast one, slow ones of doubling length, and a fast one."""
        from blackjax.adaptation.window_adaptation import build_schedule

        with jax.numpy_dtype_promotion("standard"):
            schedule = np.asarray(build_schedule(steps), int).reshape(-1, 2)
        return Windows(*(jnp.asarray(np.append(column == 1, False)) for column in schedule.T))


def start_tuning(size: int, dtype: Any, acceptance: float) -> Tuning:
    """Return the tuning before the first step."""
    zeros, one = jnp.zeros(size, dtype), jnp.ones((), dtype)
    averaging = jax.tree.map(lambda x: jnp.asarray(x, dtype), _averaging(acceptance)[0](one))
    return Tuning(averaging, jnp.ones(size, dtype), jnp.zeros((), dtype), zeros, zeros)


def update_tuning(
    tuning: Tuning,
    slow: Any,
    end: Any,
    positions: Float[Array, "chains size"],
    accepted: Float[Array, ""],
    acceptance: float,
) -> Tuning:
    """Return the tuning after a warm-up step of all chains."""
    begin, update, final = _averaging(acceptance)
    averaging = _like(tuning.averaging, update(tuning.averaging, accepted))
    tuning = tuning._replace(averaging=averaging)
    tuning = _where(slow, _counted(tuning, positions), tuning)
    weight = tuning.number / (tuning.number + 5)
    variance = weight * tuning.square / jnp.maximum(tuning.number - 1, 1) + (1 - weight) * 1e-3
    restarted = _like(averaging, begin(final(averaging)))
    zeros = jnp.zeros_like(variance)
    return _where(end, Tuning(restarted, variance, jnp.zeros_like(tuning.number), zeros, zeros), tuning)


def _counted(tuning: Tuning, positions: Float[Array, "chains size"]) -> Tuning:
    """Add the chains' positions to the moments (Chan, Golub & LeVeque 1979)."""
    more = len(positions)
    mean = jnp.mean(positions, axis=0)
    square = jnp.sum((positions - mean[None]) ** 2, axis=0)
    count = tuning.number + more
    gap = mean - tuning.mean
    return tuning._replace(
        number=count,
        mean=tuning.mean + gap * (more / count),
        square=tuning.square + square + gap**2 * (tuning.number * more / count),
    )


def _averaging(acceptance: float) -> Any:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(acceptance)


def _like(old: Any, new: Any) -> Any:
    return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), old, new)


def _where(condition: Integer[Array, ""] | Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), new, old)
