"""Training by a recipe: every seed in one program, followed by its log-likelihood."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.app.recipes.grbm import learner_of, load_all_data, parts_of
from vages.app.settings import GRBMSettings
from vages.data import TOYS, Splits
from vages.evaluation import Estimate, ais, log_density
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.training import Fitted, fit, make_seeds, seed_keys
from vages.training.learner import LearnerState

VALIDATION = "validation_log_likelihood"


class Trained(NamedTuple):
    """A finished run. Models, and the log-likelihoods of each, have a leading axis of seeds."""

    recipe: GRBMSettings
    data: Splits  # of the first seed
    models: GRBM
    test_log_likelihood: np.ndarray
    fitted: Fitted

    def model(self, seed: int = 0) -> GRBM:
        """The model of one seed."""
        return jax.tree.map(lambda x: x[seed], self.models)


def train(recipe: GRBMSettings, data: Splits | None = None, **how: Any) -> Trained:
    """Train every seed in one program, and evaluate on test data; `how` goes to `fit`: folder, resume, guard, mesh, …

    `data` are those of `load_all_data`, where they have been read already.

    Small models are followed by their exact test log-likelihood, and the last is kept. Where the latents cannot be
    enumerated, each seed's best model by validation log-likelihood (AIS) is kept, as in the paper.
    """
    seeds = tuple(recipe.seed + i for i in range(recipe.seeds))
    data = load_all_data(recipe) if data is None else data
    own_data = recipe.data in TOYS
    keys, models, posteriors = make_seeds(seeds, parts_of(recipe, data.train.shape[-1]))
    train_set = jnp.asarray(data.train)
    validation_set, test_set = (jnp.asarray(part if own_data else part[None]) for part in data[1:])
    exact = recipe.latents <= MAX_ENUMERATED

    def evaluate(state: LearnerState) -> dict[str, Any]:
        models = state.model if state.averages is None else state.averages.model
        if exact:
            return {"test_log_likelihood": exact_log_likelihood(models, test_set)}
        return {VALIDATION: annealed_log_likelihood(recipe, models, validation_set, "validation")}

    fitted = fit(
        keys,
        models,
        posteriors,
        train_set,
        learner_of(recipe),
        steps=recipe.steps,
        batch=recipe.batch,
        evaluate=evaluate,
        evaluate_every=recipe.evaluate_every,
        maximize=None if exact else VALIDATION,
        **how,
    )
    models = fitted.model
    likelihood = (
        exact_log_likelihood(models, test_set) if exact else annealed_log_likelihood(recipe, models, test_set, "test")
    )
    first = Splits(*(part[0] for part in data)) if own_data else data
    return Trained(recipe, first, models, np.asarray(likelihood, np.float64), fitted)


@eqx.filter_jit
def exact_log_likelihood(models: GRBM, examples: Array) -> Array:
    """The mean exact log-likelihood of each seed's model; examples have a leading axis of seeds, or one for all."""

    def one(model, examples):
        return -jnp.mean(jax.vmap(model.free_energy)(examples)) - model.log_partition()

    with jax.default_matmul_precision("float32"):  # by default some GPUs round factors to fewer bits
        if len(examples) == 1:
            return jax.vmap(one, (0, None))(models, examples[0])
        return jax.vmap(one)(models, examples)


_log_density = eqx.filter_jit(log_density)


def annealed_log_likelihood(recipe: GRBMSettings, models: GRBM, examples: Array, use: str) -> np.ndarray:
    """The same with log Z by AIS, seed by seed."""
    values = []
    for i, key in enumerate(seed_keys([recipe.seed + i for i in range(len(models.latent_bias))], use)):
        model = jax.tree.map(lambda x: x[i], models)  # noqa: B023
        log_z = ais(key, model, chains=recipe.annealing, temperatures=recipe.annealing)
        density = _log_density(None, model, None, examples[i % len(examples)])
        values.append(Estimate.of(density.value).mean - log_z.value)
    return np.array(values)
