"""Kernelised Stein discrepancy between data and model, with the RBF kernel (Eq. 12).

A batch is cut into pairs (v, v'). The gradient is that of Eq. 14, 2 [k(v, v') VaES(v) + ∇_v k(v, v')]ᵀ VaGES(v').
The two estimates look at different examples, so that their h are independent.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution
from vages.estimators import control_variate, encode, encoded_vaes, vages_surrogate
from vages.models import EBLVM, check_inputs
from vages.models.settings import check_positive
from vages.objectives.dsm import check_samples_of_q, check_source, posterior_log_prob
from vages.objectives.objective import Data, Direction, Problem
from vages.posteriors import LatentSource, Variational, infer, noise_of_sets


class Kernel(NamedTuple):
    """The RBF kernel of pairs of points: its value, ∇_v k, and tr ∇_v ∇_v' k; ∇_v' k = −∇_v k."""

    value: Float[Array, "pairs"]
    gradient: Array
    trace: Float[Array, "pairs"]


def rbf(v: Array, other: Array, bandwidth: float) -> Kernel:
    """k(v, v') = exp(−‖v − v'‖² / 2 bandwidth²) for pairs of vectors."""
    gap = (v - other) / bandwidth**2
    square = jnp.sum((v - other) ** 2, axis=1) / bandwidth**2
    value = jnp.exp(-0.5 * square)
    return Kernel(value, -value[:, None] * gap, value * (v.shape[1] - square) / bandwidth**2)


@dataclass(frozen=True)
class KSD:
    """KSD with an RBF kernel of `bandwidth`, with h from any source."""

    bandwidth: float
    latents: LatentSource
    control_variate: bool = False
    unrolled: int = field(default=0, init=False)

    def __post_init__(self):
        check_positive("bandwidth", self.bandwidth, "number", "take 0.1, say")
        check_source(self.latents)
        if self.control_variate:
            check_samples_of_q(self.latents)

    def start(self, key: PRNGKeyArray, model: EBLVM, batch: int) -> tuple[None, None]:
        if batch % 2:
            raise ValueError(f"batch: expected an even number, to be cut into pairs, got {batch}; add or drop one")
        if len(model.v.shape) != 1:
            raise ValueError(f"KSD: expected v a vector, got v of shape {model.v.shape}; flatten it, or use DSM")
        return None, None

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, q: Distribution, w: Array) -> Any:
        half = jax.tree.map(lambda x: jax.ShapeDtypeStruct((x.shape[0] // 2, *x.shape[1:]), x.dtype), q)
        score, gradient = (noise_of_sets(self.latents, key, half, 1)[0] for key in jax.random.split(keys[1]))
        if isinstance(self.latents, Variational) and self.latents.corrector is not None:
            return jnp.concatenate([gradient[0], score[0]]), jnp.concatenate([gradient[1], score[1]], axis=1)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), gradient, score)

    def points(self, w: Array, noise: Any) -> Data:
        return Data(w)

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        model, posterior, v = problem.model, problem.posterior, problem.points.v
        q = infer(posterior, model, problem.encoding.features, v)
        h, weights = self.latents(model, q, problem.encoding.features, noise)
        check_inputs(model, v, h, weights=weights)
        half = len(v) // 2
        other, v = v[:half], v[half:]
        weights_other, weights = (None, None) if weights is None else (weights[:half], weights[half:])
        score = encoded_vaes(model, encode(model, v), h[half:], weights)
        if self.control_variate:
            score = score - control_variate(posterior_log_prob(model, posterior), v, h[half:])
        kernel = rbf(v, other, self.bandwidth)
        z = kernel.value[:, None] * score + kernel.gradient
        value, gradient = eqx.filter_value_and_grad(vages_surrogate)(model, other, h[:half], z, weights_other)
        rest = jnp.mean(kernel.trace - jnp.sum(score * kernel.gradient, axis=1))
        return Direction(value + rest, (jax.tree.map(lambda g: 2 * g, gradient), None), None)
