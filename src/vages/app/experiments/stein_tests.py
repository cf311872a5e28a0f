"""Level and power of the Stein tests as the model departs from the data, with the exact score and with VaES.

A GRBM with few latents can be sampled exactly, so that thousands of data sets are cheap. Each is tested against the
GRBM itself, against perturbed ones, and with VaES in place of the score: with samples of the posterior, and with
samples of a q increasingly far from it. The tests are those of the library, on many data sets at once.
"""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.report import GridPanel, grid_figure
from vages.evaluation.critic import MLPCritic
from vages.evaluation.critic_training import CriticTraining, advance_critic, start_critic, terms_of
from vages.evaluation.kernels import IMQ, RBF, median_distance
from vages.evaluation.posterior_gap import posterior_gap
from vages.evaluation.scores import Score, VariationalScore, as_score
from vages.evaluation.signs import random_signs
from vages.evaluation.stein import ksd_sums
from vages.models import GRBM
from vages.posteriors import BernoulliPosterior

LEVEL = 0.05
SOME = 50  # examples whose median distance is the bandwidth; sorting all pairs would be most of the cost
KERNELS = {"KSD, RBF": RBF(), "KSD, IMQ": IMQ()}
TESTS = (*KERNELS, "learned Stein")


@dataclass(frozen=True)
class Settings:
    """Numbers of data sets and of examples in each; perturbations of the model, and of the posterior's logits."""

    sets: int = 2000
    examples: int = 200
    replicates: int = 500
    v_dim: int = 5
    h_dim: int = 4
    perturbations: tuple[float, ...] = (0.0, 0.03, 0.06, 0.12, 0.25)  # the first is 0
    gaps: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8)  # the first is 0
    critic_width: int = 16
    critic_steps: int = 200


PAPER = Settings()
QUICK = replace(
    PAPER, sets=1000, examples=100, replicates=200, perturbations=(0.0, 0.1, 0.3), gaps=(0.0, 0.8), critic_steps=100
)


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Compute the rejection rates of every test at every perturbation, with the exact score and with VaES."""
    settings = QUICK if quick else PAPER
    for_model, for_noise, for_gap, for_sets = jax.random.split(jax.random.key(seed), 4)
    data = GRBM.init(for_model, settings.v_dim, settings.h_dim)
    data = eqx.tree_at(lambda model: model.weight, data, 2 * data.weight)
    noise = GRBM(*_normal_like(for_noise, data))
    direction = jax.random.normal(for_gap, data.latent_bias.shape)
    models = {x: perturbed(data, noise, x) for x in settings.perturbations}
    posteriors = {x: shifted_posterior(data, x * direction) for x in settings.gaps}
    scores: dict[tuple[str, float], Score] = {("exact", x): model.score for x, model in models.items()}
    scores |= {("VaES", x): VariationalScore(model, shifted_posterior(model)) for x, model in models.items()}
    scores |= {("gap", x): VariationalScore(data, q) for x, q in posteriors.items() if x}
    rates: dict[str, dict[str, list[float]]] = {test: {"exact": [], "VaES": [], "gap": []} for test in TESTS}
    for test in TESTS:
        for (kind, x), score in scores.items():
            p_values = np.asarray(_p_values(for_sets, data, score, test, settings))
            rejected = np.where(np.isfinite(p_values), p_values <= LEVEL, np.nan)
            rates[test][kind].append(float(np.mean(rejected)))
            say(f"{test}, {kind} {x}: rejected {rates[test][kind][-1]:.3f} of {settings.sets}")
        rates[test]["gap"].insert(0, rates[test]["VaES"][0])
    v = exact_samples(for_sets, data, 1000)
    kl = [posterior_gap(for_gap, data, q, v).kl for q in posteriors.values()]
    return Outcome(
        settings=asdict(settings),
        claims=[claim for test in TESTS for claim in _claims(test, rates[test], settings.sets)],
        measurements={"rejection rates": rates, "KL of q": [gap and gap.mean for gap in kl]},
        figures={"stein-tests": _figure(rates, settings)},
    )


def perturbed(model: GRBM, noise: GRBM, level: float) -> GRBM:
    """Return the model with `level` times the noise added to W, b and c."""
    parts = jax.tree.map(lambda x, y: x + level * y, model, noise)
    return eqx.tree_at(lambda parts: parts.log_sigma, parts, model.log_sigma)


def shifted_posterior(model: GRBM, shift: Array | None = None) -> BernoulliPosterior:
    """The posterior of a GRBM as a fully connected layer with hard samples, its logits shifted."""
    layer = eqx.nn.Linear(model.v.shape[0], model.h.shape[0], key=jax.random.key(0))
    bias = model.latent_bias if shift is None else model.latent_bias + shift
    layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (model.weight.T, bias))
    return BernoulliPosterior(layer, temperature=0.0)


def exact_samples(key: PRNGKeyArray, model: GRBM, n: int) -> Float[Array, "n v"]:
    """Draw independent samples of p(v): h by enumeration, then v given h."""
    for_h, for_v = jax.random.split(key)
    states, center = model.h.states(model.weight.dtype), model.visible_bias
    features = model.features(center)
    log_mass = jax.vmap(lambda h: model.log_joint(features, h) - model.conditional(h).log_prob(center))(states)
    h = states[jax.random.categorical(for_h, log_mass, shape=(n,))]
    return jax.vmap(model.conditional)(h).draw(for_v)


@eqx.filter_jit
def _p_values(key: PRNGKeyArray, data: GRBM, score: Score, test: str, settings: Settings) -> Float[Array, "sets"]:
    """Return the p-value of each data set; the data sets are the same for every score and test."""
    own = as_score(score)

    def one(key: PRNGKeyArray) -> Float[Array, ""]:
        for_data, for_test = jax.random.split(key)
        v = exact_samples(for_data, data, settings.examples)
        return _ksd(for_test, own, v, test, settings) if test in KERNELS else _learned(for_test, own, v, settings)

    return jax.lax.map(one, jax.random.split(key, settings.sets), batch_size=min(settings.sets, 50))


def _ksd(key: PRNGKeyArray, score: Any, v: Array, test: str, settings: Settings) -> Float[Array, ""]:
    for_score, for_weights = jax.random.split(key)
    scores = score(for_score, v)
    weights = random_signs(for_weights, (settings.replicates, len(v)), v.dtype)
    bandwidth = median_distance(v[:SOME])
    statistic, _, bootstrap = ksd_sums(KERNELS[test], v, scores, bandwidth, weights)
    p_value = (1 + jnp.sum((bootstrap >= statistic).astype(v.dtype))) / (1 + settings.replicates)
    return jnp.where(jnp.isfinite(statistic), p_value, jnp.nan)


def _learned(key: PRNGKeyArray, score: Any, v: Array, settings: Settings) -> Float[Array, ""]:
    """Train the critic on one half of the examples and test on the other; q is not trained."""
    how = CriticTraining(settings.critic_steps, batch=50, learning_rate=5e-3, posterior_steps=0)
    for_critic, for_order, for_noise, for_test = jax.random.split(key, 4)
    train, test = jnp.split(v, 2)
    critic = MLPCritic(for_critic, settings.v_dim, width=settings.critic_width, hidden_layers=1)
    indices = jax.random.randint(for_order, (how.steps, how.batch), 0, len(train))
    state = start_critic(critic, score, how)
    state = advance_critic(state, score, train, indices, for_noise, jnp.asarray(0, jnp.int32), how)
    stein = terms_of(for_test, state, score, test, how).stein
    z = jnp.mean(stein) / (jnp.std(stein, ddof=1) / len(stein) ** 0.5)
    return jax.scipy.stats.norm.sf(z)


def _claims(test: str, rates: dict[str, list[float]], sets: int) -> list[Claim]:
    """Return the claims on a test. A rise of false rejections counts from three standard errors of its chance on."""
    off = lambda rate: abs(rate - LEVEL)
    names = {"exact": "the exact score", "VaES": "VaES"}
    claims = []
    for kind, name in names.items():
        tail = f"(distance of the rejection rate, {rates[kind][0]:.3f}, from {LEVEL})"
        claims += [
            Claim.at_most(f"{test}, {name}: the test holds its level {tail}", off(rates[kind][0]), 0.015),
            Claim.above(
                f"{test}, {name}: power rises with the perturbation (least rise)", least_rise(rates[kind]), 0.0
            ),
        ]
    lost = rates["gap"][-1] - rates["gap"][0]
    chance = 3 * (2 * LEVEL * (1 - LEVEL) / sets) ** 0.5
    claims.append(Claim.above(f"{test}, VaES: the level is lost as q is made worse (rise of the rate)", lost, chance))
    return claims


def least_rise(rates: list[float]) -> float:
    """Return the least rise from one rate to the next, except from 1 to 1, where no rate can rise; 0 if there is none.

    A rate that is NaN makes it NaN.
    """
    rises = [after - before for before, after in pairwise(rates) if not before == after == 1]
    return float(np.min(rises)) if rises else 0.0


def _figure(rates: dict[str, dict[str, list[float]]], settings: Settings):
    axes = {
        "exact": ("perturbation of the model", settings.perturbations),
        "VaES": ("perturbation of the model, VaES", settings.perturbations),
        "gap": ("perturbation of q, VaES", settings.gaps),
    }
    return grid_figure(
        [
            GridPanel(label, "rejection rate", {test: (np.array(x), np.array(rates[test][kind])) for test in TESTS})
            for kind, (label, x) in axes.items()
        ],
        columns=3,
    )


def _normal_like(key: PRNGKeyArray, model: GRBM) -> list[Array]:
    leaves = jax.tree.leaves(model)
    return [jax.random.normal(key, x.shape) for key, x in zip(jax.random.split(key, len(leaves)), leaves, strict=True)]
