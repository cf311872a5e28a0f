"""The score of a noise-conditional model at a noise level, and its probability-flow ODE.

    dv/dσ = −σ ∇_v log p_σ(v)

The score is mean_i ∇_v log p̃_σ(v, h_i) with h_i ~ q(h | v, σ), or with a given h. With guidance w, it is the score
without a label plus w times the difference that the label makes (Ho and Salimans 2022):

    s(v) = s(v | none) + w (s(v | label) − s(v | none))
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_features, check_kind, check_own_context, check_scale, on_shapes, struct_of, with_keys
from vages.distributions import Distribution
from vages.models import EBLVM
from vages.samplers.langevin import chain_dtype

NO_LABEL = -1  # the label of examples without one


class Flow(eqx.Module):
    """The model, the source of its h and the guidance, which define the ODE."""

    model: EBLVM
    posterior: Any = None
    samples: int = eqx.field(static=True, default=1)  # number of h for each gradient
    guidance: float | None = eqx.field(static=True, default=None)

    @property
    def cost(self) -> int:
        """Number of gradients of the energy for one score."""
        return 1 if self.guidance is None else 2

    def score(self, key: PRNGKeyArray, v: Array, sigma: Array, h: Any, context: Any) -> tuple[Array, Any]:
        """Return ∇_v log p_σ(v) of one example, and an h that it was computed from. If `h` is None, h is drawn."""
        score, found = self._score(key, v, sigma, h, context)
        if self.guidance is None:
            return score, found
        without = context | {"label": jnp.full_like(context["label"], NO_LABEL)}
        free, _ = self._score(key, v, sigma, h, without)
        return free + self.guidance * (score - free), found

    def slope(self, key: PRNGKeyArray, v: Array, sigma: Array, h: Any, context: Any) -> tuple[Array, Any]:
        """Return dv/dσ of each row, and an h that it was computed from."""
        one = lambda key, v, h, context: self.score(key, v, sigma, h, context)
        score, found = jax.vmap(one)(jax.random.split(key, len(v)), v, h, context)
        return -sigma * score, found

    def _score(self, key: PRNGKeyArray, v: Array, sigma: Array, h: Any, context: Any) -> tuple[Array, Any]:
        model, context = self.model, {**context, "sigma": sigma}
        features, pullback = jax.vjp(lambda v: model.features(v, context), v)
        if h is None:
            q = self.posterior(model, features, v, context).hard()
            h = jax.tree.map(lambda x: x[0], jax.tree.map(lambda x: x[None], q).sample(key, self.samples))
        else:
            h = jax.tree.map(lambda x: x[None], h)
        mean = lambda features: jnp.mean(jax.vmap(lambda h: model.log_joint(features, h))(h))
        score = pullback(jax.grad(mean, allow_int=True)(features))[0]
        return score, jax.tree.map(lambda x: x[0], h)


def check_flow(flow: Flow, h: Any, context: Any) -> None:
    """Raise unless there is a source of latents, and a label if there is guidance."""
    model = flow.model
    if "sigma" in context:
        raise ValueError("context: expected no level, as the ODE goes through all of them, got 'sigma'; leave it out")
    check_own_context(context, model, flow.posterior)
    if h is None and model.h.size:
        _check_posterior(flow, context)
    if flow.guidance is not None:
        labels = context.get("label")
        if labels is None or np.any(np.asarray(labels) == NO_LABEL):
            got = "none" if labels is None else f"{NO_LABEL}, which means no label"
            raise ValueError(f'guidance: expected a label to guide to, got {got}; give context={{"label": 3}}, say')


def _check_posterior(flow: Flow, context: Any) -> None:
    """Raise unless the posterior returns h of the model for one example and a level. Only shapes are computed."""
    model, posterior = flow.model, flow.posterior
    if posterior is None:
        raise TypeError(f"posterior: expected one to draw {model.h!r} from, got None; give it, or hold h")
    name = type(posterior).__name__
    if not callable(posterior):
        raise TypeError(f"posterior: expected one to draw {model.h!r} from, got {name}; give a Posterior, or hold h")
    v = jax.ShapeDtypeStruct(model.v.shape, chain_dtype(model))
    one = jax.tree.map(lambda x: struct_of(jnp.asarray(x), drop=1), context)
    one = {**one, "sigma": jax.ShapeDtypeStruct((), v.dtype)}
    expected = f"{name} to take one v of shape {v.shape}{with_keys(one)}"
    features = check_features(model, v, one)
    q = on_shapes("posterior", expected, "build it for this model", posterior, model, features, v, one)
    check_kind("posterior", q, Distribution, f"a Distribution from {name}", "return vages.Gaussian(mean, log_std), say")
    shape = jax.tree.map(lambda x: x.shape, on_shapes("posterior", "a mean of h", "correct it", lambda q: q.mean, q))
    if shape != model.h.shape or q.continuous != model.h.continuous:
        kind = "continuous" if q.continuous else "discrete"
        raise ValueError(
            f"posterior: expected h of {model.h!r}, of shape {model.h.shape}, got {kind} h of shape {shape} from "
            f"{name}; build it for this model"
        )


def check_level(model: EBLVM, name: str, level: float | None) -> float:
    """Return the level, or that of the model if it is None. Raise ValueError unless the model supports it."""
    level = getattr(model, name, None) if level is None else level
    if level is None:
        raise ValueError(f"{name}: expected a level, as {type(model).__name__} has none, got None; give it")
    check_scale(name, level, "noise level", "leave it out for that of the model")
    if hasattr(model, "check_levels"):
        model.check_levels(level, name)  # pyright: ignore[reportAttributeAccessIssue]
    return float(level)


def noise_levels(
    model: EBLVM, steps: int, *, sigma_min: float | None, sigma_max: float | None, rho: float
) -> Float[np.ndarray, "steps"]:
    """Return σ from `sigma_max` to `sigma_min` (None: the model's own), evenly spaced in σ^(1/rho)."""
    ends = [check_level(model, name, own) for name, own in (("sigma_max", sigma_max), ("sigma_min", sigma_min))]
    if ends[0] <= ends[1]:
        raise ValueError(f"sigma_max: expected more than sigma_min, {ends[1]:g}, got {ends[0]:g}; raise it")
    first, last = (end ** (1 / rho) for end in ends)
    return np.linspace(first, last, steps) ** rho
