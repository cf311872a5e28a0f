"""Learners combine an objective with optimizers for model and posterior: `init` and `step`.

    learner = Learner(DSM(sigma=0.05), learning_rate=1e-3)
    state = learner.init(key, model, posterior, batch=100)
    state, metrics = learner.step(key, state, Batch(v))

`step` draws noise where it needs it. `vages.hoist` splits off what depends on the key alone, and `fit` draws that for
many iterations in one call.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, DTypeLike, Float, Int, Key, PRNGKeyArray, UInt32

from vages.checks import check_context, check_count, check_kind, check_number, check_numbers, struct_of
from vages.distributions import check_key
from vages.hoist import hoist
from vages.models import EBLVM, Encoding, Mixed, encode
from vages.models.mixed import dtype_of, is_narrow
from vages.objectives import Batch, Given, Metrics, Objective, as_objective
from vages.objectives.objective import check_loss, check_metric_names, check_points, check_start
from vages.optimizers import Rate, apply, as_optimizer, check_differentiable, start, trainable
from vages.posteriors import Divergence, MixedPosterior, Posterior, check_contract, has_parameters, kl


class Averages(NamedTuple):
    """Exponential moving averages of the parameters."""

    model: Any
    posterior: Any


class LearnerState(NamedTuple):
    """The state that an iteration reads and writes."""

    model: Any
    posterior: Any
    extras: Any  # what the objective trains in addition to the model
    carry: Any  # what the objective passes from batch to batch
    optimizer: Any
    posterior_optimizer: Any
    averages: Averages | None
    step: Int[Array, "..."]  # iterations made
    rate: Float[Array, "..."]  # a factor of both learning rates; below 1 after recovery from divergence
    more_averages: tuple[Averages, ...] = ()  # for the other decays, if there are several


@dataclass(frozen=True, eq=False)
class Learner:
    """Training step: on each batch, `posterior_steps` steps of q, then one step of θ on the objective.

    `optimizer` is any Optax optimizer; `learning_rate`, a number or a schedule, is short for Adam (`vages.adam`). The
    posterior uses the same optimizer with its own state, or `posterior_optimizer`. Schedules of both count iterations.
    A posterior without parameters is not trained.

    With `ema`, averages of model and posterior are kept with that decay, or a smaller one in the first iterations. With
    several decays, the first is the one that is evaluated, selected and used, and `learner.averages(state)` returns all
    of them by decay.

    `compute_dtype`, for example bfloat16, is used for features and for the posterior's network. Parameters, energies
    and everything that is accumulated keep their dtype.
    """

    objective: Any
    optimizer: Any = None
    posterior_optimizer: Any = None
    _: KW_ONLY
    learning_rate: Rate | None = None
    posterior_steps: int = 5
    divergence: Divergence = kl
    ema: float | tuple[float, ...] | None = None
    compute_dtype: DTypeLike | None = None
    _own: Objective = field(init=False, repr=False)
    _optimizers: tuple[optax.GradientTransformation, optax.GradientTransformation] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_own", as_objective(self.objective))
        if self.optimizer is None and self.learning_rate is None:
            raise ValueError(
                "optimizer: expected one of Optax, or a learning_rate for Adam, got neither; give 1e-3, say"
            )
        optimizer = as_optimizer("optimizer", self.optimizer, self.learning_rate)
        other = self.posterior_optimizer
        both = optimizer, optimizer if other is None else as_optimizer("posterior_optimizer", other)
        object.__setattr__(self, "_optimizers", both)
        if self._own.unrolled:
            check_differentiable("posterior_optimizer", both[1])
        check_count("posterior_steps", self.posterior_steps, 0, "give 5, say")
        check_kind("divergence", self.divergence, Divergence, "a Divergence", "give vages.kl or vages.fisher itself")
        for decay in self._decays:
            if not 0 <= decay < 1:
                raise ValueError(f"ema: expected a decay from 0 to below 1, got {decay}; 0.999 is usual")
        if self.ema == () or len(set(self._decays)) < len(self._decays):
            raise ValueError(f"ema: expected decays that differ, got {self.ema}; None keeps no averages")
        self._check_dtype(self._own)

    @property
    def optimizers(self) -> tuple[Any, Any]:
        """The optimizers of the model and of the posterior."""
        return self._optimizers

    @property
    def _decays(self) -> tuple[float, ...]:
        return () if self.ema is None else self.ema if isinstance(self.ema, tuple) else (self.ema,)

    def averages(self, state: LearnerState) -> dict[float, Averages]:
        """Return the averages of model and posterior by decay. The dict is empty without `ema`."""
        kept = () if state.averages is None else (state.averages, *state.more_averages)
        return dict(zip(self._decays, kept, strict=True))

    def init(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, batch: int | np.integer, context: Any = None
    ) -> LearnerState:
        """Return the state before the first iteration on batches of this size."""
        self._check(key, model, posterior, batch, context)
        extras, carry = check_start(self._own.init(key, self._low_model(model), int(batch)))
        return LearnerState(
            model,
            posterior,
            extras,
            carry,
            start(self._optimizers[0], (model, extras)),
            start(self._optimizers[1], posterior),
            None if self.ema is None else Averages(model, posterior),
            jnp.zeros((), jnp.int32),
            jnp.ones((), jnp.float32),
            tuple(Averages(model, posterior) for _ in self._decays[1:]),
        )

    def step(self, key: PRNGKeyArray, state: LearnerState, batch: Batch) -> tuple[LearnerState, Metrics]:
        """Make one iteration on a batch, and return the new state and metrics."""
        check_key(key)
        check_kind("batch", batch, Batch, "a Batch", "write step(key, state, Batch(v))")
        check_numbers("batch.v", batch.v)
        if not batch.v.shape or not len(batch.v):
            raise ValueError(
                f"batch.v: expected at least one example, one per row, got shape {batch.v.shape}; leave the step out"
            )
        check_context(batch.context, len(batch.v))
        own, batch = self._own, _widened(batch, dtype_of(state.model))
        for_posterior, for_points, for_loss = jax.random.split(key, 3)
        model, posterior, posterior_state = self._low_model(state.model), state.posterior, state.posterior_optimizer
        points = own.perturb(for_points, batch)
        check_points(points, model.v.shape)
        encoding = own.encode(model, points)
        learns, metrics = has_parameters(posterior), {}
        for key in jax.random.split(for_posterior, self.posterior_steps) if learns and self.posterior_steps else ():
            posterior, posterior_state, metrics["divergence"] = self._descend(
                key, model, posterior, posterior_state, points, encoding, state
            )

        def loss(trained: tuple[EBLVM, Any]) -> tuple[Array, tuple[Metrics, Any]]:
            model, key, q = self._low_model(trained[0]), for_loss, posterior
            if own.unrolled:
                for_unrolled, key = jax.random.split(key)
                if learns:
                    q = self._unroll(for_unrolled, model, posterior, posterior_state, points, state)
            given = Given(batch, points, encoding, trained[1], state.carry)
            value, found, carry = check_loss(own.loss(key, model, self._low_posterior(q), given), state.carry)
            check_metric_names(found, tuple(metrics))
            check_number("objective", value, "take the mean over the batch, say", "whose gradient is followed")
            return value, ({"loss": value} | found, carry)

        trained = (state.model, state.extras)
        (_, (found, carry)), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(trained)
        metrics = found | metrics | {"gradient_norm": optax.tree.norm(gradient)}
        (after, extras), optimizer_state = apply(
            self._optimizers[0], gradient, state.optimizer, trained, state.step, state.rate
        )
        now = Averages(after, posterior)
        averages = [_averaged(decay, old, state, now) for decay, old in self.averages(state).items()]
        return LearnerState(
            after,
            posterior,
            extras,
            carry,
            optimizer_state,
            posterior_state,
            averages[0] if averages else None,
            state.step + 1,
            state.rate,
            tuple(averages[1:]),
        ), metrics

    def _low_model(self, model: EBLVM) -> EBLVM:
        return model if self.compute_dtype is None else Mixed(model, self.compute_dtype)

    def _low_posterior(self, posterior: Posterior) -> Posterior:
        return posterior if self.compute_dtype is None else MixedPosterior(posterior, self.compute_dtype)

    def _descend(
        self,
        key: PRNGKeyArray,
        model: EBLVM,
        posterior: Posterior,
        optimizer_state: Any,
        points: Any,
        at: Encoding,
        state: LearnerState,
    ) -> tuple[Posterior, Any, Array]:
        """Make a step of q on its divergence at the points: (posterior, the optimizer's state, divergence)."""

        def loss(posterior):
            gaps = self.divergence(key, model, self._low_posterior(posterior), at)
            return jnp.mean(gaps if points.weight is None else points.weight * gaps)

        value, gradient = eqx.filter_value_and_grad(loss)(posterior)
        return *apply(self._optimizers[1], gradient, optimizer_state, posterior, state.step, state.rate), value

    def _unroll(
        self,
        key: PRNGKeyArray,
        model: EBLVM,
        posterior: Posterior,
        optimizer_state: Any,
        points: Any,
        state: LearnerState,
    ) -> Posterior:
        """Return the posterior after unrolled steps, as a function of the model. A loop keeps compilation fast."""
        params, static = eqx.partition(posterior, eqx.is_inexact_array)
        encoding = encode(model, points.v, points.context)

        def step(key, carry):
            after = self._descend(key, model, eqx.combine(carry[0], static), carry[1], points, encoding, state)
            return trainable(after[0]), after[1]

        first = (params, optimizer_state)
        draw, update = hoist(step, key, first)  # noise in a loop could not be split off
        noise = jax.vmap(draw)(jax.random.split(key, self._own.unrolled))
        carry, _ = jax.lax.scan(lambda carry, noise: (update(noise, carry), None), first, noise)
        return eqx.combine(carry[0], static)

    def _check(self, key: Any, model: Any, posterior: Any, batch: Any, context: Any) -> None:
        """Raise if a contract is violated or parts do not fit. Only shapes are computed, and no loss is traced."""
        order = "init takes (key, model, posterior, batch), in this order"
        check_kind("key", key, (Key[Array, ""], UInt32[Array, "_"]), "a key, jax.random.key(0) say", order)
        check_kind("model", model, EBLVM, "an EBLVM", order)
        check_kind("posterior", posterior, Posterior, "a Posterior", order)
        check_kind("batch", batch, int | np.integer, "a number of examples", order)
        check_count("batch", batch, 1, "give the size of the batches that step will be given")
        check_context(context, None)
        if model.h.size:  # without latents, the posterior is not used
            self._check_dtype(posterior)
        q = check_contract(model, posterior, jax.tree.map(lambda x: struct_of(x, drop=1), context))
        if (self.posterior_steps or self._own.unrolled) and has_parameters(posterior):
            self.divergence.check(posterior, q)
        self._own.check(model, q)
        if not any(map(eqx.is_inexact_array, jax.tree.leaves(model))):
            raise TypeError(
                f"model: expected floating arrays, which are trained, got {type(model).__name__} without any; write "
                "jnp.array([1.0, 2.0]), say, as lists, Python numbers and integers are constants"
            )

    def _check_dtype(self, part: Objective | Posterior) -> None:
        if self.compute_dtype is not None and part.closed_form:
            raise ValueError(
                f"compute_dtype: expected None with {type(part).__name__}, which asks the model for closed forms, "
                f"got {jnp.dtype(self.compute_dtype)}; leave it out"
            )


def _widened(batch: Batch, dtype: Any) -> Batch:
    """Cast 16-bit numbers to the dtype of the parameters, since noise and scores are computed in the dtype of v."""
    return jax.tree.map(lambda x: x.astype(dtype) if is_narrow(x) else x, batch)


def _averaged(decay: float, before: Averages, state: LearnerState, now: Averages) -> Averages:
    """Return the averages after this iteration. In the first iterations, the decay is smaller."""
    made = state.step.astype(state.rate.dtype)
    share = 1 - jnp.minimum(decay, (1 + made) / (10 + made))
    mix = lambda old, new: old + share.astype(new.dtype) * (new - old)
    return jax.tree.map(lambda old, new: mix(old, new) if eqx.is_inexact_array(new) else new, before, now)
