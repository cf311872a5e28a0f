"""Recipes of normalized noise-conditional EBLVMs of points: log p(v) in one forward pass."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.recipes.examples import Examples
from vages.app.recipes.grbm import load_rows
from vages.app.recipes.points_pictures import SAMPLES, draw, one_pass, sketch
from vages.app.recipes.rates import rates, same_until
from vages.app.recipes.recipe import Parts, Recipe
from vages.app.recipes.trained import Trained
from vages.app.report.page.summaries import GAUSSIAN, OWN
from vages.app.settings import PointSettings
from vages.data import TOYS
from vages.domains import Empty, Real
from vages.evaluation import gaussian_log_density
from vages.models import NoiseConditionalEBLVM, measure_sigma_data
from vages.objectives import Enumerated, NoiseConditionalDSM, Variational
from vages.optimizers import adam
from vages.posteriors import ExactPosterior, FeaturePosterior, Posterior
from vages.samplers import Heun
from vages.training import Learner

LOOKED_AT = 1000  # test points in the curve of a run
NAMED = (*TOYS, "freyface")
CHUNK = 100  # iterations in a chunk, between two log records
STEPS = 40  # of Heun's method; for a Gaussian as wide as the data, samples are 1 % too wide, with 18 steps 5.5 %
TEST = "test_log_likelihood"


def recipe(settings: PointSettings) -> Recipe:
    """Return the recipe of a normalized model with these settings, which reports its test log-likelihood."""
    return Recipe(
        data=settings.data,
        build=build,
        learner=learner,
        settings=settings,
        sampler=lambda settings: Heun(steps=STEPS),
        evaluate=_look,
        test=_test,
        noise=lambda settings: 0.1 * (settings.sigma_data or 1.0),
        parts=Parts(
            of=recipe,
            rank=1,
            load=load_rows,
            named=NAMED,
            same_until=same_until(settings),
            activations=lambda shape: 40 * settings.batch * settings.width * settings.depth,
            draw=draw,
            sketch=sketch,
            summary=_summary,
            chunk=CHUNK,
            evaluate_every=max(1, settings.steps // 10),
            settle=partial(settle, settings),
        ),
    )


def settle(settings: PointSettings, data: Examples) -> PointSettings:
    """Return the settings with None replaced by values for the data; the default batch is at most all rows."""
    train, own = data.splits.train, settings.data not in NAMED
    center = float(np.mean(train, dtype=np.float64)) if settings.center is None else settings.center
    return replace(
        settings,
        center=center,
        sigma_data=measure_sigma_data(train, center) if settings.sigma_data is None else settings.sigma_data,
        batch=min(settings.batch, data.rows) if own and settings.batch == PointSettings.batch else settings.batch,
        detail=(8.0 if data.shape == (2,) else 0.0) if settings.detail is None else settings.detail,
    )


def build(key: PRNGKeyArray, settings: PointSettings, data: Examples) -> tuple[NoiseConditionalEBLVM, Posterior]:
    """Return a new model and posterior for rows of the data's length."""
    settings = settle(settings, data)
    assert settings.sigma_data is not None
    assert settings.center is not None
    for_model, for_posterior = jax.random.split(key)
    detail = settings.detail or 0.0
    model = NoiseConditionalEBLVM.vectors(
        for_model,
        data.shape,
        sigma_data=settings.sigma_data,
        h=Real(settings.latents) if settings.latents else Empty(),
        width=settings.width,
        depth=settings.depth,
        features=32,
        head_width=32,
        embedding=32,
        center=settings.center,
        normalized=True,
        frequencies=(1.0, detail**0.5, detail) if detail else (),
    )
    return model, FeaturePosterior.init(for_posterior, model, width=64) if settings.latents else ExactPosterior()


def learner(settings: PointSettings) -> Learner:
    """Adam on both scores, in v and in the noise level."""
    model_rate, posterior_rate = rates(settings, settings.learning_rate, settings.posterior_learning_rate)
    latents = Variational(settings.samples) if settings.latents else Enumerated()
    sigma_data = 1.0 if settings.sigma_data is None else settings.sigma_data
    return Learner(
        NoiseConditionalDSM(sigma_data, latents, level_weight=settings.level_weight),
        adam(model_rate, b2=0.999, clip=settings.clip),
        adam(posterior_rate, b2=0.999, clip=settings.clip),
        posterior_steps=settings.posterior_steps if settings.latents else 0,
        ema=settings.ema,
    )


def _look(key: PRNGKeyArray, settings: Any, model: Any, posterior: Any, data: Examples) -> dict[str, Any]:
    return {TEST: one_pass(key, model, posterior, data.splits.test[:LOOKED_AT]).value.mean() - data.log_volume}


def _test(key: PRNGKeyArray, settings: Any, model: Any, posterior: Any, data: Examples) -> dict[str, Any]:
    """Log-likelihood in one pass and of a Gaussian, the effective share of q's samples, and the data's own if known."""
    found = one_pass(key, model, posterior, data.splits.test)
    told: dict[str, Any] = {TEST: found.value.mean() - data.log_volume}
    gaussian = gaussian_log_density(data.splits.train, data.splits.test, model.sigma_min)
    if gaussian is not None:
        told[GAUSSIAN] = gaussian.mean() - data.log_volume
    if settings.latents:
        told["effective share of q's samples"] = jnp.median(found.ess) / SAMPLES
    if settings.data in TOYS and TOYS[settings.data].log_density is not None:
        own = TOYS[settings.data].log_density(data.in_units(data.splits.test))  # pyright: ignore[reportOptionalCall]
        told[OWN] = np.mean(own[np.isfinite(own)])  # a point on an edge may be rounded across it
    return told


def _summary(trained: Trained) -> str:
    beside = {"of a Gaussian": GAUSSIAN, "of the true distribution, the best possible": OWN}
    told = [f"; {words}: {float(trained.tested[name]):.4f}" for words, name in beside.items() if name in trained.tested]
    return f"test log-likelihood (one pass): {float(trained.tested[TEST]):.4f} nats{''.join(told)}"
