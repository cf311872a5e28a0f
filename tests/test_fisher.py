"""The Fisher divergence by a critic: Theorem 5 to round-off, trained critics against closed forms, invalid input."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from vages import GRBM, ExactPosterior, GaussianPosterior, LinearGaussian
from vages.evaluation import (
    CriticTraining,
    LatentCritic,
    MLPCritic,
    VariationalScore,
    fisher,
    fisher_divergence,
    score_batch,
)
from vages.evaluation.critic_training import (
    SteinTerms,
    _probe,
    advance_critic,
    function_of_v,
    start_critic,
    stein_terms,
    terms_of,
)
from vages.evaluation.scores import FunctionScore
from vages.posteriors import BernoulliPosterior, Corrector

KEY = jax.random.key(0)


def gaussian(seed, dim=3):
    """Mean, covariance and precision of a random Gaussian."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dim, dim)) / math.sqrt(dim)
    covariance = root @ root.T + 0.5 * np.eye(dim)
    return rng.normal(size=dim), covariance, np.linalg.inv(covariance)


def closed_form(data, model):
    """½ E ‖∇ log p − ∇ log p_D‖² of two Gaussians (mean, covariance, precision), by hand."""
    (m, covariance, a), (n, _, b) = data, model
    slope, constant = a - b, b @ n - a @ m  # the difference of the scores is slope·v + constant
    at_mean = slope @ m + constant
    return 0.5 * (at_mean @ at_mean + np.trace(slope @ covariance @ slope.T))


def sigma_points_and_signs(data):
    """Every pair of a point and a sign vector: means over them are exact for functions quadratic in both."""
    mean, covariance, _ = data
    steps = math.sqrt(len(mean)) * np.linalg.cholesky(covariance).T
    points = mean + np.concatenate([steps, -steps])
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(mean))))
    return [jnp.asarray(x) for x in (np.repeat(points, len(signs), 0), np.tile(signs, (len(points), 1)))]


def normal_score(parameters):
    mean, _, precision = (jnp.asarray(x) for x in parameters)
    return lambda v: -precision @ (v - mean)


def affine(matrix, bias):
    layer = eqx.nn.Linear(*matrix.shape[::-1], key=KEY)
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (jnp.asarray(matrix), jnp.asarray(bias)))


@pytest.mark.parametrize("seed", range(3))
def test_theorem_5(float64, seed):
    """For f = ∇ log p − ∇ log p_D the maximum form is the Fisher divergence; any other f is ½ E ‖f − f*‖² lower."""
    data, model = gaussian(seed), gaussian(seed + 10)
    v, signs = sigma_points_and_signs(data)
    scores = jax.vmap(normal_score(model))(v)
    best = data[2] - model[2], model[2] @ model[0] - data[2] @ data[0]
    truth = closed_form(data, model)
    terms = stein_terms(affine(*best), scores, v, signs)
    assert float(jnp.mean(terms.stein - terms.penalty)) == pytest.approx(truth, rel=1e-12)
    rng = np.random.default_rng(seed)
    other = best[0] + 0.3 * rng.normal(size=(3, 3)), best[1] + 0.3 * rng.normal(size=3)
    terms = stein_terms(affine(*other), scores, v, signs)
    short = 0.5 * np.mean(np.sum((np.asarray(v) @ (other[0] - best[0]).T + (other[1] - best[1])) ** 2, axis=1))
    assert float(jnp.mean(terms.stein - terms.penalty)) == pytest.approx(truth - short, rel=1e-12)


def test_the_terms_have_mean_zero_where_the_model_is_right(float64):
    data = gaussian(4)
    v, signs = sigma_points_and_signs(data)
    critic = affine(np.arange(9.0).reshape(3, 3), np.ones(3))
    terms = stein_terms(critic, jax.vmap(normal_score(data))(v), v, signs)
    assert float(jnp.mean(terms.stein)) == pytest.approx(0, abs=1e-12)


LINEAR = LinearGaussian(
    jnp.asarray([[0.5, -0.2], [0.1, 0.4], [-0.3, 0.3]]),
    jnp.asarray([0.3, -0.2, 0.1]),
    jnp.asarray([0.2, -0.4]),
    jnp.zeros(()),
)
FLAT = CriticTraining(steps=2000, batch=500, learning_rate=2e-3, posterior_steps=2, checks=5)


def linear_gaussian_truth(data):
    precision = np.asarray(LINEAR.marginal_precision(), np.float64)
    return closed_form(data, (np.asarray(LINEAR.marginal_mean(), np.float64), None, precision))


@pytest.mark.parametrize("way", ["exact", "learnt"])
def test_linear_gaussian_model_against_the_closed_form(way):
    """A linear critic can be exact. Five standard errors, and 2 % below for the noise of training: rate 1e-6."""
    data = gaussian(1)
    v = jnp.asarray(np.random.default_rng(0).multivariate_normal(*data[:2], size=9000), jnp.float32)
    score = {
        "exact": LINEAR.score,
        "learnt": VariationalScore(LINEAR, GaussianPosterior.linear(KEY, 3, 2), samples=2),
    }[way]
    found = fisher_divergence(
        KEY, score, v[:5000], v[5000:6000], v[6000:], critic=eqx.nn.Linear(3, 3, key=KEY), how=FLAT
    )
    truth = linear_gaussian_truth(data)
    for estimate in (found.last, found.best):
        assert 0 < estimate.error < 0.05 * truth
        assert -5 * estimate.error - 0.02 * truth < estimate.mean - truth < 5 * estimate.error
    assert found.best_step in (400, 800, 1200, 1600, 2000)
    assert [step for step, _ in found.validation] == [400, 800, 1200, 1600, 2000]
    assert found.best.mean != pytest.approx(found.validation[-1][1].mean, rel=1e-6)  # other examples and other noise
    if way == "learnt":
        q = jax.vmap(lambda v: found.posterior(LINEAR, None, v))(v[:100])
        p = jax.vmap(lambda v: LINEAR.posterior(LINEAR.features(v)))(v[:100])
        assert float(jnp.abs(q.mean - p.mean).max()) < 0.25
        assert float(jnp.abs(q.variance - 1).max()) < 0.25


def test_a_model_that_is_right_has_divergence_zero_by_the_critic_that_is_zero():
    v = jnp.asarray(np.random.default_rng(1).normal(size=(700, 3)), jnp.float32)
    found = fisher_divergence(
        KEY, lambda v: -v, v[:500], v[500:600], v[600:], steps=50, checks=5, hutchinson="gaussian"
    )
    assert (found.best, found.best_step) == ((0.0, 0.0), 0)
    assert float(jnp.abs(found.critic(v[0])).max()) == 0
    assert found.last.mean < 0  # any critic other than zero is worse


@pytest.mark.parametrize(("spread", "kept"), [(6.0, False), (4.0, True)])
def test_a_critic_has_to_beat_zero_by_two_errors(monkeypatch, spread, kept):
    """The critic's validation mean is 1 with a standard error of a tenth of the spread."""
    v = jnp.asarray(np.random.default_rng(1).normal(size=(20, 3)), jnp.float32)
    score, how = FunctionScore(lambda v: 1 - v), CriticTraining()
    state = start_critic(affine(np.zeros((3, 3), np.float32), np.ones(3, np.float32)), score, how)
    signs = np.tile([1.0, -1.0], 50)
    terms = SteinTerms(jnp.asarray(1 + spread * signs), jnp.zeros(100))
    trained = fisher.TrainedCritic(state, state, 7, [(7, terms)], score, how)
    monkeypatch.setattr(fisher, "train_critic", lambda *args, **how: trained)
    found = fisher_divergence(KEY, score.function, v, v, v)
    assert found.best_step == (7 if kept else 0)
    assert (found.best == found.last) is kept
    assert found.last.mean == pytest.approx(1.5 - np.asarray(v, np.float64).sum(1).mean(), rel=1e-5)  # (1 − v)·1 − 3/2


def test_chunks_change_nothing(monkeypatch):
    """Cutting iterations into chunks, and noise into blocks, changes only round-off; other keys change the result."""
    model = GRBM.init(KEY, 4, 3)
    score = VariationalScore(model, BernoulliPosterior.linear(KEY, 4, 3))
    how = CriticTraining(batch=5, posterior_steps=1, learning_rate=1e-2)
    v = jnp.asarray(np.random.default_rng(2).normal(size=(30, 4)), jnp.float32)
    rows = jnp.asarray(np.random.default_rng(3).integers(0, 30, (12, 5)))
    start = start_critic(MLPCritic(KEY, 4, width=6, hidden_layers=1), score, how)
    at = lambda i: jnp.asarray(i, jnp.int32)
    advance = eqx.filter_jit(lambda state, rows, first, key: advance_critic(state, score, v, rows, key, first, how))
    whole = advance(start, rows, at(0), KEY)
    parts = advance(advance(start, rows[:6], at(0), KEY), rows[6:], at(6), KEY)
    close = lambda a, b: all(
        np.allclose(x, y, atol=1e-5)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        if eqx.is_array(x)
    )
    assert close(whole, parts)
    monkeypatch.setattr("vages.blocks.NOISE_BYTES", 2000)
    assert close(whole, eqx.filter_jit(lambda s: advance_critic(s, score, v, rows, KEY, at(0), how))(start))
    assert not close(whole, advance(start, rows, at(0), jax.random.key(1)))
    assert not close(whole, advance(start, rows, at(1), KEY))


def test_scores_that_are_computed_once_are_those_of_each_iteration():
    """For a score without noise the critic is the same to round-off. A trained q is refused."""
    v = jnp.asarray(np.random.default_rng(2).normal(size=(60, 3)), jnp.float32)
    how = {"critic": MLPCritic(KEY, 3, width=6, hidden_layers=1), "steps": 6, "batch": 5, "checks": 1}
    how |= {"learning_rate": 1e-2, "posterior_steps": 0}
    fresh, once = (
        fisher_divergence(KEY, lambda v: 1 - 2 * v, v[:20], v[20:40], v[40:], scores=scores, **how)
        for scores in ("fresh", "once")
    )
    assert once.last == pytest.approx(fresh.last, rel=1e-4)
    with refused("posterior_steps", got=1):
        CriticTraining(scores="once", posterior_steps=1)


def test_a_critic_that_reads_the_latents_is_exact_for_a_grbm(float64):
    """For standard normal data, ∇ log p − ∇ log p_D = b + W E[h | v] is linear in the critic's input.

    The terms equal those of the same function of v written out, and reach the bound of Theorem 5 at each example.
    """
    rng = np.random.default_rng(4)
    weight, b, c = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 2), (3,), (2,)))
    model = GRBM(weight, b, c, jnp.zeros(()))
    critic = LatentCritic(KEY, 3, 2, width=4)
    critic = jax.tree.map(lambda x: jnp.zeros(x.shape) if eqx.is_array(x) else x, critic)
    exact = (jnp.concatenate([jnp.zeros((3, 3)), weight], axis=1), b)
    critic = eqx.tree_at(lambda critic: (critic.linear.weight, critic.linear.bias), critic, exact)
    v, signs = jnp.asarray(rng.normal(size=(6, 3))), jnp.asarray(rng.choice([-1.0, 1.0], (6, 3)))
    score = VariationalScore(model, ExactPosterior())
    terms = jax.jit(lambda v: stein_terms(function_of_v(critic, score), jax.vmap(model.score)(v), v, signs))(v)
    direction = lambda v: b + weight @ jax.nn.sigmoid(c + v @ weight)
    written = jax.jit(lambda v: stein_terms(direction, jax.vmap(model.score)(v), v, signs))(v)
    np.testing.assert_allclose(terms.stein, written.stein, rtol=1e-12)
    divergence = 0.5 * jnp.sum(jax.vmap(lambda v: model.score(v) + v)(v) ** 2, axis=1)
    np.testing.assert_allclose(terms.penalty, divergence, rtol=1e-12)
    other = function_of_v(critic, score, BernoulliPosterior(lambda v: jnp.zeros(2)))(v[0])
    np.testing.assert_allclose(other, b + weight @ jnp.full(2, 0.5), rtol=1e-12)


def test_a_critic_that_reads_the_latents_gets_nearer():
    """A GRBM far from the data, steep in h. After equally short training, the network of v alone is much lower."""
    model = GRBM(3 * jnp.ones((4, 4)) - 6 * jnp.eye(4), 3 * jnp.ones(4), jnp.zeros(4), jnp.zeros(()))
    v = jnp.asarray(np.random.default_rng(5).normal(size=(900, 4)), jnp.float32)
    score = VariationalScore(model, ExactPosterior())
    accurate = float(jnp.mean(0.5 * jnp.sum(jax.vmap(lambda v: model.score(v) + v)(v[500:]) ** 2, axis=1)))
    found = {}
    for critic in (MLPCritic(KEY, 4, width=8), LatentCritic(KEY, 4, 4, width=8)):
        how = CriticTraining(steps=400, batch=50, learning_rate=2e-2, decay="cosine", posterior_steps=0, checks=2)
        found[type(critic)] = fisher_divergence(
            KEY, score, v[:400], v[400:500], v[500:], critic=critic, how=how
        ).last.mean
    assert abs(found[LatentCritic] / accurate - 1) < 0.06
    assert found[MLPCritic] < found[LatentCritic]


def test_both_learning_rates_decay_to_zero_over_the_iterations():
    """Adam moves a parameter by about its learning rate: by half of it half-way, and by nothing at the end."""
    steps, rate = 8, 1e-3
    model = GRBM.init(KEY, 4, 3)
    score = VariationalScore(model, BernoulliPosterior.linear(KEY, 4, 3))
    how = CriticTraining(steps=steps, batch=5, posterior_steps=3, learning_rate=rate, decay="cosine")
    v = jnp.asarray(np.random.default_rng(2).normal(size=(5, 4)), jnp.float32)
    rows = jnp.arange(5)[None]
    advance = eqx.filter_jit(lambda state, i: advance_critic(state, score, v, rows, KEY, i, how))
    states = [start_critic(MLPCritic(KEY, 4, width=6, hidden_layers=1), score, how)]
    for i in range(steps + 1):
        states.append(advance(states[-1], jnp.asarray(i, jnp.int32)))
    for part, moves in (("critic", 1), ("posterior", 3)):
        leaves = [
            np.concatenate([x.ravel() for x in jax.tree.leaves(eqx.filter(getattr(s, part), eqx.is_array))])
            for s in states
        ]
        largest = [np.abs(after - before).max() for before, after in itertools.pairwise(leaves)]
        assert largest[0] == pytest.approx(moves * rate, rel=0.35)
        assert 0.2 * moves * rate < largest[steps // 2] < 0.8 * moves * rate
        assert 0 < largest[steps - 1] < 0.1 * moves * rate
        assert largest[steps] == 0


def test_terms_in_blocks_are_those_of_a_batch():
    """For a score without noise, and with a corrector's noise; each example has its own key."""
    v = jnp.asarray(np.random.default_rng(5).normal(size=(6, 3)), jnp.float32)
    critic, how = MLPCritic(KEY, 3), CriticTraining()
    for score in (
        FunctionScore(lambda v: -v),
        VariationalScore(LINEAR, ExactPosterior(), 2, Corrector(steps=3, step_size=0.1)),
    ):
        state = start_critic(critic, score, how)
        got = jax.jit(lambda v, state=state, score=score: terms_of(KEY, state, score, v, how))(v)
        for_score, for_probe = jax.random.split(KEY)
        each = zip(jax.random.split(for_score, len(v)), v, strict=True)
        scores = jnp.concatenate([score(key, one[None]) for key, one in each])
        expected = stein_terms(critic, scores, v, _probe(for_probe, v, "rademacher"))
        np.testing.assert_allclose(got.stein, expected.stein, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got.penalty, expected.penalty, rtol=1e-4, atol=1e-6)


def test_probes_are_standard():
    """Signs have mean 0 and are uncorrelated within a word and between words, within 6 standard deviations."""
    signs = np.asarray(_probe(KEY, jnp.zeros((20_000, 7)), "rademacher"))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert np.abs(signs.T @ signs / len(signs) - np.eye(7)).max() < 6 / math.sqrt(20_000)
    assert np.abs(signs.mean(0)).max() < 6 / math.sqrt(20_000)
    normal = np.asarray(_probe(KEY, jnp.zeros((20_000, 2)), "gaussian"))
    assert np.abs(normal.T @ normal / len(normal) - np.eye(2)).max() < 10 / math.sqrt(20_000)


def test_scores_by_vaes_have_the_exact_mean():
    """A model without latents has no noise."""
    v = jnp.asarray(np.random.default_rng(6).normal(size=(4, 3)), jnp.float32)
    many = score_batch(KEY, VariationalScore(LINEAR, ExactPosterior()), jnp.repeat(v, 4000, axis=0))
    many = np.asarray(many).reshape(4, 4000, 3)
    error = many.std(1) / math.sqrt(4000)
    assert np.all(np.abs(many.mean(1) - np.asarray(jax.vmap(LINEAR.score)(v))) < 5.5 * error)
    with refused("key", got="None"):
        score_batch(None, VariationalScore(LINEAR, ExactPosterior()), v)


def test_bad_input_is_refused_before_anything_is_trained():
    v = jnp.asarray(np.random.default_rng(7).normal(size=(300, 3)), jnp.float32)
    good = (v[:200], v[200:250], v[250:])
    score = lambda v: -v
    call = lambda score, train, validation, test, **how: fisher_divergence(KEY, score, train, validation, test, **how)
    with refused("train", got=50):
        call(score, v[:50], *good[1:])
    with refused("validation", got=9):
        call(score, good[0], v[:9], good[2])
    with refused("train", got="200 times"):
        call(score, jnp.ones((200, 3)), *good[1:])
    with refused("test", got="nan at (0, 0)"):
        call(score, *good[:2], good[2].at[0, 0].set(jnp.nan))
    with refused("test", got="float32[2]"):
        call(score, *good[:2], v[:50, :2])
    with refused("v", got="(200, 3)"):
        call(VariationalScore(GRBM.init(KEY, 4, 2), ExactPosterior()), *good)
    with pytest.raises(ValueError, match=r"^score: .*\(3,\)"):
        call(GRBM.init(KEY, 4, 2).score, *good)
    with refused("score", got="(2,)"):
        call(lambda v: v[:2], *good)
    with refused("critic", got="(2,)"):
        call(score, *good, critic=eqx.nn.Linear(3, 2, key=KEY))
    with pytest.raises(ValueError, match="^critic: .*LatentCritic"):
        call(score, *good, critic=LatentCritic(KEY, 3, 2))
    with refused("critic", got="nan at iteration 5"):
        call(lambda v: v * jnp.nan, *good, steps=5, checks=1)
    for name, make in (
        ("steps", lambda: CriticTraining(steps=0)),
        ("posterior_steps", lambda: CriticTraining(posterior_steps=-1)),
        ("learning_rate", lambda: CriticTraining(learning_rate=0.0)),
    ):
        with pytest.raises(ValueError, match=f"^{name}: expected "):
            make()
    with refused("samples", got=0):
        VariationalScore(LINEAR, ExactPosterior(), samples=0)
