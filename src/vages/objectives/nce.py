"""Noise-contrastive estimation against a standard normal, and its variational form for latent variables.

Both train the log-normaliser c beside the model, and tell a data point v from a noise point y by
log p̃(v) − c − log p_n(v): as it is where log p̃ = −F is known (NCE), bounded by samples of q where not (VNCE).
"""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Distribution, batch_noise, flat_noise, from_noise
from vages.models import EBLVM
from vages.models.settings import check_count
from vages.objectives.objective import Data, Direction, Problem
from vages.posteriors import infer


@dataclass(frozen=True)
class NCE:
    """NCE with one noise point a data point, for models with a free energy."""

    unrolled: int = field(default=0, init=False)

    def start(self, key: PRNGKeyArray, model: EBLVM, batch: int) -> tuple[Array, None]:
        if not hasattr(model, "free_energy"):
            raise TypeError(f"NCE: expected a model with a free energy, got {type(model).__name__}; use VNCE")
        return jnp.zeros(()), None

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, q: Distribution, w: Array) -> Any:
        return flat_noise(jax.random.normal, keys[1], w.shape, w.dtype)

    def points(self, w: Array, noise: Any) -> Data:
        return Data(w)

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        def loss(parameters):
            model, log_normaliser = parameters
            log_density = jax.vmap(lambda v: -model.free_energy(v))
            return classification_loss(log_density(problem.w), log_density(noise), problem.w, noise, log_normaliser)

        value, gradient = eqx.filter_value_and_grad(loss)((problem.model, problem.extra))
        return Direction(value, gradient, None)


@dataclass(frozen=True)
class VNCE:
    """Variational NCE: log p̃ by one sample of q at the data, by `samples` importance samples at the noise."""

    samples: int = 5
    unrolled: int = field(default=0, init=False)

    def __post_init__(self):
        check_count("samples", self.samples, 1, "the more, the tighter the bound")

    def start(self, key: PRNGKeyArray, model: EBLVM, batch: int) -> tuple[Array, None]:
        return jnp.zeros(()), None

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, q: Distribution, w: Array) -> Any:
        y, at_data, at_noise = jax.random.split(keys[1], 3)
        return (
            flat_noise(jax.random.normal, y, w.shape, w.dtype),
            batch_noise(q, at_data, 1),
            batch_noise(q, at_noise, self.samples),
        )

    def points(self, w: Array, noise: Any) -> Data:
        return Data(w)

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        y, at_data, at_noise = noise

        def log_ratios(model, v, latent_noise):
            """log p̃(v, h_i) − log q(h_i | v), with q and its samples held fixed: (batch, samples)."""
            features = jax.vmap(model.features)(v)
            q = jax.lax.stop_gradient(infer(problem.posterior, model, features, v))

            def one(q, features, h):
                return jax.vmap(lambda h: model.log_joint(features, h) - q.log_prob(h))(h)

            return jax.vmap(one)(q, features, from_noise(q, latent_noise))

        def loss(parameters):
            model, log_normaliser = parameters
            data = log_ratios(model, problem.w, at_data)[:, 0]
            other = jax.nn.logsumexp(log_ratios(model, y, at_noise), axis=1) - jnp.log(float(self.samples))
            return classification_loss(data, other, problem.w, y, log_normaliser)

        value, gradient = eqx.filter_value_and_grad(loss)((problem.model, problem.extra))
        return Direction(value, gradient, None)


def classification_loss(
    log_p_data: Array, log_p_noise: Array, data: Array, noise: Array, log_normaliser: Array
) -> Array:
    """The negative log-likelihood of telling data from standard normal noise, given log p̃ at both."""

    def log_normal(v):
        return jnp.sum(jax.scipy.stats.norm.logpdf(v), axis=tuple(range(1, v.ndim)))

    at_data = log_p_data - log_normaliser - log_normal(data)
    at_noise = log_p_noise - log_normaliser - log_normal(noise)
    return -jnp.mean(jax.nn.log_sigmoid(at_data)) - jnp.mean(jax.nn.log_sigmoid(-at_noise))
