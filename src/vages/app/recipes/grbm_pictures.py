"""Pictures of a trained GRBM: its density and samples on the plane, or its images, and the learning curve."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.app.recipes.examples import Examples
from vages.app.recipes.recipe import Recipe
from vages.app.recipes.trained import Drawn, Trained
from vages.app.report import Extent, curves_figure, density_figure, density_png, grid_points, image_grid, scatter_figure
from vages.data import TOYS
from vages.data.freyface import SHAPE
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.samplers import gibbs_sample

CURVES = ("test_log_likelihood", "validation_log_likelihood", "loss")
SKETCHED = 60  # cells per side of the density that is drawn during training


def draw(trained: Trained, visible: bool = False) -> Drawn:
    """Draw figures of the first seed."""
    model, _ = trained.of_seed(0)
    settings, data = trained.settings, trained.data.of_seed(0)
    own, test = data.in_units, data.in_units(data.splits.test)
    figures: dict = {}
    samples = None
    logged = [
        name for name in CURVES if any(name in row for row in trained.fitted.history)
    ]  # nothing, if training was stopped at once
    if logged:
        ceiling = ("log 2, of the true distribution", float(np.log(2))) if settings.data == "checkerboard" else None
        curve = {settings.method: trained.fitted.curve(logged[0])}
        figures["curve"] = curves_figure(curve, logged[0].replace("_", " "), ceiling=ceiling)
    if model.v.shape == (2,):
        extent = plane_of(settings, data)
        if settings.latents <= MAX_ENUMERATED:
            points = grid_points(extent)
            exact = TOYS[settings.data].log_density if settings.data in TOYS else None
            known = {} if exact is None else {"data": square(np.exp(exact(points)))}
            density = _density_of(model, data, points)
            figures["density"] = density_figure({**known, settings.method: density}, extent)
        samples = np.asarray(gibbs_sample(jax.random.key(settings.seed), model, 5000).v)
        panels = {"test data": test[:5000], f"samples of {settings.method}": own(samples)}
        figures["samples"] = scatter_figure(panels, extent)
    elif settings.data == "freyface":
        drawn = gibbs_sample(jax.random.key(settings.seed), model, 100)
        samples = np.asarray(drawn.v)
        means = np.asarray(jax.vmap(lambda h: model.conditional(h).mean)(drawn.h))
        panels = {"test data": test[:100], "samples, E[v | h]": own(means)}
        figures["samples"] = image_grid({name: rows.reshape(-1, *SHAPE) for name, rows in panels.items()})
    return Drawn(figures, samples=samples)


def sketch(key: PRNGKeyArray, recipe: Recipe, model: GRBM, posterior: Any, data: Examples) -> bytes | None:
    """Draw the density in 2D during training."""
    if model.v.shape != (2,) or recipe.settings.latents > MAX_ENUMERATED:
        return None
    return density_png(_density_of(model, data, grid_points(plane_of(recipe.settings, data), SKETCHED)))


def _density_of(model: GRBM, data: Examples, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "y x"]:
    """The density at points in the units of the data."""
    seen = points if data.units is None else data.units.standardized(points)
    return model_density(model, seen) * np.exp(-data.log_volume)


def model_density(model: GRBM, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "y x"]:
    """p(v) on a square grid of points."""
    return square(np.asarray(_density(model, jnp.asarray(points))))


def square(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "y x"]:
    """Values on `grid_points`, as a picture."""
    side = round(len(values) ** 0.5)
    return values.reshape(side, side)


@eqx.filter_jit
def _density(model: GRBM, points: Array) -> Array:
    with jax.default_matmul_precision("float32"):
        return jnp.exp(-jax.vmap(model.free_energy)(points) - model.log_partition())


def plane_of(settings: Any, data: Examples) -> Extent:
    """Return the extent of pictures: that of the toy, or one around the test points."""
    return TOYS[settings.data].bounds if settings.data in TOYS else _around(data.in_units(data.splits.test))


def _around(points: np.ndarray) -> Extent:
    low, high = points.min(0).astype(np.float64), points.max(0).astype(np.float64)
    margin = 0.2 * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return left, right, bottom, top
