"""Where the h of an estimator come from:

    Variational(L)   samples of q, as in the paper
    Enumerated()     every state of a discrete h with its posterior probability: VaES and VaGES become exact
    Importance(L)    uniform states with self-normalised weights p̃(v, h_i): the IS baseline of Sec. 3

A model without latents has one state, of weight 1, and all three give it: VaES is the score then, exactly. One code,
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
from vages.domains import MAX_STATES, Binary, Empty
from vages.models import EBLVM
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
        if isinstance(model.h, Empty):
            return _every_state(model, q, features)
        if self.corrector is None:
            return Latents(from_noise(q, noise), None)
        check_latents(self, model, q)
        start, steps = noise
        return Latents(self.corrector(model, features, from_noise(q, start), steps), None)


@dataclass(frozen=True)
class Enumerated:
    """All states of a discrete h, weighted by p(h | v): no approximation is left. It looks at no posterior."""

    def noise(self, key: PRNGKeyArray, q: Distribution) -> None:
        return None

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        check_latents(self, model, q)
        return _every_state(model, q, features)


@dataclass(frozen=True)
class Importance:
    """L uniform states of a binary h, weighted by p̃(v, h). It looks at no posterior."""

    samples: int = 2

    def __post_init__(self):
        check_count("samples", self.samples, 1, "the more, the less biased")

    def noise(self, key: PRNGKeyArray, q: Distribution) -> Array:
        batch, *event = jax.eval_shape(lambda q: q.mean, q).shape
        return jax.random.bernoulli(key, 0.5, (batch, self.samples, *event))

    def __call__(self, model: EBLVM, q: Distribution, features: Any, noise: Any) -> Latents:
        check_latents(self, model, q)
        return _weighted(model, features, noise.astype(q.mean.dtype))


def _every_state(model: EBLVM, q: Distribution, features: Any) -> Latents:
    states = model.h.states(q.mean.dtype)
    return _weighted(model, features, jnp.broadcast_to(states, (len(q.mean), *states.shape)))


def _weighted(model: EBLVM, features: Any, h: Array) -> Latents:
    """The states with weights proportional to p̃(v, h)."""
    log_joint = jax.vmap(lambda features, h: jax.vmap(lambda h: model.log_joint(features, h))(h))(features, h)
    return Latents(h, jax.nn.softmax(log_joint, axis=1))


def check_latents(source: LatentSource, model: EBLVM, q: Distribution) -> None:
    """Raise unless the source can give states of this model's h."""
    match source:
        case Enumerated() if not model.h.enumerable:
            kind = TypeError if model.h.continuous else ValueError
            raise kind(
                f"Enumerated: expected latents with at most {MAX_STATES} states, got {model.h!r}; use Variational"
            )
        case Importance() if not isinstance(model.h, Binary):
            raise TypeError(f"Importance: expected binary h, got {model.h!r}; use Variational")
        case Variational() if source.corrector is not None and not model.h.continuous:
            raise TypeError(f"corrector: expected continuous h, got {model.h!r}; leave the corrector out")


def noise_of_sets(source: LatentSource, key: PRNGKeyArray, q: Distribution, count: int = 2) -> list[Any]:
    """The noise of `independent_sets`."""
    if not isinstance(source, Variational):
        return [source.noise(key, q) for key in jax.random.split(key, count)]
    for_q, for_corrector = jax.random.split(key)
    noise = batch_noise(q, for_q, count * source.samples)
    parts = jnp.split(noise, count, axis=1)
    if source.corrector is None:
        return parts
    steps = jnp.split(source.corrector.noise(for_corrector, noise), count, axis=2)
    return list(zip(parts, steps, strict=True))


def independent_sets(
    source: LatentSource, model: EBLVM, q: Distribution, features: Any, noises: Sequence[Any]
) -> list[Latents]:
    """A set of states for each of several independent noises; one chain corrects the samples of all of them."""
    if not isinstance(source, Variational) or source.corrector is None or isinstance(model.h, Empty):
        return [source(model, q, features, noise) for noise in noises]
    starts, steps = zip(*noises, strict=True)
    together = source(model, q, features, (jnp.concatenate(starts, axis=1), jnp.concatenate(steps, axis=2)))
    return [Latents(h, None) for h in jnp.split(together.h, len(noises), axis=1)]
