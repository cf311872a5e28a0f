"""VaES and VaGES: estimates of the score of an EBLVM and of its gradient in θ, from samples of a posterior.

With h_1 … h_L ~ q(h | v) and log p̃(v, h) = −E(v, h),

    VaES(v)  = mean_i ∇_v log p̃(v, h_i)                                                        (Eq. 7)
    VaGES(v) = mean_i ∂∇_v log p̃(v, h_i)/∂θ  +  sample covariance of ∇_v log p̃ and ∇_θ log p̃    (Eqs. 8–10)

Every function takes a batch: v (batch, …), h (batch, L, …), and for conditional models a context of as many rows.
Where VaES and VaGES are multiplied, as in every objective of the paper, their samples h must be independent.

The derivative ∂ log p̃(v) / ∂c in a real context entry c, such as a noise level, is the same expectation over p(h | v)
as the score, so both estimators can include it: `vaes(…, along=("sigma",))` returns `Along(score, {"sigma": slopes})`,
and a z of type `Along` is a joint direction in v and σ.

With `weights` (batch, L), h_i has probability weights_i: means become expectations and the sample covariance becomes
the covariance, so that enumerated states give the exact value. Weights must sum to 1 for each v, which is checked
unless they are traced.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vages.checks import check_inputs, check_like, check_numbers
from vages.models import EBLVM, Along, Encoding, encode, push_forward

Model = TypeVar("Model", bound=EBLVM)


def vaes(
    model: EBLVM,
    v: Array | Encoding,
    h: Any,
    weights: Array | None = None,
    *,
    context: Any = None,
    along: tuple[str, ...] = (),
) -> Any:
    """Estimate the score at each v (Eq. 7). The result has the shape of v and takes one pullback for any L.

    `weights` are probabilities of the h_i, which sum to 1 for each v. If `along` names entries of the context, the
    result is `Along(score, {name: slopes})`.
    """
    _check(model, v, context, h, weights=weights)
    _check_along(context, along)
    encoding = encode(model, v, context, along)
    return encoding.pullback(cotangents(model, encoding.features, h, weights))[0]


def cotangents(model: EBLVM, features: Any, h: Any, weights: Array | None = None) -> Any:
    """Return mean_i ∇_f log p̃(f, h_i) of each example, shaped like its features f. The pullback to v is VaES."""

    def mean_log_joint(features, h, weights):
        return _mean(jax.vmap(lambda h: model.log_joint(features, h))(h), weights)

    return jax.vmap(jax.grad(mean_log_joint, allow_int=True))(features, h, weights)


def vaes_cv(model: EBLVM, log_q: Callable[..., Array], v: Array | Encoding, h: Any, *, context: Any = None) -> Array:
    """VaES with the control variate ∇_v log q(h | v) (Eq. 28): exact, with no variance, if q is the exact posterior.

    `log_q(v, h)`, or `log_q(v, h, context)` if there is a context, is the log-density of one example.
    """
    encoding = encode(model, v, context)
    known = () if encoding.context is None else (encoding.context,)
    return vaes(model, encoding, h) - control_variate(log_q, encoding.v, h, *known)


def control_variate(log_q: Callable[..., Array], v: Array, h: Any, *context: Any) -> Array:
    """mean_i ∇_v log q(h_i | v), whose expectation under q is zero (Eq. 27)."""
    mean_log_q = lambda v, h, *context: jnp.mean(jax.vmap(lambda h: log_q(v, h, *context))(h))
    return jax.vmap(jax.grad(mean_log_q))(v, h, *context)


def gradient_estimate(
    model: Model, v: Array | Encoding, h: Any, z: Array | Along, weights: Array | None = None, *, context: Any = None
) -> Model:
    """Return the batch mean of zᵀVaGES(v), shaped like the model. z may be an `Along`, for v and the context."""
    return eqx.filter_grad(surrogate)(model, v, h, z, weights, context=context)


def surrogate(
    model: EBLVM, v: Array | Encoding, h: Any, z: Array | Along, weights: Array | None = None, *, context: Any = None
) -> Float[Array, ""]:
    """A scalar whose gradient in θ is the batch mean of zᵀVaGES; its value is that of zᵀVaES. h, z, weights are fixed.

    One push-forward along z gives log p̃(v, h_i) and its slope s_i = zᵀ∇_v log p̃(v, h_i) together. The gradient of
    mean_i s_i is zᵀê; that of Σ_i (s_i − s̄) log p̃(v, h_i) / (L − 1), with the first factor held fixed, is zᵀĉ.

    `weights` are probabilities of the h_i, which sum to 1 for each v.
    """
    _check(model, v, context, h, z, weights, samples=1 if weights is not None else 2)
    v, context = (v.v, v.context) if isinstance(v, Encoding) else (v, context)
    h, z, weights = jax.lax.stop_gradient((h, z, weights))  # q may depend on the model's parameters
    features, features_dot = push_forward(model, v, context, z)
    return jnp.mean(slopes(model, features, features_dot, h, weights))


def slopes(
    model: EBLVM, features: Any, features_dot: Any, h: Any, weights: Array | None = None
) -> Float[Array, "batch"]:
    """The surrogate of each example, from its features and their tangents along z."""

    def one_example(features, features_dot, h, weights):
        log_joint, slope = jax.jvp(
            lambda features: jax.vmap(lambda h: model.log_joint(features, h))(h), (features,), (features_dot,)
        )
        if weights is not None:  # log p̃ may be −∞ where the weight is 0
            log_joint = jnp.where(weights == 0, 0.0, log_joint)
        # One centered factor suffices; centering both keeps terms independent of h out of the float32 round-off.
        slope_gap = jax.lax.stop_gradient(slope - _mean(slope, weights))
        log_joint_gap = log_joint - _mean(log_joint, weights)
        share = _covariance_weights(len(slope), weights, slope.dtype)
        covariance = jnp.sum(share * slope_gap * log_joint_gap)
        return _mean(slope, weights) + (covariance - jax.lax.stop_gradient(covariance))

    return jax.vmap(one_example)(features, features_dot, h, weights)


def expectation_term(model: Model, v: Array, h: Any, weights: Array | None = None) -> Model:
    """ê(v) (Eq. 8) in full, for small problems: each leaf has shape (batch, *v.shape, *leaf's shape)."""
    _check(model, v, None, h, weights=weights)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def one_example(v, h, weights):
        def mean_score(params):
            model = eqx.combine(params, static)
            return jax.grad(lambda v: _mean(_log_joints(model, v, h), weights))(v)

        return jax.jacrev(mean_score)(params)

    return jax.vmap(one_example)(v, h, weights)


def covariance_term(model: Model, v: Array, h: Any, weights: Array | None = None) -> Model:
    """ĉ(v) (Eq. 9) in full, for small problems: each leaf has shape (batch, *v.shape, *leaf's shape)."""
    _check(model, v, None, h, weights=weights, samples=1 if weights is not None else 2)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def one_example(v, h, weights):
        scores = jax.jacrev(lambda v: _log_joints(model, v, h))(v)
        gradients = jax.jacrev(lambda params: _log_joints(eqx.combine(params, static), v, h))(params)
        share = _covariance_weights(len(scores), weights, v.dtype)
        centered = jax.vmap(lambda share, score: share * (score - _mean(scores, weights)))(share, scores)
        return jax.tree.map(lambda gradient: jnp.tensordot(centered, gradient, axes=(0, 0)), gradients)

    return jax.vmap(one_example)(v, h, weights)


def _check(model: EBLVM, v: Array | Encoding, context: Any, h: Any, z: Any = None, weights: Any = None, *, samples=1):
    if h is None:
        raise TypeError(
            "h: expected samples (batch, L, …), got None; draw them, infer(model, posterior, v).sample(key, L)"
        )
    known = v.context if isinstance(v, Encoding) else context
    if isinstance(z, Along):
        _check_along(known, tuple(z.context))
        for name, slope in z.context.items():
            check_like(f"z.context[{name!r}]", slope, f"context[{name!r}]", known[name])
        z = z.v
    if isinstance(v, Encoding):
        check_inputs(model, v.v, h, z, weights, samples=samples, context=known, features=v.features)
    else:
        check_inputs(model, v, h, z, weights, samples=samples, context=known)


def _check_along(context: Any, along: tuple[str, ...]) -> None:
    """Raise unless these are floating-point entries of the context."""
    if isinstance(along, str):
        raise TypeError(f"along: expected a tuple of names, got {along!r}; write ({along!r},)")
    for name in along:
        if not isinstance(context, dict) or name not in context:
            got = sorted(context) if isinstance(context, dict) else context
            raise ValueError(f"along: expected entries of the context, which has {got}, got {name!r}; correct the name")
        check_numbers(f"context[{name!r}]", context[name])


def _log_joints(model: EBLVM, v: Array, h: Any) -> Float[Array, "samples"]:
    features = model.features(v)
    return jax.vmap(lambda h: model.log_joint(features, h))(h)


def _mean(x: Array, weights: Array | None) -> Array:
    return jnp.mean(x, axis=0) if weights is None else jnp.tensordot(weights, x, axes=(0, 0))


def _covariance_weights(samples: int, weights: Array | None, dtype) -> Array:
    return jnp.full((samples,), 1 / (samples - 1), dtype) if weights is None else weights
