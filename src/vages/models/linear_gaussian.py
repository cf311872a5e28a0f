"""The linear-Gaussian model of Fig. 1: an EBLVM with closed forms for everything."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Gaussian
from vages.domains import Real
from vages.models.bilinear import Projection, project, uniform_parameters
from vages.models.eblvm import TractableEBLVM


class LinearGaussian(TractableEBLVM):
    """E(v, h) = ½ ‖(v − b) / σ‖² + ½ ‖h − c‖² − vᵀ W h with real h.

    v is normal with precision diag(σ⁻²) − W Wᵀ. The model is proper if that is positive definite.
    """

    weight: Float[Array, "v h"]
    visible_bias: Float[Array, "v"]
    latent_bias: Float[Array, "h"]
    log_sigma: Float[Array, ""] | Float[Array, "v"]

    @staticmethod
    def init(
        key: PRNGKeyArray, v_dim: int, h_dim: int, *, scalar_sigma: bool = False, dtype=jnp.float32
    ) -> "LinearGaussian":
        """W, b and c uniform on ±1/√(v_dim + h_dim) and σ = 1.

        The largest eigenvalue of W Wᵀ then tends to (√v_dim + √h_dim)² / 3 (v_dim + h_dim) ≤ 2/3 < 1/σ².
        """
        bound = 1 / math.sqrt(v_dim + h_dim)
        return LinearGaussian(*uniform_parameters(key, v_dim, h_dim, bound, scalar_sigma, dtype))

    @property
    def v(self) -> Real:
        return Real(self.weight.shape[-2])

    @property
    def h(self) -> Real:
        return Real(self.weight.shape[-1])

    def features(self, v: Array) -> Projection:  # pyright: ignore[reportIncompatibleMethodOverride]
        return project(v, self.weight, self.visible_bias, self.latent_bias, self.log_sigma)

    def log_joint(self, features: Projection, h: Array) -> Float[Array, ""]:
        quadratic = 0.5 * (jnp.sum(h**2) + jnp.sum(self.latent_bias**2))
        return features.log_base - quadratic + jnp.dot(features.field, h)

    def posterior(self, features: Projection) -> Gaussian:
        """p(h | v) = N(c + Wᵀv, I)."""
        return Gaussian(features.field, jnp.zeros_like(features.field))

    def conditional(self, h: Array) -> Gaussian:
        """p(v | h) = N(b + σ² W h, σ²)."""
        mean = self.visible_bias + jnp.exp(2 * self.log_sigma) * (self.weight @ h)
        return Gaussian(mean, jnp.broadcast_to(self.log_sigma, mean.shape))

    def draw(self, key: PRNGKeyArray, n: int) -> tuple[Array, Array]:
        """Draw n independent samples of (v, h)."""
        for_v, for_h = jax.random.split(key)
        factor = jnp.linalg.cholesky(self._checked_precision())
        noise = jax.random.normal(for_v, (n, *self.v.shape), self.weight.dtype)
        v = self.marginal_mean()[None] + jax.scipy.linalg.solve_triangular(factor.T, noise.T).T
        return v, jax.vmap(lambda v: self.posterior(self.features(v)))(v).draw(for_h)

    def free_energy(self, v: Array) -> Float[Array, ""]:
        log_base, field = self.features(v)
        gain = 0.5 * (jnp.sum(field**2) - jnp.sum(self.latent_bias**2))
        return -log_base - gain - 0.5 * len(field) * math.log(2 * math.pi)

    def marginal_precision(self) -> Float[Array, "v v"]:
        """The precision of p(v)."""
        inverse_variance = jnp.broadcast_to(jnp.exp(-2 * self.log_sigma), self.v.shape)
        return jnp.diag(inverse_variance) - self.weight @ self.weight.T

    def marginal_mean(self) -> Float[Array, "v"]:
        """The mean of p(v)."""
        return jnp.linalg.solve(self._checked_precision(), self._information())

    def log_partition(self) -> Float[Array, ""]:
        """log Z. Under `jit`, where no error can be raised, improper parameters give NaN."""
        v_dim, h_dim = self.weight.shape
        factor = jnp.linalg.cholesky(self._checked_precision())
        whitened = jax.scipy.linalg.solve_triangular(factor, self._information(), lower=True)
        log_base_at_zero = self.features(jnp.zeros_like(self.visible_bias)).log_base
        return (
            0.5 * (v_dim + h_dim) * math.log(2 * math.pi)
            - jnp.sum(jnp.log(jnp.diagonal(factor)))
            + 0.5 * jnp.sum(whitened**2)
            + log_base_at_zero
        )

    def _information(self) -> Float[Array, "v"]:
        return self.visible_bias * jnp.exp(-2 * self.log_sigma) + self.weight @ self.latent_bias

    def _checked_precision(self) -> Float[Array, "v v"]:
        precision = self.marginal_precision()
        if not isinstance(precision, Tracer):
            smallest = float(np.linalg.eigvalsh(np.asarray(precision))[0])
            if not smallest > 0:
                raise ValueError(
                    "LinearGaussian: expected diag(σ⁻²) − W Wᵀ to be positive definite (a proper model), got the "
                    f"smallest eigenvalue {smallest:.3g}; shrink W or σ"
                )
        return precision
