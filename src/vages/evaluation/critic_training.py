"""Training of a critic f in compiled chunks: Adam maximizes E[sᵀf + εᵀ(∂f/∂v)ε − ½ ‖f‖²] (Eq. 22) and trains q(h | v).

The noise of an iteration depends only on the key and the iteration's number. The noise of a block of iterations is
drawn in one call.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vages.blocks import scan_in_blocks
from vages.checks import check_count, struct_of
from vages.distributions import flat_noise
from vages.evaluation.critic import LatentCritic
from vages.evaluation.scores import NUMBERS, FunctionScore, VariationalScore
from vages.evaluation.signs import random_signs
from vages.hoist import hoist
from vages.models import encode
from vages.optimizers import Decay, adam, apply, learning_rate, start
from vages.posteriors import Posterior, has_parameters, kl

Hutchinson = Literal["rademacher", "gaussian"]


@dataclass(frozen=True)
class CriticTraining:
    """Settings for training a critic; the defaults are the paper's (Appendix F.3). With K = 0, q is not trained."""

    steps: int = 20_000
    batch: int = 100
    learning_rate: float = 2e-4
    decay: Decay = "constant"  # schedule of both learning rates; all but "constant" end at 0
    posterior_steps: int = 5  # K Adam steps on KL(q ‖ p) up to a constant, before each step of the critic
    posterior_learning_rate: float | None = None  # None: the critic's
    hutchinson: Hutchinson = "rademacher"
    b2: float = 0.999
    checks: int = 20  # number of evaluations of the critic on validation data
    scores: Literal["fresh", "once"] = "fresh"  # of training data: at each iteration, or once if q is not trained

    def __post_init__(self):
        for name, least in (("steps", 1), ("batch", 1), ("checks", 1), ("posterior_steps", 0)):
            check_count(name, getattr(self, name), least, "give more")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: expected a positive number, got {self.learning_rate}; give 1e-3, say")
        if self.scores not in ("fresh", "once"):
            raise ValueError(f"scores: expected fresh or once, got {self.scores!r}; choose one")
        if self.scores == "once" and self.posterior_steps:
            raise ValueError(
                f"posterior_steps: expected 0 with scores that are computed once, got {self.posterior_steps}; give 0"
            )
        if self.hutchinson not in ("rademacher", "gaussian"):
            raise ValueError(f"hutchinson: expected rademacher or gaussian, got {self.hutchinson!r}; choose one")


class CriticState(NamedTuple):
    """The state of training; `posterior` is None if the score is a function."""

    critic: Any
    posterior: Any
    optimizer: Any
    posterior_optimizer: Any
    step: Int[Array, "..."]  # number of iterations done


def start_critic(critic: Any, score: VariationalScore | FunctionScore, how: CriticTraining) -> CriticState:
    """Return the state before the first iteration."""
    posterior = score.posterior if isinstance(score, VariationalScore) else None
    optimizer, posterior_optimizer = _optimizers(how)
    states = start(optimizer, critic), start(posterior_optimizer, posterior)
    return CriticState(critic, posterior, *states, jnp.zeros((), jnp.int32))


def advance_critic(
    state: CriticState,
    score: VariationalScore | FunctionScore,
    data: Array,
    indices: Int[Array, "n batch"],
    key: PRNGKeyArray,
    start: Int[Array, ""],
    how: CriticTraining,
    scores: Array | None = None,
) -> CriticState:
    """Run one iteration for each row of `indices`, which selects rows of `data`, and of `scores` if given."""
    params, static = eqx.partition(state, eqx.is_array)
    known = (data,) if scores is None else (data, scores)

    def step(key, params, rows):
        return eqx.filter(_step(key, eqx.combine(params, static), score, how, *rows), eqx.is_array)

    batch = tuple(struct_of(x, indices.shape[1], drop=1) for x in known)
    draw, update = hoist(step, key, params, batch)
    iterate = lambda noise, params, rows: (update(noise, params, tuple(x[rows] for x in known)), None)
    params, _ = scan_in_blocks(draw, iterate, params, indices, key, start)
    return eqx.combine(params, static)


class SteinTerms(NamedTuple):
    """The terms at each example: sᵀf + εᵀ(∂f/∂v)ε, with mean 0 if the model is correct, and ½ ‖f‖²."""

    stein: Float[Array, "n"]
    penalty: Float[Array, "n"]


def function_of_v(
    critic: Any, score: VariationalScore | FunctionScore, posterior: Posterior | None = None
) -> Callable[[Array], Array]:
    """Return the critic as a function of v. A `LatentCritic` takes the mean of `posterior`, or of the score's q."""
    if not isinstance(critic, LatentCritic):
        return critic
    if not isinstance(score, VariationalScore):
        raise ValueError(
            "critic: expected one of v alone with a score that is a function, got a LatentCritic, which reads "
            "E_q[h | v]; give a VariationalScore or an MLPCritic"
        )
    model, q = score.model, score.posterior if posterior is None else posterior
    return lambda v: critic(v, q(model, model.features(v), v).mean)


def stein_terms(critic: Callable[[Array], Array], score: Array, v: Array, probe: Array) -> SteinTerms:
    """Return the terms of Eq. 22 from scores and ε, both shaped like v, by one push-forward along ε."""
    value, slope = jax.jvp(jax.vmap(critic), (v,), (probe,))
    add = lambda x: jnp.sum(x.reshape(len(x), -1), axis=1)
    return SteinTerms(add(score * value + probe * slope), 0.5 * add(value**2))


def terms_of(
    key: PRNGKeyArray, state: CriticState, score: VariationalScore | FunctionScore, v: Array, how: CriticTraining
) -> SteinTerms:
    """Return the terms at held-out examples, with one set of h and one ε for each, in blocks of bounded memory."""
    for_score, for_probe = jax.random.split(key)
    own = _with_posterior(score, state.posterior)
    critic = function_of_v(state.critic, own)

    def one(row):
        key, v, probe = row
        terms = stein_terms(critic, own(key, v[None]), v[None], probe[None])
        return jax.tree.map(lambda x: x[0], terms)

    rows = (jax.random.split(for_score, len(v)), v, _probe(for_probe, v, how.hutchinson))
    with jax.default_matmul_precision("float32"):
        return jax.lax.map(one, rows, batch_size=min(len(v), max(1, NUMBERS // max(v[0].size, 1))))


def _with_posterior(score: VariationalScore | FunctionScore, posterior: Posterior | None):
    return replace(score, posterior=posterior) if isinstance(score, VariationalScore) else score


def _probe(key: PRNGKeyArray, v: Array, hutchinson: Hutchinson) -> Array:
    if hutchinson == "gaussian":
        return flat_noise(jax.random.normal, key, v.shape, v.dtype)
    return random_signs(key, v.shape, v.dtype)


def _step(
    key: PRNGKeyArray,
    state: CriticState,
    score: VariationalScore | FunctionScore,
    how: CriticTraining,
    v: Array,
    scores: Array | None = None,
) -> CriticState:
    for_posterior, for_score, for_probe = jax.random.split(key, 3)
    probe = _probe(for_probe, v, how.hutchinson)
    optimizer, posterior_optimizer = _optimizers(how)
    critic, posterior, critic_state, posterior_state, _ = state
    factor = jnp.ones((), jnp.float32)
    if scores is None and isinstance(score, VariationalScore) and posterior is not None:
        model, encoding = score.model, encode(score.model, v)
        gap = lambda posterior, key: jnp.mean(kl(key, model, posterior, encoding))
        steps = how.posterior_steps if has_parameters(posterior) else 0
        for key in jax.random.split(for_posterior, steps):
            gradient = eqx.filter_grad(gap)(posterior, key)
            posterior, posterior_state = apply(
                posterior_optimizer, gradient, posterior_state, posterior, state.step, factor
            )
        scores = replace(score, posterior=posterior)(for_score, encoding)
    elif scores is None:
        scores = score(for_score, v)

    def loss(critic):
        terms = stein_terms(function_of_v(critic, score, posterior), scores, v, probe)
        return jnp.mean(terms.penalty - terms.stein)

    gradient = eqx.filter_grad(loss)(critic)
    critic, critic_state = apply(optimizer, gradient, critic_state, critic, state.step, factor)
    return CriticState(critic, posterior, critic_state, posterior_state, state.step + 1)


def _optimizers(how: CriticTraining):
    rate = how.learning_rate if how.posterior_learning_rate is None else how.posterior_learning_rate
    own, of_posterior = (learning_rate(peak, decay=how.decay, steps=how.steps) for peak in (how.learning_rate, rate))
    return adam(own, b2=how.b2), adam(of_posterior, b2=how.b2)
