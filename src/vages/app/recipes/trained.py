"""The result of training by a recipe."""

from typing import Any, NamedTuple

import numpy as np

from vages.app.recipes.examples import Examples
from vages.app.recipes.recipe import Recipe
from vages.training import Fitted, one_seed
from vages.training.health import Finding


def last_loss(fitted: Fitted) -> str:
    """Return the final loss as text."""
    loss = fitted.history[-1].get("loss") if fitted.history else None
    return "no log" if loss is None else f"loss: {float(np.mean(loss)):.5g}"


class Trained(NamedTuple):
    """The result of training, with the best or the last model and posterior; averages if the learner keeps them.

    They have a leading axis of seeds if the recipe is `stacked`. `tested` holds the numbers of the recipe's `test`.
    """

    recipe: Recipe
    data: Examples
    model: Any
    posterior: Any
    tested: dict[str, Any]
    fitted: Fitted

    @property
    def settings(self) -> Any:
        """The settings of the recipe."""
        return self.recipe.settings

    @property
    def summary(self) -> str:
        """A one-line summary of the result."""
        if self.recipe.parts is not None:
            return self.recipe.parts.summary(self)
        if self.tested:
            return ", ".join(f"{name.replace('_', ' ')}: {np.mean(value):.5g}" for name, value in self.tested.items())
        return last_loss(self.fitted)

    def of_seed(self, seed: int = 0) -> tuple[Any, Any]:
        """The model and the posterior of one seed, counted from 0."""
        both = self.model, self.posterior
        return one_seed(both, seed) if self.recipe.stacked else both


class Drawn(NamedTuple):
    """Pictures by name (figures or PNG files), their entries in result.json, samples, and findings about them."""

    pictures: dict[str, Any]
    result: dict[str, Any] = {}  # noqa: RUF012
    samples: np.ndarray | None = None
    findings: tuple[Finding, ...] = ()
