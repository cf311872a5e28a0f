"""Bi-level score matching: VaGES's closest rival (Appendix on BiSM).

The score is ∇_v [log p̃(v, h) − log q_φ(h | v)] at samples of q, and θ descends through N unrolled steps of φ: the
gradient of the objective at φ_N(θ).
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Distribution, batch_noise, flat_noise, from_noise
from vages.models import EBLVM
from vages.models.settings import check_count
from vages.objectives.dsm import posterior_log_prob
from vages.objectives.noise import Noised, NoiseRange, check_level, perturb, scale
from vages.objectives.objective import Direction, Problem
from vages.posteriors import infer


@dataclass(frozen=True)
class BiDSM:
    """DSM by bi-level optimisation with `unrolled` steps N and `samples` particles, whose losses are averaged.

    Over a range of noise levels it is multiscale, and its name is `BiMDSM`.
    """

    sigma: float | NoiseRange
    unrolled: int = 5
    samples: int = 1

    def __post_init__(self):
        check_level(self.sigma)
        check_count("unrolled", self.unrolled, 0, "0 takes q as it is")
        check_count("samples", self.samples, 1, "one will do")

    def start(self, key: PRNGKeyArray, model: EBLVM, batch: int) -> tuple[None, None]:
        return None, None

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, q: Distribution, w: Array) -> Any:
        epsilon, latents = keys
        return flat_noise(jax.random.normal, epsilon, w.shape, w.dtype), batch_noise(q, latents, self.samples)

    def points(self, w: Array, noise: Any) -> Noised:
        return perturb(w, noise[0], self.sigma)

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        noised = problem.points

        def loss(model):
            posterior = problem.advance(model)
            q = infer(posterior, model, jax.vmap(model.features)(noised.v), noised.v)
            log_q = posterior_log_prob(model, posterior)

            def one_example(v, target, h):
                log_ratio = lambda v, h: model.log_joint(model.features(v), h) - log_q(v, h)
                scores = jax.vmap(lambda h: jax.grad(log_ratio)(v, h))(h)
                return 0.5 * jnp.mean(jnp.sum((scores - target[None]).reshape(len(h), -1) ** 2, axis=1))

            errors = jax.vmap(one_example)(noised.v, noised.target, from_noise(q, noise[1]))
            return jnp.mean(scale(noised.loss_weight, errors))

        value, gradient = eqx.filter_value_and_grad(loss)(problem.model)
        return Direction(value, (gradient, None), None)


def BiMDSM(levels: NoiseRange, unrolled: int = 0, samples: int = 1) -> BiDSM:
    """Multiscale DSM by bi-level optimisation: BiDSM over a range of noise levels; the paper unrolls no step."""
    return BiDSM(levels, unrolled, samples)
