"""Paths between examples: great circles between their noise, which the probability-flow ODE maps to and from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_count, check_inputs, check_kind, named_parts
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
    """Return n examples on a path from ends[0] to ends[1], both included, for a noise-conditional model.

    Each end is mapped to its noise (`Heun.invert`). Noise in between lies on the great circle through both around the
    center of the data, which preserves its distance from the center, and is mapped back by the ODE. The first and last
    example are the ends themselves, up to the error of the ODE, which falls with more `steps`.

    If there are latents, h is held in both directions. At the ends it is `h` (2, …), or a draw from the sampler's
    posterior at the lowest level. In between, a real h also follows the great circle, and any other h is that of the
    nearer end; of mixed latents, each real variable follows its own great circle. All examples share one `context`.
    """
    check_call(key, model)
    check_untraced(key=key, model=model, ends=ends, h=h, context=context)
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
        nearer = (shares > 0.5).astype(jnp.int32)
        parts = [
            between(x.astype(noise.dtype)) if isinstance(domain, Real) else x[nearer]
            for _, x, domain in named_parts("h", h, model.h)
        ]
        h = dict(zip(model.h.shape, parts, strict=True)) if isinstance(h, dict) else parts[0]
    center = getattr(model, "center", 0.0)
    return sampler.draw(for_draws, model, n, h, context, start=center + between(noise - center))


def slerp(first: Array, second: Array, share: Float[Array, ""] | float) -> Array:
    """Return the point at `share` of the way from first to second on the great circle through them, for any shape.

    The length is preserved if both have the same. Parallel and opposite vectors are interpolated linearly.
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
    """Draw h of each end from the posterior at the lowest level."""
    sigma = jnp.full((len(ends),), sampler.levels(model)[-1], ends.dtype)
    shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(ends), *x.shape[1:])), context or {})
    given = {**shared, "sigma": sigma}

    def one(key, v, context):
        q = sampler.posterior(model, model.features(v, context), v, context).hard()
        return jax.tree.map(lambda x: x[0, 0], jax.tree.map(lambda x: x[None], q).sample(key, 1))

    return jax.vmap(one)(jax.random.split(key, len(ends)), ends, given)
