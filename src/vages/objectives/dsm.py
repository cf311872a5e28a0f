"""Denoising score matching: ½ E ‖∇_v log p(v) − ∇_v log p_σ(v | w)‖² with v = w + σ ε (Eq. 16)."""

from typing import NamedTuple, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from vages.estimators import Encoding, encode, encoded_vaes, vages
from vages.models import EBLVM, check_inputs

Model = TypeVar("Model", bound=EBLVM)


class Noised(NamedTuple):
    """A perturbed batch v and the score of the perturbation at it, ∇_v log p_σ(v | w) = −ε / σ."""

    v: Array
    target: Array


def perturb(w: Array, epsilon: Array, sigma: float) -> Noised:
    """w + σ ε, with its target."""
    return Noised(w + sigma * epsilon, -epsilon / sigma)


def vages_dsm(
    model: Model, noised: Noised, h: Array, encoding: Encoding | None = None
) -> tuple[Float[Array, ""], Model]:
    """The VaGES-DSM gradient (Eq. 20) of a batch, from 2 L samples of h for each v: (loss, gradient).

    The first half of the samples goes into VaES and the second into VaGES, because their product is unbiased only
    if they are independent. The loss is ½ ‖VaES − target‖², which exceeds the objective by VaES's variance.
    """
    check_inputs(model, noised.v, h, samples=4)
    half = h.shape[1] // 2
    encoding = encode(model, noised.v) if encoding is None else encoding
    residual = encoded_vaes(model, encoding, h[:, :half]) - noised.target
    gradient = vages(model, noised.v, h[:, half:], residual)
    return 0.5 * jnp.mean(jnp.sum(residual.reshape(len(residual), -1) ** 2, axis=1)), gradient
