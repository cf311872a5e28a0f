"""GRBMs trained end to end: what `vages train` and the experiments run."""

from vages.recipes.draw import draw, model_density, square
from vages.recipes.recipe import (
    CHECKERBOARD,
    FREYFACE,
    PRESETS,
    Method,
    Recipe,
    check_recipe,
    job_of,
    learner_of,
    objective_of,
)
from vages.recipes.run import run_recipe
from vages.recipes.training import Trained, train

__all__ = [
    "CHECKERBOARD",
    "FREYFACE",
    "PRESETS",
    "Method",
    "Recipe",
    "Trained",
    "check_recipe",
    "draw",
    "job_of",
    "learner_of",
    "model_density",
    "objective_of",
    "run_recipe",
    "square",
    "train",
]
