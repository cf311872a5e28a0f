"""Figure 5: the Fisher divergence by VaGES-Fisher against the accurate one, as a GRBM departs from the data.

The data are standard normal: a GRBM with W = b = c = 0 and σ = 1. The model is that GRBM with Gaussian noise on W, b
and c, whose standard deviation is the perturbation; v and h are of one dimension. The accurate divergence is the mean
of ½ ‖∇ log p(v) + v‖² over the test data, the model's score being known. The estimate is that of the critic which is
best on validation data; the paper's, by the last critic, is kept beside it.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.evaluation import CriticTraining, Estimate, VariationalScore, fisher_divergence
from vages.experiments.claims import Claim, Outcome, Say
from vages.models import GRBM
from vages.posteriors import BernoulliPosterior
from vages.report import GridPanel, grid_figure


@dataclass(frozen=True)
class Settings:
    """Perturbations by dimension, sizes of the data, and the training of critic and q (L = 1, K = 5)."""

    levels: dict[int, tuple[float, ...]]
    critic: CriticTraining
    train: int = 16_000
    validation: int = 2_000
    test: int = 2_000
    together: int = 2  # runs at a time: most of a run is too small to be divided over cores


PAPER = Settings({200: (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), 500: (0.0, 0.4, 1.0)}, CriticTraining())
QUICK = Settings({20: (0.0, 0.4, 1.0), 50: (0.0, 0.4, 1.0)}, replace(PAPER.critic, steps=4_000, learning_rate=1e-3))


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Estimate every divergence, and compare it with the accurate one."""
    settings = QUICK if quick else PAPER
    rows = []
    for dim, levels in settings.levels.items():
        key = jax.random.fold_in(jax.random.key(seed), dim)
        with ThreadPoolExecutor(settings.together) as pool:
            jobs = [pool.submit(estimate, key, dim, level, settings) for level in levels]
            for job in jobs:
                row = job.result()
                rows.append(row)
                say(
                    f"dimension {dim}, perturbation {row['perturbation']}: accurate {row['accurate']:.5g}, "
                    f"estimated {row['best']:.5g} ± {row['best_error']:.2g}, by the last critic {row['last']:.5g}"
                )
        jax.clear_caches()
    claims = []
    for dim in settings.levels:
        own = [row for row in rows if row["dimension"] == dim]
        claims += [closeness(row) for row in own]
        steps = np.diff([row["best"] for row in own])
        claims.append(
            Claim.at_least(f"dimension {dim}: the estimate rises with the perturbation (least rise)", steps.min(), 0.0)
        )
    return Outcome(
        settings=asdict(settings),
        claims=claims,
        measurements={"runs": rows},
        figures={"fig5": grid_figure([_panel(dim, rows) for dim in settings.levels], columns=len(settings.levels))},
    )


def closeness(row: dict[str, Any]) -> Claim:
    """|estimate − accurate| over the larger of a tenth of the accurate value and two standard errors, at most 1."""
    gap = abs(row["best"] - row["accurate"])
    allowed = max(0.1 * row["accurate"], 2 * row["best_error"])
    return Claim.at_most(
        f"dimension {row['dimension']}, perturbation {row['perturbation']}: the estimate is within 10 % or two "
        f"standard errors of {row['accurate']:.4g} (share of that)",
        gap / allowed if gap else 0.0,
        1.0,
    )


def estimate(key: PRNGKeyArray, dim: int, level: float, settings: Settings) -> dict[str, Any]:
    """One run: the data are those of every perturbation of the dimension, and so is the noise that perturbs."""
    for_data, for_model, for_posterior, for_critic = jax.random.split(key, 4)
    sizes = (settings.train, settings.validation, settings.test)
    v = jax.random.normal(for_data, (sum(sizes), dim))
    train, validation, test = jnp.split(v, np.cumsum(sizes)[:2])
    model = perturbed(for_model, dim, level)
    score = VariationalScore(model, BernoulliPosterior.linear(for_posterior, dim, dim))
    found = fisher_divergence(for_critic, score, train, validation, test, how=settings.critic)
    accurate = Estimate.of(_accurate(model, test))
    return {
        "dimension": dim,
        "perturbation": level,
        "accurate": accurate.mean,
        "last": found.last.mean,
        "last_error": found.last.error,
        "best": found.best.mean,
        "best_error": found.best.error,
        "best_step": found.best_step,
        "validation": [(step, value.mean) for step, value in found.validation],
    }


def perturbed(key: PRNGKeyArray, dim: int, level: float) -> GRBM:
    """The standard normal as a GRBM, with noise of this level on W, b and c."""
    noise = lambda key, *shape: level * jax.random.normal(key, shape)
    for_weight, for_b, for_c = jax.random.split(key, 3)
    return GRBM(noise(for_weight, dim, dim), noise(for_b, dim), noise(for_c, dim), jnp.zeros(()))


@eqx.filter_jit
def _accurate(model: GRBM, v: Array) -> Array:
    return 0.5 * jnp.sum((jax.vmap(model.score)(v) + v) ** 2, axis=1)


def _panel(dim: int, rows: list[dict[str, Any]]) -> GridPanel:
    own = [row for row in rows if row["dimension"] == dim]
    levels = np.array([row["perturbation"] for row in own])
    lines = {"VaGES-Fisher": "best", "VaGES-Fisher, last critic": "last", "accurate": "accurate"}
    return GridPanel(
        "perturbation",
        f"Fisher divergence, dimension {dim}",
        {name: (levels, np.array([row[column] for row in own])) for name, column in lines.items()},
    )
