"""Selection of the model and posterior of a run with the best evaluated value."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.training.devices import here
from vages.training.keeping import Run
from vages.training.learner import Averages, LearnerState


class Selection(NamedTuple):
    """The name of an evaluated value, and whether the lowest is the best."""

    name: str
    lowest: bool

    @classmethod
    def of(cls, maximize: str | None, minimize: str | None) -> "Selection | None":
        """Return the requested selection, or None."""
        if maximize is not None and minimize is not None:
            raise ValueError(f"minimize: expected none with maximize={maximize!r}, got {minimize!r}; choose one")
        name = minimize if maximize is None else maximize
        return None if name is None else cls(name, maximize is None)

    @property
    def word(self) -> str:
        """The argument of `fit` that asks for it."""
        return "minimize" if self.lowest else "maximize"

    def better(self, run: Run, numbers: dict[str, Any]) -> Run:
        """Return the run with its best model and posterior replaced for each seed whose value is better."""
        if self.name not in numbers:
            known = ", ".join(numbers)
            raise ValueError(f"{self.word}: expected one of {known}, which are evaluated, got {self.name!r}")
        value = jnp.reshape(jnp.asarray(numbers[self.name], jnp.float32), (-1,))
        now, best = -value if self.lowest else value, run.best_value
        better = (now > best) | jnp.isneginf(best)  # any value replaces the initial -inf; later, NaN never does
        many = run.state.step.ndim > 0
        pick = lambda new, old: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)) if many else better[0], new, old)
        chosen = jax.tree.map(
            lambda new, old: pick(new, old) if eqx.is_array(new) else new, weights_of(here(run.state)), run.best
        )
        return run._replace(best=chosen, best_value=jnp.fmax(now, best))


def weights_of(state: LearnerState) -> Averages:
    """Return the model and posterior to use: their averages, if there are any."""
    return Averages(state.model, state.posterior) if state.averages is None else state.averages
