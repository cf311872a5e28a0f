"""Distributions of one example's variables: Bernoulli and one-hot (hard or relaxed), and diagonal Gaussian.

A sample is `transform(noise)` with standard noise, so that callers can draw the noise of many samples in
one call and differentiate through the rest.
"""

import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Distribution(eqx.Module):
    """A distribution over an array, written as a transformation of standard noise."""

    @property
    @abstractmethod
    def mean(self) -> Array:
        """The mean; its shape is the shape of a sample."""

    @property
    @abstractmethod
    def variance(self) -> Array:
        """The variance of each entry."""

    @property
    @abstractmethod
    def continuous(self) -> bool:
        """Whether the variable has a density, so that ∇_h log q is meaningful."""

    @property
    @abstractmethod
    def reparameterised(self) -> bool:
        """Whether samples are differentiable in the parameters."""

    @abstractmethod
    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """Standard noise of any shape; entry by entry it is what `transform` expects."""

    @abstractmethod
    def transform(self, noise: Array) -> Array:
        """The sample that this noise stands for."""

    @abstractmethod
    def log_prob(self, x: Array) -> Float[Array, ""]:
        """Log-mass or log-density at x."""


class Bernoulli(Distribution):
    """Independent binary variables.

    Samples are sigmoid((logits + logistic noise) / temperature), and exactly 0 or 1 at temperature 0. The
    log-mass is evaluated as it stands at relaxed samples too: Σ h·logits − softplus(logits).
    """

    logits: Float[Array, "..."]
    temperature: float = eqx.field(static=True, default=0.1)

    @property
    def mean(self) -> Array:
        return jax.nn.sigmoid(self.logits)

    @property
    def variance(self) -> Array:
        return jax.nn.sigmoid(self.logits) * jax.nn.sigmoid(-self.logits)

    @property
    def continuous(self) -> bool:
        return False

    @property
    def reparameterised(self) -> bool:
        return self.temperature > 0

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return flat_noise(logistic, key, shape, self.logits.dtype)

    def transform(self, noise: Array) -> Array:
        if self.temperature > 0:
            return jax.nn.sigmoid((self.logits + noise) / self.temperature)
        return (self.logits + noise > 0).astype(self.logits.dtype)

    def log_prob(self, x: Array) -> Float[Array, ""]:
        return jnp.sum(x * self.logits - jax.nn.softplus(self.logits))


class OneHot(Distribution):
    """Independent choices among k, one a row of `logits` (n, k); a choice is a row of one 1 and zeros.

    Samples are softmax((logits + Gumbel noise) / temperature) along the rows, and exactly 0 or 1 at temperature 0. The
    log-mass is evaluated as it stands at relaxed samples too.
    """

    logits: Float[Array, "... k"]
    temperature: float = eqx.field(static=True, default=0.1)

    @property
    def mean(self) -> Array:
        return jax.nn.softmax(self.logits)

    @property
    def variance(self) -> Array:
        return self.mean * (1 - self.mean)

    @property
    def continuous(self) -> bool:
        return False

    @property
    def reparameterised(self) -> bool:
        return self.temperature > 0

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return flat_noise(jax.random.gumbel, key, shape, self.logits.dtype)

    def transform(self, noise: Array) -> Array:
        if self.temperature > 0:
            return jax.nn.softmax((self.logits + noise) / self.temperature)
        best = jnp.argmax(self.logits + noise, axis=-1)
        return jax.nn.one_hot(best, self.logits.shape[-1], dtype=self.logits.dtype)

    def log_prob(self, x: Array) -> Float[Array, ""]:
        return jnp.sum(x * jax.nn.log_softmax(self.logits))


class Gaussian(Distribution):
    """Independent normal variables."""

    loc: Float[Array, "..."]
    log_std: Float[Array, "..."]

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        return jnp.exp(2 * self.log_std)

    @property
    def continuous(self) -> bool:
        return True

    @property
    def reparameterised(self) -> bool:
        return True

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return flat_noise(jax.random.normal, key, shape, self.loc.dtype)

    def transform(self, noise: Array) -> Array:
        return self.loc + jnp.exp(self.log_std) * noise

    def log_prob(self, x: Array) -> Float[Array, ""]:
        standard = (x - self.loc) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * standard**2 + self.log_std + 0.5 * jnp.log(2 * jnp.pi))


def logistic(key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    """Standard logistic noise by one logarithm, which is most of what a GRBM's noise costs after the random bits.

    The uniform numbers are the midpoints of their grid, so that the noise is symmetric and never infinite.
    """
    u = jax.random.uniform(key, shape, dtype) + 0.5 * jnp.finfo(dtype).eps
    return jnp.log(u / (1 - u))


def flat_noise(draw: Callable[..., Array], key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    """`draw(key, shape, dtype)`, drawn as a vector: on a CPU the generator is slow along short last axes."""
    return draw(key, (math.prod(shape),), dtype).reshape(shape)


def sample(q: Distribution, key: PRNGKeyArray, samples: int) -> Array:
    """`samples` draws from each member of a batch of distributions: shape (batch, samples, ...)."""
    return from_noise(q, batch_noise(q, key, samples))


def batch_noise(q: Distribution, key: PRNGKeyArray, samples: int) -> Array:
    """The noise of `sample`. It asks q for shapes and dtypes alone, so that q may be the result of `eval_shape`."""
    batch, *event = jax.eval_shape(lambda q: q.mean, q).shape
    return q.noise(key, (batch, samples, *event))


def from_noise(q: Distribution, noise: Array) -> Array:
    """The samples that noise of shape (batch, samples, ...) stands for."""
    return jax.vmap(lambda q, noise: jax.vmap(q.transform)(noise))(q, noise)
