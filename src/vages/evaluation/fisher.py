"""The exact Fisher divergence between data and a model, by a critic (VaGES-Fisher, Sec. 5).

    D(p_D ‖ p) = ½ E ‖∇ log p − ∇ log p_D‖² = max_f E[∇ log p(v)ᵀ f(v) + εᵀ(∂f/∂v)ε − ½ ‖f(v)‖²]         (Theorem 5)

The maximum is at f = ∇ log p − ∇ log p_D. A critic is trained on training data and evaluated on test data, so that the
result is a lower bound, up to its standard error. Its bias is −½ E ‖f − (∇ log p − ∇ log p_D)‖².
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.checks import check_numbers, struct_of
from vages.data import Batches
from vages.distributions import check_key
from vages.evaluation.critic import MLPCritic
from vages.evaluation.critic_training import (
    CriticState,
    CriticTraining,
    SteinTerms,
    advance_critic,
    function_of_v,
    start_critic,
    terms_of,
)
from vages.evaluation.estimate import Estimate
from vages.evaluation.scores import (
    FunctionScore,
    Score,
    VariationalScore,
    as_score,
    check_examples,
    check_score,
    score_batch,
)
from vages.samplers.program import Progress

LEAST = 10  # least number of examples in each part


class FisherDivergence(NamedTuple):
    """Estimates on test data by the last critic, and by the one that was best on validation data.

    If the best value on validation data is not above two standard errors, f = 0 replaces the best critic, with value
    and error 0 at iteration 0, because the largest of many estimates is above 0 by chance. `validation` holds pairs
    (iteration, estimate). `posterior` is q as learned with the last critic.
    """

    last: Estimate
    best: Estimate
    best_step: int
    validation: list[tuple[int, Estimate]]
    critic: Any
    posterior: Any

    @property
    def informative(self) -> bool:
        """Whether a critic found a difference. If not, the model may still be wrong, and `best` is uninformative."""
        return self.best_step > 0


def fisher_divergence(
    key: PRNGKeyArray,
    score: Score,
    train: Array,
    validation: Array,
    test: Array,
    *,
    critic: Any = None,
    how: CriticTraining | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> FisherDivergence:
    """Estimate the Fisher divergence between the distribution of the examples and the model with this score.

    `score` is a function of one example, such as a model's `score`, or a `VariationalScore`, whose q is trained with
    the critic if it has parameters. `critic` is a module from an example to an array of its shape, by default an
    `MLPCritic`, or a `LatentCritic`, which also takes E_q[h | v]. Settings of `CriticTraining` may be given by name.
    The standard error covers the test examples, their h and ε, but not the training of the critic.
    """
    check_key(key)
    check_numbers("train", train, floating=False)
    check_part("test", test, train)
    key, for_test = jax.random.split(key)
    trained = train_critic(
        key, score, train, validation, critic=critic, how=with_settings(how, settings), progress=progress
    )
    history = [(step, _value(terms)) for step, terms in trained.validation]
    mean, error = dict(history)[trained.best_step]
    on_test = lambda state: _value(evaluate_critic(for_test, state, trained, test))
    last = on_test(trained.last)
    if mean <= 2 * error:
        nothing = jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, trained.best.critic)
        return FisherDivergence(last, Estimate(0.0, 0.0), 0, history, nothing, trained.last.posterior)
    best = on_test(trained.best)
    return FisherDivergence(last, best, trained.best_step, history, trained.best.critic, trained.last.posterior)


class TrainedCritic(NamedTuple):
    """The state after the last iteration, and the one that was best on validation data."""

    last: CriticState
    best: CriticState
    best_step: int
    validation: list[tuple[int, SteinTerms]]
    score: VariationalScore | FunctionScore
    how: CriticTraining


def train_critic(
    key: PRNGKeyArray,
    score: Score,
    train: Array,
    validation: Array,
    *,
    critic: Any,
    how: CriticTraining,
    progress: Progress | None,
    merit: Callable[[SteinTerms], float] = lambda terms: float(np.mean(terms.stein - terms.penalty)),
) -> TrainedCritic:
    """Train a critic in chunks; after each, compare its `merit` on validation data with the best so far."""
    own = as_score(score)
    check_examples("train", train, max(LEAST, how.batch))
    check_part("validation", validation, train)
    check_score(own, train)
    for_critic, for_order, for_noise, for_validation, for_scores = jax.random.split(key, 5)
    critic = MLPCritic(for_critic, train.shape[1:]) if critic is None else critic
    _check_critic(critic, own, train)
    state = best = start_critic(critic, own, how)
    batches = Batches(len(train), how.batch, int(jax.random.bits(for_order)))
    known = None if how.scores == "fresh" else score_batch(for_scores, score, train)
    best_step, highest, history = 0, -math.inf, []
    ends = np.unique(np.linspace(0, how.steps, min(how.checks, how.steps) + 1).astype(int))
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        indices = jnp.asarray(batches.indices(begin, end - begin))
        state = _advance(state, own, train, indices, for_noise, jnp.asarray(begin, jnp.int32), how, known)
        terms = _terms(for_validation, state, own, validation, how)
        value = float(merit(terms))
        if not math.isfinite(value):
            raise ValueError(
                f"critic: expected finite values on validation data, got {value} at iteration {end}; "
                f"lower the learning rate, {how.learning_rate}, or look at the score"
            )
        history.append((end, terms))
        if value > highest:
            best, best_step, highest = state, end, value
        if progress is not None:
            with contextlib.suppress(Exception):  # a failing progress bar must not stop the training
                progress(end, how.steps)
    return TrainedCritic(state, best, best_step, history, own, how)


def check_part(name: str, v: Array, train: Array) -> None:
    """Raise ValueError unless v is a batch of examples like the training data."""
    check_examples(name, v, LEAST)
    if v.shape[1:] != train.shape[1:] or v.dtype != train.dtype:
        raise ValueError(
            f"{name}: expected examples like those of train, {train.dtype}{list(train.shape[1:])}, "
            f"got {v.dtype}{list(v.shape[1:])}"
        )


def evaluate_critic(key: PRNGKeyArray, state: CriticState, trained: TrainedCritic, v: Array) -> SteinTerms:
    """Return the terms of Eq. 22 at examples that the critic was not trained on."""
    return _terms(key, state, trained.score, v, trained.how)


def with_settings(how: CriticTraining | None, settings: dict[str, Any]) -> CriticTraining:
    """Return `how`, by default the paper's settings, with `settings` replaced by name."""
    return replace(CriticTraining() if how is None else how, **settings)


def _check_critic(critic: Any, score: VariationalScore | FunctionScore, train: Array) -> None:
    shape = eqx.filter_eval_shape(function_of_v(critic, score), struct_of(train, drop=1)).shape
    if shape != train.shape[1:]:
        raise ValueError(f"critic: expected an array like an example, of shape {train.shape[1:]}, got {shape}")


def _value(terms: SteinTerms) -> Estimate:
    return Estimate.of(terms.stein - terms.penalty)


_advance = eqx.filter_jit(advance_critic)
_terms = eqx.filter_jit(terms_of)
