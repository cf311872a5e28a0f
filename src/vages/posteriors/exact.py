"""The exact posterior: a closed form where the model has one, a list of all states where h is discrete and small."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution, Gaussian
from vages.domains import MAX_STATES, Domain, Empty
from vages.models import EBLVM, TractableEBLVM
from vages.posteriors.posterior import Posterior


class ExactPosterior(Posterior):
    """q = p(h | v), of a model with a closed form, with discrete h of at most 2²⁰ states, or without latents.

    It has no parameters to train.
    """

    def __call__(self, model: EBLVM, features: Any, v: Array) -> Distribution:
        if isinstance(model.h, Empty):
            nothing = jnp.zeros(model.h.shape, v.dtype)
            return Gaussian(nothing, nothing)
        if isinstance(model, TractableEBLVM):
            return model.posterior(features)
        if not model.h.enumerable:
            raise TypeError(
                f"ExactPosterior: expected a closed form (a TractableEBLVM) or at most {MAX_STATES} states of h, got "
                f"{type(model).__name__} with {model.h!r}; learn a posterior instead"
            )
        log_joint = jax.vmap(lambda h: model.log_joint(features, h))(model.h.states(v.dtype))
        return Listed(jax.nn.log_softmax(log_joint), model.h)


class Listed(Distribution):
    """Any distribution over the states of a discrete domain: the log-probability of each. Samples are states."""

    log_probs: Float[Array, "... states"]
    domain: Domain = eqx.field(static=True)

    @property
    def mean(self) -> Array:
        return jnp.tensordot(jnp.exp(self.log_probs), self._states, axes=1)

    @property
    def variance(self) -> Array:
        return jnp.tensordot(jnp.exp(self.log_probs), self._states**2, axes=1) - self.mean**2

    @property
    def continuous(self) -> bool:
        return False

    @property
    def reparameterised(self) -> bool:
        return False

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """One uniform number a state; `shape` ends with the shape of a state."""
        return jax.random.uniform(key, shape[: len(shape) - len(self.domain.shape)], self.log_probs.dtype)

    def transform(self, noise: Array) -> Array:
        below = jnp.cumsum(jnp.exp(self.log_probs))
        place = jnp.searchsorted(below, noise * below[-1], side="right")
        return self._states[jnp.minimum(place, len(below) - 1)]

    def log_prob(self, x: Array) -> Float[Array, ""]:
        """The log-probability of a state; a relaxed x counts as the state that it is rounded to."""
        return self.log_probs[self.domain.index(x)]

    @property
    def _states(self) -> Array:
        return self.domain.states(self.log_probs.dtype)
