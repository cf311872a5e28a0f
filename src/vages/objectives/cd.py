"""Contrastive divergence: the gradient of F(data) − F(samples), with samples from short Gibbs chains."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_kind
from vages.models import GRBM
from vages.objectives.objective import Given, Metrics, Objective, frozen
from vages.posteriors import Posterior
from vages.samplers import gibbs_step
from vages.samplers.gibbs import GibbsState


@dataclass(frozen=True)
class ContrastiveDivergence(Objective):
    """CD-k, whose chains start at the data, or with `persistent` PCD-k, whose chains continue from the last batch."""

    steps: int = 1
    persistent: bool = False
    closed_form = True
    falls = False  # its value does not measure the fit

    def __post_init__(self):
        check_count("steps", self.steps, 1, "one is usual")

    def init(self, key: PRNGKeyArray, model: Any, size: int) -> tuple[None, Any]:
        check_kind("ContrastiveDivergence", model, GRBM, "a GRBM, whose chains are Gibbs's", "use DSM")
        if not self.persistent:
            return None, None
        return None, jax.random.bernoulli(key, 0.5, (size, *model.h.shape)).astype(model.weight.dtype)

    def loss(
        self, key: PRNGKeyArray, model: Any, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        fixed, data = frozen(model), given.batch.v
        for_start, for_steps = jax.random.split(key)
        h = given.carry if self.persistent else jax.vmap(fixed.posterior)(given.encoding.features).draw(for_start)
        chains = GibbsState(data, h)
        for key in jax.random.split(for_steps, self.steps):
            chains = gibbs_step(key, fixed, chains)
        energy = lambda v: jnp.mean(jax.vmap(model.free_energy)(v))
        return energy(data) - energy(chains.v), {}, chains.h if self.persistent else None
