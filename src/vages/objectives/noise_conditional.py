"""Denoising score matching with a noise level for each example, weighted as in EDM (Karras et al. 2022).

The squared error of the score at level σ is weighted by σ² (σ² + σ_d²) / σ_d², which makes it that of the unit-scale
part of the denoiser: with v = w + σ ε and D(v, σ) = v + σ² score = c_skip v + c_out F,

    loss = mean of (F − (w − c_skip v) / c_out)²        ln(σ / σ_d) ~ N(log_mean, log_std²)

With a level weight λ, the slope in ln σ is matched too (dual score matching, Guth et al. 2025):

    ∂ log p_σ(v) / ∂ ln σ = E[‖ε‖² − d | v]            loss + λ mean of (∂ log p̃_σ(v) / ∂ ln σ − (‖ε‖² − d))² / 2d

The score in v leaves a constant undetermined for each level, and is insensitive to the relative weights of separated
regions. Both follow from the slope in σ, as the density at large σ is known.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_has_score, check_positive, check_scale, is_finite, told
from vages.distributions import Distribution, flat_noise
from vages.models import EBLVM, Along, Encoding, linearize
from vages.models.noise_conditional import NORMALIZED
from vages.objectives.dsm import check_source
from vages.objectives.latents import LatentSource, Variational
from vages.objectives.noise import Noised, scale
from vages.objectives.objective import Batch, Given, Metrics, Objective, frozen
from vages.objectives.shared import shared_surrogate
from vages.posteriors import Posterior, infer


@dataclass(frozen=True)
class NoiseConditionalDSM(Objective):
    """DSM over all noise levels, for a model that reads its level from context["sigma"].

    Levels are log-normal and stratified: there are as many strata of equal probability as examples in the batch, in
    its order. Your own batches therefore need a random order. The defaults are EDM's for images, ln σ ~ N(−1.2, 1.2²)
    if `sigma_data` is 0.5.

    **Arguments**

    - `sigma_data`: that of the model.
    - `latents`: the source of h, such as `Variational(2)`.
    - `log_mean`, `log_std`: of ln(σ / σ_d).
    - `label_dropout`: the share of examples whose context["label"] is replaced by −1, for no label. The model then also
        learns the density without a label, which guidance needs. 0.1 is usual.
    - `level_weight`: λ, above 0 for a normalized model.
    - `uniform`: the share of examples whose ln σ is uniform over all levels of a normalized model; the others are
        log-normal. The default is 1 with a level weight, else 0.
    """

    sigma_data: float
    latents: LatentSource = Variational(2)  # noqa: RUF009
    log_mean: float = -1.2 + math.log(2)
    log_std: float = 1.2
    label_dropout: float = 0.0
    level_weight: float = 0.0
    uniform: float | None = None

    def __post_init__(self):
        check_scale("sigma_data", self.sigma_data, "scale of the data", "take measure_sigma_data(v)")
        check_positive("log_std", self.log_std, "spread of ln σ", "take 1.2, say")
        if not is_finite(self.log_mean):
            raise ValueError(f"log_mean: expected a finite number, got {told(self.log_mean)}; take -0.5, say")
        if not 0 <= self.label_dropout < 1:
            raise ValueError(
                f"label_dropout: expected a share from 0 to below 1, got {told(self.label_dropout)}; 0.1 is usual"
            )
        if not (is_finite(self.level_weight) and self.level_weight >= 0):
            raise ValueError(f"level_weight: expected 0 or more, got {told(self.level_weight)}; 1 is usual")
        if self.uniform is not None and not 0 <= self.uniform <= 1:
            raise ValueError(f"uniform: expected a share from 0 to 1, got {told(self.uniform)}; leave it out for 1")
        check_source(self.latents)

    def check(self, model: EBLVM, q: Distribution) -> None:
        check_has_score("NoiseConditionalDSM", model)
        self.latents.check(model)
        own = getattr(model, "sigma_data", self.sigma_data)
        if own != self.sigma_data:
            raise ValueError(
                f"sigma_data: expected that of the model, {own}, got {self.sigma_data}; write model.sigma_data"
            )
        if model.normalized and not self.level_weight:
            raise ValueError(
                "level_weight: expected a weight above 0 for a normalized model, got 0; without it, log p̃ is not log p"
            )
        if self.level_weight and not model.normalized:
            raise ValueError(
                f"level_weight: expected 0 for a model that is not normalized, got {self.level_weight}; build it with "
                "normalized=True"
            )

    def levels(self, key: PRNGKeyArray, count: int, dtype: Any = jnp.float32) -> Float[Array, "batch"]:
        """Return σ of each example, by its position in the whole batch: uniform levels first, each kind ascending."""
        place = jnp.arange(count, dtype=dtype) + jax.random.uniform(key, (count,), dtype)
        share = place / count
        uniform = self._uniform
        if uniform == 1:
            return self._uniform_levels(share)
        rest = jnp.clip((share - uniform) / (1 - uniform) if uniform else share, 1e-5, 1 - 1e-5)
        normal = math.sqrt(2) * jax.lax.erf_inv(2 * rest - 1)
        levels = self.sigma_data * jnp.exp(self.log_mean + self.log_std * normal)
        return jnp.where(share < uniform, self._uniform_levels(share / uniform), levels) if uniform else levels

    @property
    def _uniform(self) -> float:
        return float(self.level_weight > 0) if self.uniform is None else self.uniform

    def _uniform_levels(self, share: Array) -> Array:
        low, high = map(math.log, NORMALIZED)
        return self.sigma_data * jnp.exp(low + (high - low) * share)

    def perturb(self, key: PRNGKeyArray, batch: Batch) -> Noised:
        known = {} if batch.context is None else dict(batch.context)
        if "sigma" in known:
            raise ValueError("context: expected no noise levels, which the objective draws, got 'sigma'; leave it out")
        for_levels, for_noise, for_labels = jax.random.split(key, 3)
        if self.label_dropout:
            known["label"] = self._dropped(for_labels, known.get("label"))
        sigma = self.levels(for_levels, len(batch.v), batch.v.dtype)
        epsilon = flat_noise(jax.random.normal, for_noise, batch.v.shape, batch.v.dtype)
        weight = self._weight(sigma, batch.v[0].size)
        v = batch.v + scale(sigma, epsilon)
        return Noised(v, -scale(1 / sigma, epsilon), None, weight, known | {"sigma": sigma})

    def gaussian_losses(self, key: PRNGKeyArray, v: Array, center: float = 0.0) -> Float[Array, "batch"]:
        """Return the loss of log N(v; c, (σ² + σ_d²) I), a baseline, at a level for each example, averaged over noise.

        They are 1 on average if `sigma_data` is that of the data, and there is no level weight.
        """
        size, sigma = v[0].size, self.levels(key, len(v), v.dtype)
        variance = sigma**2 + self.sigma_data**2
        noise, data = sigma**2 / variance, self.sigma_data**2 / variance
        away = jnp.sum((v - center).reshape(len(v), size) ** 2, axis=1) / variance
        losses = 0.5 * self._weight(sigma, size) * (away / variance + size * (data / sigma) ** 2)
        if self.level_weight:  # the error in the slope along log σ has this mean and variance
            mean = noise * (away - size * data)
            spread = 4 * noise**3 * away + 2 * size * (1 - noise**2) ** 2
            losses = losses + self.level_weight * (mean**2 + spread) / (2 * size)
        return losses

    def _weight(self, sigma: Array, size: int) -> Array:
        """Return the weight of an example's squared error."""
        return 2 * sigma**2 * (1 + (sigma / self.sigma_data) ** 2) / size

    def _dropped(self, key: PRNGKeyArray, label: Array | None) -> Array:
        """Replace a random share of the labels by −1."""
        if label is None:
            raise ValueError(
                f"label_dropout: expected 0 for data without labels, got {self.label_dropout}; give "
                'Batch(v, {"label": labels}), or leave it out'
            )
        return jnp.where(jax.random.bernoulli(key, self.label_dropout, label.shape), jnp.full_like(label, -1), label)

    def encode(self, model: EBLVM, points: Any) -> Encoding:
        return linearize(model, points.v, points.context, ("sigma",) if self.level_weight else ())

    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        noised, encoding, fixed = given.points, given.encoding, frozen(model)
        if encoding.linear is None:
            encoding = self.encode(fixed, noised)
        first, second = self.latents(key, fixed, infer(fixed, posterior, encoding), encoding, 2)

        def direction(slope):
            residual = (slope.v if self.level_weight else slope) - noised.target
            z = scale(noised.loss_weight, residual)
            loss = 0.5 * jnp.mean(jnp.sum((residual * z).reshape(len(z), -1), axis=1))
            if not self.level_weight:
                return z, {"loss": loss}
            sigma, size = noised.context["sigma"], noised.v[0].size
            epsilon = scale(sigma, noised.target).reshape(len(sigma), -1)
            gap = sigma * slope.context["sigma"] - (jnp.sum(epsilon**2, axis=1) - size)
            level_loss = jnp.mean(gap**2) / (2 * size)
            metrics = {"loss": loss + self.level_weight * level_loss, "score_loss": loss, "level_loss": level_loss}
            return Along(z, {"sigma": self.level_weight / size * gap * sigma}), metrics

        value, metrics = shared_surrogate(model, encoding, first, second, direction)
        return value, metrics, None
