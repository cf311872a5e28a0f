"""Where the h of an estimator come from. One code serves the variational, the exact and the importance-sampled case:

    Variational(L)   samples of q, as in the paper
    Enumerated()     every binary state with its posterior probability: VaES and VaGES become exact
    Importance(L)    uniform binary states with self-normalised weights p̃(v, h_i): the IS baseline of Sec. 3
    NoLatents()      the one state of an empty h: exact for a plain EBM

because the score of log Σ_i p̃(v, h_i) is VaES over the states h_i weighted by softmax_i log p̃(v, h_i), and its
gradient in θ is VaGES with the same weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Distribution, batch_noise, from_noise
from vages.models import EBLVM, binary_states
from vages.models.grbm import MAX_ENUMERATED
from vages.models.settings import check_count
from vages.posteriors.corrector import Corrector


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
    """L samples of q(h | v), moved towards p(h | v) where there is a corrector."""

    samples: int = 2
    corrector: Corrector | None = None

    def __post_init__(self):
        check_count("samples", self.samples, 2, "a covariance needs two")

    def noise(self, key: PRNGKeyArray, q: Distribution) -> Any:
        if self.corrector is None:
            return batch_noise(q, key, self.samples)
        start, steps = jax.random.split(key)
        noise = batch_noise(q, start, self.samples)
        return noise, self.corrector.noise(steps, noise)

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        if self.corrector is None:
            return Latents(from_noise(q, noise), None)
        check_latents(self, model, q)
        start, steps = noise
        return Latents(self.corrector(model, features, from_noise(q, start), steps), None)


@dataclass(frozen=True)
class Enumerated:
    """All binary states, weighted by q: with the exact posterior, no approximation is left."""

    def noise(self, key: PRNGKeyArray, q: Distribution) -> None:
        return None

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        check_latents(self, model, q)
        (units,) = model.h_shape
        states = binary_states(units).astype(q.mean.dtype)
        weights = jnp.exp(jax.vmap(lambda q: jax.vmap(q.log_prob)(states))(q))
        return Latents(jnp.broadcast_to(states, (len(weights), *states.shape)), weights)


@dataclass(frozen=True)
class Importance:
    """L uniform binary states, weighted by p̃(v, h). It looks at no posterior."""

    samples: int = 2

    def __post_init__(self):
        check_count("samples", self.samples, 1, "the more, the less biased")

    def noise(self, key: PRNGKeyArray, q: Distribution) -> Array:
        return jnp.sign(batch_noise(q, key, self.samples))  # noise is symmetric about 0: signs are fair coins

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        check_latents(self, model, q)
        h = 0.5 + 0.5 * noise
        log_joint = jax.vmap(lambda f, h: jax.vmap(lambda h: model.log_joint(f, h))(h))(features, h)
        return Latents(h, jax.nn.softmax(log_joint, axis=1))


@dataclass(frozen=True)
class NoLatents:
    """The one state of a model without latents, with weight 1: VaES is then the score, and VaGES its gradient."""

    def noise(self, key: PRNGKeyArray, q: Distribution) -> None:
        return None

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        check_latents(self, model, q)
        batch, dtype = len(q.mean), q.mean.dtype
        return Latents(jnp.zeros((batch, 1, 0), dtype), jnp.ones((batch, 1), dtype))


def check_latents(source: LatentSource, model: EBLVM, q: Distribution) -> None:
    """Raise unless the source can give states of this model's h, which q says are binary or continuous."""
    shape, kind = model.h_shape, type(q).__name__
    match source:
        case Enumerated() | Importance() if q.continuous:
            name = type(source).__name__
            raise TypeError(f"{name}: expected a posterior over binary h, got {kind}; use Variational")
        case Enumerated() if len(shape) != 1 or shape[0] > MAX_ENUMERATED:
            raise ValueError(
                f"Enumerated: expected a vector h of at most {MAX_ENUMERATED} units, got h of shape {shape}; "
                "use Variational"
            )
        case Variational() if source.corrector is not None and not q.continuous:
            raise TypeError(f"corrector: expected a posterior over continuous h, got {kind}; leave the corrector out")
        case NoLatents() if shape != (0,):
            raise ValueError(f"NoLatents: expected a model without latents, got h of shape {shape}; use Variational")


def independent_sets(
    source: LatentSource, model: EBLVM, q: Distribution, features: Any, noises: Sequence[Any]
) -> list[Latents]:
    """A set of states for each of several independent noises; one chain corrects the samples of all of them."""
    if not isinstance(source, Variational) or source.corrector is None:
        return [source(model, q, features, noise) for noise in noises]
    starts, steps = zip(*noises, strict=True)
    together = source(model, q, features, (jnp.concatenate(starts, axis=1), jnp.concatenate(steps, axis=2)))
    return [Latents(h, None) for h in jnp.split(together.h, len(noises), axis=1)]
