"""Denoising score matching with a noise level for each example, weighted as in EDM (Karras et al. 2022).

The squared error of the score at level σ is weighted by σ² (σ² + σ_d²) / σ_d², which makes it that of the denoiser's
part of unit scale: with v = w + σ ε and D(v, σ) = v + σ² score = c_skip v + c_out F,

    loss = mean of (F − (w − c_skip v) / c_out)²        ln(σ / σ_d) ~ N(log_mean, log_std²)
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_has_score, check_positive, is_finite, told
from vages.distributions import Distribution, flat_noise
from vages.models import EBLVM, Encoding, linearize
from vages.objectives.dsm import check_source
from vages.objectives.latents import LatentSource, Variational
from vages.objectives.noise import Noised, scale
from vages.objectives.objective import Batch, Given, Metrics, Objective, frozen
from vages.objectives.shared import shared_surrogate
from vages.posteriors import Posterior, infer


@dataclass(frozen=True)
class NoiseConditionalDSM(Objective):
    """DSM for a model of every noise level, which reads its level from context["sigma"].

    Levels are log-normal and stratified: the batch is cut into as many strata of equal probability as it has examples.
    The defaults are EDM's for images, ln σ ~ N(−1.2, 1.2²) where `sigma_data` is 0.5.

    **Arguments**

    - `sigma_data`: that of the model.
    - `latents`: where h come from, `Variational(2)` say.
    - `log_mean`, `log_std`: of ln(σ / σ_d).
    - `label_dropout`: the share of examples whose context["label"] is replaced by −1, which stands for none. The model
        then learns the density without a label too, which guidance needs: 0.1, say.
    """

    sigma_data: float
    latents: LatentSource = Variational(2)  # noqa: RUF009
    log_mean: float = -1.2 + math.log(2)
    log_std: float = 1.2
    label_dropout: float = 0.0

    def __post_init__(self):
        check_positive("sigma_data", self.sigma_data, "scale of the data", "take measure_sigma_data(v)")
        check_positive("log_std", self.log_std, "spread of ln σ", "take 1.2, say")
        if not is_finite(self.log_mean):
            raise ValueError(f"log_mean: expected a finite number, got {told(self.log_mean)}; take -0.5, say")
        if not 0 <= self.label_dropout < 1:
            raise ValueError(
                f"label_dropout: expected a share from 0 to below 1, got {told(self.label_dropout)}; 0.1 is usual"
            )
        check_source(self.latents)

    def check(self, model: EBLVM, q: Distribution) -> None:
        check_has_score("NoiseConditionalDSM", model)
        self.latents.check(model)
        own = getattr(model, "sigma_data", self.sigma_data)
        if own != self.sigma_data:
            raise ValueError(
                f"sigma_data: expected that of the model, {own}, got {self.sigma_data}; write model.sigma_data"
            )

    def levels(self, key: PRNGKeyArray, count: int, dtype: Any = jnp.float32) -> Float[Array, "batch"]:
        """σ of each example, ascending, by its place in the whole batch."""
        place = jnp.arange(count, dtype=dtype) + jax.random.uniform(key, (count,), dtype)
        share = jnp.clip(place / count, 1e-5, 1 - 1e-5)
        normal = math.sqrt(2) * jax.lax.erf_inv(2 * share - 1)
        return self.sigma_data * jnp.exp(self.log_mean + self.log_std * normal)

    def perturb(self, key: PRNGKeyArray, batch: Batch) -> Noised:
        known = {} if batch.context is None else dict(batch.context)
        if "sigma" in known:
            raise ValueError("context: expected no levels of the data's own, got 'sigma'; the objective draws them")
        if self.label_dropout:
            known["label"] = self._dropped(jax.random.fold_in(key, 1), known.get("label"))
        for_levels, for_noise = jax.random.split(key)
        sigma = self.levels(for_levels, len(batch.v), batch.v.dtype)
        epsilon = flat_noise(jax.random.normal, for_noise, batch.v.shape, batch.v.dtype)
        ratio = sigma / self.sigma_data
        weight = 2 * sigma**2 * (1 + ratio**2) / batch.v[0].size
        v = batch.v + scale(sigma, epsilon)
        return Noised(v, -scale(1 / sigma, epsilon), None, weight, known | {"sigma": sigma})

    def _dropped(self, key: PRNGKeyArray, label: Array | None) -> Array:
        """The labels, some of them −1."""
        if label is None:
            raise ValueError(
                f"label_dropout: expected 0 for data without labels, got {self.label_dropout}; give "
                'Batch(v, {"label": labels}), or leave it out'
            )
        return jnp.where(jax.random.bernoulli(key, self.label_dropout, label.shape), jnp.full_like(label, -1), label)

    def encode(self, model: EBLVM, points: Any) -> Encoding:
        return linearize(model, points.v, points.context)

    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        noised, encoding, fixed = given.points, given.encoding, frozen(model)
        if encoding.linear is None:
            encoding = self.encode(fixed, noised)
        first, second = self.latents(key, fixed, infer(fixed, posterior, encoding), encoding, 2)

        def direction(score):
            residual = score - noised.target
            z = scale(noised.loss_weight, residual)
            return z, 0.5 * jnp.mean(jnp.sum((residual * z).reshape(len(z), -1), axis=1))

        value, loss = shared_surrogate(model, encoding, first, second, direction)
        return value, {"loss": loss}, None
