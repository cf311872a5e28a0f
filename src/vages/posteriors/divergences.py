"""How far q(h | v) is from p(h | v), up to what does not depend on q: what a posterior is trained to lessen.

    kl(model, posterior, features, v, key)       E_q[log q(h | v) − log p̃(v, h)] = KL(q ‖ p(h | v)) − log p̃(v)
    fisher(model, posterior, features, v, key)   ½ E_q ‖∇_h log q(h | v) − ∇_h log p̃(v, h)‖², for continuous h

Both by reparameterised samples (Appendix B), for a batch of v with their features; one number an example.
Differentiate the mean in the posterior alone: the features are held as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution, batch_noise, from_noise
from vages.models import EBLVM
from vages.posteriors.posterior import Posterior, infer


@dataclass(frozen=True)
class Divergence:
    """The expectation under q of `gap(model, q, features, h)`, a function of one example and one sample."""

    name: str
    gap: Callable[[EBLVM, Distribution, Any, Array], Float[Array, ""]]
    continuous: bool

    def __call__(
        self, model: EBLVM, posterior: Posterior, features: Any, v: Array, key: PRNGKeyArray, samples: int = 1
    ) -> Float[Array, "batch"]:
        """An estimate for each v from `samples` draws of h."""
        q = infer(posterior, model, features, v)
        return self.at(model, posterior, features, v, batch_noise(q, key, samples))

    def at(self, model: EBLVM, posterior: Posterior, features: Any, v: Array, noise: Array) -> Float[Array, "batch"]:
        """The same from noise (batch, samples, …) that is already drawn."""
        q = infer(posterior, model, features, v)
        self.check(posterior, q)

        def one_example(q, features, h):
            return jnp.mean(jax.vmap(lambda h: self.gap(model, q, features, h))(h))

        return jax.vmap(one_example)(q, features, from_noise(q, noise))

    def check(self, posterior: Posterior, q: Distribution) -> None:
        """Raise unless a posterior with such a q can be trained by it; q is asked for no numbers."""
        if self.continuous and not q.continuous:
            raise TypeError(
                f"{self.name}: expected a posterior over continuous h, got {type(q).__name__}; use the divergence kl"
            )
        if has_parameters(posterior) and not q.reparameterised:
            raise ValueError(
                f"{self.name}: expected samples that carry a gradient, got hard samples from "
                f"{type(posterior).__name__}; set its temperature above 0"
            )


def has_parameters(posterior: Posterior | None) -> bool:
    """Whether there is anything to train."""
    return any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(posterior))


def _kl_gap(model: EBLVM, q: Distribution, features: Any, h: Array) -> Array:
    return q.log_prob(h) - model.log_joint(features, h)


def _fisher_gap(model: EBLVM, q: Distribution, features: Any, h: Array) -> Array:
    return 0.5 * jnp.sum(jax.grad(lambda h: _kl_gap(model, q, features, h))(h) ** 2)


kl = Divergence("kl", _kl_gap, continuous=False)
fisher = Divergence("fisher", _fisher_gap, continuous=True)
