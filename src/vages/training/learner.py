"""An objective, a posterior and optimizers make a learner: `init` and `step`.

    learner = make_learner(DSM(sigma=0.05), learning_rate=1e-3)
    state = learner.init(key, model, posterior, batch=100)
    state, metrics = learner.step(key, state, Batch(v))

`step` draws where it needs noise. `vages.hoist` finds what depends on the key alone, and `fit` draws that for many
iterations in one call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, DTypeLike, Float, Int, Key, PRNGKeyArray, UInt32

from vages.checks import check_context, check_kind, check_number
from vages.hoist import hoist
from vages.models import EBLVM, Encoding, Mixed, encode
from vages.models.mixed import dtype_of, is_narrow
from vages.objectives import Batch, Given, Metrics, Objective, as_objective
from vages.objectives.objective import check_loss, check_points
from vages.optimizers import Rate, adam, apply, check_rate
from vages.posteriors import Divergence, MixedPosterior, Posterior, check_contract, has_parameters, kl


class Averages(NamedTuple):
    """Exponential moving averages of the parameters."""

    model: Any
    posterior: Any


class LearnerState(NamedTuple):
    """All that an iteration reads and writes."""

    model: Any
    posterior: Any
    extras: Any  # what the objective trains beside the model
    carry: Any  # what the objective takes from batch to batch
    optimizer: Any
    posterior_optimizer: Any
    averages: Averages | None
    step: Int[Array, "..."]  # iterations made
    rate: Float[Array, "..."]  # a factor of both learning rates, 1 until a run has to recover


class Learner(NamedTuple):
    """Pure functions; every method of the library looks like this to `fit`."""

    init: Callable[..., LearnerState]  # of (key, model, posterior, batch, context=None): the first state
    step: Callable[[PRNGKeyArray, LearnerState, Batch], tuple[LearnerState, Metrics]]  # one iteration on one batch


def make_learner(
    objective: Any,
    *,
    learning_rate: Rate,
    posterior_learning_rate: Rate | None = None,
    posterior_steps: int = 5,
    divergence: Divergence = kl,
    b1: float = 0.9,
    b2: float = 0.95,
    clip: float | None = None,
    ema: float | None = None,
    compute_dtype: DTypeLike | None = None,
) -> Learner:
    """A learner that takes `posterior_steps` Adam steps of q on each batch, then one of θ along the objective.

    One noised batch and its features serve all of them. A posterior without parameters is left alone. A learning rate
    may be a schedule of the iteration (`optimizers.learning_rate`). Gradients longer than `clip` are shortened to it.
    `ema` keeps averages of model and posterior with that decay, less in the first iterations. `compute_dtype`, say
    bfloat16, is what features and the posterior's network are computed in; parameters, energies and all that is
    accumulated stay as they are.
    """
    own = as_objective(objective)
    check_kind("divergence", divergence, Divergence, "a Divergence", "give vages.kl or vages.fisher itself")
    if ema is not None and not 0 <= ema < 1:
        raise ValueError(f"ema: expected a decay from 0 to below 1, got {ema}; 0.999 is usual")

    def check_dtype(part: Objective | Posterior) -> None:
        if compute_dtype is not None and part.closed_form:
            raise ValueError(
                f"compute_dtype: expected None with {type(part).__name__}, which asks the model for closed forms, "
                f"got {jnp.dtype(compute_dtype)}; leave it out"
            )

    check_dtype(own)
    posterior_rate = learning_rate if posterior_learning_rate is None else posterior_learning_rate
    check_rate("learning_rate", learning_rate)
    check_rate("posterior_learning_rate", posterior_rate)
    optimizer = adam(learning_rate, b1=b1, b2=b2, clip=clip)
    posterior_optimizer = adam(posterior_rate, b1=b1, b2=b2, clip=clip, steps_per_iteration=max(posterior_steps, 1))

    def low_model(model: EBLVM) -> EBLVM:
        return model if compute_dtype is None else Mixed(model, compute_dtype)

    def low_posterior(posterior: Posterior) -> Posterior:
        return posterior if compute_dtype is None else MixedPosterior(posterior, compute_dtype)

    def check(key: Any, model: Any, posterior: Any, batch: Any, context: Any) -> None:
        """Raise, from shapes alone, where a contract is broken or parts do not fit. No loss is traced for it."""
        order = "init takes (key, model, posterior, batch), in this order"
        check_kind("key", key, (Key[Array, ""], UInt32[Array, "_"]), "a key, jax.random.key(0) say", order)
        check_kind("model", model, EBLVM, "an EBLVM", order)
        check_kind("posterior", posterior, Posterior, "a Posterior", order)
        check_kind("batch", batch, int | np.integer, "a number of examples", order)
        check_context(context, None)
        if model.h.size:  # without latents, nothing is asked of the posterior
            check_dtype(posterior)
        one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        q = check_contract(model, posterior, jax.tree.map(one, context))
        if (posterior_steps or own.unrolled) and has_parameters(posterior):
            divergence.check(posterior, q)
        own.check(model, q)
        if not any(map(eqx.is_inexact_array, jax.tree.leaves(model))):
            raise TypeError(
                f"model: expected floating arrays, which are trained, got {type(model).__name__} without any; write "
                "jnp.array([1.0, 2.0]), say, as lists, Python numbers and integers are constants"
            )

    def init(key: PRNGKeyArray, model: EBLVM, posterior: Posterior, batch: int, context: Any = None) -> LearnerState:
        check(key, model, posterior, batch, context)
        extras, carry = own.init(key, low_model(model), batch)
        return LearnerState(
            model,
            posterior,
            extras,
            carry,
            optimizer.init(_trainable((model, extras))),
            posterior_optimizer.init(_trainable(posterior)),
            None if ema is None else Averages(model, posterior),
            jnp.zeros((), jnp.int32),
            jnp.ones((), jnp.float32),
        )

    def descend(
        key: PRNGKeyArray,
        model: EBLVM,
        posterior: Posterior,
        optimizer_state: Any,
        points: Any,
        at: Encoding,
        rate: Any,
    ) -> tuple[Posterior, Any, Array]:
        """A step of q on its divergence at the points: (posterior, the optimizer's state, divergence)."""

        def loss(posterior):
            gaps = divergence(key, model, low_posterior(posterior), at)
            return jnp.mean(gaps if points.weight is None else points.weight * gaps)

        value, gradient = eqx.filter_value_and_grad(loss)(posterior)
        return *apply(posterior_optimizer, gradient, optimizer_state, posterior, rate), value

    def unroll(
        key: PRNGKeyArray, model: EBLVM, posterior: Posterior, optimizer_state: Any, points: Any, rate: Any
    ) -> Posterior:
        """The posterior some steps ahead, as a function of the model. A loop, whose gradient is compiled quickly."""
        params, static = eqx.partition(posterior, eqx.is_inexact_array)
        encoding = encode(model, points.v, points.context)

        def step(key, carry):
            after = descend(key, model, eqx.combine(carry[0], static), carry[1], points, encoding, rate)
            return _trainable(after[0]), after[1]

        start = (params, optimizer_state)
        draw, update = hoist(step, key, start)  # in a loop, noise could not be drawn ahead
        noise = jax.vmap(draw)(jax.random.split(key, own.unrolled))
        carry, _ = jax.lax.scan(lambda carry, noise: (update(noise, carry), None), start, noise)
        return eqx.combine(carry[0], static)

    def step(key: PRNGKeyArray, state: LearnerState, batch: Batch) -> tuple[LearnerState, Metrics]:
        check_kind("batch", batch, Batch, "a Batch", "write step(key, state, Batch(v))")
        check_context(batch.context, len(batch.v))
        batch = _widened(batch, dtype_of(state.model))
        for_posterior, for_points, for_loss = jax.random.split(key, 3)
        model, posterior, posterior_state = low_model(state.model), state.posterior, state.posterior_optimizer
        points = own.perturb(for_points, batch)
        check_points(points, model.v.shape)
        encoding = encode(model, points.v, points.context)
        learns, metrics = has_parameters(posterior), {}
        for key in jax.random.split(for_posterior, posterior_steps) if learns and posterior_steps else ():
            posterior, posterior_state, metrics["divergence"] = descend(
                key, model, posterior, posterior_state, points, encoding, state.rate
            )

        def loss(trained: tuple[EBLVM, Any]) -> tuple[Array, tuple[Metrics, Any]]:
            model, key, q = low_model(trained[0]), for_loss, posterior
            if own.unrolled:
                for_unrolled, key = jax.random.split(key)
                if learns:
                    q = unroll(for_unrolled, model, posterior, posterior_state, points, state.rate)
            given = Given(batch, points, encoding, trained[1], state.carry)
            value, found, carry = check_loss(own.loss(key, model, low_posterior(q), given), state.carry)
            check_number("objective", value, "take the mean over the batch, say", "whose gradient is followed")
            return value, ({"loss": value} | found, carry)

        trained = (state.model, state.extras)
        (_, (found, carry)), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(trained)
        metrics = found | metrics | {"gradient_norm": optax.tree.norm(gradient)}
        (after, extras), optimizer_state = apply(optimizer, gradient, state.optimizer, trained, state.rate)
        averages = None if ema is None else _averaged(ema, state, Averages(after, posterior))
        return LearnerState(
            after, posterior, extras, carry, optimizer_state, posterior_state, averages, state.step + 1, state.rate
        ), metrics

    return Learner(init, step)


def _widened(batch: Batch, dtype: Any) -> Batch:
    """Numbers of 16 bits in the dtype of the parameters: noise and scores are computed in the dtype of v."""
    return jax.tree.map(lambda x: x.astype(dtype) if is_narrow(x) else x, batch)


def _averaged(decay: float, state: LearnerState, now: Averages) -> Averages:
    """The averages after this iteration; the first of them forget the start quickly."""
    made = state.step.astype(state.rate.dtype)
    share = 1 - jnp.minimum(decay, (1 + made) / (10 + made))
    mix = lambda old, new: old + share.astype(new.dtype) * (new - old)
    return jax.tree.map(lambda old, new: mix(old, new) if eqx.is_inexact_array(new) else new, state.averages, now)


def _trainable(module: Any) -> Any:
    return eqx.filter(module, eqx.is_inexact_array)
