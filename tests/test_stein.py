"""Stein kernels by differentiation, sums by hand, KSD in closed form, and tests that accept and reject."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from errors import refused
from vages import GRBM, ExactPosterior
from vages.evaluation import IMQ, RBF, VariationalScore, ksd_test, learned_stein_test, median_distance, stein
from vages.evaluation.kernels import stein_kernel
from vages.evaluation.stein import bootstrap_p_value, ksd_sums
from vages.objectives.ksd import rbf

KEY = jax.random.key(0)
KERNELS = [RBF(), IMQ(), IMQ(exponent=0.3)]


def normal(seed, *shape, dtype="float64"):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def by_differentiation(kernel, bandwidth, x, score_x, y, score_y):
    """u(x, y) of Eq. 12 as written, with derivatives by autodiff."""
    k = lambda x, y: kernel(jnp.sum((x - y) ** 2) / bandwidth**2).value
    over_x, over_y = jax.grad(k, 0), jax.grad(k, 1)
    trace = jnp.trace(jax.jacobian(over_y, 0)(x, y))
    return k(x, y) * score_x @ score_y + score_x @ over_y(x, y) + over_x(x, y) @ score_y + trace


def stein_matrix(kernel, bandwidth, v, scores):
    pairs = jax.vmap(jax.vmap(by_differentiation, (None, None, None, None, 0, 0)), (None, None, 0, 0, None, None))
    return np.array(jax.jit(pairs, static_argnums=0)(kernel, bandwidth, v, scores, v, scores))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}")
def test_stein_kernel_is_eq_12(float64, kernel):
    v, scores, bandwidth = normal(0, 6, 3), normal(1, 6, 3), 1.7
    x, s = (v - jnp.mean(v, axis=0, keepdims=True)) / bandwidth, bandwidth * scores
    got = stein_kernel(kernel, x, s, x, s) / bandwidth**2
    np.testing.assert_allclose(got, stein_matrix(kernel, bandwidth, v, scores), rtol=1e-10, atol=1e-12)


def test_the_rbf_kernel_is_that_of_the_objective(float64):
    v, other, scores, scores_other = (normal(i, 5, 3) for i in range(4))
    pairs = rbf(v, other, 0.8)
    turn = jnp.sum((scores_other - scores) * pairs.gradient, axis=1)
    expected = pairs.value * jnp.sum(scores * scores_other, axis=1) + turn + pairs.trace
    x, y = v / 0.8, other / 0.8
    got = jnp.diagonal(stein_kernel(RBF(), x, 0.8 * scores, y, 0.8 * scores_other)) / 0.8**2
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.parametrize("block", [4, 11, 1024])
def test_sums_in_blocks_are_sums(float64, monkeypatch, block):
    """The U-statistic, its error, and wᵀUw for each w; with an incomplete block, and in one block."""
    monkeypatch.setattr(stein, "_BLOCK", block)
    v, scores, weights, bandwidth = normal(0, 11, 2), normal(1, 11, 2), normal(2, 3, 11), jnp.asarray(0.9)
    statistic, error, bootstrap = jax.jit(lambda *x: ksd_sums(IMQ(), *x))(v, scores, bandwidth, weights)
    matrix = stein_matrix(IMQ(), 0.9, v, scores)
    np.fill_diagonal(matrix, 0)
    assert float(statistic) == pytest.approx(matrix.sum() / 110, rel=1e-10)
    assert float(error) == pytest.approx(2 * (matrix.sum(1) / 10).std(ddof=1) / np.sqrt(11), rel=1e-10)
    w = np.asarray(weights)
    np.testing.assert_allclose(bootstrap, np.einsum("bi,ij,bj->b", w, matrix, w) / 110, rtol=1e-9)


def test_ksd_of_a_shifted_gaussian_in_closed_form():
    """The scores differ by the shift μ, so KSD is ‖μ‖² E k, where E k = (1 + 2/b²)^(−d/2). Within 5 errors."""
    v = normal(3, 3000, 2, dtype="float32") + jnp.asarray([[0.3, -0.4]])
    for bandwidth in (0.7, 2.0):
        got = ksd_test(KEY, lambda v: -v, v, kernel=RBF(), bandwidth=bandwidth, replicates=50)
        truth = 0.25 / (1 + 2 / bandwidth**2)
        assert abs(got.statistic - truth) < 5 * got.standard_error < 0.6 * truth
        assert got.p_value == pytest.approx(1 / 51)
        assert (got.method, got.n, got.kernel, got.bandwidth) == ("ksd", 3000, "rbf", bandwidth)
    shape = v.reshape(3000, 1, 2)  # examples of any shape, scores as an array, and an incomplete block
    same = ksd_test(KEY, -shape, shape, kernel=RBF(), bandwidth=2.0, replicates=50)
    assert same.statistic == pytest.approx(got.statistic, rel=1e-5)
    assert set(same.record()) == set(same._fields)


def test_median_distance(float64):
    v = normal(4, 42, 3)  # an odd number of pairs
    assert float(jax.jit(median_distance)(v)) == pytest.approx(np.median(pdist(v)), rel=1e-12)
    many = normal(5, 1300, 3)
    assert float(jax.jit(median_distance)(many)) == pytest.approx(np.median(pdist(many)), rel=0.05)


def test_p_values_count_the_replicates_that_reach_the_statistic():
    assert bootstrap_p_value(2.0, np.array([0.0, 1.0, 2.0, 3.0])) == 3 / 5
    assert bootstrap_p_value(1.0, np.zeros(4)) == 1 / 5


def test_ksd_of_a_grbm_with_vaes():
    """A correct model passes and a wrong one does not, with VaES from posterior samples as the score."""
    weight, zero = jnp.asarray([[1.0, -1.0], [0.5, 1.5]]), jnp.zeros(2)
    model, wrong = GRBM(weight, zero, zero, jnp.zeros(())), GRBM(weight, zero + 1, zero, jnp.zeros(()))
    h = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float64)
    mass = np.exp(0.5 * ((h @ np.asarray(weight).T) ** 2).sum(1))
    rng = np.random.default_rng(0)
    drawn = h[rng.choice(4, 600, p=mass / mass.sum())] @ np.asarray(weight, np.float64).T
    v = jnp.asarray(drawn + rng.normal(size=drawn.shape), jnp.float32)
    test = lambda model: ksd_test(KEY, VariationalScore(model, ExactPosterior()), v, replicates=200)
    right, bad = test(model), test(wrong)
    assert right.p_value > 0.01
    assert bad.p_value == pytest.approx(1 / 201)
    assert bad.statistic > 10 * abs(right.statistic)


def test_the_learned_test_says_yes_and_no():
    v = normal(6, 1000, 2, dtype="float32")
    critic = eqx.nn.Linear(2, 2, key=KEY)
    how = {"critic": critic, "steps": 100, "learning_rate": 1e-2, "checks": 4}
    score = lambda shift: lambda v: shift - v
    right, wrong = (learned_stein_test(KEY, score(shift), v, **how) for shift in (0.0, 0.5))
    assert right.p_value > 1e-3
    assert wrong.p_value < 1e-6
    assert (wrong.method, wrong.n) == ("learned", 400)
    assert wrong.statistic > 4.5 * wrong.standard_error


def test_bad_input_is_refused():
    v = normal(7, 50, 2, dtype="float32")
    score = lambda v: -v
    with refused("v", got=9):
        ksd_test(KEY, score, v[:9])
    with refused("v", got=50):
        learned_stein_test(KEY, score, v)
    with refused("v", got="50 times"):
        ksd_test(KEY, score, jnp.ones((50, 2)))
    with refused("v", got="nan at (3, 1)"):
        ksd_test(KEY, score, v.at[3, 1].set(jnp.nan))
    with refused("score", got="inf at (0, 0)"):
        ksd_test(KEY, (-v).at[0, 0].set(jnp.inf), v)
    with refused("score", got="(50, 3)"):
        ksd_test(KEY, jnp.ones((50, 3)), v)
    with refused("v", got="(50, 2)"):
        ksd_test(KEY, VariationalScore(GRBM.init(KEY, 3, 2), ExactPosterior()), v)
    with pytest.raises(ValueError, match=r"^score: .*\(2,\)"):
        ksd_test(KEY, GRBM.init(KEY, 3, 2).score, v)
    mostly = jnp.zeros((50, 2)).at[0, 0].set(1.0)
    with refused("bandwidth", got=0.0):
        ksd_test(KEY, score, mostly)
    with refused("bandwidth", got=-1.0):
        ksd_test(KEY, score, v, bandwidth=-1.0)
    with refused("replicates", got=0):
        ksd_test(KEY, score, v, replicates=0)
    with pytest.raises(ValueError, match="^v: .*floating"):
        ksd_test(KEY, score, jnp.arange(50))
    with refused("exponent", got=1.5):
        IMQ(exponent=1.5)
