"""Training by a recipe: every seed in one program, followed by its log-likelihood."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.data import TOYS, Splits
from vages.evaluation import ais, log_likelihood
from vages.learners import LearnerState
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.recipes.recipe import Recipe, learner_of, load_data, parts_of
from vages.training import Fitted, RunFolder, fit, init_seeds, seed_keys


class Trained(NamedTuple):
    """A finished run. Models, and the log-likelihoods of each, have a leading axis of seeds."""

    recipe: Recipe
    data: Splits  # of the first seed
    models: GRBM
    test_log_likelihood: np.ndarray
    fitted: Fitted

    def model(self, seed: int = 0) -> GRBM:
        """The model of one seed."""
        return jax.tree.map(lambda x: x[seed], self.models)


def train(recipe: Recipe, *, folder: RunFolder | None = None, progress: bool = False) -> Trained:
    """Train every seed in one program, and evaluate on test data.

    Small models are followed by their exact test log-likelihood, and the last is kept. Where the latents cannot be
    enumerated, each seed's best model by validation log-likelihood (AIS) is kept, as in the paper.
    """
    seeds = tuple(recipe.seed + i for i in range(recipe.seeds))
    own_data = recipe.data in TOYS
    splits = [load_data(recipe, seed) for seed in (seeds if own_data else seeds[:1])]
    learner = learner_of(recipe)
    state = init_seeds(learner, seeds, parts_of(recipe, splits[0].train.shape[1]), recipe.batch)
    train_set, validation_set, test_set = (jnp.stack(parts) for parts in zip(*splits, strict=True))
    exact = recipe.latents <= MAX_ENUMERATED
    best = BestModels(recipe, validation_set)

    def evaluate(state: LearnerState) -> dict[str, Any]:
        if exact:
            return {"test_log_likelihood": exact_log_likelihood(state.model, test_set)}
        return {"validation_log_likelihood": best.update(state.model)}

    fitted = fit(
        learner,
        state,
        train_set if own_data else train_set[0],
        steps=recipe.steps,
        batch=recipe.batch,
        seed=seeds,
        evaluate=evaluate,
        evaluate_every=max(1, recipe.steps // recipe.evaluations),
        folder=folder,
        progress=progress,
    )
    models = best.models if best.models is not None else fitted.state.model
    likelihood = (
        exact_log_likelihood(models, test_set) if exact else annealed_log_likelihood(recipe, models, test_set, "test")
    )
    return Trained(recipe, splits[0], models, np.asarray(likelihood, np.float64), fitted)


class BestModels:
    """Of each seed, the model with the highest validation log-likelihood so far."""

    def __init__(self, recipe: Recipe, validation: Array):
        self.models: GRBM | None = None
        self._recipe, self._validation, self._best = recipe, validation, None

    def update(self, models: GRBM) -> np.ndarray:
        """The validation log-likelihoods of these models, which are kept where they are the best."""
        now = annealed_log_likelihood(self._recipe, models, self._validation, "validation")
        if self.models is None or self._best is None:
            self.models, self._best = models, now
        else:
            better = ~(now <= self._best)  # anything is better than a first value that is not a number
            pick = lambda new, old: jnp.where(jnp.asarray(better).reshape(-1, *[1] * (new.ndim - 1)), new, old)
            self.models, self._best = jax.tree.map(pick, models, self.models), np.fmax(now, self._best)
        return now


@eqx.filter_jit
def exact_log_likelihood(models: GRBM, examples: Array) -> Array:
    """The mean exact log-likelihood of each seed's model; examples have a leading axis of seeds, or one for all."""

    def one(model, examples):
        return -jnp.mean(jax.vmap(model.free_energy)(examples)) - model.log_partition()

    with jax.default_matmul_precision("float32"):  # by default some GPUs round factors to fewer bits
        if len(examples) == 1:
            return jax.vmap(one, (0, None))(models, examples[0])
        return jax.vmap(one)(models, examples)


def annealed_log_likelihood(recipe: Recipe, models: GRBM, examples: Array, use: str) -> np.ndarray:
    """The same with log Z by AIS, seed by seed."""
    values = []
    for i, key in enumerate(seed_keys([recipe.seed + i for i in range(len(models.latent_bias))], use)):
        model = jax.tree.map(lambda x: x[i], models)  # noqa: B023
        log_partition = ais(key, model, chains=recipe.annealing, temperatures=recipe.annealing)
        values.append(log_likelihood(model, examples[i % len(examples)], log_partition).mean)
    return np.array(values)
