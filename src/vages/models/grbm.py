"""The Gaussian restricted Boltzmann machine."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.bounds import MAX_ENUMERATED
from vages.distributions import Bernoulli, Gaussian
from vages.domains import Binary, Empty, Real
from vages.models.bilinear import Projection, project, uniform_parameters
from vages.models.eblvm import TractableEBLVM

_BLOCK = 12  # states are summed 2¹² at a time, which bounds the memory


class GRBM(TractableEBLVM):
    """E(v, h) = ½ ‖(v − b) / σ‖² − c·h − vᵀ W h with binary h (Eq. 15; no σ in the coupling).

    σ is one number or one per dimension, depending on the shape of `log_sigma`.
    """

    weight: Float[Array, "v h"]
    visible_bias: Float[Array, "v"]
    latent_bias: Float[Array, "h"]
    log_sigma: Float[Array, ""] | Float[Array, "v"]

    @staticmethod
    def init(key: PRNGKeyArray, v_dim: int, h_dim: int, *, scalar_sigma: bool = False, dtype=jnp.float32) -> "GRBM":
        """W, b and c uniform on ±1/√h_dim and σ = 1, as in the paper's experiments."""
        return GRBM(*uniform_parameters(key, v_dim, h_dim, 1 / math.sqrt(h_dim), scalar_sigma, dtype))

    @property
    def v(self) -> Real:
        return Real(self.weight.shape[-2])

    @property
    def h(self) -> Binary:
        return Binary(self.weight.shape[-1])

    def features(self, v: Array) -> Projection:  # pyright: ignore[reportIncompatibleMethodOverride]
        return project(v, self.weight, self.visible_bias, self.latent_bias, self.log_sigma)

    def log_joint(self, features: Projection, h: Array) -> Float[Array, ""]:
        return features.log_base + jnp.dot(features.field, h)

    def posterior(self, features: Projection) -> Bernoulli:
        """p(h_j = 1 | v) = sigmoid(c_j + (vᵀW)_j); its samples are 0 or 1."""
        return Bernoulli(features.field, temperature=0.0)

    def conditional(self, h: Array) -> Gaussian:
        """p(v | h) = N(b + σ² W h, σ²)."""
        mean = self.visible_bias + jnp.exp(2 * self.log_sigma) * (self.weight @ h)
        return Gaussian(mean, jnp.broadcast_to(self.log_sigma, mean.shape))

    def free_energy(self, v: Array) -> Float[Array, ""]:
        features = self.features(v)
        return -features.log_base - jnp.sum(jax.nn.softplus(features.field))

    def log_partition(self) -> Float[Array, ""]:
        """log Z by summing over all 2^h latent states, in blocks of bounded memory."""
        v_dim, h_dim = self.weight.shape
        if h_dim > MAX_ENUMERATED:
            raise ValueError(
                f"log_partition: expected at most {MAX_ENUMERATED} latent units to enumerate, got {h_dim}; "
                "estimate log Z with ais"
            )
        sigma = jnp.exp(self.log_sigma)

        def log_mass(h):  # log ∫ p̃(v, h) dv, without the terms independent of h
            pull = self.weight @ h
            return jnp.dot(self.latent_bias, h) + jnp.dot(self.visible_bias, pull) + 0.5 * jnp.sum((sigma * pull) ** 2)

        inner = min(h_dim, _BLOCK)
        low = Binary(inner).states(self.weight.dtype)
        high = (Binary(h_dim - inner) if h_dim > inner else Empty()).states(self.weight.dtype)

        def block(high):
            states = jnp.concatenate([low, jnp.broadcast_to(high, (len(low), len(high)))], axis=1)
            return jax.nn.logsumexp(jax.vmap(log_mass)(states))

        log_sum = jax.nn.logsumexp(jax.lax.map(block, high))
        return log_sum + jnp.sum(jnp.broadcast_to(self.log_sigma, (v_dim,))) + 0.5 * v_dim * math.log(2 * math.pi)
