"""Contrastive divergence: the gradient of F(data) − F(samples), samples from short Gibbs chains."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Distribution, flat_noise, logistic
from vages.models import GRBM
from vages.models.checks import check_kind
from vages.models.settings import check_count
from vages.objectives.objective import Data, Direction, Problem
from vages.samplers import GibbsNoise, gibbs_noise, gibbs_transition


@dataclass(frozen=True)
class ContrastiveDivergence:
    """CD-k, or with `persistent` PCD-k: chains start at the data, or where they stopped at the last batch."""

    steps: int = 1
    persistent: bool = False
    unrolled: int = field(default=0, init=False)

    def __post_init__(self):
        check_count("steps", self.steps, 1, "one is usual")

    def start(self, key: PRNGKeyArray, model: GRBM, batch: int) -> tuple[None, Any]:
        check_kind("ContrastiveDivergence", model, GRBM, "a GRBM, whose chains are Gibbs's", "use DSM")
        if not self.persistent:
            return None, None
        return None, jax.random.bernoulli(key, 0.5, (batch, *model.h.shape)).astype(model.weight.dtype)

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: GRBM, q: Distribution, w: Array) -> Any:
        start, chain = jax.random.split(keys[1])
        first = None if self.persistent else flat_noise(logistic, start, (len(w), *model.h.shape), w.dtype)
        steps = [gibbs_noise(key, model, (len(w),)) for key in jax.random.split(chain, self.steps)]
        return first, GibbsNoise(h=[noise.h for noise in steps], v=[noise.v for noise in steps])

    def points(self, w: Array, noise: Any) -> Data:
        return Data(w)

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        model, data, (first, transitions) = problem.model, problem.w, noise
        if self.persistent:
            h = problem.memory
        else:
            q = jax.vmap(model.posterior)(problem.encoding.features)
            h = jax.vmap(lambda q, noise: q.transform(noise))(q, first)
        v = data
        for noise_of_v, noise_of_h in zip(transitions.v, transitions.h, strict=True):
            v, h = jax.vmap(partial(gibbs_transition, model))(h, GibbsNoise(h=noise_of_h, v=noise_of_v))

        def contrast(model):
            return jnp.mean(jax.vmap(model.free_energy)(data)) - jnp.mean(jax.vmap(model.free_energy)(v))

        value, gradient = eqx.filter_value_and_grad(contrast)(model)
        return Direction(value, (gradient, None), h if self.persistent else None)
