"""Divergences of q(h | v) from p(h | v), up to terms independent of q: the losses of posteriors.

    kl(key, model, posterior, v)       E_q[log q(h | v) − log p̃(v, h)] = KL(q ‖ p(h | v)) − log p̃(v)
    fisher(key, model, posterior, v)   ½ E_q ‖∇_h log q(h | v) − ∇_h log p̃(v, h)‖², for continuous h

Both use reparameterized samples (Appendix B), take a batch of v or its encoding, and return one number per example.
Differentiate the mean in the posterior alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_inputs, shapes_of_one
from vages.distributions import Distribution, check_key
from vages.models import EBLVM, Encoding, encode
from vages.posteriors.checks import check_contract
from vages.posteriors.posterior import Posterior, has_parameters, infer


@dataclass(frozen=True)
class Divergence:
    """The expectation under q of `gap(model, q, features, h)`, a function of one example and one sample.

    `kl` is KL(q ‖ p(h | v)) only up to log p̃(v), which does not depend on q: it may be negative, and only differences
    between posteriors of one model are meaningful. `posterior_gap` returns the divergence itself.
    """

    name: str
    gap: Callable[[EBLVM, Distribution, Any, Any], Float[Array, ""]]
    continuous: bool

    def __call__(
        self,
        key: PRNGKeyArray,
        model: EBLVM,
        posterior: Posterior,
        v: Array | Encoding,
        context: Any = None,
        *,
        samples: int = 1,
    ) -> Float[Array, "batch"]:
        """Estimate the divergence at each v from `samples` draws of h."""
        check_key(key)
        check_count("samples", samples, 1, "1 is usual")
        if not isinstance(v, Encoding):
            check_inputs(model, v, context=context)
            check_contract(model, posterior, *shapes_of_one(v, context)[1:])
        encoding = encode(model, v, context)
        q = infer(model, posterior, encoding)
        self.check(posterior, q)
        return self.of_samples(model, q, encoding.features, q.sample(key, samples))

    def of_samples(self, model: EBLVM, q: Distribution, features: Any, h: Any) -> Float[Array, "batch"]:
        """The mean of the gap over draws h (batch, samples, …) of q."""

        def one_example(q, features, h):
            return jnp.mean(jax.vmap(lambda h: self.gap(model, q, features, h))(h))

        return jax.vmap(one_example)(q, features, h)

    def check(self, posterior: Posterior, q: Distribution) -> None:
        """Raise unless a posterior with this q can be trained by the divergence. No values of q are used."""
        if self.continuous and not q.continuous:
            raise TypeError(
                f"{self.name}: expected a posterior over continuous h, got {type(q).__name__}; use the divergence kl"
            )
        if has_parameters(posterior) and not q.reparameterized:
            raise ValueError(
                f"{self.name}: expected samples that carry a gradient, got hard samples from "
                f"{type(posterior).__name__}; set its temperature above 0"
            )


def _kl_gap(model: EBLVM, q: Distribution, features: Any, h: Any) -> Array:
    return q.log_prob(h) - model.log_joint(features, h)


def _fisher_gap(model: EBLVM, q: Distribution, features: Any, h: Any) -> Array:
    slope = jax.grad(lambda h: _kl_gap(model, q, features, h))(h)
    return 0.5 * reduce(jnp.add, [jnp.sum(part**2) for part in jax.tree.leaves(slope)])


kl = Divergence("kl", _kl_gap, continuous=False)
fisher = Divergence("fisher", _fisher_gap, continuous=True)
