"""The unnormalized density log p̃(v): exact if h can be summed or integrated out, otherwise importance-weighted."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vages.checks import (
    check_count,
    check_energy,
    check_inputs,
    check_numbers,
    check_own_context,
    check_states,
    shapes_of_one,
)
from vages.distributions import check_key
from vages.domains import Empty
from vages.models import EBLVM, InContext, NoiseConditionalEBLVM, TractableEBLVM, log_marginal
from vages.posteriors import Posterior, check_contract

_NUMBERS = 2**22  # numbers of h in memory at once
_EXAMPLES = 1024  # examples evaluated at once if log p̃(v) is exact


class Density(NamedTuple):
    """log p̃(v) of each example, its standard error, and the effective sample size (ESS) of h.

    An importance-weighted estimate is too low on average. Its standard error (delta method) is reliable only if `ess`
    is not small: if few samples carry all the weight, important ones may have been missed.
    """

    value: Float[Array, "..."]
    error: Float[Array, "..."]
    ess: Float[Array, "..."]
    exact: bool | Bool[Array, ""]
    normalized: bool | Bool[Array, ""] = False  # whether it is log p(v) itself


def has_exact_density(model: EBLVM) -> bool:
    """Return whether log p̃(v) has a closed form, or is a sum over few enough states of h."""
    return isinstance(model, TractableEBLVM) or isinstance(model.h, Empty) or model.h.enumerable


def log_density(
    key: PRNGKeyArray | None,
    model: EBLVM,
    posterior: Posterior | None,
    v: Array,
    *,
    samples: int = 1000,
    context: Any = None,
    normalized: bool = False,
) -> Density:
    """Return log p̃(v) = log ∫ p̃(v, h) dh of one example or of a batch; log p(v) if the model is normalized.

    With `normalized=True`, other models raise ValueError.

    The result is exact if h has at most 2²⁰ states or a closed form; key and posterior may then be None. Otherwise it
    is log mean_i p̃(v, h_i) / q(h_i | v) over `samples` draws of the posterior.

    It works inside `jit`, `vmap` and `grad`. A noise level or label that a noise-conditional model does not accept
    raises an error; if it is traced, the result of its example is NaN. Gradients hold h and q fixed: the gradient in
    v is the importance-weighted score Σ_i w_i ∇_v log p̃(v, h_i), whatever q is.
    """
    check_count("samples", samples, 2, "a standard error needs two")
    check_numbers("v", v)
    if normalized and not model.normalized:
        raise ValueError(
            f"model: expected one that is normalized, got {type(model).__name__} whose log Z is not known; train a "
            "noise-conditional model with level_weight, or take log_likelihood, which estimates log Z"
        )
    check_own_context(context, model, posterior)
    if v.ndim == len(model.v.shape):
        rows = jax.tree.map(lambda x: jnp.asarray(x)[None], context)
        alone = log_density(key, model, posterior, v[None], samples=samples, context=rows)
        return alone._replace(value=alone.value[0], error=alone.error[0], ess=alone.ess[0])
    check_inputs(model, v, context=context)
    check_states("v", v, model.v)
    known = () if context is None else (context,)
    if has_exact_density(model):
        check_energy(model, v.dtype, context)
        one = lambda now: exact_log_density(model, *now)
        with jax.default_matmul_precision("float32"):
            value = _where_known(model, context, jax.lax.map(one, (v, *known), batch_size=min(_EXAMPLES, len(v))))
        return Density(value, jnp.zeros_like(value), jnp.full_like(value, jnp.inf), True, model.normalized)
    if posterior is None or key is None:
        missing = "posterior" if posterior is None else "key"
        raise TypeError(
            f"{missing}: expected one, because the states of {model.h!r} cannot be summed, got None; "
            "give a key and a posterior to draw h from"
        )
    check_key(key)
    check_contract(model, posterior, *shapes_of_one(v, context)[1:])
    estimate = lambda now: _importance(now[0], model, posterior, samples, *now[1:])
    block = max(1, min(len(v), _NUMBERS // max(1, samples * model.h.size)))
    with jax.default_matmul_precision("float32"):
        value, error, ess = jax.lax.map(estimate, (jax.random.split(key, len(v)), v, *known), batch_size=block)
    value, error = (_where_known(model, context, x) for x in (value, error))
    return Density(value, error, ess, False, model.normalized)


def _where_known(model: EBLVM, context: Any, x: Float[Array, "rows"]) -> Float[Array, "rows"]:
    """Return x, with NaN in value and gradient where the model does not accept a traced context."""
    traced = context is not None and any(isinstance(one, Tracer) for one in context.values())
    if not traced or not isinstance(model, NoiseConditionalEBLVM | InContext):
        return x
    return x * jnp.where(model.knows(context), 1, jnp.nan).astype(x.dtype)


def exact_log_density(model: EBLVM, v: Array, context: Any = None) -> Float[Array, ""]:
    """Return log p̃(v) of one example."""
    known = () if context is None else (context,)
    if isinstance(model, TractableEBLVM):
        return -model.free_energy(v, *known)
    if isinstance(model.h, Empty):
        return model.log_joint(model.features(v, *known), jnp.zeros(model.h.shape, v.dtype))
    return log_marginal(model, model.features(v, *known), v.dtype)


def _importance(
    key: PRNGKeyArray, model: EBLVM, posterior: Posterior, samples: int, v: Array, context: Any = None
) -> tuple[Array, Array, Array]:
    """Return the estimate for one example, its standard error and effective sample size."""
    known = () if context is None else (context,)
    features = model.features(v, *known)
    q = posterior(model, features, v, *known).hard()
    h = jax.tree.map(lambda x: x[0], jax.tree.map(lambda x: x[None], q).sample(key, samples))
    q, h = jax.lax.stop_gradient((q, h))
    logs = jax.vmap(lambda h: model.log_joint(features, h) - q.log_prob(h))(h)
    top = jax.lax.stop_gradient(jnp.max(logs))
    top = jnp.where(jnp.isneginf(top), 0, top)  # no sample has a density: log p̃(v) = −∞
    weights = jnp.exp(logs - top)
    mean = jnp.mean(weights)
    error = jnp.std(weights, ddof=1) / mean / jnp.sqrt(samples)
    return top + jnp.log(mean), error, jnp.sum(weights) ** 2 / jnp.sum(weights**2)
