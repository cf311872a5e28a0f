"""How far q(h | v) is from p(h | v), up to what does not depend on q: what a posterior is trained to lessen.

Each takes a batch of v with their features and returns one number an example; differentiate its mean in the
posterior alone. The features are held as they are.
"""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution, sample
from vages.models import EBLVM
from vages.posteriors.posterior import Posterior, infer


class Divergence(Protocol):
    """The shape of `kl` and `fisher`."""

    def __call__(
        self, model: EBLVM, posterior: Posterior, features: Any, v: Array, key: PRNGKeyArray, samples: int = 1
    ) -> Float[Array, "batch"]: ...


def kl(
    model: EBLVM, posterior: Posterior, features: Any, v: Array, key: PRNGKeyArray, samples: int = 1
) -> Float[Array, "batch"]:
    """E_q[log q(h | v) − log p̃(v, h)] = KL(q ‖ p(h | v)) − log p̃(v), by reparameterised samples (App. B)."""
    q = infer(posterior, model, features, v)
    _check_differentiable("kl", posterior, q)

    def gap(q, features, h):
        return q.log_prob(h) - model.log_joint(features, h)

    return _mean_over_samples(gap, q, features, key, samples)


def fisher(
    model: EBLVM, posterior: Posterior, features: Any, v: Array, key: PRNGKeyArray, samples: int = 1
) -> Float[Array, "batch"]:
    """½ E_q ‖∇_h log q(h | v) − ∇_h log p̃(v, h)‖², by reparameterised samples (App. B). For continuous h."""
    q = infer(posterior, model, features, v)
    if not q.continuous:
        raise TypeError(
            f"fisher: expected a posterior over continuous h, got {type(q).__name__}; use the divergence kl"
        )
    _check_differentiable("fisher", posterior, q)

    def gap(q, features, h):
        difference = jax.grad(lambda h: q.log_prob(h) - model.log_joint(features, h))(h)
        return 0.5 * jnp.sum(difference**2)

    return _mean_over_samples(gap, q, features, key, samples)


def _mean_over_samples(gap, q: Distribution, features: Any, key: PRNGKeyArray, samples: int) -> Array:
    h = sample(q, key, samples)

    def one_example(q, features, h):
        return jnp.mean(jax.vmap(lambda h: gap(q, features, h))(h))

    return jax.vmap(one_example)(q, features, h)


def _check_differentiable(name: str, posterior: Posterior, q: Distribution) -> None:
    learnt = any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(posterior))
    if learnt and not q.reparameterised:
        raise ValueError(
            f"{name}: expected samples that carry a gradient, got hard samples from {type(posterior).__name__}; "
            "set its temperature above 0"
        )
