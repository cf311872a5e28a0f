"""Recipes: a model, its data and its training. Nothing here depends on run folders."""

from vages.app.recipes.examples import Examples
from vages.app.recipes.grbm_pictures import model_density, square
from vages.app.recipes.jobs import job_of, job_on_noise, start
from vages.app.recipes.presets import as_recipe, nearest_preset, preset
from vages.app.recipes.recipe import Recipe, example_of
from vages.app.recipes.selection import FIDSelection
from vages.app.recipes.sizes import check_recipe
from vages.app.recipes.sources import open_images
from vages.app.recipes.trained import Drawn, Trained
from vages.app.recipes.training import train

__all__ = [
    "Drawn",
    "Examples",
    "FIDSelection",
    "Recipe",
    "Trained",
    "as_recipe",
    "check_recipe",
    "example_of",
    "job_of",
    "job_on_noise",
    "model_density",
    "nearest_preset",
    "open_images",
    "preset",
    "square",
    "start",
    "train",
]
