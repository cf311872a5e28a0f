"""Models trained end to end: what `vages train` and the experiments run."""

from vages.recipes.config import config_of, recipe_of
from vages.recipes.deep import DEEP_PRESETS, DeepMethod, DeepRecipe
from vages.recipes.deep_run import DeepTrained, run_deep, train_deep
from vages.recipes.draw import draw, model_density, square
from vages.recipes.embedding import embed, linear_probe, posterior_means
from vages.recipes.gallery import hidden_pixels, inpaint, interpolate, sample_images
from vages.recipes.loaded import Kept, LoadedRun, load_run
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
    "DEEP_PRESETS",
    "FREYFACE",
    "PRESETS",
    "DeepMethod",
    "DeepRecipe",
    "DeepTrained",
    "Kept",
    "LoadedRun",
    "Method",
    "Recipe",
    "Trained",
    "check_recipe",
    "config_of",
    "draw",
    "embed",
    "hidden_pixels",
    "inpaint",
    "interpolate",
    "job_of",
    "learner_of",
    "linear_probe",
    "load_run",
    "model_density",
    "objective_of",
    "posterior_means",
    "recipe_of",
    "run_deep",
    "run_recipe",
    "sample_images",
    "square",
    "train",
    "train_deep",
]
