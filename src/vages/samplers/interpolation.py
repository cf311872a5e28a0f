"""Paths between examples: their noise by the probability-flow ODE, a great circle, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_inputs, check_kind
from vages.domains import Real
from vages.models import EBLVM
from vages.samplers.checks import as_rows, check_call, check_rows, check_untraced
from vages.samplers.flow import Flow, check_flow
from vages.samplers.heun import Heun
from vages.samplers.samples import Samples


def interpolate(
    key: PRNGKeyArray,
    model: EBLVM,
    ends: Array | np.ndarray,
    n: int,
    *,
    sampler: Heun,
    h: Any = None,
    context: Any = None,
) -> Samples:
    """n examples on the way from ends[0] to ends[1], both included, of a model of every noise level.

    Each end is taken to its noise (`Heun.invert`); noise between the two is on the great circle through them, which
    keeps its length; and the ODE comes back from there. The first and the last are the ends themselves, up to the
    error of the ODE: more `steps` bring them closer.

    Where there are latents, h is held on the way up and down: that of each end, `h` (2, …) or a draw of the sampler's
    posterior at the lowest level; between them, real h are on the great circle too, and discrete h those of the nearer
    end. `context` is one that all share.
    """
    check_call(key, model)
    check_untraced(key, model)
    check_kind("sampler", sampler, Heun, "a Heun", "write Heun(posterior), say")
    check_inputs(model, ends)
    if len(ends) != 2:
        raise ValueError(f"ends: expected two examples, got {len(ends)}; give jnp.stack([first, second])")
    check_count("n", n, 2, "both ends are counted")
    for_h, for_noise, for_draws = jax.random.split(key, 3)
    ends, context = jnp.asarray(ends), as_rows(context)
    for name, value in (context if isinstance(context, dict) else {}).items():
        if jnp.shape(value)[:1] != (1,):
            raise ValueError(
                f"context[{name!r}]: expected one row, which all share, got shape {jnp.shape(value)}; give a number"
            )
    if h is not None:
        check_rows(model, h, 2)
        h = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, *x.shape[1:])), h)
    elif model.h.size:
        check_flow(Flow(model, sampler.posterior), None, {} if context is None else context)
        h = _latents(for_h, model, sampler, ends, context)
    noise = sampler.invert(for_noise, model, ends, h=h, context=context)
    shares = jnp.linspace(0, 1, n, dtype=noise.dtype)
    between = lambda pair: jax.vmap(lambda share: slerp(pair[0], pair[1], share))(shares)
    if h is not None:
        real = isinstance(model.h, Real)
        h = between(h) if real else jax.tree.map(lambda x: x[(shares > 0.5).astype(jnp.int32)], h)
    return sampler.draw(for_draws, model, n, h, context, start=between(noise))


def slerp(first: Array, second: Array, share: Float[Array, ""] | float) -> Array:
    """The point at `share` of the way from first to second on the great circle through them; arrays of any shape.

    It has their length where that is the same. Vectors in one direction, or opposite, are joined by a line.
    """
    lengths = [jnp.sqrt(jnp.sum(x**2)) for x in (first, second)]
    cosine = jnp.sum(first * second) / jnp.maximum(lengths[0] * lengths[1], jnp.finfo(first.dtype).tiny)
    angle = jnp.arccos(jnp.clip(cosine, -1, 1))
    curved = jnp.sin(angle) > 1e-3
    sine = jnp.where(curved, jnp.sin(angle), 1)
    a = jnp.where(curved, jnp.sin((1 - share) * angle) / sine, 1 - share)
    b = jnp.where(curved, jnp.sin(share * angle) / sine, share)
    return a * first + b * second


def _latents(key: PRNGKeyArray, model: EBLVM, sampler: Heun, ends: Array, context: Any) -> Any:
    """h of each end, from the posterior at the lowest level."""
    sigma = jnp.full((len(ends),), sampler.levels(model)[-1], ends.dtype)
    shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(ends), *x.shape[1:])), context or {})
    given = {**shared, "sigma": sigma}

    def one(key, v, context):
        q = sampler.posterior(model, model.features(v, context), v, context).hard()
        return jax.tree.map(lambda x: x[0, 0], jax.tree.map(lambda x: x[None], q).sample(key, 1))

    return jax.vmap(one)(jax.random.split(key, len(ends)), ends, given)
