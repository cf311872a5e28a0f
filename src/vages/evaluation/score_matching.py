"""The score matching loss E[½ ‖s(v)‖² + tr ∂s/∂v] (Hyvärinen 2005): the Fisher divergence minus a constant of the data.

`score` is any function of one example, such as a model's `score`, or `vages.score(model)`. Both are compiled once for
the model's shapes; any other function is compiled once for each function object.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_numbers, check_some
from vages.distributions import check_key
from vages.evaluation.estimate import Estimate
from vages.evaluation.scores import FunctionScore, Score, VariationalScore, as_score, check_score

_NUMBERS = 2**22  # numbers that are differentiated at once, which bounds the memory


def score_matching_loss(score: Score, v: Array) -> Estimate:
    """Estimate the loss over a batch of examples with the full trace: one push-forward for each dimension of v."""
    own = _exact(score, v)
    with jax.default_matmul_precision("float32"):
        return Estimate.of(_losses(own, v))


def sliced_score_matching_loss(key: PRNGKeyArray, score: Score, v: Array) -> Estimate:
    """Estimate the loss with uᵀ(∂s/∂v)u in place of the trace, with one Rademacher u per example (Song et al. 2019).

    It has the same mean, and costs one push-forward for any dimension of v.
    """
    check_key(key)
    own = _exact(score, v)
    with jax.default_matmul_precision("float32"):
        return Estimate.of(_sliced_losses(key, own, v))


def _exact(score: Score, v: Array) -> FunctionScore:
    """Return the score as a function of one example. Raise unless it is exact, and v a batch."""
    check_numbers("v", v)
    check_some("v", v)
    own = as_score(score)
    if isinstance(own, VariationalScore):
        raise TypeError(
            "score: expected an exact score, since the loss of an estimate includes its variance, got a "
            "VariationalScore; give vages.score(model), or take ksd_test"
        )
    return own


@eqx.filter_jit
def _losses(score: FunctionScore, v: Array) -> Float[Array, "batch"]:
    check_score(score, v)
    size = v[0].size

    def loss(v):
        value, push_forward = jax.linearize(score.function, v)
        axes = jnp.eye(size, dtype=v.dtype).reshape(size, *v.shape)
        return 0.5 * jnp.sum(value**2) + jnp.sum(jax.vmap(lambda axis: jnp.vdot(axis, push_forward(axis)))(axes))

    return jax.lax.map(loss, v, batch_size=_batch_size(len(v), size**2))


@eqx.filter_jit
def _sliced_losses(key: PRNGKeyArray, score: FunctionScore, v: Array) -> Float[Array, "batch"]:
    check_score(score, v)

    def loss(example):
        v, u = example
        value, slope = jax.jvp(score.function, (v,), (u,))
        return 0.5 * jnp.sum(value**2) + jnp.vdot(u, slope)

    u = jax.random.rademacher(key, v.shape, v.dtype)
    return jax.lax.map(loss, (v, u), batch_size=_batch_size(len(v), v[0].size))


def _batch_size(examples: int, numbers: int) -> int:
    return max(1, min(examples, _NUMBERS // numbers))
