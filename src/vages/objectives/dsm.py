"""Denoising score matching: ½ E ‖∇_v log p(v) − ∇_v log p_σ(v | w)‖² with v = w + σ ε (Eq. 16).

Multiscale DSM (Eq. 17) is the same with v at many levels, the target at one, and a weight for each example.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution, flat_noise
from vages.estimators import Encoding, control_variate, encode, encoded_vaes, vages
from vages.models import EBLVM, check_inputs
from vages.models.checks import check_kind
from vages.objectives.noise import Noised, NoiseRange, check_level, perturb, scale
from vages.objectives.objective import Direction, Problem
from vages.posteriors import Latents, LatentSource, Posterior, Variational, independent_sets, infer, noise_of_sets

Model = TypeVar("Model", bound=EBLVM)


def vages_dsm(
    model: Model, noised: Noised, h: Array, encoding: Encoding | None = None
) -> tuple[Float[Array, ""], Model]:
    """The VaGES-DSM gradient (Eq. 20) of a batch, from 2 L samples of h for each v: (loss, gradient).

    The first half of the samples goes into VaES and the second into VaGES, because their product is unbiased only
    if they are independent. The loss is ½ ‖VaES − target‖², which exceeds the objective by VaES's variance. Both are
    weighted where the batch says so.
    """
    check_inputs(model, noised.v, h, samples=4)
    half = h.shape[1] // 2
    encoding = encode(model, noised.v) if encoding is None else encoding
    score = encoded_vaes(model, encoding, h[:, :half])
    return _descend(model, noised, score, Latents(h[:, half:], None))


def _descend(model: Model, noised: Noised, score: Array, latents: Latents) -> tuple[Float[Array, ""], Model]:
    residual = score - noised.target
    z = scale(noised.loss_weight, residual)
    gradient = vages(model, noised.v, latents.h, z, latents.weights)
    return 0.5 * jnp.mean(jnp.sum((residual * z).reshape(len(z), -1), axis=1)), gradient


@dataclass(frozen=True)
class DSM:
    """DSM at noise level `sigma`, with h from any source; `control_variate` subtracts ∇_v log q from VaES.

    Over a range of noise levels it is multiscale DSM, whose name is `MDSM`.
    """

    sigma: float | NoiseRange
    latents: LatentSource = Variational(2)  # noqa: RUF009
    control_variate: bool = False
    unrolled: int = field(default=0, init=False)

    def __post_init__(self):
        check_level(self.sigma)
        check_source(self.latents)
        if self.control_variate:
            check_samples_of_q(self.latents)

    def start(self, key: PRNGKeyArray, model: EBLVM, batch: int) -> tuple[None, None]:
        return None, None

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, q: Distribution, w: Array) -> Any:
        epsilon, latents = keys
        return (
            flat_noise(jax.random.normal, epsilon, w.shape, w.dtype),
            *noise_of_sets(self.latents, latents, q),
        )

    def points(self, w: Array, noise: Any) -> Noised:
        return perturb(w, noise[0], self.sigma)

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        model, posterior, encoding, noised = problem.model, problem.posterior, problem.encoding, problem.points
        q = infer(posterior, model, encoding.features, noised.v)
        first, second = independent_sets(self.latents, model, q, encoding.features, noise[1:])
        score = encoded_vaes(model, encoding, first.h, first.weights)
        if self.control_variate:
            score = score - control_variate(posterior_log_prob(model, posterior), noised.v, first.h)
        loss, gradient = _descend(model, noised, score, second)
        return Direction(loss, (gradient, None), None)


def MDSM(levels: NoiseRange, latents: LatentSource, control_variate: bool = False) -> DSM:
    """Multiscale DSM: DSM over a range of noise levels."""
    return DSM(levels, latents, control_variate)


def check_source(latents: Any) -> None:
    """Raise unless it is where h come from."""
    check_kind("latents", latents, LatentSource, "a source of h", "give Variational(2), say")


def check_samples_of_q(latents: LatentSource) -> None:
    """Raise unless h are draws of q, under which alone the control variate has mean zero."""
    if not isinstance(latents, Variational):
        raise ValueError(
            f"control_variate: expected latents drawn from q (Variational), got {type(latents).__name__}; leave it out"
        )
    if latents.corrector is not None:
        raise ValueError(
            "control_variate: expected latents drawn from q (Variational), got corrected ones; leave out the corrector "
            "or the control variate"
        )


def posterior_log_prob(model: EBLVM, posterior: Posterior):
    """log q(h | v) as a function of one example (v, h)."""
    return lambda v, h: posterior(model, model.features(v), v).log_prob(h)
