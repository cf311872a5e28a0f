"""The score matching loss E[½ ‖s(v)‖² + tr ∂s/∂v] (Hyvärinen 2005): the Fisher divergence minus a constant of the data.

`score` is any function of one example, such as a model's `score`. A model's method is compiled once for its shapes; any
other function is compiled once for each function object.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_some
from vages.evaluation.estimate import Estimate

_NUMBERS = 2**22  # numbers that are differentiated at once, which bounds the memory


def score_matching_loss(score: Callable[[Array], Array], v: Array) -> Estimate:
    """Estimate the loss over a batch of examples with the full trace: one push-forward for each dimension of v."""
    check_some("v", v)
    with jax.default_matmul_precision("float32"):
        return Estimate.of(_losses(score, v))


def sliced_score_matching_loss(key: PRNGKeyArray, score: Callable[[Array], Array], v: Array) -> Estimate:
    """Estimate the loss with uᵀ(∂s/∂v)u in place of the trace, with one Rademacher u per example (Song et al. 2019).

    It has the same mean, and costs one push-forward for any dimension of v.
    """
    check_some("v", v)
    with jax.default_matmul_precision("float32"):
        return Estimate.of(_sliced_losses(key, score, v))


@eqx.filter_jit
def _losses(score: Callable[[Array], Array], v: Array) -> Float[Array, "batch"]:
    size = v[0].size

    def loss(v):
        value, push_forward = jax.linearize(score, v)
        axes = jnp.eye(size, dtype=v.dtype).reshape(size, *v.shape)
        return 0.5 * jnp.sum(value**2) + jnp.sum(jax.vmap(lambda axis: jnp.vdot(axis, push_forward(axis)))(axes))

    return jax.lax.map(loss, v, batch_size=_batch_size(len(v), size**2))


@eqx.filter_jit
def _sliced_losses(key: PRNGKeyArray, score: Callable[[Array], Array], v: Array) -> Float[Array, "batch"]:
    def loss(example):
        v, u = example
        value, slope = jax.jvp(score, (v,), (u,))
        return 0.5 * jnp.sum(value**2) + jnp.vdot(u, slope)

    u = jax.random.rademacher(key, v.shape, v.dtype)
    return jax.lax.map(loss, (v, u), batch_size=_batch_size(len(v), v[0].size))


def _batch_size(examples: int, numbers: int) -> int:
    return max(1, min(examples, _NUMBERS // numbers))
