"""Independent draws: of (v, h) where p(v | h) is known and the states of h can be listed, and of h given v."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.domains import Empty
from vages.models import EBLVM, TractableEBLVM, features_of, log_joints
from vages.samplers.langevin import chain_dtype

_BLOCK = 2**12  # states whose mass is computed together, which bounds the memory


def can_list(model: EBLVM) -> bool:
    """Whether the model has p(v | h) as `conditional(h)`, and discrete h with few enough states."""
    has_conditional = getattr(model, "conditional", None) is not None
    return has_conditional and model.h.enumerable and not isinstance(model.h, Empty)


def log_masses(model: Any) -> Float[np.ndarray, "states"]:
    """log ∫ p̃(v, h) dv of every state of h: log p̃(v, h) − log p(v | h), which is the same at any v.

    A state that the energy forbids has −∞.
    """
    here, there = (np.asarray(x, np.float64) for x in _log_masses(model))
    forbidden = np.isneginf(here) & np.isneginf(there)
    if forbidden.all():
        raise ValueError(f"energy: expected a finite one of some h, got none among {len(here)} states; mend its terms")
    some, same = here[~forbidden], there[~forbidden]
    worst = np.max(np.abs(some - same) / (1 + np.abs(some)))
    if not worst < 1e-3:
        raise ValueError(
            "conditional: expected p(v | h) of this energy, so that log p̃(v, h) − log p(v | h) is the same at every v, "
            f"got a difference of {worst:.2g}; mend the conditional, or leave it out"
        )
    return here


@eqx.filter_jit
def _log_masses(model: Any) -> tuple[Float[Array, "states"], Float[Array, "states"]]:
    """At two v for each h."""
    count = model.h.count
    numbers = jnp.arange(count, dtype=jnp.uint32)

    def one(number):
        h = jax.tree.map(lambda x: x[0], model.h.states(chain_dtype(model), number[None]))
        conditional = model.conditional(h)
        mass = lambda v: model.log_joint(model.features(v), h) - conditional.log_prob(v)
        here, there = _two_points(model, conditional)
        return mass(here), mass(there)

    return jax.lax.map(one, numbers, batch_size=min(_BLOCK, count))


def _two_points(model: Any, conditional: Any) -> tuple[Array, Array]:
    """The mean of p(v | h), and a standard deviation or two beside it; two draws where v is discrete."""
    mean = conditional.mean
    if not model.v.continuous:
        draws = jax.tree.map(lambda x: x[None], conditional.hard()).sample(jax.random.key(0), 2)
        return draws[0, 0], draws[0, 1]
    steps = jnp.linspace(-2, 2, mean.size, dtype=mean.dtype).reshape(mean.shape)
    return mean, mean + (steps + 0.5) * jnp.sqrt(conditional.variance)


def sample_exactly(key: PRNGKeyArray, model: Any, n: int) -> tuple[Array, Any]:
    """n independent draws of (v, h): h from the list of its states, then v given h."""
    for_h, for_v = jax.random.split(key)
    logs = log_masses(model)
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    bits = np.asarray(jax.random.bits(for_h, (2, n), jnp.uint32), np.float64)
    uniform = (bits[0] + bits[1] / 2**32) / 2**32  # float32 would be too coarse for 2²⁰ states
    numbers = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return _given_latents(for_v, model, jnp.asarray(np.minimum(numbers, len(logs) - 1), jnp.uint32))


@eqx.filter_jit
def sample_posterior_exactly(key: PRNGKeyArray, model: EBLVM, v: Array, n: int, context: Any = None) -> Any:
    """n independent draws of h for each v: (batch, n, …)."""
    features = features_of(model, v, context)
    if isinstance(model, TractableEBLVM):
        return jax.vmap(model.posterior)(features).hard().sample(key, n)
    one = lambda now: jax.random.categorical(now[0], log_joints(model, now[1], v.dtype), shape=(n,))
    numbers = jax.lax.map(one, (jax.random.split(key, len(v)), features))
    return jax.vmap(lambda numbers: model.h.states(v.dtype, numbers))(numbers)


@eqx.filter_jit
def _given_latents(key: PRNGKeyArray, model: Any, numbers: Array) -> tuple[Array, Any]:
    h = model.h.states(chain_dtype(model), numbers)
    return jax.vmap(model.conditional)(h).hard().draw(key), h
