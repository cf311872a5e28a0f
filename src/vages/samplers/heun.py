"""Heun's method on the probability-flow ODE of a noise-conditional model (Karras et al. 2022).

    dv/dσ = −σ ∇_v log p_σ(v),      from N(c, σ_max² I) down to σ = 0, or upwards from an example to its noise

where c is the center of the data, or 0 for models without one.

`flow.py` computes the score, with h drawn for each gradient or held, and with or without guidance by a label.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.bounds import MAYBE_SCALE, SCALE, check_number
from vages.checks import check_count, check_has_score, check_inputs
from vages.models import EBLVM
from vages.samplers.checks import as_rows, broadcast_context, check_call, check_rows, check_untraced
from vages.samplers.flow import Flow, check_flow, noise_levels
from vages.samplers.langevin import Held, chain_dtype
from vages.samplers.samples import Samples, SamplingWarning


@dataclass(frozen=True, eq=False)
class Heun:
    """Sampler for models that read their noise level from context["sigma"]; a draw takes 2 `steps` − 1 gradients.

    Draws are independent. They follow the density at level 0, up to errors of the ODE solver and of the model's scores
    at all levels. log p̃ of a single level is not used.

    **Arguments**

    - `posterior`: q(h | v, σ), from which h is drawn at each gradient. None if there are no latents, or if h is held:
        `sample(key, model, n, h=h, sampler=Heun())`.
    - `steps`: number of levels from `sigma_max` to `sigma_min`, evenly spaced in σ^(1/rho); a last step goes to 0.
    - `churn`: EDM's S_churn: the amount of noise that is added over all steps and removed by the ODE. 0 is the ODE
        itself.
    - `sigma_min`, `sigma_max`: the lowest and highest level; None for those of the model.
    - `samples`: number of h for each gradient.
    - `batch`: number of draws that are computed at once.
    - `guidance`: w in s(none) + w (s(label) − s(none)), where s(none) is the score with the label −1. It needs a
        label, `context={"label": 3}`, and twice the gradients. 1, like None, is the score of the label itself; with
        more, draws are further from the other labels than the data are. With w other than 0 and 1, draws do not follow
        a distribution of the model.
    - `resample`: number of times that each step is made if entries of v are held (`sample(…, held=Held(mask, known))`),
        with noise added in between. Each time, the held entries are `known` plus new noise of the level (RePaint,
        Lugmayr et al. 2022), which is not their distribution given the others. Draws are thus biased towards
        unconditional ones, by an amount that falls as 1 / `resample`.
    """

    posterior: Any = None
    steps: int = 18
    churn: float = 0.0
    sigma_min: float | None = None
    sigma_max: float | None = None
    rho: float = 7.0
    samples: int = 1
    batch: int = 500
    guidance: float | None = None
    resample: int = 10

    def __post_init__(self):
        check_count("steps", self.steps, 2, "18 are usual")
        check_count("samples", self.samples, 1, "one will do")
        check_count("batch", self.batch, 1, "give more")
        check_count("resample", self.resample, 1, "10 are usual")
        check_number("churn", self.churn, MAYBE_SCALE)
        check_number("rho", self.rho, SCALE)
        for name, bounds in (("sigma_min", SCALE), ("sigma_max", SCALE), ("guidance", MAYBE_SCALE)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), bounds)

    def levels(self, model: EBLVM) -> Float[np.ndarray, "steps"]:
        """Return σ at the start of each step, in descending order."""
        return noise_levels(model, self.steps, sigma_min=self.sigma_min, sigma_max=self.sigma_max, rho=self.rho)

    def draw(
        self,
        key: PRNGKeyArray,
        model: EBLVM,
        n: int,
        h: Any = None,
        context: Any = None,
        held: Held | None = None,
        start: Array | None = None,
    ) -> Samples:
        """Return n draws; h, context and held have one row, or n, and start has n. `sample` calls this."""
        flow, levels, h, context = self._prepare(model, h, context)
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape[1:])), (h, context, held))
        repeats = 1 if held is None else self.resample
        churn = min(self.churn / self.steps, 2**0.5 - 1)

        def solve(key, count, block):
            return _solve(key, flow, levels, churn, count, repeats, *block)

        v, h = self._in_blocks(solve, key, n, (*rows, start))
        gradients = n * (2 * repeats * (self.steps - 1) + 1) * flow.cost
        return Samples(v, h, 1.0, rhat={}, ess={}, diverged=_count_bad(v), gradients=gradients, draws=n)

    def invert(self, key: PRNGKeyArray, model: EBLVM, v: Array, *, h: Any = None, context: Any = None) -> Array:
        """Return the noise of examples v (n, …): the values at level `sigma_max` from which the ODE leads to v.

        `sample(key, model, n, start=noise, sampler=heun)` recovers the examples, with an error of second order in the
        step, if h is held in both directions (h and context have one row, or n) or there are no latents. If h is drawn
        at each gradient, they are recovered only roughly. `churn` has no effect.
        """
        check_call(key, model)
        check_untraced(key=key, model=model, v=v, h=h, context=context)
        check_inputs(model, v)
        n = len(v)
        if h is not None:
            check_rows(model, h, n)
        flow, levels, h, context = self._prepare(model, h, broadcast_context(as_rows(context), n))
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape[1:])), (h, context))
        rise = lambda key, _, block: _rise(key, flow, levels[::-1], *block)
        noise = self._in_blocks(rise, key, n, (*rows, jnp.asarray(v, levels.dtype)))
        _count_bad(noise)
        return noise

    def _prepare(self, model: EBLVM, h: Any, context: Any) -> tuple[Flow, Array, Any, Any]:
        """Return the flow, its levels, and h and context with their defaults."""
        check_has_score("Heun", model)
        flow = Flow(model, self.posterior, self.samples, None if self.guidance == 1 else self.guidance)
        context = {} if context is None else context
        check_flow(Flow(model, self.posterior, guidance=self.guidance), h, context)
        levels = jnp.asarray(self.levels(model), chain_dtype(model))
        if h is None and not model.h.size:
            h = model.h.zeros(levels.dtype, 1)
        return flow, levels, jax.tree.map(lambda x: jnp.asarray(x, levels.dtype), h), context

    def _in_blocks(self, solve: Any, key: PRNGKeyArray, n: int, rows: Any) -> Any:
        """Return the results of solve(key, count, block) for blocks of rows of equal size, which share one program."""
        count, parts = min(self.batch, n), []
        for i, first in enumerate(range(0, n, count)):
            some = np.minimum(np.arange(first, first + count), n - 1)
            block = jax.tree.map(lambda x, some=some: x[some], rows)
            parts.append(solve(jax.random.fold_in(key, i), count, block))
        return jax.tree.map(lambda *x: jnp.concatenate(x)[:n], *parts)


@eqx.filter_jit
def _solve(
    key: PRNGKeyArray,
    flow: Flow,
    levels: Array,
    churn: float,
    count: int,
    repeats: int,
    h: Any,
    context: Any,
    held: Held | None,
    start: Array | None,
) -> tuple[Array, Any]:
    """Return `count` draws of v, and the h of their last gradients."""
    dtype = levels.dtype
    normal = lambda key: jax.random.normal(key, (count, *flow.model.v.shape), dtype)
    slope = lambda key, v, sigma: flow.slope(key, v, sigma, h, context)

    def churned(key, v, sigma):
        """Add noise to v, and return it with its new level above σ."""
        if not churn:
            return v, sigma
        above = sigma * (1 + churn)
        return v + jnp.sqrt(above**2 - sigma**2) * normal(key), above

    def holder(key):
        """Return a function that sets held entries of v to `known` plus σ times noise, which all levels share."""
        if held is None:
            return lambda v, _: v
        mask, known, noise = held.mask, held.known, normal(key)
        return lambda v, sigma: jnp.where(mask, known + sigma * noise, v)

    def descend(keys, v, sigma, below):
        for_churn, for_first, for_second, for_held = keys
        v, sigma = churned(for_churn, v, sigma)
        hold = holder(for_held)
        v = hold(v, sigma)
        first, _ = slope(for_first, v, sigma)
        second, _ = slope(for_second, hold(v + (below - sigma) * first, below), below)
        return v + (below - sigma) * (first + second) / 2

    def step(v, now):
        key, sigma, below = now
        *keys, for_repeats = jax.random.split(key, 5)
        v = descend(keys, v, sigma, below)
        if repeats == 1:
            return v, None

        def again(v, key):
            for_noise, *keys = jax.random.split(key, 5)
            return descend(keys, v + jnp.sqrt(sigma**2 - below**2) * normal(for_noise), sigma, below), None

        return jax.lax.scan(again, v, jax.random.split(for_repeats, repeats - 1))[0], None

    for_start, for_churn, for_last, for_steps, for_held = jax.random.split(key, 5)
    keys = jax.random.split(for_steps, len(levels) - 1)
    center = getattr(flow.model, "center", 0.0)
    v = center + levels[0] * normal(for_start) if start is None else start.astype(dtype)
    v, _ = jax.lax.scan(step, v, (keys, levels[:-1], levels[1:]))
    v, sigma = churned(for_churn, v, levels[-1])
    v = holder(for_held)(v, sigma)
    last, h = slope(for_last, v, sigma)
    v = v - sigma * last
    return (v if held is None else held.hold(v)), h


@eqx.filter_jit
def _rise(key: PRNGKeyArray, flow: Flow, levels: Array, h: Any, context: Any, v: Array) -> Array:
    """Return v at the last of the ascending levels, from v at level 0."""
    for_first, for_steps = jax.random.split(key)
    slope = lambda key, v, sigma: flow.slope(key, v, sigma, h, context)[0]

    def step(v, now):
        (for_first, for_second), sigma, above = now
        first = slope(for_first, v, sigma)
        second = slope(for_second, v + (above - sigma) * first, above)
        return v + (above - sigma) * (first + second) / 2, None

    v = v + levels[0] * slope(for_first, v, levels[0])  # there is no score at level 0
    keys = jax.vmap(jax.random.split)(jax.random.split(for_steps, len(levels) - 1))
    return jax.lax.scan(step, v, (keys, levels[:-1], levels[1:]))[0]


def _count_bad(v: Array) -> int:
    """Return the number of rows that are not finite, and warn if there are any."""
    bad = int(jnp.sum(~jnp.all(jnp.isfinite(v), axis=tuple(range(1, v.ndim)))))
    if bad:
        warnings.warn(
            f"sample: {bad} of {len(v)} draws are not finite; is the model trained, and at all levels?",
            SamplingWarning,
            stacklevel=4,
        )
    return bad
