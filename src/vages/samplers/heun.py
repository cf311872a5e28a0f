"""Heun's method on the probability-flow ODE of a noise-conditional model (Karras et al. 2022).

    dv/dσ = −σ ∇_v log p_σ(v),      from N(0, σ_max² I) down to σ = 0

The score is mean_i ∇_v log p̃_σ(v, h_i) with h_i ~ q(h | v, σ), drawn anew for each gradient, or h is held.
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
from vages.checks import check_count, check_has_score
from vages.models import EBLVM
from vages.samplers.langevin import chain_dtype
from vages.samplers.samples import Samples, SamplingWarning


@dataclass(frozen=True, eq=False)
class Heun:
    """The sampler of models that read their noise level from context["sigma"]; `steps` cost 2 `steps` − 1 gradients.

    Draws are independent. They are of the density at level 0, as far as the ODE is solved and the model is right: its
    scores at all levels matter, and log p̃ of any one level does not.

    **Arguments**

    - `posterior`: q(h | v, σ), from which h is drawn at each gradient. None where there are no latents, or h is held:
        `sample(key, model, n, h=h, sampler=Heun())`.
    - `steps`: levels from `sigma_max` to `sigma_min`, evenly spaced in σ^(1/rho); a last step goes to 0.
    - `churn`: how much noise is added, in all steps together, before the ODE takes it away again: EDM's S_churn. 0 is
        the ODE itself.
    - `sigma_min`, `sigma_max`: those of the model where it has them.
    - `samples`: of h for each gradient.
    - `batch`: draws that are computed together.
    """

    posterior: Any = None
    steps: int = 18
    churn: float = 0.0
    sigma_min: float | None = None
    sigma_max: float | None = None
    rho: float = 7.0
    samples: int = 1
    batch: int = 500

    def __post_init__(self):
        check_count("steps", self.steps, 2, "18 are usual")
        check_count("samples", self.samples, 1, "one will do")
        check_count("batch", self.batch, 1, "give more")
        check_number("churn", self.churn, MAYBE_SCALE)
        check_number("rho", self.rho, SCALE)
        for name in ("sigma_min", "sigma_max"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), SCALE)

    def levels(self, model: EBLVM) -> Float[np.ndarray, "steps"]:
        """σ at the start of each step, descending."""
        ends = []
        for name in ("sigma_max", "sigma_min"):
            own = getattr(self, name)
            level = getattr(model, name, None) if own is None else own
            if level is None:
                raise ValueError(f"{name}: expected a level, as {type(model).__name__} has none, got None; give it")
            ends.append(float(level))
        if ends[0] <= ends[1]:
            raise ValueError(f"sigma_max: expected more than sigma_min, {ends[1]:g}, got {ends[0]:g}; raise it")
        first, last = (end ** (1 / self.rho) for end in ends)
        return np.linspace(first, last, self.steps) ** self.rho

    def draw(self, key: PRNGKeyArray, model: EBLVM, n: int, h: Any = None, context: Any = None) -> Samples:
        """n draws; h and context have one row, or n. See `sample`, which calls this."""
        check_has_score("Heun", model)
        context = {} if context is None else context
        if "sigma" in context:
            raise ValueError("context: expected no level, as Heun goes through all of them, got 'sigma'; leave it out")
        if hasattr(model, "check_context"):
            model.check_context(context)  # pyright: ignore[reportAttributeAccessIssue]
        if self.posterior is None and h is None and model.h.size:
            raise TypeError(f"posterior: expected one to draw {model.h!r} from, got None; give it, or hold h")
        levels = jnp.asarray(self.levels(model), chain_dtype(model))
        if h is None and not model.h.size:
            h = model.h.zeros(levels.dtype, 1)
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape[1:])), (h, context))
        count, parts = min(self.batch, n), []
        churn = min(self.churn / self.steps, 2**0.5 - 1)
        for i, first in enumerate(range(0, n, count)):
            some = np.minimum(np.arange(first, first + count), n - 1)  # equal blocks: one program for all
            block = jax.tree.map(lambda x, some=some: x[some], rows)
            parts.append(
                _solve(jax.random.fold_in(key, i), model, self.posterior, levels, churn, self.samples, count, *block)
            )
        v, h = jax.tree.map(lambda *x: jnp.concatenate(x)[:n], *parts)
        diverged = int(jnp.sum(~jnp.all(jnp.isfinite(v), axis=tuple(range(1, v.ndim)))))
        if diverged:
            warnings.warn(
                f"sample: {diverged} of {n} draws are not finite; is the model trained, and at all levels?",
                SamplingWarning,
                stacklevel=3,
            )
        gradients = n * (2 * self.steps - 1)
        return Samples(v, h, acceptance=1.0, rhat={}, ess={}, diverged=diverged, gradients=gradients, draws=n)


@eqx.filter_jit
def _solve(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Any,
    levels: Array,
    churn: float,
    samples: int,
    count: int,
    h: Any,
    context: Any,
) -> tuple[Array, Any]:
    """`count` draws of v, and the h of their last gradients."""
    dtype = levels.dtype
    normal = lambda key: jax.random.normal(key, (count, *model.v.shape), dtype)

    def slope(key, v, sigma):
        """dv/dσ of each row, and the h that it was computed from."""
        one = lambda key, v, h, context: _slope(key, model, posterior, samples, v, sigma, h, context)
        return jax.vmap(one)(jax.random.split(key, count), v, h, context)

    def churned(key, v, sigma):
        """v at a level above σ."""
        if not churn:
            return v, sigma
        above = sigma * (1 + churn)
        return v + jnp.sqrt(above**2 - sigma**2) * normal(key), above

    def step(v, now):
        for_churn, for_first, for_second = jax.random.split(now[0], 3)
        v, sigma = churned(for_churn, v, now[1])
        first, _ = slope(for_first, v, sigma)
        below = now[2]
        second, _ = slope(for_second, v + (below - sigma) * first, below)
        return v + (below - sigma) * (first + second) / 2, None

    for_start, for_churn, for_last, for_steps = jax.random.split(key, 4)
    keys = jax.random.split(for_steps, len(levels) - 1)
    v, _ = jax.lax.scan(step, levels[0] * normal(for_start), (keys, levels[:-1], levels[1:]))
    v, sigma = churned(for_churn, v, levels[-1])
    last, h = slope(for_last, v, sigma)
    return v - sigma * last, h


def _slope(
    key: PRNGKeyArray, model: EBLVM, posterior: Any, samples: int, v: Array, sigma: Array, h: Any, context: Any
) -> tuple[Array, Any]:
    """−σ ∇_v log p_σ(v) of one example, and an h that it was computed from."""
    context = {**context, "sigma": sigma}
    features, pullback = jax.vjp(lambda v: model.features(v, context), v)
    if h is None:
        q = posterior(model, features, v, context).hard()
        h = jax.tree.map(lambda x: x[0], jax.tree.map(lambda x: x[None], q).sample(key, samples))
    else:
        h = jax.tree.map(lambda x: x[None], h)
    mean = lambda features: jnp.mean(jax.vmap(lambda h: model.log_joint(features, h))(h))
    score = pullback(jax.grad(mean, allow_int=True)(features))[0]
    return -sigma * score, jax.tree.map(lambda x: x[0], h)
