"""Settings of GRBMs and deep models, and training by them. Nothing here knows about run folders."""

from vages.app.recipes.deep_training import DeepTrained, train_deep
from vages.app.recipes.grbm import job_of, learner_of, objective_of
from vages.app.recipes.pictures import draw, model_density, square
from vages.app.recipes.selection import fid_selection
from vages.app.recipes.sizes import check_recipe
from vages.app.recipes.sources import open_images
from vages.app.recipes.training import Trained, train
from vages.app.settings import (
    CHECKERBOARD,
    DEEP_PRESETS,
    FREYFACE,
    PRESETS,
    DeepMethod,
    DeepSettings,
    GRBMSettings,
    Method,
)

__all__ = [
    "CHECKERBOARD",
    "DEEP_PRESETS",
    "FREYFACE",
    "PRESETS",
    "DeepMethod",
    "DeepSettings",
    "DeepTrained",
    "GRBMSettings",
    "Method",
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
