"""Denoising score matching: ½ E ‖∇_v log p(v) − ∇_v log p_σ(v | w)‖² with v = w + σ ε (Eq. 16).

Multiscale DSM (Eq. 17) draws v at many noise levels, with the target of one level and a weight for each example.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_has_score, check_inputs, check_kind
from vages.distributions import Distribution
from vages.estimators import control_variate
from vages.models import EBLVM, Encoding, encode
from vages.objectives.latents import Latents, LatentSource, Variational
from vages.objectives.noise import Noised, NoiseRange, add_noise, check_level, check_size, scale
from vages.objectives.objective import Batch, Given, Metrics, Objective, frozen
from vages.posteriors import Posterior, infer

Model = TypeVar("Model", bound=EBLVM)


def vages_dsm(model: Model, noised: Noised, h: Any, encoding: Encoding | None = None) -> tuple[Float[Array, ""], Model]:
    """Return the loss and the VaGES-DSM gradient (Eq. 20) of a batch, from 2 L samples of h for each v.

    The first half of the samples goes into VaES and the second into VaGES, because their product is unbiased only
    if they are independent. The loss is ½ ‖VaES − target‖², which exceeds the objective by half the variance of VaES.
    Both use the weights `noised.loss_weight`, if given.
    """
    check_inputs(model, noised.v, h, samples=4, context=noised.context)
    half = jax.tree.leaves(h)[0].shape[1] // 2
    encoding = encode(model, noised.v, noised.context) if encoding is None else encoding
    first, second = (Latents(jax.tree.map(cut, h)) for cut in (lambda x: x[:, :half], lambda x: x[:, half:]))
    z, loss = _residual(noised, first.score(model, encoding))
    return loss, eqx.filter_grad(second.surrogate)(model, encoding, z)


def _residual(noised: Noised, score: Array) -> tuple[Array, Float[Array, ""]]:
    """Return the weighted residual z of the score, the direction of VaGES, and the loss."""
    residual = score - noised.target
    z = scale(noised.loss_weight, residual)
    return z, 0.5 * jnp.mean(jnp.sum((residual * z).reshape(len(z), -1), axis=1))


@dataclass(frozen=True)
class DSM(Objective):
    """DSM at noise level `sigma`, with h from any source. `control_variate` subtracts ∇_v log q from VaES.

    Over a range of noise levels it is multiscale DSM, see `MDSM`.
    """

    sigma: float | NoiseRange
    latents: LatentSource = Variational(2)  # noqa: RUF009
    control_variate: bool = False

    def __post_init__(self):
        check_level(self.sigma)
        check_source(self.latents)
        if self.control_variate:
            check_samples_of_q(self.latents)

    def check(self, model: EBLVM, q: Distribution) -> None:
        check_has_score("DSM", model)
        self.latents.check(model)

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[None, None]:
        check_size(self.sigma, size)
        return None, None

    def perturb(self, key: PRNGKeyArray, batch: Batch) -> Noised:
        return add_noise(key, batch, self.sigma)

    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        noised, encoding, fixed = given.points, given.encoding, frozen(model)
        first, second = self.latents(key, fixed, infer(fixed, posterior, encoding), encoding, 2)
        score = first.score(fixed, encoding)
        if self.control_variate:
            score = score - control_variate_of(fixed, posterior, encoding, first.h)
        z, loss = _residual(noised, score)
        return second.surrogate(model, encoding, z), {"loss": loss}, None


def MDSM(levels: NoiseRange, latents: LatentSource, control_variate: bool = False) -> DSM:
    """Multiscale DSM: DSM over a range of noise levels."""
    return DSM(levels, latents, control_variate)


def check_source(latents: Any) -> None:
    """Raise TypeError unless this is a `LatentSource`."""
    check_kind("latents", latents, LatentSource, "a source of h", "give Variational(2), say")


def check_samples_of_q(latents: LatentSource) -> None:
    """Raise ValueError unless h is drawn from q, as the control variate has mean zero only then."""
    if not isinstance(latents, Variational):
        raise ValueError(
            f"control_variate: expected latents drawn from q (Variational), got {type(latents).__name__}; leave it out"
        )
    if latents.corrector is not None:
        raise ValueError(
            "control_variate: expected latents drawn from q (Variational), got corrected ones; leave out the corrector "
            "or the control variate"
        )


def control_variate_of(model: EBLVM, posterior: Posterior, encoding: Encoding, h: Any) -> Array:
    """mean_i ∇_v log q(h_i | v) at each v of an encoding."""

    def log_q(v, h, *context):
        return posterior(model, model.features(v, *context), v, *context).log_prob(h)

    return control_variate(log_q, encoding.v, h, *(() if encoding.context is None else (encoding.context,)))
