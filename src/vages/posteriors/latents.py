"""Where the h of an estimator come from. One code serves the variational, the exact and the importance-sampled case:

    Variational(L)   samples of q, as in the paper
    Enumerated()     every binary state with its posterior probability: VaES and VaGES become exact
    Importance(L)    uniform binary states with self-normalised weights p̃(v, h_i): the IS baseline of Sec. 3

because the score of log Σ_i p̃(v, h_i) is VaES over the states h_i weighted by softmax_i log p̃(v, h_i), and its
gradient in θ is VaGES with the same weights.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Distribution, batch_noise, from_noise
from vages.models import EBLVM, binary_states


class Latents(NamedTuple):
    """States (batch, L, …), and their weights (batch, L) where they are a support and not samples."""

    h: Array
    weights: Array | None


@runtime_checkable
class LatentSource(Protocol):
    """Noise first, so that many iterations' noise is drawn in one call; then states for a batch."""

    def noise(self, key: PRNGKeyArray, q: Distribution) -> Any:
        """Noise for one set of states at each v; q is asked for its shapes alone."""
        ...

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        """The states at each v."""
        ...


@dataclass(frozen=True)
class Variational:
    """L samples of q(h | v)."""

    samples: int = 2

    def __post_init__(self):
        if self.samples < 2:
            raise ValueError(f"samples: expected at least 2 (a covariance needs two), got {self.samples}")

    def noise(self, key: PRNGKeyArray, q: Distribution) -> Array:
        return batch_noise(q, key, self.samples)

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        return Latents(from_noise(q, noise), None)


@dataclass(frozen=True)
class Enumerated:
    """All binary states, weighted by q: with the exact posterior, no approximation is left."""

    def noise(self, key: PRNGKeyArray, q: Distribution) -> None:
        return None

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        (units,) = model.h_shape
        states = binary_states(units).astype(q.mean.dtype)
        weights = jnp.exp(jax.vmap(lambda q: jax.vmap(q.log_prob)(states))(q))
        return Latents(jnp.broadcast_to(states, (len(weights), *states.shape)), weights)


@dataclass(frozen=True)
class Importance:
    """L uniform binary states, weighted by p̃(v, h). It looks at no posterior."""

    samples: int = 2

    def noise(self, key: PRNGKeyArray, q: Distribution) -> Array:
        return jnp.sign(batch_noise(q, key, self.samples))  # noise is symmetric about 0: signs are fair coins

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        h = 0.5 + 0.5 * noise
        log_joint = jax.vmap(lambda f, h: jax.vmap(lambda h: model.log_joint(f, h))(h))(features, h)
        return Latents(h, jax.nn.softmax(log_joint, axis=1))
