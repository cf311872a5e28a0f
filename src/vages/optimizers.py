"""Adam as the learners use it: a learning rate that may warm up and decay, and clipped gradients."""

import math
from numbers import Real
from typing import Any, Literal

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float

Rate = float | optax.Schedule
Decay = Literal["constant", "cosine"]


def learning_rate(
    peak: float, *, decay: Decay = "constant", steps: int | None = None, warmup: int = 0, final: float = 0.0
) -> Rate:
    """The rate at each iteration: linear from 0 to `peak` over `warmup`, then constant, or a cosine to `final`.

    The cosine ends at iteration `steps`, warm-up included, and stays at `final` after it.
    """
    if not (peak > 0 and final >= 0 and warmup >= 0):
        raise ValueError(f"learning_rate: expected peak > 0, final and warmup >= 0, got {peak}, {final} and {warmup}")
    if decay == "constant":
        return optax.warmup_constant_schedule(0.0, peak, warmup) if warmup else peak
    if decay != "cosine":
        raise ValueError(f"decay: expected constant or cosine, got {decay!r}; choose one")
    if steps is None or steps <= warmup:
        raise ValueError(f"steps: expected more than the {warmup} of the warm-up, to decay over, got {steps}")
    return optax.warmup_cosine_decay_schedule(0.0 if warmup else peak, peak, warmup, steps, final)


def check_rate(name: str, rate: Any) -> None:
    """Raise unless it is a schedule or a number along which one descends."""
    number = isinstance(rate, Real) and 0 <= float(rate) < math.inf
    if not (number or callable(rate) or isinstance(rate, jax.Array)):
        raise ValueError(f"{name}: expected a number, 0 or more, or a schedule, got {rate!r}; give 1e-3, say")


def adam(
    rate: Rate, *, b1: float, b2: float, clip: float | None = None, steps_per_iteration: int = 1
) -> optax.GradientTransformation:
    """Adam, after clipping the gradient to norm `clip`; a schedule counts iterations, which may take several steps."""
    if clip is not None and not clip > 0:
        raise ValueError(f"clip: expected a positive norm, got {clip}; leave it out to clip nothing")
    schedule = (lambda count: rate(count // steps_per_iteration)) if callable(rate) else rate
    # eps_root keeps the derivative of an unrolled step finite where a second moment is zero
    after = (optax.scale_by_adam(b1=b1, b2=b2, eps_root=1e-16), optax.scale_by_learning_rate(schedule))
    return optax.chain(*after) if clip is None else optax.chain(optax.clip_by_global_norm(clip), *after)


def apply(
    optimizer: optax.GradientTransformation, gradient: Any, state: Any, module: Any, factor: Float[Array, ""]
) -> tuple[Any, Any]:
    """The module after one step, `factor` times the learning rate long, and the optimizer's new state."""
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer power
        updates, state = optimizer.update(gradient, state)
    updates = jax.tree.map(lambda update: factor.astype(update.dtype) * update, updates)
    return eqx.apply_updates(module, updates), state
