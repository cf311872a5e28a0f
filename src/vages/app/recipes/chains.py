"""The model and the schedule of a recipe's annealed chains."""

import jax.numpy as jnp

from vages.app.recipes.recipe import Recipe
from vages.models import EBLVM, Mixed
from vages.samplers import Schedule


def chains_of(recipe: Recipe, model: EBLVM) -> tuple[EBLVM, Schedule]:
    """Return the model in its training precision, and the recipe's schedule."""
    annealed = recipe.annealed
    assert annealed is not None
    return Mixed(model, recipe.make_learner().compute_dtype or jnp.dtype("float32")), annealed.schedule
