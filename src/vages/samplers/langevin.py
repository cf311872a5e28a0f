"""Langevin dynamics of many chains, for v given h or for (v, h): an `init` and a `step`."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vages.distributions import flat_noise
from vages.models import EBLVM

Number = Float[Array, ""] | float


class LangevinState(NamedTuple):
    """Chains along the first axis. A chain that has `diverged` is NaN from then on, and does not affect the others."""

    v: Array
    h: Array
    diverged: Bool[Array, "chains"]


class Move(NamedTuple):
    """v ← v + drift ∇_v log p̃(v, h) + scale · noise, and h likewise with its own drift. Scalars, or one per step."""

    drift: Float[Array | np.ndarray, "*steps"]
    h_drift: Float[Array | np.ndarray, "*steps"]
    scale: Float[Array | np.ndarray, "*steps"]


class Held(NamedTuple):
    """Inpainting: v is held at `known` where `mask` is true. Both have the shape of one v, or one row per draw.

    The gradient in the other entries is that of their conditional density given the held ones, so at every temperature
    T the chain samples p(unknown | known, h)^(1/T) itself. (Score networks with noise levels get known pixels with the
    noise of the level instead; an energy has no levels.)
    """

    mask: Bool[Array, "..."]
    known: Float[Array, "..."]

    def hold(self, v: Array) -> Array:
        return jnp.where(self.mask, self.known, v)


def chain_dtype(model: EBLVM) -> np.dtype:
    """Return float64 if the model has float64 parameters, else float32: narrower types lose small steps."""
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))}
    wide = jnp.dtype("float64")
    return wide if wide in (dtypes or {jnp.result_type(float)}) else jnp.dtype("float32")


def langevin_init(
    key: PRNGKeyArray,
    model: EBLVM,
    chains: int,
    h: Array | None = None,
    *,
    held: Held | None = None,
    shared: bool = False,
) -> LangevinState:
    """Start v, and h if none is given, at 1/2 + N(0, I). A chain whose given h is not finite counts as diverged."""
    noise_v, noise_h = _noise(key, model, chains, joint=h is None, shared=shared)
    v = 0.5 + noise_v if held is None else held.hold(0.5 + noise_v)
    start_h = 0.5 + noise_h if noise_h is not None else h
    assert start_h is not None
    diverged = ~jnp.all(jnp.isfinite(start_h), axis=tuple(range(1, start_h.ndim)))
    return LangevinState(_spoil(v, diverged), start_h, diverged)


def langevin_step(
    key: PRNGKeyArray,
    model: EBLVM,
    state: LangevinState,
    *,
    temperature: Number,
    step_size: Number,
    joint: bool = False,
    held: Held | None = None,
    shared: bool = False,
    box: Number = 1000.0,
) -> LangevinState:
    """Make the step x ← x + ½ s² ∇ log p̃(v, h) + √T s · noise, where x is v, or (v, h) with `joint`."""
    drift, scale = 0.5 * step_size**2, jnp.sqrt(temperature) * step_size
    move = Move(*(jnp.asarray(x, state.v.dtype) for x in (drift, drift, scale)))
    return langevin_move(key, model, state, move, joint=joint, held=held, shared=shared, box=box)


def langevin_move(
    key: PRNGKeyArray,
    model: EBLVM,
    state: LangevinState,
    move: Move,
    *,
    joint: bool,
    held: Held | None,
    shared: bool,
    box: Number,
) -> LangevinState:
    """Return the state after one move, which takes one forward and one backward pass through `features`."""
    noise_v, noise_h = _noise(key, model, len(state.v), joint=joint, shared=shared)
    one = lambda v, h: model.log_joint(model.features(v), h)
    total = lambda v, h: jnp.sum(jax.vmap(one)(v, h))
    h = state.h
    if noise_h is None:
        force = jax.grad(total)(state.v, h)
    else:
        force, h_force = jax.grad(total, argnums=(0, 1))(state.v, h)
        h = h + move.h_drift * h_force + move.scale * noise_h
    v = state.v + move.drift * force + move.scale * noise_v
    if held is not None:
        v = held.hold(v)
    diverged = state.diverged | _outside(v, box) | (_outside(h, box) if noise_h is not None else False)
    return LangevinState(_spoil(v, diverged), h if noise_h is None else _spoil(h, diverged), diverged)


def _noise(key: PRNGKeyArray, model: EBLVM, chains: int, *, joint: bool, shared: bool) -> tuple[Array, Array | None]:
    """Draw the noise of a step for v, and with `joint` for h. With `shared`, it is the same for all chains."""
    v_size, h_size = math.prod(model.v.shape), math.prod(model.h.shape) if joint else 0
    noise = flat_noise(jax.random.normal, key, (1 if shared else chains, v_size + h_size), chain_dtype(model))
    noise = jnp.broadcast_to(noise, (chains, v_size + h_size))
    v = noise[:, :v_size].reshape(chains, *model.v.shape)
    return v, noise[:, v_size:].reshape(chains, *model.h.shape) if joint else None


def _outside(x: Array, box: Number) -> Bool[Array, "chains"]:
    inside = jnp.abs(x - 0.5) <= jnp.asarray(box, x.dtype)  # false for NaN
    return ~jnp.all(inside, axis=tuple(range(1, x.ndim)))


def _spoil(x: Array, diverged: Bool[Array, "chains"]) -> Array:
    return jnp.where(diverged.reshape(len(x), *(1,) * (x.ndim - 1)), jnp.nan, x)
