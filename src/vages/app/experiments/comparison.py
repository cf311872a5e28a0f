"""Methods trained under the same conditions: likelihood curves, densities, final numbers."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from vages.app.experiments.claims import Say
from vages.app.recipes import Trained, as_recipe, model_density, square, train
from vages.app.recipes.grbm import exact_log_likelihood
from vages.app.report import curves_figure, density_figure, grid_points
from vages.app.settings import GRBMSettings
from vages.data import TOYS
from vages.training import make_seeds

LEARNED = 0.5  # nats that models must gain to be compared, ten times the largest distance that counts as none


def train_all(recipes: dict[str, GRBMSettings], say: Say) -> dict[str, Trained]:
    """Train each recipe and report its test log-likelihood."""
    runs = {}
    for name, recipe in recipes.items():
        run = runs[name] = train(as_recipe(recipe))
        run.fitted.uninterrupted()
        found = run.tested["test_log_likelihood"]
        mean, spread = found.mean(), found.std(ddof=1)
        say(f"{name}: test log-likelihood {mean:.4f} ± {spread:.4f}, {run.fitted.seconds:.0f} s")
    return runs


def mean_likelihood(runs: dict[str, Trained]) -> dict[str, float]:
    """The mean over seeds of the final test log-likelihood."""
    return {name: float(run.tested["test_log_likelihood"].mean()) for name, run in runs.items()}


def learned_likelihood(runs: dict[str, Trained]) -> dict[str, float]:
    """Return the same, but NaN for methods that gained less than `LEARNED` over the untrained models."""
    least = untrained_likelihood(next(iter(runs.values()))) + LEARNED
    return {name: mean if mean >= least else math.nan for name, mean in mean_likelihood(runs).items()}


def untrained_likelihood(run: Trained) -> float:
    """Return the mean over seeds of the test log-likelihood before training, which is that of all methods."""
    _, models, _ = make_seeds(run.recipe.seeds, lambda key: run.recipe.make(key, run.data))
    test = jnp.asarray(run.data.splits.test if run.data.per_seed else run.data.splits.test[None])
    return float(np.mean(exact_log_likelihood(models, test) - run.data.log_volume))


def difference(one: float, other: float) -> float:
    """Return one − other, or NaN if they are equal, as runs that differ in anything end at different numbers."""
    return one - other or math.nan


def likelihoods(runs: dict[str, Trained]) -> dict[str, Any]:
    """Return the plotted values, and the final value of each seed, for result.json."""
    record = {}
    for name, run in runs.items():
        steps, values = run.fitted.curve("test_log_likelihood")
        record[name] = {
            "mean": float(run.tested["test_log_likelihood"].mean()),
            "each seed": run.tested["test_log_likelihood"].tolist(),
            "steps": steps.tolist(),
            "curve": values.mean(1).tolist(),
            "seconds": run.fitted.seconds,
        }
    return record


def likelihood_figure(runs: dict[str, Trained]) -> Figure:
    """Plot test log-likelihood against iterations, with the bound log 2 of the checkerboard."""
    curves = {name: run.fitted.curve("test_log_likelihood") for name, run in runs.items()}
    worst = min(float(values.mean(1)[-1]) for _, values in curves.values())
    ceiling = ("log 2, of the true distribution", float(np.log(2)))
    return curves_figure(curves, "test log-likelihood", ceiling, floor=min(worst, -0.2) - 0.3)


def densities_figure(runs: dict[str, Trained], toy: str = "checkerboard") -> Figure:
    """Plot the density of the data and of each method's first seed."""
    extent, log_density = TOYS[toy].bounds, TOYS[toy].log_density
    points = grid_points(extent)
    panels = {} if log_density is None else {"data": square(np.exp(log_density(points)))}
    panels |= {name: model_density(run.of_seed(0)[0], points) for name, run in runs.items()}
    return density_figure(panels, extent)
