"""Figure 4: VaGES-DSM compared with BiDSM on Frey face, over the number of samples L and of posterior steps K."""

from dataclasses import asdict, dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.experiments.comparison import difference
from vages.app.recipes import as_recipe, job_of, train
from vages.app.report import GridPanel, grid_figure
from vages.app.settings import FREYFACE, GRBMSettings
from vages.evaluation import score_matching_loss
from vages.timing import ratio
from vages.training import seconds_per_iteration, step_bytes

METHODS = ("VaGES-DSM", "BiDSM N = 0", "BiDSM N = 2", "BiDSM N = 5")
RIVALS = METHODS[1:]


@dataclass(frozen=True)
class Settings:
    """The grid (each L at the default K, each K at L = 2), and the length of the timing."""

    recipe: GRBMSettings
    samples: tuple[int, ...] = (2, 4, 6, 8, 10)
    posterior_steps: tuple[int, ...] = (1, 2, 3, 4, 5)
    timed_iterations: int = 50
    rounds: int = 10


PAPER = Settings(FREYFACE)
QUICK = Settings(
    replace(FREYFACE, steps=1000, evaluate_every=500, annealing=200),
    samples=(2,),
    posterior_steps=(5,),
    timed_iterations=5,
    rounds=5,
)


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Train every method at every point of the grid; measure likelihood, score matching loss, time and memory."""
    settings = QUICK if quick else PAPER
    recipe = replace(settings.recipe, seed=seed)
    grid = sorted({(n, recipe.posterior_steps) for n in settings.samples} | {(2, k) for k in settings.posterior_steps})
    table: dict[str, dict[tuple[int, int], dict[str, float]]] = {name: {} for name in METHODS}
    ratios = {name: [] for name in RIVALS}
    for samples, steps in grid:
        recipes = {name: _recipe(recipe, name, samples, steps) for name in METHODS}
        jobs = {name: job_of(one) for name, one in recipes.items()}
        times = seconds_per_iteration(jobs, iterations=settings.timed_iterations, rounds=settings.rounds)
        for name in RIVALS:
            ratios[name].append(ratio(times["VaGES-DSM"], times[name]))
        for name, one in recipes.items():
            trained = train(as_recipe(one))
            trained.fitted.uninterrupted()
            loss = score_matching_loss(trained.of_seed(0)[0].score, jnp.asarray(trained.data.splits.test)).mean
            row = table[name][samples, steps] = {
                "test log-likelihood": float(trained.tested["test_log_likelihood"][0]),
                "test SM loss": loss,
                "ms": 1e3 * float(np.median(times[name])),
                "MiB": step_bytes(jobs[name]) / 2**20,
            }
            say(f"{name}, L = {samples}, K = {steps}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))
            jax.clear_caches()

    def mean(name: str, key: str) -> float:
        return float(np.mean([row[key] for row in table[name].values()]))

    def gain(name: str, key: str) -> float:
        return mean("VaGES-DSM", key) - mean(name, key)

    likelihood, loss = "test log-likelihood", "test SM loss"
    time = float(np.mean(ratios["BiDSM N = 5"]))
    memory = mean("VaGES-DSM", "MiB") / mean("BiDSM N = 5", "MiB")
    scale = abs(mean("BiDSM N = 5", likelihood))
    claims = [
        Claim.at_most("VaGES-DSM takes at most 40 % of the time of BiDSM N = 5", time, 0.4),
        Claim.at_most("VaGES-DSM takes at most 90 % of the memory of BiDSM N = 5", memory, 0.9),
        Claim.at_least(
            "VaGES-DSM performs like BiDSM N = 5 (gain in test log-likelihood over its size)",
            difference(mean("VaGES-DSM", likelihood), mean("BiDSM N = 5", likelihood)) / scale,
            -0.02,
        ),
        *(
            Claim.above(f"VaGES-DSM beats {name} (gain in test log-likelihood)", gain(name, likelihood), 0.0)
            for name in METHODS[1:3]
        ),
        *(
            Claim.below(f"VaGES-DSM beats {name} (difference in test SM loss)", gain(name, loss), 0.0)
            for name in METHODS[1:3]
        ),
        Claim.below("VaGES-DSM takes less time than BiDSM N = 2", float(np.mean(ratios["BiDSM N = 2"])), 1.0),
        Claim.below(
            "VaGES-DSM takes the least memory (over the least of the others)",
            mean("VaGES-DSM", "MiB") / min(mean(name, "MiB") for name in RIVALS),
            1.0,
        ),
    ]
    return Outcome(
        settings=asdict(replace(settings, recipe=recipe)),
        claims=claims,
        measurements={
            name: [{"L": samples, "K": steps, **row} for (samples, steps), row in rows.items()]
            for name, rows in table.items()
        },
        figures={"fig4": grid_figure(_panels(table, settings, recipe.posterior_steps))},
    )


def _recipe(recipe: GRBMSettings, name: str, samples: int, steps: int) -> GRBMSettings:
    recipe = replace(recipe, samples=samples, posterior_steps=steps)
    if name == "VaGES-DSM":
        return recipe
    return replace(recipe, method="bidsm", unrolled=int(name.split()[-1]))


def _panels(table, settings: Settings, default_steps: int) -> list[GridPanel]:
    along = {
        "L": [(n, (n, default_steps)) for n in settings.samples],
        "K": [(k, (2, k)) for k in settings.posterior_steps],
    }
    labels = {"test log-likelihood": None, "test SM loss": None, "ms": "ms an iteration", "MiB": "MiB of a step"}
    return [
        GridPanel(
            axis,
            label or key,
            {
                name: (np.array([x for x, _ in points]), np.array([rows[where][key] for _, where in points]))
                for name, rows in table.items()
            },
        )
        for axis, points in along.items()
        for key, label in labels.items()
    ]
