"""Noise-contrastive estimation against a standard normal, and its variational form for latent variables.

Both train the log-normalizer c with the model, and classify data against noise by log p̃(v) − c − log p_n(v). NCE needs
a known log p̃ = −F; VNCE bounds it by samples of q.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count
from vages.distributions import flat_noise
from vages.models import EBLVM, Encoding, encode
from vages.objectives.objective import Given, Metrics, Objective
from vages.posteriors import Posterior, infer


@dataclass(frozen=True)
class NCE(Objective):
    """NCE with one noise point per data point, for models with a free energy."""

    closed_form = True

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[Array, None]:
        if not hasattr(model, "free_energy"):
            raise TypeError(f"NCE: expected a model with a free energy, got {type(model).__name__}; use VNCE")
        return jnp.zeros(()), None

    def loss(
        self, key: PRNGKeyArray, model: Any, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        data = given.batch.v
        noise = flat_noise(jax.random.normal, key, data.shape, data.dtype)
        log_density = jax.vmap(lambda v: -model.free_energy(v))
        return classification_loss(log_density(data), log_density(noise), data, noise, given.extras), {}, None


@dataclass(frozen=True)
class VNCE(Objective):
    """Variational NCE, with log p̃ from one sample of q at the data, and `samples` importance samples at the noise."""

    samples: int = 5

    def __post_init__(self):
        check_count("samples", self.samples, 1, "the more, the tighter the bound")

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[Array, None]:
        return jnp.zeros(()), None

    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        for_noise, for_data, for_latents = jax.random.split(key, 3)
        data, context = given.batch
        noise = flat_noise(jax.random.normal, for_noise, data.shape, data.dtype)

        def log_ratios(key: PRNGKeyArray, encoding: Encoding, samples: int) -> Array:
            """log p̃(v, h_i) − log q(h_i | v), with q and its samples held fixed: (batch, samples)."""
            q = jax.lax.stop_gradient(infer(model, posterior, encoding))

            def one(q, features, h):
                return jax.vmap(lambda h: model.log_joint(features, h) - q.log_prob(h))(h)

            return jax.vmap(one)(q, encoding.features, q.sample(key, samples))

        at_data = log_ratios(for_data, encode(model, data, context), 1)[:, 0]
        others = log_ratios(for_latents, encode(model, noise, context), self.samples)
        at_noise = jax.nn.logsumexp(others, axis=1) - jnp.log(float(self.samples))
        return classification_loss(at_data, at_noise, data, noise, given.extras), {}, None


def classification_loss(
    log_p_data: Array, log_p_noise: Array, data: Array, noise: Array, log_normalizer: Array
) -> Array:
    """Return the negative log-likelihood of classifying data and standard normal noise, given log p̃ at both."""

    def log_normal(v):
        return jnp.sum(jax.scipy.stats.norm.logpdf(v), axis=tuple(range(1, v.ndim)))

    at_data = log_p_data - log_normalizer - log_normal(data)
    at_noise = log_p_noise - log_normalizer - log_normal(noise)
    return -jnp.mean(jax.nn.log_sigmoid(at_data)) - jnp.mean(jax.nn.log_sigmoid(-at_noise))
