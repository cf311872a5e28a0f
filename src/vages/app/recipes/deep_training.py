"""Training by a recipe of a deep model."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from vages.app.recipes.deep import learner_of_deep, load_deep, parts_of_deep, training_images
from vages.app.recipes.selection import fid_selection
from vages.app.settings import DeepSettings
from vages.data import Images
from vages.models import EBLVM
from vages.training import Fitted, fit, make_seeds, one_seed

CHUNK = 100  # iterations between two looks at the numbers


class DeepTrained(NamedTuple):
    """A finished run: what is sampled from (averages, where the learner keeps them; the selected ones, where some
    were selected), and how it got there.
    """

    recipe: DeepSettings
    images: Images
    model: EBLVM
    posterior: Any
    fitted: Fitted


def train_deep(recipe: DeepSettings, images: Images | None = None, **how: Any) -> DeepTrained:
    """Train by a recipe; `how` goes to `fit`: folder, resume, guard, mesh, …"""
    images = load_deep(recipe) if images is None else images
    data = training_images(recipe, images)
    key, model, posterior = one_seed(make_seeds((recipe.seed,), parts_of_deep(recipe, data.shape[1:])))
    how = {"chunk": CHUNK, **how}
    if recipe.fid_every:
        how |= fid_selection(recipe, images.splits.train, every=recipe.fid_every, grey="replicate")
    learner = learner_of_deep(recipe)
    rows = jnp.asarray(data)
    fitted = fit(key, model, posterior, rows, learner, steps=recipe.steps, batch=recipe.batch, **how)
    return DeepTrained(recipe, images, fitted.model, fitted.posterior, fitted)
