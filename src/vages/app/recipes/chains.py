"""The model and schedule that chains of a deep recipe are run with."""

from dataclasses import replace

from vages.app.settings import DeepSettings
from vages.models import EBLVM, Mixed
from vages.samplers import Schedule


def chains_of(recipe: DeepSettings, model: EBLVM) -> tuple[EBLVM, Schedule]:
    """The model in the recipe's precision; a schedule that ends with denoising from the level it was trained at."""
    schedule = replace(Schedule(), denoise=recipe.sigma_base).scaled(recipe.sampling)
    return Mixed(model, recipe.precision), schedule
