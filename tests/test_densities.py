"""log p̃(v), scores, log Z and likelihoods against enumeration, quadrature and closed forms."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import vages
from errors import refused
from test_sampling import KEY, BinaryRBM, curved, mixed, mixture, quadrature
from vages import EnergyModel, ExactPosterior, GaussianPosterior, LogPartition, Real, SamplingWarning
from vages.distributions import Gaussian
from vages.evaluation import gaussian_log_density
from vages.posteriors import Posterior, posterior_means

RNG = np.random.default_rng(0)


def exact_log_density(model, v):
    """By enumeration in float64, written out."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params)
    states = np.asarray(vages.Binary(4).states(), np.float64)
    centers = p["b"] + states @ p["W"].T
    v = np.asarray(v, np.float64)
    logs = states @ p["c"] - 0.5 * ((v[:, None] - centers[None]) ** 2).sum(2) / p["s"] ** 2
    return np.logaddexp.reduce(logs, axis=1), states, centers, logs


def exact_log_z(model):
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params)
    states = np.asarray(vages.Binary(4).states(), np.float64)
    return np.logaddexp.reduce(states @ p["c"]) + 2.5 * np.log(2 * np.pi) + 5 * np.log(p["s"])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
def test_log_density_and_score_of_few_states(dtype, tolerance):
    with jax.enable_x64(dtype == "float64"):
        model = mixture(jnp.dtype(dtype))
        v = jnp.asarray(RNG.normal(size=(5, 5)), dtype)
        truth, _, centers, logs = exact_log_density(model, v)
        density = vages.log_density(None, model, None, v)
        assert density.exact
        np.testing.assert_allclose(density.value, truth, rtol=tolerance)
        assert float(jnp.max(density.error)) == 0
        weights = np.exp(logs - truth[:, None])
        force = (weights @ centers - np.asarray(v, np.float64)) / np.asarray(model.params["s"], np.float64) ** 2
        np.testing.assert_allclose(vages.score(model)(None, v), force, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(vages.score(model)(None, v[0]), force[0], rtol=tolerance, atol=tolerance)


class Pinned(Posterior):
    """q(h | v) of the curved energy, with too large a variance."""

    def __call__(self, model, features, v, context=None):
        return Gaussian(v**2 - 0.3 * v + 0.1, jnp.full(1, 0.2))


def test_importance_weights_against_the_integral(float64):
    """h given v is N(v² − 0.3 v, 1), so log p̃(v) is known. The mean of 200 is within 5 standard errors: 1e-6."""
    model = EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1))
    v = jnp.asarray(RNG.normal(size=(200, 1)))
    truth = -(v**4) / 4 + 0.5 * ((v**2 - 0.3 * v) ** 2 - v**4) + 0.5 * np.log(2 * np.pi)
    density = eqx.filter_jit(vages.log_density)(KEY, model, Pinned(), v, samples=500)
    assert not density.exact
    z = (density.value - truth[:, 0]) / density.error
    assert float(jnp.abs(jnp.mean(z))) < 5 / np.sqrt(200)
    assert 0.7 < float(jnp.std(z)) < 1.4
    assert 0.6 < float(jnp.mean(density.ess)) / 500 < 1


def test_examples_without_a_density():
    model = EnergyModel(
        lambda p, v, h: jnp.where(v[0] > 0, 0.5 * jnp.sum(h**2), jnp.inf), jnp.zeros(1), v=Real(1), h=Real(1)
    )
    found = vages.log_density(KEY, model, Standard(), jnp.asarray([[1.0], [-1.0]]), samples=10)
    assert float(found.value[0]) == pytest.approx(0.5 * np.log(2 * np.pi), abs=1e-5)
    assert float(found.value[1]) == -np.inf


def test_gradients_of_the_density_are_weighted_scores(float64):
    model = EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1))
    v = jnp.asarray([0.7])
    value = lambda v: vages.log_density(KEY, model, Pinned(), v, samples=4000).value
    truth = jax.grad(lambda v: (-(v**4) / 4 + 0.5 * ((v**2 - 0.3 * v) ** 2 - v**4))[0])(v)
    assert abs(float(jax.grad(value)(v)[0] - truth[0])) < 0.05
    many = jax.vmap(value)(jnp.asarray([[0.7], [0.7]]))
    assert float(many[0]) == float(many[1]) == float(value(v))


def test_a_poor_posterior_is_told(float64):
    model = EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1))
    v, far = jnp.asarray(RNG.normal(size=(20, 1))), Shifted(jnp.asarray(6.0))
    with pytest.warns(SamplingWarning, match="log_likelihood: the effective sample size of the importance weights"):
        poor = vages.log_likelihood(KEY, model, far, v, samples=100, log_z=LogPartition.known(0.0))
    good = vages.log_likelihood(KEY, model, Pinned(), v, samples=100, log_z=LogPartition.known(0.0))
    assert "ESS of the weights" in repr(good)
    assert len(repr(good).splitlines()) == 2
    assert poor.mean < good.mean


def test_the_error_of_the_likelihood_counts_the_noise_of_the_densities_once():
    """Against the spread of 300 repeats, which is known to 4 %: 25 % are 6 standard errors. All v are the same."""
    model = EnergyModel(lambda p, v, h: 0.5 * jnp.sum((v - h) ** 2 + h**2), jnp.zeros(1), v=Real(1), h=Real(1))
    v, log_z = jnp.full((100, 1), 0.5), LogPartition.known(float(np.log(2 * np.pi)))
    keys = jax.random.split(KEY, 300)
    found = [vages.log_likelihood(key, model, Halved(), v, samples=20, log_z=log_z) for key in keys]
    claimed, spread = np.mean([one.error for one in found]), np.std([one.mean for one in found], ddof=1)
    assert 0.75 < claimed / spread < 1.25
    known = found[0].log_partition.forward._replace(error=1.0)
    of_both = vages.log_likelihood(KEY, model, Halved(), v, samples=20, log_z=LogPartition(known, known, False))
    assert of_both.error == pytest.approx(1, rel=1e-3)  # the error of log Z is common to all examples
    assert vages.log_likelihood(KEY, model, Halved(), v[:1], samples=20, log_z=log_z).error == np.inf


class Halved(Posterior):
    """The exact posterior N(v / 2, 1 / 2) of a Gaussian model, a little too wide."""

    def __call__(self, model, features, v, context=None):
        return Gaussian(v / 2, jnp.full(1, 0.5 * np.log(0.6)))


class Standard(Posterior):
    """N(0, 1) of one latent."""

    def __call__(self, model, features, v, context=None):
        return Gaussian(jnp.zeros(1), jnp.zeros(1))


class Shifted(Posterior):
    """The same, shifted."""

    shift: jax.Array

    def __call__(self, model, features, v, context=None):
        return Gaussian(v**2 - 0.3 * v + self.shift, jnp.full(1, 0.2))


def test_the_density_is_no_objective_of_q(float64):
    model = EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1))
    value = lambda q: vages.log_density(KEY, model, q, jnp.asarray([0.7]), samples=20).value
    assert float(jax.grad(value)(Shifted(jnp.asarray(0.1))).shift) == 0


def test_scores_by_samples():
    model = mixture()
    v = jnp.asarray(RNG.normal(size=(3, 5)), jnp.float32)
    exact = vages.score(model, ExactPosterior())
    assert isinstance(exact, vages.evaluation.ExactScore)
    sampled = vages.evaluation.VariationalScore(model, ExactPosterior(), 20_000)(KEY, v)
    assert float(jnp.max(jnp.abs(sampled - exact(None, v)))) < 0.25
    one = vages.score(mixed(), vages.JointPosterior({"y": Even(), "z": Plain()}), 4)
    assert jax.jit(lambda v: one(KEY, v))(jnp.zeros(2)).shape == (2,)
    assert jax.vmap(lambda v: one(KEY, v))(jnp.zeros((5, 2))).shape == (5, 2)
    with refused("posterior", kind=TypeError):
        vages.score(EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1)))


class Even(Posterior):
    """Three states with equal probability."""

    def __call__(self, model, features, v, context=None):
        return vages.OneHot(jnp.zeros((1, 3)))


class Plain(Posterior):
    """N(0, 1)."""

    def __call__(self, model, features, v, context=None):
        return Gaussian(jnp.zeros(2), jnp.zeros(2))


def test_log_z_of_the_mixture_from_both_sides():
    """Both estimates are within 5 standard errors of the truth, and their gap is small."""
    model = mixture()
    found = vages.log_partition(KEY, model, chains=400, temperatures=400)
    truth = exact_log_z(model)
    assert not found.exact
    for side in (found.forward, found.reverse):
        assert abs(side.value - truth) < 5 * side.error
        assert side.error < 0.1
    assert abs(found.gap) < 0.2
    drawn = vages.sample(KEY, model, 1000, sampler=vages.MCMC("hmc"))  # already compiled
    again = vages.log_partition(KEY, model, chains=400, temperatures=400, drawn=drawn)
    assert again.reverse != found.reverse
    assert abs(again.reverse.value - truth) < 5 * again.reverse.error < 0.5
    with refused("drawn", got=1000):
        vages.log_partition(KEY, model, chains=1001, temperatures=400, drawn=drawn)
    with refused("drawn", got=(2,)):
        vages.log_partition(KEY, model, chains=400, drawn=drawn._replace(v=drawn.v[:, :2]))
    v = drawn.v
    likelihood = vages.log_likelihood(KEY, model, None, v, log_z=found)
    entropy = np.mean(exact_log_density(model, v)[0]) - truth
    assert abs(likelihood.forward - entropy) < 5 * likelihood.error
    assert not likelihood.exact


def test_the_likelihood_is_exact_where_it_can_be(float64):
    conditional = lambda p, h: Gaussian(p["b"] + p["W"] @ h, jnp.full(5, jnp.log(p["s"])))
    model = mixture(jnp.float64, conditional=conditional)
    v = jnp.asarray(RNG.normal(size=(7, 5)))
    found = vages.log_likelihood(KEY, model, None, v)
    truth = np.mean(exact_log_density(model, v)[0]) - exact_log_z(model)
    assert found.exact
    assert abs(found.forward - truth) < 1e-10
    assert found.forward == found.reverse == found.mean
    assert "exact" in repr(found)
    assert len(repr(found).splitlines()) == 1
    for known in (
        vages.GRBM.init(KEY, 3, 4, dtype=jnp.float64),
        vages.LinearGaussian.init(KEY, 3, 2, dtype=jnp.float64),
    ):
        v = jnp.asarray(RNG.normal(size=(4, 3)))
        found = vages.log_likelihood(KEY, known, None, v)
        np.testing.assert_allclose(found.mean, float(jnp.mean(jax.vmap(known.log_prob)(v))), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::vages.SamplingWarning")
def test_log_z_of_continuous_and_mixed_latents(float64):
    model = EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1))
    truth = quadrature(curved)[0]
    found = vages.log_partition(KEY, model, chains=400, temperatures=400)
    for side in (found.forward, found.reverse):
        assert abs(side.value - truth) < 5 * side.error < 0.25


@pytest.mark.parametrize("block", [2**18, 5])
def test_sums_over_discrete_v(block, monkeypatch, float64):
    """Against the sum over all pairs in NumPy, also with an incomplete block; with a context, and for a closed form."""
    monkeypatch.setattr("vages.evaluation.partition._BLOCK", block)
    weights = RNG.normal(size=(3, 4))
    energy = lambda J, v, h, context: -jnp.sum(v, 0) @ J @ h - context["bias"] * h[0]
    model = EnergyModel(energy, jnp.asarray(weights), v=vages.Categorical(2, 3), h=vages.Binary(4))
    v, h = np.asarray(model.v.states(), np.float64), np.asarray(model.h.states(), np.float64)
    logs = v.sum(1) @ weights @ h.T + 0.7 * h[:, 0]
    found = vages.log_partition(KEY, model, context={"bias": jnp.asarray([0.7])})
    assert found.exact
    np.testing.assert_allclose(found.forward.value, np.logaddexp.reduce(logs, axis=None), rtol=1e-12)
    plain = EnergyModel(lambda J, v, h: energy(J, v, h, {"bias": 0.7}), jnp.asarray(weights), v=model.v, h=model.h)
    likelihood = vages.log_likelihood(KEY, plain, None, model.v.states(jnp.float64))
    assert likelihood.exact
    truth = np.mean(np.logaddexp.reduce(logs, axis=1)) - np.logaddexp.reduce(logs, axis=None)
    np.testing.assert_allclose(likelihood.mean, truth, rtol=1e-12)
    closed = BinaryRBM(jnp.asarray(RNG.normal(size=(3, 2))))
    v, h = (np.asarray(x.states(), np.float64) for x in (closed.v, closed.h))
    truth = np.logaddexp.reduce(v @ np.asarray(closed.weight) @ h.T, axis=None)
    for exact in (True, False):
        np.testing.assert_allclose(vages.log_partition(KEY, closed, exact=exact).forward.value, truth, rtol=1e-12)


def test_a_missed_mode_shows_in_the_gap():
    """W = 10, c = −50: two modes of equal mass, at 0 and 10. Forward AIS never finds the second one."""
    model = vages.GRBM(jnp.full((1, 1), 10.0), jnp.zeros(1), jnp.full(1, -50.0), jnp.zeros(()))
    truth = np.log(2) + 0.5 * np.log(2 * np.pi)
    exact = vages.log_partition(KEY, model)
    assert exact.exact
    assert abs(exact.forward.value - truth) < 1e-5
    with pytest.warns(SamplingWarning, match="^log_partition: .*R̂"):
        found = vages.log_partition(KEY, model, chains=500, temperatures=500, exact=False)
    assert abs(found.forward.value - (truth - np.log(2))) < 0.05
    assert found.gap > 0.3


def test_contexts():
    def energy(p, v, h, context):
        return 0.5 * jnp.sum((v - context["center"]) ** 2) * context["sharp"]

    model = EnergyModel(energy, jnp.zeros(1), v=Real(2))
    context = {"center": jnp.asarray([[3.0, -3.0]]), "sharp": jnp.asarray([4.0])}
    found = vages.log_partition(KEY, model, context=context, chains=200, temperatures=50)
    assert abs(found.forward.value - np.log(2 * np.pi / 4)) < 5 * found.forward.error + 1e-3
    density = vages.log_density(None, model, None, jnp.zeros((1, 2)), context=context)
    assert float(density.value[0]) == -36
    alone = vages.log_density(None, model, None, jnp.zeros(2), context=jax.tree.map(lambda x: x[0], context))
    assert float(alone.value) == -36
    v = jnp.asarray([[3.0, -3.0], [3.5, -3.0]])
    likelihood = vages.log_likelihood(KEY, model, None, v, context=context, log_z=LogPartition.known(np.log(np.pi / 2)))
    assert abs(likelihood.mean - (-np.log(np.pi / 2) - 0.25)) < 1e-5
    two = EnergyModel(lambda p, v, h, context: -v @ h - context["on"] * v[0], 0.0, v=vages.Binary(2), h=vages.Binary(2))
    pairs = np.asarray(two.v.states(), np.float64)
    logs = pairs @ pairs.T + 0.5 * pairs[:, :1]
    found = vages.log_likelihood(KEY, two, None, two.v.states(), context={"on": 0.5})
    truth = np.mean(np.logaddexp.reduce(logs, axis=1)) - np.logaddexp.reduce(logs, axis=None)
    assert abs(found.mean - truth) < 1e-5


def test_means_of_a_posterior_that_reads_a_context():
    q = GaussianPosterior.linear(KEY, 2, 1, context={"label": 3})
    model = EnergyModel(lambda p, v, h, context: jnp.sum(h**2), jnp.zeros(1), v=Real(2), h=Real(1))
    v, labels = RNG.normal(size=(5, 2)).astype(np.float32), jnp.asarray([0, 1, 2, 1, 0])
    means = posterior_means(model, q, v, context={"label": labels}, batch=2)
    whole = vages.infer(model, q, jnp.asarray(v), {"label": labels}).mean
    np.testing.assert_allclose(means, whole, rtol=1e-5)


@pytest.mark.parametrize("domain", [vages.Binary(1), Real(1)])
def test_an_energy_that_is_no_number_is_refused(domain, as_users_have_it):
    """The user forgot a sum. Summed over states, such an energy would still give a number."""
    v = jnp.zeros((3, 2))
    model = EnergyModel(lambda p, v, h: 0.5 * (v - h[0]) ** 2, jnp.zeros(1), v=Real(2), h=domain)
    for wrong in (
        lambda: vages.log_density(KEY, model, Standard(), v),
        lambda: vages.sample_posterior(KEY, model, v, 5),
        lambda: vages.sample(KEY, model, 5),
        lambda: vages.log_partition(KEY, model),
    ):
        with refused("log_joint", "float32[2]"):
            wrong()


def test_a_context_that_a_model_does_not_take_is_refused(as_users_have_it):
    model, context = vages.GRBM.init(KEY, 3, 2), {"label": jnp.zeros(1)}
    for wrong in (
        lambda: vages.log_partition(KEY, model, context=context),
        lambda: vages.log_density(None, model, None, jnp.zeros((1, 3)), context=context),
        lambda: vages.sample_posterior(KEY, model, jnp.zeros((1, 3)), 5, context=context),
        lambda: vages.sample(KEY, model, 5, context=context),
    ):
        with refused("features", "TypeError"):
            wrong()
    alone = EnergyModel(lambda p, v, h, context: jnp.sum(v**2) * context["label"], jnp.zeros(1), v=Real(3))
    with refused("context['label']", "shape (3,)"):
        vages.sample(KEY, alone, 5, context={"label": jnp.ones(3)})
    with refused("context['label']", "shape (3,)"):
        vages.log_likelihood(KEY, alone, None, jnp.ones((3, 3)), context={"label": jnp.ones(3)})
    with refused("log_joint", "KeyError"):
        vages.log_likelihood(KEY, alone, None, jnp.ones((3, 3)), context={"labels": 1.0})
    blind = EnergyModel(lambda p, v, h, context: jnp.sum((v - h) ** 2) + context["label"], 0.0, v=Real(1), h=Real(1))
    q = GaussianPosterior.linear(KEY, 1, 1)
    for wrong in (
        lambda: vages.log_density(KEY, blind, q, jnp.zeros((2, 1)), context={"label": jnp.zeros(2)}),
        lambda: posterior_means(blind, q, np.zeros((2, 1), np.float32), context={"label": jnp.zeros(2)}),
    ):
        with refused("posterior", kind=TypeError):
            wrong()
    reads = GaussianPosterior.linear(KEY, 1, 1, context={"label": 1})
    with refused("posterior", "ValueError"):
        posterior_means(blind, reads, np.zeros((2, 1), np.float32))
    with refused("log_joint", "TypeError"):
        vages.sample(KEY, alone, 5)
    assert float(vages.log_density(None, alone, None, jnp.ones(3), context={"label": 2.0}).value) == -6


def test_a_score_is_a_function_of_jax():
    """It works in jit, vmap and derivatives. log p̃(v) = log(1 + e^v) − v²/2, so derivatives are known."""
    model = EnergyModel(lambda p, v, h: 0.5 * v[0] ** 2 - v[0] * h[0], jnp.zeros(1), v=Real(1), h=vages.Binary(1))
    v, share = jnp.asarray([[0.3], [-1.0]]), 1 / (1 + np.exp([[-0.3], [1.0]]))
    exact = vages.score(model)
    np.testing.assert_allclose(jax.jit(exact)(None, v), share - v, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(exact, in_axes=(None, 0))(None, v), share - v, rtol=1e-5)
    slope = jax.jit(jax.jacrev(exact, argnums=1))(None, v[0])
    np.testing.assert_allclose(slope, (share * (1 - share))[:1] - 1, rtol=1e-5)
    drawn = vages.evaluation.VariationalScore(model, ExactPosterior(), 2)
    assert jax.jit(drawn)(KEY, v).shape == (2, 1)
    assert exact == exact != vages.score(model)


def test_scores_of_what_has_none_are_refused(as_users_have_it):
    model = mixture()
    for v in (jnp.zeros((3, 1)), jnp.zeros(1)):  # these would be broadcast
        with refused("v"):
            vages.score(model)(None, v)
    with refused("v", "list", kind=TypeError):
        vages.score(model)(None, [0.0] * 5)  # pyright: ignore[reportArgumentType]
    with refused("v", "int32", kind=TypeError):
        vages.score(model)(None, jnp.zeros(5, jnp.int32))
    with refused("log_joint", "float32[2]"):
        vages.score(EnergyModel(lambda p, v, h: v**2, jnp.zeros(1), v=Real(2)))(None, jnp.zeros(2))
    discrete = EnergyModel(lambda p, v, h: jnp.sum(v * h), jnp.zeros(1), v=vages.Binary(2), h=vages.Binary(2))
    for posterior in (None, Standard()):
        with refused("score", "Binary(2)", kind=TypeError):
            vages.score(discrete, posterior)
    with refused("corrector", "Binary(4)", kind=TypeError):  # inside jit, h between the states would not be noticed
        vages.evaluation.VariationalScore(model, ExactPosterior(), corrector=vages.Corrector(20, 0.5))


def test_bad_input(as_users_have_it):
    deep = vages.DeepEBLVM.vectors(KEY, 2, width=4, depth=1, latents=2, head_width=3)
    q = GaussianPosterior.mlp(KEY, 2, 2, width=4, depth=1)
    v = jnp.zeros((3, 2))
    with refused("posterior", "None", kind=TypeError):
        vages.log_density(KEY, deep, None, v)
    with refused("key", "None", kind=TypeError):
        vages.log_density(None, deep, q, v)
    with refused("samples", 1):
        vages.log_density(KEY, deep, q, v, samples=1)
    with refused("v", "(3, 5)"):
        vages.log_density(KEY, deep, q, jnp.zeros((3, 5)))
    with refused("chains", 1):
        vages.log_partition(KEY, deep, chains=1)
    with refused("temperatures", 1):
        vages.log_partition(KEY, deep, temperatures=1)
    with refused("key", "a traced one", kind=TypeError):
        jax.jit(lambda key: vages.log_partition(key, deep).gap)(KEY)
    with refused("log_z", "float", kind=TypeError):
        vages.log_likelihood(KEY, deep, q, v, log_z=1.5)  # pyright: ignore[reportArgumentType]
    for v_domain, h_domain in ((vages.Binary(2), Real(1)), (vages.Binary(21), vages.Empty())):
        with refused("model", kind=TypeError):
            vages.log_partition(KEY, EnergyModel(lambda p, v, h: jnp.sum(v), jnp.zeros(1), v=v_domain, h=h_domain))
    binary = EnergyModel(lambda p, v, h: jnp.sum(v), jnp.zeros(1), v=vages.Binary(2))
    for function in (vages.log_density, vages.log_likelihood):
        with refused("v"):
            function(KEY, binary, None, jnp.full((3, 2), 0.5))
    assert LogPartition.known(1.5).gap == 0
    (fifty,) = np.asarray([50])  # NumPy integers are accepted
    assert np.isfinite(vages.log_likelihood(KEY, deep, q, v, samples=fifty, log_z=LogPartition.known(0.0)).mean)


def test_log_density_of_a_gaussian_of_noisy_data():
    """Against SciPy. As the log is quadratic, its mean over noise is exactly that over the corners ±σ."""
    train, v, sigma = RNG.normal(size=(50, 1, 3)) + 2, RNG.normal(size=(4, 1, 3)), 0.5
    flat = train.reshape(50, 3)
    covariance: Any = np.cov(flat.T) + sigma**2 * np.eye(3)
    normal = multivariate_normal(flat.mean(axis=0), covariance)
    plain, noisy = (gaussian_log_density(train, v, sigma, noisy=noisy) for noisy in (False, True))
    assert plain is not None
    assert noisy is not None
    np.testing.assert_allclose(plain, normal.logpdf(v.reshape(4, 3)), rtol=1e-12)
    corners = sigma * np.asarray(list(itertools.product((-1, 1), repeat=3)))
    mean = np.mean([normal.logpdf(v.reshape(4, 3) + corner) for corner in corners], axis=0)
    np.testing.assert_allclose(noisy, mean, rtol=1e-12)
    assert gaussian_log_density(train[:1], v, sigma) is None  # one example has no covariance
    assert gaussian_log_density(train[:2], v, sigma) is not None
    thin = lambda ratio: gaussian_log_density(np.asarray([[1.0, ratio], [1.0, -ratio], [-1.0, 0.0]]), np.zeros((1, 2)))
    assert thin(1e-4) is None
    assert thin(1e-2) is not None
