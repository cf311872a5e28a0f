"""Sources of the latents h of an estimator:

    Variational(L)   samples of q, as in the paper
    Enumerated()     every state of a discrete h with its posterior probability: VaES and VaGES become exact
    Importance(L)    uniform states with self-normalized weights p̃(v, h_i): the IS baseline of Sec. 3

Each returns one or more independent sets, which compute the score and the surrogate of a batch: `Latents`, or
`Marginal` for the exact log p̃(v) = log Σ_h p̃(v, h). A model without latents has one state, so all three are exact.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count
from vages.distributions import Distribution
from vages.domains import MAX_STATES, Binary, Empty
from vages.estimators import cotangents, slopes, surrogate, vaes
from vages.models import EBLVM, Along, Encoding, log_marginal, push_forward
from vages.posteriors import Corrector


class Latents(NamedTuple):
    """States (batch, L, …), with weights (batch, L) if they are a support instead of samples."""

    h: Any
    weights: Array | None = None

    def score(self, model: EBLVM, encoding: Encoding) -> Any:
        """VaES at each v."""
        return vaes(model, encoding, self.h, self.weights)

    def surrogate(self, model: EBLVM, encoding: Encoding, z: Array | Along) -> Float[Array, ""]:
        """A scalar whose gradient in the model is the batch mean of zᵀVaGES."""
        return surrogate(model, encoding, self.h, z, self.weights)

    def cotangents(self, model: EBLVM, encoding: Encoding) -> Any:
        """Cotangents of the features, whose pullback is the score."""
        return cotangents(model, encoding.features, self.h, self.weights)

    def slopes(self, model: EBLVM, features: Any, features_dot: Any, dtype: Any) -> Float[Array, "batch"]:
        """The surrogate of each example, from its features and their tangents along z."""
        return slopes(model, features, features_dot, self.h, self.weights)


class Marginal(NamedTuple):
    """All states of h, summed exactly in blocks of bounded memory."""

    def score(self, model: EBLVM, encoding: Encoding) -> Any:
        """The exact ∇_v log p̃(v)."""
        return encoding.pullback(self.cotangents(model, encoding))[0]

    def surrogate(self, model: EBLVM, encoding: Encoding, z: Array | Along) -> Float[Array, ""]:
        """The batch mean of zᵀ∇_v log p̃(v)."""
        features, features_dot = push_forward(model, encoding.v, encoding.context, jax.lax.stop_gradient(z))
        return jnp.mean(self.slopes(model, features, features_dot, encoding.v.dtype))

    def cotangents(self, model: EBLVM, encoding: Encoding) -> Any:
        """Cotangents of the features, whose pullback is the score."""
        total = lambda features: log_marginal(model, features, encoding.v.dtype)
        return jax.vmap(jax.grad(total, allow_int=True))(encoding.features)

    def slopes(self, model: EBLVM, features: Any, features_dot: Any, dtype: Any) -> Float[Array, "batch"]:
        """The surrogate of each example, from its features and their tangents along z."""
        total = jax.vmap(lambda features: log_marginal(model, features, dtype))
        return jax.jvp(total, (features,), (features_dot,))[1]


class LatentSource(ABC):
    """A source of `count` independent sets of latents for a batch, given q and its encoding."""

    def check(self, model: EBLVM) -> None:  # noqa: B027
        """Raise unless the source supports this model's h."""

    @abstractmethod
    def __call__(
        self, key: PRNGKeyArray, model: EBLVM, q: Distribution, encoding: Encoding, count: int = 1
    ) -> list[Any]:
        """Return `count` independent sets, each with `score` and `surrogate`."""


@dataclass(frozen=True)
class Variational(LatentSource):
    """L samples of q(h | v), moved towards p(h | v) by the corrector, if there is one."""

    samples: int = 2
    corrector: Corrector | None = None

    def __post_init__(self):
        check_count("samples", self.samples, 2, "a covariance needs two")

    def check(self, model: EBLVM) -> None:
        if self.corrector is not None:
            self.corrector.check(model)

    def __call__(
        self, key: PRNGKeyArray, model: EBLVM, q: Distribution, encoding: Encoding, count: int = 1
    ) -> list[Any]:
        if isinstance(model.h, Empty):
            return [Marginal()] * count
        self.check(model)
        for_q, for_corrector = jax.random.split(key)
        h = q.sample(for_q, count * self.samples)
        if self.corrector is not None:  # one call corrects the samples of all sets
            h = self.corrector(for_corrector, model, encoding.features, h)
        part = lambda i: jax.tree.map(lambda x: x[:, i * self.samples : (i + 1) * self.samples], h)
        return [Latents(part(i)) for i in range(count)]


@dataclass(frozen=True)
class Enumerated(LatentSource):
    """All states of a discrete h, weighted by p(h | v). No posterior is used."""

    def check(self, model: EBLVM) -> None:
        if not model.h.enumerable:
            kind = ValueError if model.h.count is not None else TypeError
            raise kind(
                f"Enumerated: expected latents with at most {MAX_STATES} states, got {model.h!r}; use Variational"
            )

    def __call__(
        self, key: PRNGKeyArray, model: EBLVM, q: Distribution, encoding: Encoding, count: int = 1
    ) -> list[Any]:
        self.check(model)
        return [Marginal()] * count


@dataclass(frozen=True)
class Importance(LatentSource):
    """L uniform states of a binary h, weighted by p̃(v, h). No posterior is used."""

    samples: int = 2

    def __post_init__(self):
        check_count("samples", self.samples, 1, "the more, the less biased")

    def check(self, model: EBLVM) -> None:
        if not isinstance(model.h, Binary | Empty):
            raise TypeError(f"Importance: expected binary h, got {model.h!r}; use Variational")

    def __call__(
        self, key: PRNGKeyArray, model: EBLVM, q: Distribution, encoding: Encoding, count: int = 1
    ) -> list[Any]:
        self.check(model)
        if isinstance(model.h, Empty):
            return [Marginal()] * count

        def one_set(key):
            shape = (len(encoding.v), self.samples, *model.h.shape)
            h = jax.random.bernoulli(key, 0.5, shape).astype(encoding.v.dtype)
            one = lambda features, h: jax.vmap(lambda h: model.log_joint(features, h))(h)
            return Latents(h, jax.nn.softmax(jax.vmap(one)(encoding.features, h), axis=1))

        return [one_set(key) for key in jax.random.split(key, count)]
