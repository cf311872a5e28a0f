"""Distributions of h: Bernoulli and one-hot (hard or relaxed), diagonal Gaussian, and dicts of these.

    q = infer(model, posterior, v)    a batch of distributions: the first axis of the parameters is the batch
    q.sample(key, 5)                  five draws at each v: (batch, 5, …)
    q.mean, q.variance                (batch, …)

`log_prob(h)` is for one example; map it over a batch with `jax.vmap`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Distribution(eqx.Module):
    """A distribution over an array, or over a dict of arrays."""

    @property
    @abstractmethod
    def mean(self) -> Any:
        """The mean; its shape is the shape of a sample."""

    @property
    @abstractmethod
    def variance(self) -> Any:
        """The variance of each entry."""

    @property
    @abstractmethod
    def continuous(self) -> bool:
        """Whether the variable has a density, so that ∇_h log q is meaningful."""

    @property
    @abstractmethod
    def reparameterized(self) -> bool:
        """Whether samples are differentiable in the parameters."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Any:
        """`n` draws from each member of a batch of distributions: shape (batch, n, …)."""

    @abstractmethod
    def log_prob(self, h: Any) -> Float[Array, ""]:
        """Log-mass or log-density at h, of one example."""

    def hard(self) -> "Distribution":
        """Return this distribution with hard samples instead of relaxed ones."""
        return self

    def draw(self, key: PRNGKeyArray) -> Any:
        """One draw from each member of a batch, shaped like the mean."""
        return jax.tree.map(lambda x: x[:, 0], self.sample(key, 1))


class Bernoulli(Distribution):
    """Independent binary variables.

    Samples are sigmoid((logits + logistic noise) / temperature), and exactly 0 or 1 at temperature 0. The
    log-mass Σ h·logits − softplus(logits) is evaluated at relaxed samples too.
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
    def reparameterized(self) -> bool:
        return self.temperature > 0

    def sample(self, key: PRNGKeyArray, n: int) -> Array:
        noisy = self.logits[:, None] + noise_for(self.logits, n, key, logistic)
        if self.temperature > 0:
            return jax.nn.sigmoid(noisy / self.temperature)
        return (noisy > 0).astype(self.logits.dtype)

    def hard(self) -> "Bernoulli":
        return replace(self, temperature=0.0)

    def log_prob(self, h: Array) -> Float[Array, ""]:
        return jnp.sum(h * self.logits - jax.nn.softplus(self.logits))


class OneHot(Distribution):
    """Independent choices among k, one per row of `logits` (n, k); a choice is a one-hot row.

    Samples are softmax((logits + Gumbel noise) / temperature) along the rows, and exactly 0 or 1 at temperature 0. The
    log-mass is evaluated at relaxed samples too.
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
    def reparameterized(self) -> bool:
        return self.temperature > 0

    def sample(self, key: PRNGKeyArray, n: int) -> Array:
        noisy = self.logits[:, None] + noise_for(self.logits, n, key, jax.random.gumbel)
        if self.temperature > 0:
            return jax.nn.softmax(noisy / self.temperature)
        return jax.nn.one_hot(jnp.argmax(noisy, axis=-1), self.logits.shape[-1], dtype=self.logits.dtype)

    def hard(self) -> "OneHot":
        return replace(self, temperature=0.0)

    def log_prob(self, h: Array) -> Float[Array, ""]:
        return jnp.sum(h * jax.nn.log_softmax(self.logits))


class Gaussian(Distribution):
    """Independent normal variables."""

    loc: Float[Array, "..."]
    log_std: Float[Array, "..."]

    def __check_init__(self):
        mean, std = jnp.shape(self.loc), jnp.shape(self.log_std)
        if mean != std:  # in a batch, broadcasting would mix up the examples
            raise ValueError(f"log_std: expected the shape of the mean, {mean}, got {std}; use jnp.broadcast_to")

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
    def reparameterized(self) -> bool:
        return True

    def sample(self, key: PRNGKeyArray, n: int) -> Array:
        return self.loc[:, None] + jnp.exp(self.log_std)[:, None] * noise_for(self.loc, n, key, jax.random.normal)

    def log_prob(self, h: Array) -> Float[Array, ""]:
        standard = (h - self.loc) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * standard**2 + self.log_std + 0.5 * jnp.log(2 * jnp.pi))


class Joint(Distribution):
    """Independent named variables, each with its own distribution; a sample is a dict."""

    parts: dict[str, Distribution]

    @property
    def mean(self) -> dict[str, Any]:
        return {name: part.mean for name, part in self.parts.items()}

    @property
    def variance(self) -> dict[str, Any]:
        return {name: part.variance for name, part in self.parts.items()}

    @property
    def continuous(self) -> bool:
        return all(part.continuous for part in self.parts.values())

    @property
    def reparameterized(self) -> bool:
        return all(part.reparameterized for part in self.parts.values())

    def sample(self, key: PRNGKeyArray, n: int) -> dict[str, Any]:
        check_key(key)
        keys = jax.random.split(key, len(self.parts))
        named = sorted(self.parts.items())  # the order that a dict has after `jit` or `vmap`
        return {name: part.sample(key, n) for key, (name, part) in zip(keys, named, strict=True)}

    def hard(self) -> "Joint":
        return Joint({name: part.hard() for name, part in self.parts.items()})

    def log_prob(self, h: dict[str, Any]) -> Float[Array, ""]:
        return jnp.sum(jnp.stack([part.log_prob(h[name]) for name, part in self.parts.items()]))


def logistic(key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    """Draw standard logistic noise with one logarithm, the main cost of a GRBM's noise after the random bits.

    The uniform numbers are the midpoints of their grid, so that the noise is symmetric and never infinite.
    """
    u = jax.random.uniform(key, shape, dtype) + 0.5 * jnp.finfo(dtype).eps
    return jnp.log(u / (1 - u))


def flat_noise(draw: Callable[..., Array], key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    """Return `draw(key, shape, dtype)`, drawn as a vector: short last axes draw and compile slowly on a CPU."""
    return draw(key, (math.prod(shape),), dtype).reshape(shape)


def noise_for(parameter: Array, n: int, key: PRNGKeyArray, draw: Callable[..., Array]) -> Array:
    """Draw standard noise (batch, n, …) for n samples at each row of a parameter (batch, …)."""
    check_key(key)
    batch, *event = parameter.shape
    return flat_noise(draw, key, (batch, n, *event), parameter.dtype)


def check_key(key: Any) -> None:
    """Raise unless this is one random key."""
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if dtype is None or not (typed or (dtype == jnp.uint32 and key.ndim)):
        got = type(key).__name__ if dtype is None else f"{dtype}{list(key.shape)}"
        raise TypeError(f"key: expected a key, got {got}; write jax.random.key(0)")
    if shape := key.shape if typed else key.shape[:-1]:
        raise ValueError(f"key: expected one key, got keys of shape {shape}; choose one, or use jax.vmap")
