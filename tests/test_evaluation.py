import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from errors import refused
from vages.data import convert_images
from vages.evaluation import (
    LogEstimate,
    LogPartition,
    ais,
    gaussian_log_density,
    linear_probe,
    log_likelihood,
    majority_rate,
    median_distance,
    nearness,
    reverse_ais,
    score_batch,
    score_matching_loss,
    sliced_score_matching_loss,
)
from vages.models import GRBM, LinearGaussian, measure_sigma_data
from vages.samplers import gibbs_sample


def random_grbm(seed, v_dim, h_dim, scale=1.0, scalar_sigma=False):
    rng = np.random.default_rng(seed)
    weight, b, c = (rng.uniform(-1, 1, shape) for shape in ((v_dim, h_dim), v_dim, h_dim))
    log_sigma = rng.uniform(-0.5, 0.1, () if scalar_sigma else v_dim)
    return GRBM(*(jnp.asarray(x, jnp.float32) for x in (scale / math.sqrt(h_dim) * weight, b, c, log_sigma)))


def twenty_grbms():
    shapes = [(2, 4, False), (8, 12, False), (3, 7, True), (5, 1, True)]
    scales = [0.5, 1.0, 1.5, 2.0, 2.5]
    return [random_grbm(i, v, h, scale, scalar) for i, scale in enumerate(scales) for v, h, scalar in shapes]


log_partition = eqx.filter_jit(lambda model: model.log_partition())


def random_linear_gaussian(seed):
    return in_float64(LinearGaussian(*jax.tree.leaves(random_grbm(seed, 3, 4, 0.7))))


def in_float64(model):
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), model)


def examples(*shape, dtype="float64"):
    return jnp.asarray(np.random.default_rng(9).normal(size=shape), dtype)


def with_idle_latents(model, idle):
    """The same p(v) with more latent units, `idle`, that are not coupled to v; and its log Z."""
    weight = jnp.concatenate([model.weight, jnp.zeros((len(model.weight), len(idle)))], axis=1)
    larger = GRBM(weight, model.visible_bias, jnp.concatenate([model.latent_bias, idle]), model.log_sigma)
    return larger, float(log_partition(model)) + float(np.logaddexp(0, np.asarray(idle, np.float64)).sum())


@pytest.mark.long_runs
def test_annealing_finds_log_z_within_its_error_bar():
    """Few temperatures, so a wrong transition shows; many chains, so the errors are normal.

    False-alarm rates: 1e-5 for the twenty models together, 1e-6 for their spread.
    """
    for estimate in (ais, reverse_ais):
        scores = []
        for seed, model in enumerate(twenty_grbms()):
            got = estimate(jax.random.key(seed), model, chains=4000, temperatures=30)
            assert 0 < got.error < 0.05
            bracket = np.array([got.lower, got.upper]) - got.value
            np.testing.assert_allclose(bracket, [-3 * got.error, 3 * got.error], atol=9 * got.error**2)
            scores.append((got.value - float(log_partition(model))) / got.error)
        assert np.abs(scores).max() < 5
        assert stats.chi2.ppf(5e-7, 20) < np.sum(np.square(scores)) < stats.chi2.isf(5e-7, 20)


def test_the_truth_lies_between_the_two_directions():
    """The mean of forward estimates is below log Z, that of reverse estimates is above it, by more than 6 errors."""
    model = random_grbm(3, 5, 8, 4.0)
    truth = float(log_partition(model))
    keys = list(jax.random.split(jax.random.key(0), 200))
    forward, reverse = (
        np.array([estimate(key, model, chains=4, temperatures=4).value for key in keys])
        for estimate in (ais, reverse_ais)
    )
    for gap in (truth - forward, reverse - truth):
        assert gap.mean() > 6 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_annealing_needs_no_enumeration():
    """24 latents, 18 of them idle: reverse AIS from given samples, and AIS in the log-likelihood."""
    short = functools.partial(ais, chains=2000, temperatures=30)
    small = random_grbm(1, 4, 6)
    model, truth = with_idle_latents(small, jnp.linspace(-2, 2, 18))
    forward = short(jax.random.key(0), model)
    assert abs(forward.value - truth) < 5 * forward.error < 0.25
    v = gibbs_sample(jax.random.key(1), model, 2000, steps=50).v
    reverse = reverse_ais(jax.random.key(0), model, v, temperatures=30)
    assert abs(reverse.value - truth) < 5 * reverse.error < 0.25
    with refused("reverse_ais", got="Binary(24)"):
        reverse_ais(jax.random.key(0), model)
    # p(v) and the likelihood are those of the small model
    exact = log_likelihood(jax.random.key(0), small, None, v)
    annealed = log_likelihood(jax.random.key(0), model, None, v, chains=2000, temperatures=30)
    assert not annealed.exact
    for side, log_z in (("forward", annealed.log_partition.forward), ("reverse", annealed.log_partition.reverse)):
        assert abs(log_z.value - truth) < 5 * log_z.error < 0.25
        assert getattr(annealed, side) == pytest.approx(exact.mean + truth - log_z.value, abs=1e-4)


def test_a_bracket_opens_where_the_errors_swallow_the_estimate():
    model = random_grbm(0, 5, 8, 20.0)
    forward, reverse = (estimate(jax.random.key(0), model, chains=4, temperatures=4) for estimate in (ais, reverse_ais))
    assert forward.error > 1 / 3
    assert reverse.error > 1 / 3
    assert forward.lower == -math.inf
    assert forward.value < forward.upper < math.inf
    assert reverse.upper == math.inf
    assert -math.inf < reverse.lower < reverse.value


@pytest.mark.parametrize("estimate", [ais, reverse_ais])
def test_a_run_too_short_says_so(estimate):
    model = random_grbm(0, 2, 4)
    with refused("chains", got=1):
        estimate(jax.random.key(0), model, chains=1)
    with refused("temperatures", got=1):
        estimate(jax.random.key(0), model, temperatures=1)
    if estimate is reverse_ais:
        with refused("v", got="(4, 3)"):
            estimate(jax.random.key(0), model, jnp.zeros((4, 3)))


@pytest.mark.parametrize("kind", [GRBM, LinearGaussian])
def test_exact_log_likelihood(float64, kind):
    """The mean of log p(v), also with an incomplete block."""
    model = in_float64(random_grbm(0, 3, 4)) if kind is GRBM else random_linear_gaussian(0)
    v = examples(2100, 3)
    log_prob = np.asarray(jax.jit(jax.vmap(model.log_prob))(v))
    key = jax.random.key(0)
    exact = log_likelihood(key, model, None, v)
    assert exact.exact
    assert exact.mean == pytest.approx(log_prob.mean(), rel=1e-12)
    assert exact.error == pytest.approx(log_prob.std(ddof=1) / math.sqrt(2100), rel=1e-10)
    log_z = float(log_partition(model))
    more = log_likelihood(key, model, None, v, log_z=LogPartition.known(log_z + 1))
    assert more.mean == pytest.approx(exact.mean - 1, rel=1e-12)
    below, above = LogEstimate(log_z - 0.5, 0.3, 0.0, 0.0), LogEstimate(log_z, 0.1, 0.0, 0.0)
    estimated = log_likelihood(key, model, None, v, log_z=LogPartition(below, above, False))
    assert estimated.forward == pytest.approx(exact.mean + 0.5, rel=1e-12)
    assert estimated.reverse == estimated.mean == pytest.approx(exact.mean, rel=1e-12)
    assert estimated.error == pytest.approx(math.hypot(exact.error, 0.3), rel=1e-12)
    assert not estimated.exact
    alone = log_likelihood(key, model, None, v[:1], log_z=LogPartition.known(log_z))
    assert (alone.mean, alone.error) == pytest.approx((float(log_prob[0]), math.inf), rel=1e-12)
    with refused("v", got="(3,)"):
        log_likelihood(key, model, None, v[0])


def test_score_matching_loss_of_a_linear_gaussian_model(float64):
    """½ ‖P (v − m)‖² − tr P, by hand."""
    model, v = random_linear_gaussian(3), examples(50, 3)
    precision = np.asarray(model.marginal_precision())
    score = (np.asarray(v) - np.asarray(model.marginal_mean())) @ precision
    expected = 0.5 * (score**2).sum(1) - np.trace(precision)
    got = score_matching_loss(model.score, v)
    assert got.mean == pytest.approx(expected.mean(), rel=1e-10)
    assert got.error == pytest.approx(expected.std(ddof=1) / math.sqrt(50), rel=1e-10)


def sigma_points(model):
    """Points with the mean and covariance of p(v): means of quadratic functions over them are exact expectations."""
    covariance = np.linalg.inv(np.asarray(model.marginal_precision()))
    steps = math.sqrt(len(covariance)) * np.linalg.cholesky(covariance).T
    return jnp.asarray(np.asarray(model.marginal_mean()) + np.concatenate([steps, -steps]))


def test_score_matching_loss_is_the_fisher_divergence_less_a_constant(float64):
    """½ E ‖s_data − s_model‖² = SM(model) + ½ E ‖s_data‖², so the data's own score has the lowest loss."""
    scores_of = eqx.filter_jit(lambda model, v: jax.vmap(model.score)(v))
    data = random_linear_gaussian(0)
    v = sigma_points(data)
    scores = np.asarray(scores_of(data, v))
    constant = 0.5 * (scores**2).sum(1).mean()
    least = score_matching_loss(data.score, v).mean
    assert least == pytest.approx(-constant, rel=1e-10)
    for seed in range(1, 6):
        model = random_linear_gaussian(seed)
        fisher = 0.5 * ((scores - np.asarray(scores_of(model, v))) ** 2).sum(1).mean()
        loss = score_matching_loss(model.score, v).mean
        assert loss + constant == pytest.approx(fisher, rel=1e-9)
        assert loss > least


def test_score_matching_loss_of_a_grbm_against_finite_differences(float64):
    model, v = in_float64(random_grbm(2, 5, 4, 2.0)), np.asarray(examples(7, 5))
    score = jax.jit(jax.vmap(model.score))
    trace = sum((score(v + step)[:, i] - score(v - step)[:, i]) / 2e-4 for i, step in enumerate(1e-4 * np.eye(5)))
    expected = (0.5 * np.sum(np.asarray(score(v)) ** 2, axis=1) + np.asarray(trace)).mean()
    assert score_matching_loss(model.score, jnp.asarray(v)).mean == pytest.approx(expected, rel=1e-7)


def test_no_examples_are_refused_by_name():
    none, two, labels = np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32), np.arange(2)
    negative, empty = lambda v: -v, jnp.zeros((0, 3))
    for call in (
        lambda: score_matching_loss(negative, empty),
        lambda: sliced_score_matching_loss(jax.random.key(0), negative, empty),
        lambda: score_batch(None, negative, empty),
        lambda: median_distance(empty),
        lambda: gaussian_log_density(two, none),
        lambda: measure_sigma_data(none),
    ):
        with refused("v", "shape (0, 3)"):
            call()
    with refused("samples", "0 and 2"):
        nearness(none, two)
    with refused("train", "shape (0, 3)"):
        linear_probe(none, labels[:0], two, labels)
    with refused("test", "shape (0, 3)"):
        linear_probe(two, labels, none, labels[:0])
    for name, given in (("train_labels", (labels[:0], labels)), ("test_labels", (labels, labels[:0]))):
        with refused(name, "shape (0,)"):
            majority_rate(*given)
    with refused("images", "shape (0, 3, 8, 8)"):
        convert_images(np.zeros((0, 3, 8, 8), np.float32), (1, 4, 4))
    assert gaussian_log_density(none, two) is None


def test_any_score_of_any_shape():
    """s = −v³ has a diagonal Jacobian, so one Rademacher vector gives the trace without variance."""
    v = examples(9, 2, 3, dtype="float32")
    squares = np.asarray(v, np.float64).reshape(9, 6) ** 2
    expected = 0.5 * (squares**3).sum(1) - 3 * squares.sum(1)
    cubic = lambda v: -(v**3)
    for got in (score_matching_loss(cubic, v), sliced_score_matching_loss(jax.random.key(1), cubic, v)):
        assert got.mean == pytest.approx(expected.mean(), rel=1e-5)
        assert got.error == pytest.approx(expected.std(ddof=1) / 3, rel=1e-5)


def test_large_examples_are_taken_in_blocks():
    """With 1500 dimensions, only one Jacobian is in memory at a time."""
    v = examples(3, 1500, dtype="float32")
    expected = 0.5 * (np.asarray(v, np.float64) ** 2).sum(1).mean() - 1500
    assert score_matching_loss(lambda v: -v, v).mean == pytest.approx(expected, rel=1e-5)


def test_sliced_loss_has_the_mean_of_the_full_one():
    """40,000 projections u at one v. Five errors: false-alarm rate 1e-6."""
    model, v = random_grbm(5, 5, 4, 2.0), examples(1, 5, dtype="float32")
    full = score_matching_loss(model.score, v)
    sliced = sliced_score_matching_loss(jax.random.key(2), model.score, jnp.broadcast_to(v, (40_000, 5)))
    assert 0 < sliced.error < 0.02 * abs(full.mean)
    assert abs(sliced.mean - full.mean) < 5 * sliced.error
