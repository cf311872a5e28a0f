"""Training jobs of recipes, for timing."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from vages.app.recipes.presets import as_recipe
from vages.app.recipes.recipe import Recipe, example_of
from vages.app.settings import DeepSettings, GRBMSettings
from vages.training import Job, Learner, init_seeds, one_seed
from vages.training.learner import LearnerState


def job_of(settings: GRBMSettings | DeepSettings, *, seeds: int = 0) -> Job:
    """Return a job on the recipe's own data; `seeds` = 0 is one run without an axis of seeds."""
    recipe = as_recipe(settings)
    return _job(recipe, jnp.asarray(recipe.load().of_seed(0).splits.train), seeds)


def job_on_noise(settings: GRBMSettings | DeepSettings, shape: tuple[int, ...], rows: int = 1000) -> Job:
    """Return a job on random images of a shape."""
    return _job(as_recipe(settings), jax.random.uniform(jax.random.key(0), (rows, *shape)), 0)


def start(recipe: Recipe, shape: tuple[int, ...]) -> tuple[Learner, LearnerState]:
    """The learner of a preset, and its state before the first iteration, without an axis of seeds."""
    learner = recipe.make_learner()
    return learner, one_seed(_states(recipe, learner, shape, recipe.seeds[:1]))


def _job(recipe: Recipe, v: Array, seeds: int) -> Job:
    learner, batch = recipe.make_learner(), recipe.settings.batch
    state = _states(recipe, learner, v.shape[1:], range(max(seeds, 1)) if seeds else recipe.seeds[:1])
    return Job(learner, state if seeds else one_seed(state), v, batch, seeds)


def _states(recipe: Recipe, learner: Learner, shape: tuple[int, ...], seeds: range | tuple[int, ...]) -> LearnerState:
    return init_seeds(learner, seeds, lambda key: recipe.make(key, example_of(shape)), recipe.settings.batch)
