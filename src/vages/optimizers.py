"""Adam as in the paper, learning rate schedules, and a step of any Optax optimizer.

For networks that divide weights by their norm (`UNet`), there are transformations that preserve the norm.
"""

import math
from numbers import Real
from typing import Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from vages.bounds import ITERATIONS, MAYBE_ITERATIONS, check_bounds
from vages.checks import check_kind, check_positive, is_finite, told
from vages.nets.scaling import Scaling, map_scaling

Rate = float | optax.Schedule
Decay = Literal["constant", "cosine", "trapezoid"]
_FALLING = 0.2  # fraction of the iterations in which a trapezoid decays


def learning_rate(
    peak: float, *, decay: Decay = "constant", steps: int | None = None, warmup: int = 0, final: float = 0.0
) -> Rate:
    """Return the learning rate: linear from 0 to `peak` over `warmup`, then constant, or decaying to `final`.

    A cosine decays until iteration `steps`, which includes the warm-up. A trapezoid is constant, and decays linearly
    over the last fifth, at least two iterations. Both stay at `final` afterwards.
    """
    check_positive("learning_rate", peak, "peak", "give 1e-3, say")
    check_bounds(warmup=(warmup, MAYBE_ITERATIONS))
    if not (is_finite(final) and final >= 0 and (final <= peak or decay == "constant")):
        raise ValueError(f"final: expected a rate from 0 to the peak, {peak}, got {told(final)}; leave it out for 0")
    if decay == "constant":
        return optax.warmup_constant_schedule(0.0, peak, warmup) if warmup else peak
    if decay not in ("cosine", "trapezoid"):
        raise ValueError(f"decay: expected constant, cosine or trapezoid, got {decay!r}; choose one")
    if steps is not None:
        check_bounds(steps=(steps, ITERATIONS))
    if steps is None or steps <= warmup:
        raise ValueError(f"steps: expected more than the {warmup} of the warm-up, to decay over, got {steps}")
    if decay == "trapezoid":
        fall = _fall(steps, warmup)
        before = optax.warmup_constant_schedule(0.0, peak, warmup) if warmup else optax.constant_schedule(peak)
        return optax.join_schedules([before, optax.linear_schedule(peak, final, steps - fall)], [fall])
    return optax.warmup_cosine_decay_schedule(0.0 if warmup else peak, peak, warmup, steps, final)


def _fall(steps: int, warmup: int) -> int:
    """Return the iteration at which a trapezoid starts to decay."""
    return steps - min(max(2, round(_FALLING * steps)), steps - warmup)


def same_until(decay: Decay, steps: int, warmup: int = 0) -> float:
    """Return how many iterations keep their learning rate if `steps` grows; for a trapezoid, those before the decay."""
    return {"constant": math.inf, "cosine": 0.0, "trapezoid": float(_fall(steps, warmup))}[decay]


def adam(
    learning_rate: Any, *, b1: float = 0.9, b2: float = 0.95, clip: float | None = None
) -> optax.GradientTransformation:
    """Adam with the paper's b2, after clipping the gradient to norm `clip`. Its step is differentiable, for BiDSM."""
    number = isinstance(learning_rate, Real) and 0 <= float(learning_rate) < math.inf
    if not (number or callable(learning_rate) or isinstance(learning_rate, jax.Array)):
        raise ValueError(
            f"learning_rate: expected a number, 0 or more, or a schedule, got {learning_rate!r}; give 1e-3, say"
        )
    if clip is not None and not clip > 0:
        raise ValueError(f"clip: expected a positive norm, got {clip}; leave it out for no clipping")
    # eps_root keeps the derivative of a step finite where a second moment is zero
    rate = cast("Rate", learning_rate)
    after = (optax.scale_by_adam(b1=b1, b2=b2, eps_root=1e-16), optax.scale_by_learning_rate(rate))
    return optax.chain(*after) if clip is None else optax.chain(optax.clip_by_global_norm(clip), *after)


def normalized_adam(
    learning_rate: Rate, *, b1: float = 0.9, b2: float = 0.99, clip: float | None = 1.0, slow: float = 0.3
) -> optax.GradientTransformation:
    """Adam for networks that divide weights by their norm (Karras et al. 2024).

    It is an Optax chain: the gradient clipped to norm `clip`, Adam, `scale_by_size(slow)`, the learning rate,
    `renormalize()`. The learning rate is then the relative change of all matrices in a step, e.g. 0.006 for a U-Net.
    """
    steps = (optax.scale_by_adam(b1=b1, b2=b2), scale_by_size(slow), optax.scale_by_learning_rate(learning_rate))
    if clip is not None and not clip > 0:
        raise ValueError(f"clip: expected a positive norm, got {clip}; give None for no clipping")
    return optax.chain(*([] if clip is None else [optax.clip_by_global_norm(clip)]), *steps, renormalize())


def scale_by_size(slow: float = 0.3) -> optax.GradientTransformation:
    """Scale steps in proportion to the typical size of a parameter's entries.

    Entries of normalized weights have size 1, and their steps are unchanged. Entries of other matrices have size
    1 / √inputs. Steps of scalars and biases are multiplied by `slow`.
    """

    def one(scaling: Scaling, step: Array) -> Array:
        if scaling.unit:
            return step
        return step * (slow if step.ndim < 2 else _inputs(step, scaling) ** -0.5)

    return optax.stateless(lambda updates, params: map_scaling(one, updates))


def renormalize() -> optax.GradientTransformation:
    """Return normalized weights to norm √inputs for each output after the step. It must be last in a chain.

    The network divides by the norm, so its function does not change. Without this, the norm would grow with every step,
    as gradients are orthogonal to the weights, and steps of a given length would have less and less effect.
    """

    def one(scaling: Scaling, weight: Array, step: Array) -> Array:
        return _at_norm(weight + step, scaling) - weight if scaling.normalized else step

    return optax.stateless(lambda updates, params: map_scaling(one, params, updates))


def normalize_weights(module: Any) -> Any:
    """Rescale the normalized weights of a module to the norm of `renormalize`, without changing its function."""
    at_norm = lambda scaling, weight: _at_norm(weight, scaling) if scaling.normalized else weight
    return eqx.combine(map_scaling(at_norm, trainable(module)), module)


def _inputs(weight: Array, scaling: Scaling) -> int:
    return weight.size // weight.shape[scaling.out]


def _at_norm(weight: Array, scaling: Scaling) -> Array:
    others = tuple(axis for axis in range(weight.ndim) if axis != scaling.out % weight.ndim)
    norm = jnp.sqrt(jnp.sum(weight**2, axis=others, keepdims=True))
    return weight * (_inputs(weight, scaling) ** 0.5 / (norm + 1e-4))


def as_optimizer(name: str, optimizer: Any, rate: Rate | None = None) -> optax.GradientTransformation:
    """Return the given optimizer, or Adam with this learning rate. `name` is for errors."""
    if optimizer is None and rate is not None:
        return adam(rate)
    if optimizer is not None and rate is not None:
        raise ValueError(f"learning_rate: expected none with an {name}, which has its own, got {rate!r}; leave one out")
    advice = "give optax.adamw(1e-3), say, or learning_rate=1e-3 for Adam"
    check_kind(name, optimizer, optax.GradientTransformation, "an optax.GradientTransformation", advice)
    return cast("optax.GradientTransformation", optimizer)


def check_differentiable(name: str, optimizer: optax.GradientTransformation) -> None:
    """Raise ValueError unless the derivative of an optimizer's step is finite at a gradient of zero."""

    def step(gradient: Array) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(gradient, optimizer.init(gradient), gradient)[0]

    if not bool(jnp.isfinite(jax.grad(step)(jnp.zeros(())))):
        raise ValueError(
            f"{name}: expected steps with a finite derivative at a gradient of zero, as BiDSM differentiates them, got "
            "others; give optax.adam(…, eps_root=1e-16), say, or vages.adam"
        )


def start(optimizer: optax.GradientTransformation, module: Any) -> Any:
    """Return the initial state of the optimizer for the module's floating-point arrays."""
    with jax.numpy_dtype_promotion("standard"):
        return optimizer.init(trainable(module))


def apply(
    optimizer: optax.GradientTransformation,
    gradient: Any,
    state: Any,
    module: Any,
    iteration: Int[Array, ""],
    factor: Float[Array, ""],
) -> tuple[Any, Any]:
    """Return the module after one step, multiplied by `factor`, and the optimizer's new state.

    Schedules are evaluated at the iteration, even if an iteration takes several steps of this optimizer.
    """
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer power
        updates, state = optimizer.update(gradient, _at(iteration, state), trainable(module))
    updates = jax.tree.map(lambda update: factor.astype(update.dtype) * update, updates)
    return eqx.apply_updates(module, updates), state


def trainable(module: Any) -> Any:
    """Return the floating-point arrays of a module, which are trained, with None in place of everything else."""
    return eqx.filter(module, eqx.is_inexact_array)


def _at(iteration: Int[Array, ""], state: Any) -> Any:
    """Set the counters of schedules in an optimizer's state to the iteration. Adam's own counter counts steps."""
    counts = lambda x: isinstance(x, optax.ScaleByScheduleState) or type(x).__name__ in _WITH_SCHEDULES

    def one(x: Any) -> Any:
        if not counts(x):
            return x
        inner = {name: _at(iteration, part) for name, part in x._asdict().items() if name != "count"}
        return x._replace(count=iteration.astype(x.count.dtype), **inner)

    return jax.tree.map(one, state, is_leaf=counts)


_WITH_SCHEDULES = ("InjectStatefulHyperparamsState", "InjectHyperparamsState", "WrappedScheduleState")
