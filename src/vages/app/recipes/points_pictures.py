"""First pictures of a normalized model: in 2D its density next to the data's and a GRBM's, samples, and the curve."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import logsumexp

from vages.app.recipes import grbm
from vages.app.recipes.examples import Examples
from vages.app.recipes.grbm_pictures import SKETCHED, model_density, plane_of, square
from vages.app.recipes.recipe import Recipe
from vages.app.recipes.trained import Drawn, Trained
from vages.app.recipes.training import train
from vages.app.report import curves_figure, density_figure, density_png, grid_points, scatter_figure
from vages.app.report.page.summaries import OWN
from vages.app.settings import CHECKERBOARD
from vages.data import TOYS
from vages.evaluation import Density, log_density
from vages.samplers import SamplingWarning, sample
from vages.training import seed_keys
from vages.training.health import look_at_mass

SAMPLES = 64  # samples of q for each log p(v)
_BLOCK = 1000  # points per call, so that all calls share a compiled program
DRAWN = 5000
GRBM_STEPS = 10_000  # of the GRBM in the picture, which hardly improves after that
LOG_Z = "log Z on the grid of the picture"

_log_density = eqx.filter_jit(log_density)


def one_pass(key: PRNGKeyArray, model: Any, posterior: Any, v: np.ndarray) -> Density:
    """log p(v) at the lowest level, from the energy alone."""
    block, found = min(_BLOCK, len(v)), []
    for i, first in enumerate(range(0, len(v), block)):
        rows = np.minimum(np.arange(first, first + block), len(v) - 1)
        key_of_block = jax.random.fold_in(key, i)
        found.append(_log_density(key_of_block, model, posterior, jnp.asarray(v[rows]), samples=SAMPLES))
    whole = (jnp.concatenate(parts)[: len(v)] for parts in zip(*(each[:3] for each in found), strict=True))
    return Density(*whole, *found[0][3:])


def draw(trained: Trained, visible: bool = False) -> Drawn:
    """Draw the curve, and in 2D the densities, and samples by Heun's method."""
    test = trained.data.splits.test
    key, for_density = (seed_keys((trained.settings.seed,), use)[0] for use in ("samples", "density"))
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as another:  # compiling takes one core
        warnings.simplefilter("ignore", SamplingWarning)  # the result counts lost samples
        heun = trained.recipe.make_sampler(trained.posterior)
        drawing = another.submit(sample, key, trained.model, DRAWN, sampler=heun)
        pictures, told = _densities(trained, for_density)
        drawn = drawing.result()
    told["lost samples"] = {"count": drawn.diverged, "of": DRAWN}
    if trained.model.v.shape == (2,):
        own, shown = trained.data.in_units, min(len(test), DRAWN)
        sets = {"test data": own(test[:shown]), "samples": own(np.asarray(drawn.v)[:shown])}
        pictures["samples"] = scatter_figure(sets, plane_of(trained.settings, trained.data))
    log_z = told.get(LOG_Z, 0.0)
    told |= {LOG_Z: None} if not math.isfinite(log_z) else {}  # JSON has no such numbers
    return Drawn(pictures, told, np.asarray(drawn.v), tuple(look_at_mass(log_z)))


def _densities(trained: Trained, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw the curve, and in 2D the densities; return them and their entries in result.json."""
    settings, told, pictures = trained.settings, {}, {}
    toy = TOYS.get(settings.data)
    ceiling = float(trained.tested[OWN]) if OWN in trained.tested else None
    steps, values = trained.fitted.curve("test_log_likelihood")
    if len(steps):  # a finished run that is resumed without its log has none
        labeled = None if ceiling is None else ("of the true distribution", ceiling)
        pictures["curve"] = curves_figure(
            {"one pass": (steps, values[:, None])}, "test log likelihood", ceiling=labeled
        )
    if trained.model.v.shape == (2,):
        extent = plane_of(settings, trained.data)
        points = grid_points(extent)
        logs = _log_density_of(key, trained.model, trained.posterior, trained.data, points)
        left, right, bottom, top = extent
        told[LOG_Z] = float(logsumexp(logs)) + math.log(right - left) + math.log(top - bottom) - math.log(logs.size)
        densities = {f"this model: {_nats(trained.tested['test_log_likelihood'])}": _shown(logs)}
        if toy is not None and toy.log_density is not None:
            densities = {f"data: {_nats(ceiling)}": square(np.exp(toy.log_density(points))), **densities}
            beside = train(grbm.recipe(replace(CHECKERBOARD, data=settings.data, steps=GRBM_STEPS)))
            likelihood = float(np.mean(beside.tested["test_log_likelihood"]))
            named = f"GRBM, {CHECKERBOARD.latents} latents: {_nats(likelihood)}"
            densities[named] = model_density(beside.of_seed(0)[0], points)
            told["test log-likelihood of the paper's GRBM"] = likelihood
        pictures["density"] = density_figure(densities, extent)
    return pictures, told


def sketch(key: PRNGKeyArray, recipe: Recipe, model: Any, posterior: Any, data: Examples) -> bytes | None:
    """Draw the density in 2D during training."""
    if model.v.shape != (2,):
        return None
    points = grid_points(plane_of(recipe.settings, data), SKETCHED)
    return density_png(_shown(_log_density_of(key, model, posterior, data, points)))


def _shown(logs: np.ndarray) -> np.ndarray:
    """Return exp of a log density; float64 would overflow at 709."""
    return np.exp(np.minimum(logs, 700.0))


def _log_density_of(key: PRNGKeyArray, model: Any, posterior: Any, data: Examples, points: np.ndarray) -> np.ndarray:
    """Return the log density at a grid of points in the data's units, as a square float64 array."""
    seen = points if data.units is None else data.units.standardized(points)
    found = one_pass(key, model, posterior, seen)
    return square(np.asarray(found.value, np.float64) - data.log_volume)


def _nats(value: Any) -> str:
    return f"{float(value):.2f} nats"
