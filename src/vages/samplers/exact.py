"""Independent draws of (v, h), if p(v | h) is known and the states of h can be listed, and of h given v."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from vages.domains import Domain, Empty
from vages.models import EBLVM, TractableEBLVM, features_of, log_joints
from vages.models.mixed import is_narrow
from vages.samplers.langevin import chain_dtype
from vages.samplers.target import scattered

_ROW = 2**10  # most states for one categorical draw
_BLOCK = 2**12  # states processed at a time, which bounds the memory
_LEAST_CHECKS = 64  # of a conditional, over all states of h
_GAP = 0.01  # nats by which log-masses may differ between v, besides rounding
_ULPS = 8.0  # units of rounding, of the terms that cancel


def can_list(model: EBLVM) -> bool:
    """Whether the model has p(v | h) as `conditional(h)`, and discrete h with few enough states."""
    has_conditional = getattr(model, "conditional", None) is not None
    return has_conditional and model.h.enumerable and not isinstance(model.h, Empty)


def log_masses(model: Any) -> Float[np.ndarray, "states"]:
    """Return log ∫ p̃(v, h) dv of every state of h: log p̃(v, h) − log p(v | h), which is the same at any v.

    It is −∞ for states of infinite energy. Raises if it differs between several v by more than rounding explains.
    """
    checked = _checked_masses(model, max(1, _LEAST_CHECKS // model.h.count))
    logs, forbidden, gaps, rounding = (np.asarray(x, np.float64) for x in checked)
    if forbidden.all():
        raise ValueError(f"energy: expected a finite one for some h, got none among {len(logs)} states; correct it")
    wrong = (forbidden == 0) & ~(gaps <= _GAP + rounding)
    if wrong.any():
        raise ValueError(
            "conditional: expected p(v | h) of this energy, so that log p̃(v, h) − log p(v | h) is the same at every v, "
            f"got a difference of {gaps[wrong].max():.2g}; correct the conditional, or leave it out"
        )
    return logs


@eqx.filter_jit
@jax.default_matmul_precision("float32")  # by default, GPUs and TPUs may use lower precision
def _checked_masses(model: Any, points: int) -> tuple[Shaped[Array, "states"], ...]:
    """Return, for each state, the log-mass at one v, whether the energy is infinite, and a comparison with other v.

    The comparison is the largest difference of the log-mass at `points` random v, and how much of it may be rounding.
    """
    dtype, count = chain_dtype(model), model.h.count

    def one(number):
        h = jax.tree.map(lambda x: x[0], model.h.states(dtype, number[None]))
        conditional = model.conditional(h)
        terms = lambda v: (model.log_joint(model.features(v), h), conditional.log_prob(v))
        center, others = _places(jax.random.fold_in(jax.random.key(0), number), model.v, conditional, points)
        (joint, log_prob), (joints, log_probs) = terms(center), jax.lax.map(terms, others)
        mass, masses, eps = joint - log_prob, joints - log_probs, max(jnp.finfo(x.dtype).eps for x in (joint, log_prob))
        both_forbid = jnp.isneginf(joints) & (log_probs < jnp.log(eps))
        gaps = jnp.where(both_forbid, 0, jnp.abs(masses - mass))
        rounding = _ULPS * eps * (abs(joint) + jnp.max(jnp.where(jnp.isinf(joints), 0, abs(joints)) + abs(log_probs)))
        if model.v.continuous:  # energies of large v may round more, so that a little step makes a difference
            beside = jax.lax.map(lambda v: jnp.subtract(*terms(v)), others * (1 + 8 * jnp.finfo(others.dtype).eps))
            rounding += 4 * jnp.max(jnp.abs(beside - masses))
        forbidden = jnp.isneginf(joint) & jnp.all(jnp.isneginf(joints))
        return mass, forbidden, jnp.max(gaps), rounding

    return jax.lax.map(one, jnp.arange(count, dtype=jnp.uint32), batch_size=min(_BLOCK, count))


def _places(key: PRNGKeyArray, domain: Domain, conditional: Any, n: int) -> tuple[Array, Array]:
    """Return a probable v, and n others that differ from it in every coordinate, or at random if v is discrete."""
    mean = conditional.mean
    others = scattered(key, domain, (n,), mean.dtype)
    if not domain.continuous:
        return jax.tree.map(lambda x: x[None], conditional.hard()).sample(jax.random.key(0), 1)[0, 0], others
    return mean, mean[None] + (others + jnp.copysign(0.5, others)) * jnp.sqrt(conditional.variance)[None]


def sample_exactly(key: PRNGKeyArray, model: Any, n: int) -> tuple[Array, Any]:
    """Draw n independent (v, h): h from all of its states, then v given h."""
    for_h, for_v = jax.random.split(key)
    logs = log_masses(model)
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    bits = np.asarray(jax.random.bits(for_h, (2, n), jnp.uint32), np.float64)
    uniform = (bits[0] + bits[1] / 2**32) / 2**32  # float32 would be too coarse for 2²⁰ states
    numbers = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return _given_latents(for_v, model, jnp.asarray(np.minimum(numbers, len(logs) - 1), jnp.uint32))


@eqx.filter_jit
def sample_posterior_exactly(
    key: PRNGKeyArray, model: EBLVM, v: Array, n: int, context: Any = None
) -> tuple[Any, Array]:
    """Return n independent draws of h for each v, (batch, n, …), and whether each v has a finite log-density."""
    features = features_of(model, v, context)
    if isinstance(model, TractableEBLVM):
        return jax.vmap(model.posterior)(features).hard().sample(key, n), jnp.ones(len(v), bool)

    def one(now):
        logs = log_joints(model, now[1], v.dtype)
        logs = logs.astype(jnp.float32) if is_narrow(logs) else logs  # noise of 16 bits is too coarse
        return _draw_numbers(now[0], logs, n), jnp.isfinite(jax.nn.logsumexp(logs))

    numbers, proper = jax.lax.map(one, (jax.random.split(key, len(v)), features))
    return jax.vmap(lambda numbers: model.h.states(v.dtype, numbers))(numbers), proper


def _draw_numbers(key: PRNGKeyArray, logs: Float[Array, "states"], n: int) -> Array:
    """Draw n states by their log-masses. If there are many, draw a row of states first, then a state of this row.

    A direct draw from 2²⁰ states would be slow, and float32 noise has too few bits for it.
    """
    if len(logs) <= _ROW:
        return jax.random.categorical(key, logs, shape=(n,))
    rows = jnp.pad(logs, (0, -len(logs) % _ROW), constant_values=-jnp.inf).reshape(-1, _ROW)
    masses = jax.nn.logsumexp(rows, axis=1)

    def one(key):
        for_row, for_place = jax.random.split(key)
        row = jax.random.categorical(for_row, masses)
        return row * _ROW + jax.random.categorical(for_place, rows[row])

    return jax.lax.map(one, jax.random.split(key, n), batch_size=min(n, 1024))


@eqx.filter_jit
def _given_latents(key: PRNGKeyArray, model: Any, numbers: Array) -> tuple[Array, Any]:
    h = model.h.states(chain_dtype(model), numbers)
    return jax.vmap(model.conditional)(h).hard().draw(key), h
