"""What training by a recipe gives."""

from typing import Any, NamedTuple

import numpy as np

from vages.app.recipes.examples import Examples
from vages.app.recipes.recipe import Recipe
from vages.training import Fitted, one_seed
from vages.training.health import Finding


def last_loss(fitted: Fitted) -> str:
    """The loss at the end, in a line."""
    loss = fitted.history[-1].get("loss") if fitted.history else None
    return "no log" if loss is None else f"loss: {float(np.mean(loss)):.5g}"


class Trained(NamedTuple):
    """A finished run: model and posterior that count (the best or the last; averages where the learner keeps them).

    They have a leading axis of seeds where the recipe is `stacked`. `tested` are the numbers of the recipe's `test`.
    """

    recipe: Recipe
    data: Examples
    model: Any
    posterior: Any
    tested: dict[str, Any]
    fitted: Fitted

    @property
    def settings(self) -> Any:
        """Those of the recipe."""
        return self.recipe.settings

    @property
    def summary(self) -> str:
        """What came of it, in a line."""
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
    """Pictures by name, figures or PNG files, what result.json says of them, samples, and what is wrong with them."""

    pictures: dict[str, Any]
    result: dict[str, Any] = {}  # noqa: RUF012
    samples: np.ndarray | None = None
    findings: tuple[Finding, ...] = ()
