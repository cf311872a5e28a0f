"""The exact posterior: in closed form if the model has one, or by enumerating the states of a small discrete h."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution, Gaussian, check_key
from vages.domains import MAX_STATES, Domain, Empty
from vages.models import EBLVM, TractableEBLVM, log_joints
from vages.posteriors.posterior import Posterior

_BLOCK = 2**10  # states whose probabilities are summed at once


class ExactPosterior(Posterior):
    """q = p(h | v) of a model with a closed form, with discrete h of at most 2²⁰ states, or without latents.

    It has no parameters to train.
    """

    closed_form = True

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Distribution:
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
        return Listed(jax.nn.log_softmax(log_joints(model, features, v.dtype)), model.h)


class Listed(Distribution):
    """A distribution over the states of a discrete domain, given by their log-probabilities. Samples are states."""

    log_probs: Float[Array, "... states"]
    domain: Domain = eqx.field(static=True)

    @property
    def mean(self) -> Any:
        return self._expectation(lambda states: states)

    @property
    def variance(self) -> Any:
        return jax.tree.map(lambda square, mean: square - mean**2, self._expectation(jnp.square), self.mean)

    @property
    def continuous(self) -> bool:
        return False

    @property
    def reparameterized(self) -> bool:
        return False

    def sample(self, key: PRNGKeyArray, n: int) -> Any:
        check_key(key)
        probs = jnp.exp(self.log_probs)
        # Parallel cumulative sums are not monotone in their last bits, so states of probability 0 could be drawn.
        below = jax.lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs, axis=1), 0.0), axis=1)
        heights = jax.random.uniform(key, (len(below), n), below.dtype) * below[:, -1:]
        places = jax.vmap(lambda below, heights: jnp.searchsorted(below, heights, side="right"))(below, heights)
        states = self.domain.states(below.dtype, jnp.minimum(places, below.shape[1] - 1).reshape(-1))
        return jax.tree.map(lambda x: x.reshape(len(below), n, *x.shape[1:]), states)

    def log_prob(self, h: Any) -> Float[Array, ""]:
        """The log-probability of a state. A relaxed h is rounded to a state."""
        return self.log_probs[self.domain.index(h)]

    def _expectation(self, function: Callable[[Array], Array]) -> Any:
        probs, states = jnp.exp(self.log_probs), self.domain.states(self.log_probs.dtype)
        return jax.tree.map(lambda x: _weighted_sum(probs, function(x)), states)


def _weighted_sum(weights: Float[Array, "... states"], x: Float[Array, "states ..."]) -> Array:
    """Sum in blocks of states. In one row of 2²⁰ terms, which a CPU adds one by one, float32 would lose four digits."""
    block = min(len(x), _BLOCK)
    short = (0, -len(x) % block)
    weights = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [short]).reshape(*weights.shape[:-1], -1, block)
    x = jnp.pad(x, [short] + [(0, 0)] * (x.ndim - 1)).reshape(-1, block, *x.shape[1:])
    return jnp.sum(jax.vmap(lambda weights, x: jnp.tensordot(weights, x, axes=1), in_axes=(-2, 0))(weights, x), axis=0)
