"""Settings of GRBMs and deep models, and training by them. Nothing here knows about run folders."""

from vages.app.recipes.deep import DEEP_PRESETS, DeepMethod, DeepRecipe
from vages.app.recipes.deep_training import DeepTrained, train_deep
from vages.app.recipes.pictures import draw, model_density, square
from vages.app.recipes.recipe import (
    CHECKERBOARD,
    FREYFACE,
    PRESETS,
    Method,
    Recipe,
    job_of,
    learner_of,
    objective_of,
)
from vages.app.recipes.selection import fid_selection
from vages.app.recipes.sizes import check_recipe
from vages.app.recipes.sources import open_images
from vages.app.recipes.training import Trained, train

__all__ = [
    "CHECKERBOARD",
    "DEEP_PRESETS",
    "FREYFACE",
    "PRESETS",
    "DeepMethod",
    "DeepRecipe",
    "DeepTrained",
    "Method",
    "Recipe",
    "Trained",
    "check_recipe",
    "draw",
    "fid_selection",
    "job_of",
    "learner_of",
    "model_density",
    "objective_of",
    "open_images",
    "square",
    "train",
    "train_deep",
]
