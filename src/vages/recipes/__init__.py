"""Models trained end to end: what `vages train` and the experiments run."""

from vages.recipes.assessment import Assessment, Sizes, assess, keep_assessment
from vages.recipes.config import config_of, recipe_of
from vages.recipes.deep import DEEP_PRESETS, DeepMethod, DeepRecipe
from vages.recipes.deep_run import DeepTrained, run_deep, train_deep
from vages.recipes.draw import draw, model_density, square
from vages.recipes.embedding import embed, linear_probe, logistic_regression, posterior_means
from vages.recipes.gallery import hidden_pixels, inpaint, interpolate, sample_images
from vages.recipes.grbm_run import GRBMRun, load_grbm_run
from vages.recipes.judging import evaluate_images, evaluate_run
from vages.recipes.loaded import Kept, LoadedRun, load_run
from vages.recipes.quality import Quality
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
from vages.recipes.reporting import build_report, write_report
from vages.recipes.run import run_recipe
from vages.recipes.selection import fid_selection
from vages.recipes.sources import open_images
from vages.recipes.training import Trained, train

__all__ = [
    "CHECKERBOARD",
    "DEEP_PRESETS",
    "FREYFACE",
    "PRESETS",
    "Assessment",
    "DeepMethod",
    "DeepRecipe",
    "DeepTrained",
    "GRBMRun",
    "Kept",
    "LoadedRun",
    "Method",
    "Quality",
    "Recipe",
    "Sizes",
    "Trained",
    "assess",
    "build_report",
    "check_recipe",
    "config_of",
    "draw",
    "embed",
    "evaluate_images",
    "evaluate_run",
    "fid_selection",
    "hidden_pixels",
    "inpaint",
    "interpolate",
    "job_of",
    "keep_assessment",
    "learner_of",
    "linear_probe",
    "load_grbm_run",
    "load_run",
    "logistic_regression",
    "model_density",
    "objective_of",
    "open_images",
    "posterior_means",
    "recipe_of",
    "run_deep",
    "run_recipe",
    "sample_images",
    "square",
    "train",
    "train_deep",
    "write_report",
]
