"""An objective, a posterior and optimisers make a learner: `init` and `step`.

    learner = make_learner(DSM(sigma=0.05), learning_rate=1e-3)
    state = learner.init(key, model, posterior, batch=100)
    state, metrics = learner.step(state, batch, key)

`step` is `draw` (all noise of an iteration, a function of the key and of shapes) and `update` (no randomness), so
that a training loop can draw the noise of many iterations in one call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Distribution
from vages.estimators import encode
from vages.models import EBLVM
from vages.objectives import Objective, Problem
from vages.posteriors import Divergence, Posterior, has_parameters, infer, kl

Metrics = dict[str, Array]


class LearnerState(NamedTuple):
    """All that an iteration reads and writes."""

    model: Any
    posterior: Any
    extra: Any
    memory: Any
    optimiser: Any
    posterior_optimiser: Any


class Noise(NamedTuple):
    """All randomness of an iteration."""

    posterior: Array | None  # (K, batch, 1, …)
    unrolled: Array | None  # (N, batch, 1, …)
    objective: Any


class Learner(NamedTuple):
    """Pure functions; every method of the library looks like this to `fit`."""

    init: Callable[..., LearnerState]
    draw: Callable[[LearnerState, Array, PRNGKeyArray], Noise]
    update: Callable[[LearnerState, Array, Noise], tuple[LearnerState, Metrics]]

    def step(self, state: LearnerState, batch: Array, key: PRNGKeyArray) -> tuple[LearnerState, Metrics]:
        """One iteration on one batch."""
        return self.update(state, batch, self.draw(state, batch, key))


def make_learner(
    objective: Objective,
    *,
    learning_rate: float | optax.Schedule,
    posterior_learning_rate: float | optax.Schedule | None = None,
    posterior_steps: int = 5,
    divergence: Divergence = kl,
    b1: float = 0.9,
    b2: float = 0.95,
) -> Learner:
    """A learner that takes `posterior_steps` Adam steps of q on each batch, then one of θ along the objective.

    One noised batch and its features serve all of them. A posterior without parameters is left alone.
    """
    optimiser = _adam(learning_rate, b1, b2)
    posterior_optimiser = _adam(learning_rate if posterior_learning_rate is None else posterior_learning_rate, b1, b2)

    def init(key: PRNGKeyArray, model: EBLVM, posterior: Posterior, batch: int) -> LearnerState:
        extra, memory = objective.start(key, model, batch)
        return LearnerState(
            model,
            posterior,
            extra,
            memory,
            optimiser.init(_trainable((model, extra))),
            posterior_optimiser.init(_trainable(posterior)),
        )

    def draw(state: LearnerState, batch: Array, key: PRNGKeyArray) -> Noise:
        q = _shape_of_q(state, batch)
        keys = jax.random.split(key, 3)

        def latents(key: PRNGKeyArray, steps: int) -> Array | None:
            if not (steps and has_parameters(state.posterior)):
                return None
            size, *event = jax.eval_shape(lambda q: q.mean, q).shape
            return q.noise(key, (steps, size, 1, *event))

        return Noise(
            latents(keys[0], posterior_steps),
            latents(keys[1], objective.unrolled),
            objective.draw(keys[2], state.model, q, batch),
        )

    def descend(model: EBLVM, posterior: Posterior, state: Any, v: Array, features: Any, noise: Array):
        """Adam steps of q on its divergence, one for each row of noise: (posterior, state, divergences)."""
        params, static = eqx.partition(posterior, eqx.is_inexact_array)

        def step(carry: tuple[Any, Any], noise: Array):
            params, state = carry
            loss = lambda params: jnp.mean(divergence.at(model, eqx.combine(params, static), features, v, noise))
            value, gradient = jax.value_and_grad(loss)(params)
            return _apply(posterior_optimiser, gradient, state, params), value

        (params, state), values = jax.lax.scan(step, (params, state), noise, unroll=True)  # few, short steps
        return eqx.combine(params, static), state, values

    def update(state: LearnerState, batch: Array, noise: Noise) -> tuple[LearnerState, Metrics]:
        model, posterior, posterior_state = state.model, state.posterior, state.posterior_optimiser
        points = objective.points(batch, noise.objective)
        encoding = encode(model, points.v)
        metrics = {}
        if noise.posterior is not None:
            posterior, posterior_state, divergences = descend(
                model, posterior, posterior_state, points.v, encoding.features, noise.posterior
            )
            metrics["divergence"] = divergences[-1]

        def advance(model: EBLVM) -> Posterior:
            if noise.unrolled is None:
                return posterior
            features = jax.vmap(model.features)(points.v)
            return descend(model, posterior, posterior_state, points.v, features, noise.unrolled)[0]

        problem = Problem(model, posterior, state.extra, state.memory, batch, points, encoding, advance)
        loss, gradient, memory = objective.gradient(problem, noise.objective)
        metrics = {"loss": loss, **metrics, "gradient_norm": optax.tree.norm(gradient)}
        (model, extra), optimiser_state = _apply(optimiser, gradient, state.optimiser, (model, state.extra))
        return LearnerState(model, posterior, extra, memory, optimiser_state, posterior_state), metrics

    return Learner(init, draw, update)


def _adam(learning_rate: float | optax.Schedule, b1: float, b2: float) -> optax.GradientTransformation:
    # eps_root keeps the derivative of an unrolled step finite where a second moment is zero
    return optax.adam(learning_rate, b1=b1, b2=b2, eps_root=1e-16)


def _apply(optimiser: optax.GradientTransformation, gradient: Any, state: Any, module: Any) -> tuple[Any, Any]:
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to an integer power
        updates, state = optimiser.update(gradient, state)
    return eqx.apply_updates(module, updates), state


def _trainable(module: Any) -> Any:
    return eqx.filter(module, eqx.is_inexact_array)


def _shape_of_q(state: LearnerState, batch: Array) -> Distribution:
    def q(model, posterior, v):
        return infer(posterior, model, jax.vmap(model.features)(v), v)

    return eqx.filter_eval_shape(q, state.model, state.posterior, batch)
