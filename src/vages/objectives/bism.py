"""Bi-level score matching, the method closest to VaGES (Appendix on BiSM).

The score is ∇_v [log p̃(v, h) − log q_φ(h | v)] at samples of q. θ follows the gradient of the objective at φ_N(θ),
through N unrolled steps of φ.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_has_score
from vages.distributions import Distribution
from vages.models import EBLVM
from vages.objectives.noise import Noised, NoiseRange, add_noise, check_level, check_size, scale
from vages.objectives.objective import Batch, Given, Metrics, Objective
from vages.posteriors import Posterior, infer


@dataclass(frozen=True)
class BiDSM(Objective):
    """DSM by bi-level optimization with `unrolled` steps N and `samples` particles, whose losses are averaged.

    Over a range of noise levels it is multiscale, see `BiMDSM`.
    """

    sigma: float | NoiseRange
    unrolled: int = 5
    samples: int = 1

    def __post_init__(self):
        check_level(self.sigma)
        check_count("unrolled", self.unrolled, 0, "0 takes q as it is")
        check_count("samples", self.samples, 1, "one will do")

    def check(self, model: EBLVM, q: Distribution) -> None:
        check_has_score("BiDSM", model)

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[None, None]:
        check_size(self.sigma, size)
        return None, None

    def perturb(self, key: PRNGKeyArray, batch: Batch) -> Noised:
        return add_noise(key, batch, self.sigma)

    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        noised = given.points
        h = infer(model, posterior, noised.v, noised.context).sample(key, self.samples)

        def one_example(v, target, h, context):
            known = () if context is None else (context,)

            def log_ratio(v, h):
                features = model.features(v, *known)
                return model.log_joint(features, h) - posterior(model, features, v, *known).log_prob(h)

            scores = jax.vmap(lambda h: jax.grad(log_ratio)(v, h))(h)
            return 0.5 * jnp.mean(jnp.sum((scores - target[None]).reshape(self.samples, -1) ** 2, axis=1))

        errors = jax.vmap(one_example)(noised.v, noised.target, h, noised.context)
        return jnp.mean(scale(noised.loss_weight, errors)), {}, None


def BiMDSM(levels: NoiseRange, unrolled: int = 0, samples: int = 1) -> BiDSM:
    """Multiscale DSM by bi-level optimization: BiDSM over a range of noise levels. The paper unrolls no steps."""
    return BiDSM(levels, unrolled, samples)
