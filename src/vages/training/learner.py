"""An objective, a posterior and optimisers make a learner: `init` and `step`.

    learner = make_learner(DSM(sigma=0.05), learning_rate=1e-3)
    state = learner.init(key, model, posterior, batch=100)
    state, metrics = learner.step(state, batch, key)

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

from vages.distributions import Distribution
from vages.estimators import encode
from vages.models import EBLVM, Mixed
from vages.models.checks import check_kind
from vages.objectives import DSM, KSD, NCE, ContrastiveDivergence, Objective, Problem
from vages.optimizers import Rate, adam, apply, check_rate
from vages.posteriors import (
    Divergence,
    ExactPosterior,
    MixedPosterior,
    Posterior,
    check_contract,
    check_latents,
    has_parameters,
    infer,
    kl,
)

Metrics = dict[str, Array]


class Averages(NamedTuple):
    """Exponential moving averages of the parameters."""

    model: Any
    posterior: Any


class LearnerState(NamedTuple):
    """All that an iteration reads and writes."""

    model: Any
    posterior: Any
    extra: Any
    memory: Any
    optimiser: Any
    posterior_optimiser: Any
    averages: Averages | None
    step: Int[Array, "..."]  # iterations made
    rate: Float[Array, "..."]  # a factor of both learning rates, 1 until a run has to recover


class Noise(NamedTuple):
    """All randomness of an iteration."""

    posterior: Array | None  # (K, batch, 1, …)
    unrolled: Array | None  # (N, batch, 1, …)
    objective: Any


class Learner(NamedTuple):
    """Pure functions; every method of the library looks like this to `fit`."""

    init: Callable[..., LearnerState]  # of (key, model, posterior, batch): the first state
    step: Callable[[LearnerState, Array, PRNGKeyArray], tuple[LearnerState, Metrics]]  # one iteration on one batch


def make_learner(
    objective: Objective,
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
    may be a schedule of the iteration (`optimisers.learning_rate`). Gradients longer than `clip` are shortened to it.
    `ema` keeps averages of model and posterior with that decay, less in the first iterations. `compute_dtype`, say
    bfloat16, is what features and the posterior's network are computed in; parameters, energies and all that is
    accumulated stay as they are.
    """
    check_kind("objective", objective, Objective, "an Objective", "give DSM(0.1, Variational(2)), say")
    check_kind("divergence", divergence, Divergence, "a Divergence", "give vages.kl or vages.fisher itself")
    if ema is not None and not 0 <= ema < 1:
        raise ValueError(f"ema: expected a decay from 0 to below 1, got {ema}; 0.999 is usual")

    def check_dtype(part: Objective | Posterior) -> None:
        if compute_dtype is not None and isinstance(part, ContrastiveDivergence | NCE | ExactPosterior):
            raise ValueError(
                f"compute_dtype: expected None with {type(part).__name__}, which asks the model for closed forms, "
                f"got {jnp.dtype(compute_dtype)}; leave it out"
            )

    check_dtype(objective)
    posterior_rate = learning_rate if posterior_learning_rate is None else posterior_learning_rate
    check_rate("learning_rate", learning_rate)
    check_rate("posterior_learning_rate", posterior_rate)
    optimiser = adam(learning_rate, b1=b1, b2=b2, clip=clip)
    posterior_optimiser = adam(posterior_rate, b1=b1, b2=b2, clip=clip, steps_per_iteration=max(posterior_steps, 1))

    def low_model(model: EBLVM) -> EBLVM:
        return model if compute_dtype is None else Mixed(model, compute_dtype)

    def low_posterior(posterior: Posterior) -> Posterior:
        return posterior if compute_dtype is None else MixedPosterior(posterior, compute_dtype)

    def check(key: Any, model: Any, posterior: Any, batch: Any) -> None:
        """Raise, before anything is computed, what the first step would: a contract broken, parts that do not fit."""
        order = "init takes (key, model, posterior, batch), in this order"
        check_kind("key", key, (Key[Array, ""], UInt32[Array, "_"]), "a key, jax.random.key(0) say", order)
        check_kind("model", model, EBLVM, "an EBLVM", order)
        check_kind("posterior", posterior, Posterior, "a Posterior", order)
        check_kind("batch", batch, int | np.integer, "a number of examples", order)
        if model.h.size:  # without latents, nothing is asked of the posterior
            check_dtype(posterior)
        q = check_contract(model, posterior)
        if (posterior_steps or objective.unrolled) and has_parameters(posterior):
            divergence.check(posterior, q)
        if isinstance(objective, DSM | KSD):
            check_latents(objective.latents, model, q)

    def init(key: PRNGKeyArray, model: EBLVM, posterior: Posterior, batch: int) -> LearnerState:
        check(key, model, posterior, batch)
        extra, memory = objective.start(key, low_model(model), batch)
        return LearnerState(
            model,
            posterior,
            extra,
            memory,
            optimiser.init(_trainable((model, extra))),
            posterior_optimiser.init(_trainable(posterior)),
            None if ema is None else Averages(model, posterior),
            jnp.zeros((), jnp.int32),
            jnp.ones((), jnp.float32),
        )

    def draw(state: LearnerState, batch: Array, key: PRNGKeyArray) -> Noise:
        model = low_model(state.model)
        q = _shape_of_q(model, low_posterior(state.posterior), batch)
        for_posterior, for_points, for_loss = jax.random.split(key, 3)
        for_unrolled, for_loss = jax.random.split(for_loss) if objective.unrolled else (for_loss, for_loss)

        def latents(key: PRNGKeyArray, steps: int) -> Array | None:
            if not (steps and has_parameters(state.posterior)):
                return None
            size, *event = jax.eval_shape(lambda q: q.mean, q).shape
            return jnp.stack([q.noise(key, (size, 1, *event)) for key in jax.random.split(key, steps)])

        return Noise(
            latents(for_posterior, posterior_steps),
            latents(for_unrolled, objective.unrolled),
            objective.draw((for_points, for_loss), model, q, batch),
        )

    def step(state: LearnerState, batch: Array, key: PRNGKeyArray) -> tuple[LearnerState, Metrics]:
        noise = draw(state, batch, key)
        model, posterior, posterior_state = low_model(state.model), state.posterior, state.posterior_optimiser
        points = objective.points(batch, noise.objective)
        encoding = encode(model, points.v)
        metrics = {}

        def descend(
            model: EBLVM, posterior: Posterior, optimiser_state: Any, features: Any, noise: Array, *, loop: bool
        ):
            """Adam steps of q on its divergence, one for each row of noise: (posterior, state, divergences).

            Without a loop they are quicker; in one, a gradient through them is compiled in a fraction of the time.
            """
            params, static = eqx.partition(posterior, eqx.is_inexact_array)

            def step(carry: tuple[Any, Any], noise: Array):
                params, optimiser_state = carry

                def loss(params):
                    q = low_posterior(eqx.combine(params, static))
                    gaps = divergence.at(model, q, features, points.v, noise)
                    return jnp.mean(gaps if points.weight is None else points.weight * gaps)

                value, gradient = jax.value_and_grad(loss)(params)
                return apply(posterior_optimiser, gradient, optimiser_state, params, state.rate), value

            carry = (params, optimiser_state)
            (params, optimiser_state), values = jax.lax.scan(step, carry, noise, unroll=not loop)
            return eqx.combine(params, static), optimiser_state, values

        if noise.posterior is not None:
            posterior, posterior_state, divergences = descend(
                model, posterior, posterior_state, encoding.features, noise.posterior, loop=False
            )
            metrics["divergence"] = divergences[-1]

        def advance(model: EBLVM) -> Posterior:
            if noise.unrolled is None:
                return low_posterior(posterior)
            features = jax.vmap(model.features)(points.v)
            advanced, _, _ = descend(model, posterior, posterior_state, features, noise.unrolled, loop=True)
            return low_posterior(advanced)

        problem = Problem(model, low_posterior(posterior), state.extra, state.memory, batch, points, encoding, advance)
        loss, (gradient, extra_gradient), memory = objective.gradient(problem, noise.objective)
        gradient = (gradient if compute_dtype is None else gradient.model, extra_gradient)
        metrics = {"loss": loss, **metrics, "gradient_norm": optax.tree.norm(gradient)}
        (after, extra), optimiser_state = apply(
            optimiser, gradient, state.optimiser, (state.model, state.extra), state.rate
        )
        averages = None if ema is None else _averaged(ema, state, Averages(after, posterior))
        return LearnerState(
            after, posterior, extra, memory, optimiser_state, posterior_state, averages, state.step + 1, state.rate
        ), metrics

    return Learner(init, step)


def _averaged(decay: float, state: LearnerState, now: Averages) -> Averages:
    """The averages after this iteration; the first of them forget the start quickly."""
    made = state.step.astype(state.rate.dtype)
    share = 1 - jnp.minimum(decay, (1 + made) / (10 + made))
    mix = lambda old, new: old + share.astype(new.dtype) * (new - old)
    return jax.tree.map(lambda old, new: mix(old, new) if eqx.is_inexact_array(new) else new, state.averages, now)


def _trainable(module: Any) -> Any:
    return eqx.filter(module, eqx.is_inexact_array)


def _shape_of_q(model: EBLVM, posterior: Posterior, batch: Array) -> Distribution:
    def q(model, posterior, v):
        return infer(posterior, model, jax.vmap(model.features)(v), v)

    return eqx.filter_eval_shape(q, model, posterior, batch)
