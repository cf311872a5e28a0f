"""Kernelized Stein discrepancy between data and model, with the RBF kernel (Eq. 12).

A batch is cut into pairs (v, v'). The gradient is that of Eq. 14, 2 [k(v, v') VaES(v) + ∇_v k(v, v')]ᵀ VaGES(v').
The two estimates use different examples, so that their samples h are independent.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_has_score, check_positive
from vages.distributions import Distribution
from vages.models import EBLVM, encode
from vages.objectives.dsm import check_samples_of_q, check_source, control_variate_of
from vages.objectives.latents import LatentSource, Variational
from vages.objectives.objective import Given, Metrics, Objective, frozen
from vages.posteriors import Posterior, infer


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
class KSD(Objective):
    """KSD with an RBF kernel of `bandwidth`, with h from any source."""

    bandwidth: float
    latents: LatentSource = Variational(2)  # noqa: RUF009
    control_variate: bool = False

    def __post_init__(self):
        check_positive("bandwidth", self.bandwidth, "number", "take 0.1, say")
        check_source(self.latents)
        if self.control_variate:
            check_samples_of_q(self.latents)

    def check(self, model: EBLVM, q: Distribution) -> None:
        check_has_score("KSD", model)
        self.latents.check(model)

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[None, None]:
        if size % 2:
            raise ValueError(f"batch: expected an even number, as examples are paired, got {size}; add or drop one")
        if len(model.v.shape) != 1:
            raise ValueError(f"KSD: expected a vector v, got shape {model.v.shape}; flatten it, or use DSM")
        return None, None

    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        fixed, half = frozen(model), len(given.points.v) // 2
        q = infer(fixed, posterior, given.encoding)

        def latents(key, rows):
            cut = lambda tree: jax.tree.map(lambda x: x[rows], tree)
            v, context = cut((given.points.v, given.points.context))
            own = encode(fixed, v, context)
            return own, self.latents(key, fixed, cut(q), own)[0]

        for_score, for_gradient = jax.random.split(key)
        (here, first), (there, second) = latents(for_score, slice(half, None)), latents(for_gradient, slice(half))
        score = first.score(fixed, here)
        if self.control_variate:
            score = score - control_variate_of(fixed, posterior, here, first.h)
        kernel = rbf(here.v, there.v, self.bandwidth)
        z = kernel.value[:, None] * score + kernel.gradient
        value = second.surrogate(model, there, z)
        rest = jnp.mean(kernel.trace - jnp.sum(score * kernel.gradient, axis=1))
        return 2 * value, {"loss": jax.lax.stop_gradient(value + rest)}, None
