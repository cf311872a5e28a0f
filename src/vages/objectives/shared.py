"""Score and surrogate from one forward pass through `features`.

The gradient in θ of zᵀ∇_v log p̃(v, h) is the tangent along z of ∇_θ log p̃(v, h), so that one forward pass and one
pullback serve both. With the tangents of both passes and two products for the weights, an iteration costs as much as
six forward passes; with a network whose output is the score, it costs three. If score and surrogate use different
samples of h, a second pullback goes only through the layers that lead to the features coupled to h.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vages.models import EBLVM, Encoding
from vages.objectives.latents import Latents, Marginal
from vages.objectives.objective import frozen

Source = Latents | Marginal


def shared_surrogate(
    model: EBLVM,
    encoding: Encoding,
    first: Source,
    second: Source,
    direction: Callable[[Any], tuple[Any, Any]],
) -> tuple[Float[Array, ""], Any]:
    """Return a scalar whose gradient in the model is the batch mean of zᵀVaGES with `second`, and an auxiliary output.

    `direction` maps the score with `first` to (z, auxiliary output). Score and z are `Along(…)` if the encoding has
    entries `along`. The encoding must be one of `linearize`.
    """
    linear = encoding.linear
    assert linear is not None
    params, static = eqx.partition(frozen(model), eqx.is_inexact_array)
    fixed = eqx.combine(params, static)
    cotangent = second.cotangents(fixed, encoding)
    (_, score), push_back = jax.linearize(linear.pull, linear.kept, cotangent)
    if isinstance(first, Latents):
        score = jax.tree.map(jnp.add, score, _score_gap(fixed, encoding, first, cotangent))
    z, said = direction(score)
    features_dot, kept_dot = linear.push(jax.tree.map(lambda x: x / len(x), z))

    def total(params, features):
        model = eqx.combine(params, static)
        return jnp.sum(second.slopes(model, features, features_dot, encoding.v.dtype))

    value, (direct, cotangent_dot) = jax.value_and_grad(total, (0, 1))(params, encoding.features)
    gradient = jax.tree.map(jnp.add, direct, push_back(kept_dot, cotangent_dot)[0])
    value = jax.lax.stop_gradient(value)
    return value + _with_gradient(gradient, eqx.filter(model, eqx.is_inexact_array)), said


def _score_gap(model: EBLVM, encoding: Encoding, first: Latents, cotangent: Any) -> Any:
    """Return the score with `first` minus the score whose cotangent of the features is `cotangent`.

    The cotangents differ only in the features that are coupled to h, so that only these are pulled back.
    """
    linear, meet_h = encoding.linear, []
    assert linear is not None

    def cotangents(h):
        found = first._replace(h=h).cotangents(model, encoding)
        kinds = {type(x) for x in jax.tree.leaves(h)}  # only leaves that depend on h are traced like h
        meet_h[:] = [type(leaf) in kinds for leaf in jax.tree.leaves(found)]
        return found

    found, _ = jax.linearize(cotangents, first.h)
    chosen = lambda tree: [leaf for leaf, meets in zip(jax.tree.leaves(tree), meet_h, strict=True) if meets]
    gap = jax.tree.map(jnp.subtract, chosen(found), chosen(cotangent))
    return jax.linear_transpose(lambda tangent: chosen(linear.push(tangent)[0]), encoding.point)(gap)[0]


def _with_gradient(gradient: Any, params: Any) -> Float[Array, ""]:
    """Return zero, with this gradient in the parameters."""
    gradient = jax.lax.stop_gradient(gradient)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(params), strict=True)
    total = sum((jnp.sum(slope * param) for slope, param in pairs), jnp.zeros((), jnp.result_type(float)))
    return total - jax.lax.stop_gradient(total)
