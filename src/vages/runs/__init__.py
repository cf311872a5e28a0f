"""The folder of a run: made by `vages train`, come back from, judged and shown."""

from vages.runs.assessment import Assessment, Sizes, assess, keep_assessment
from vages.runs.config import config_of, recipe_of
from vages.runs.deep import run_deep
from vages.runs.embedding import embed
from vages.runs.gallery import hidden_pixels, inpaint, interpolate, sample_images
from vages.runs.grbm import run_recipe
from vages.runs.judging import evaluate_images, evaluate_run
from vages.runs.kept import Kept
from vages.runs.loaded import LoadedRun, load_run
from vages.runs.loaded_grbm import GRBMRun, load_grbm_run
from vages.runs.quality import Quality
from vages.runs.reports import build_report, write_report

__all__ = [
    "Assessment",
    "GRBMRun",
    "Kept",
    "LoadedRun",
    "Quality",
    "Sizes",
    "assess",
    "build_report",
    "config_of",
    "embed",
    "evaluate_images",
    "evaluate_run",
    "hidden_pixels",
    "inpaint",
    "interpolate",
    "keep_assessment",
    "load_grbm_run",
    "load_run",
    "recipe_of",
    "run_deep",
    "run_recipe",
    "sample_images",
    "write_report",
]
