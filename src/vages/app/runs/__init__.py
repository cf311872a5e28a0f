"""Run folders: made by `vages train`, loaded, evaluated and shown."""

from vages.app.runs.assessment import Assessment, Sizes, assess, keep_assessment
from vages.app.runs.completions import hidden_pixels
from vages.app.runs.config import config_of, recipe_of
from vages.app.runs.embedding import embed
from vages.app.runs.gallery import inpaint, interpolate, sample_images
from vages.app.runs.image_quality import evaluate_images, evaluate_run, image_statistics
from vages.app.runs.kept import Kept
from vages.app.runs.loaded import Run, load_run
from vages.app.runs.out_of_distribution import assess_ood, examples_for, load_others
from vages.app.runs.quality import Quality
from vages.app.runs.reports import build_report, write_report
from vages.app.runs.train import run_recipe

__all__ = [
    "Assessment",
    "Kept",
    "Quality",
    "Run",
    "Sizes",
    "assess",
    "assess_ood",
    "build_report",
    "config_of",
    "embed",
    "evaluate_images",
    "evaluate_run",
    "examples_for",
    "hidden_pixels",
    "image_statistics",
    "inpaint",
    "interpolate",
    "keep_assessment",
    "load_others",
    "load_run",
    "recipe_of",
    "run_recipe",
    "sample_images",
    "write_report",
]
