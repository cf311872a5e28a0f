"""`sample` and `sample_posterior` against enumeration, quadrature and closed forms.

A tolerance of 5 % of a standard deviation is at least 4.5 standard errors of a mean. With some 30 numbers per test, a
test of correct code fails for one seed in 5,000. Seeds are fixed.
"""

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vages
from errors import refused
from truth import mean_differs
from vages import MCMC, Annealed, Binary, Categorical, EnergyModel, Gibbs, Held, Real, SamplingWarning, Schedule
from vages.domains import Product
from vages.samplers import diagnostics, mcmc, sample_joint, sample_unconditional, sample_v
from vages.samplers import target as targets
from vages.samplers.chains import Job
from vages.samplers.sample import _spread
from vages.samplers.samples import Samples, diagnose, warn
from vages.samplers.starts import starts

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def shifted(params, v, h):
    """p(v | h) = N(b + W h, s²): a mixture of 16 Gaussians in five dimensions."""
    center = params["b"] + params["W"] @ h
    return 0.5 * jnp.sum((v - center) ** 2) / params["s"] ** 2 - params["c"] @ h


def mixture(dtype=jnp.float32, **more):
    rng = np.random.default_rng(1)
    params = {"W": rng.normal(size=(5, 4)), "b": rng.normal(size=5), "c": rng.normal(size=4) / 2, "s": 0.6}
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), params)
    return EnergyModel(shifted, params, v=Real(5), h=Binary(4), **more)


def its_moments(model):
    """Mean and standard deviation of v, and the mean of h, by enumeration."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params)
    states = np.asarray(Binary(4).states(), np.float64)
    weights = np.exp(states @ p["c"])
    weights /= weights.sum()
    centers = p["b"] + states @ p["W"].T
    mean = weights @ centers
    return mean, np.sqrt(weights @ (centers - mean) ** 2 + p["s"] ** 2), weights @ states


def assert_close(samples, mean, std, tolerance=0.05):
    drawn = np.asarray(samples, np.float64)
    assert np.max(np.abs(drawn.mean(0) - mean) / std) < tolerance
    assert np.max(np.abs(drawn.std(0) / std - 1)) < tolerance


@pytest.mark.parametrize(
    "sampler",
    [MCMC(), MCMC("hmc", sum_latents=False), MCMC("mala", thin=3)],
    ids=["nuts, latents summed out", "hmc and draws of h in turn", "mala"],
)
def test_five_dimensions_and_four_binary_latents(sampler):
    model = mixture()
    samples = vages.sample(KEY, model, 16_000, sampler=sampler)
    mean, std, of_h = its_moments(model)
    assert_close(samples.v, mean, std)
    assert np.max(np.abs(np.asarray(samples.h).mean(0) - of_h)) < 0.025
    assert samples.worst_rhat < 1.01
    assert samples.least_ess > 4000
    assert samples.diverged == 0
    assert set(np.unique(samples.h)) == {0, 1}
    rest = samples.v - model.params["b"][None] - samples.h @ model.params["W"].T  # each h belongs to its v
    assert_close(rest, np.zeros(5), np.full(5, 0.6))
    assert samples.v.shape == (16_000, 5)
    assert samples.gradients > 16_000


def test_without_closed_forms_modes_of_latents_are_found_wherever_they_are():
    """Modes at 0 and 40: chains start in both, whatever their distance, and jump between them."""
    model = EnergyModel(lambda p, v, h: 0.5 * (v[0] - 40 * h[0]) ** 2, jnp.zeros(1), v=Real(1), h=Binary(1))
    samples = vages.sample(KEY, model, 8000, sampler=MCMC("hmc"))
    assert abs(float(jnp.mean(samples.v > 20)) - 0.5) < 0.03
    assert samples.worst_rhat < 1.01
    assert samples.least_ess > 4000


def test_a_gaussian_of_condition_number_1000():
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    precision = rotation @ np.diag(np.geomspace(1, 1000, 4)) @ rotation.T
    model = EnergyModel(lambda p, v, h: 0.5 * v @ p @ v, jnp.asarray(precision, jnp.float32), v=Real(4))
    samples = vages.sample(KEY, model, 16_000)
    along = np.asarray(samples.v, np.float64) @ rotation
    assert_close(along, np.zeros(4), 1 / np.sqrt(np.geomspace(1, 1000, 4)))
    assert samples.h.shape == (16_000, 0)


def two_modes(params, v, h):
    return -jnp.logaddexp(jnp.log(0.3) - 0.5 * (v[0] + 4) ** 2, jnp.log(0.7) - 0.5 * (v[0] - 4) ** 2)


def test_modes_that_do_not_mix_are_told_and_tempering_mixes_them():
    model = EnergyModel(two_modes, jnp.zeros(1), v=Real(1))
    with pytest.warns(SamplingWarning, match="R̂"):
        assert vages.sample(KEY, model, 4000).worst_rhat > 1.05
    shifted = EnergyModel(lambda *x: two_modes(*x) - 50, jnp.zeros(1), v=Real(1))  # a constant changes nothing
    samples = vages.sample(KEY, shifted, 16_000, sampler=MCMC(temperatures=(1.0, 2.0, 4.0, 8.0, 16.0)))
    right = np.asarray(samples.v[:, 0]) > 0
    assert abs(right.mean() - 0.7) < 0.05
    assert abs(np.asarray(samples.v[right]).std() - 1) < 0.05
    assert samples.worst_rhat < 1.05


@pytest.mark.parametrize("summed", [True, False])
def test_tempered_latents_keep_their_law(summed):
    """Latents are drawn at temperature 1, whether they are summed out or not."""
    model = mixture()
    mean, std, of_h = its_moments(model)
    sampler = MCMC("mala", temperatures=(1.0, 1.5), sum_latents=summed)
    samples = vages.sample(KEY, model, 8000, sampler=sampler)
    assert_close(samples.v, mean, std, 0.08)
    assert np.max(np.abs(np.asarray(samples.h).mean(0) - of_h)) < 0.04


def curved(params, v, h):
    return jnp.sum(v**4) / 4 + 0.5 * jnp.sum((h - v**2) ** 2) + 0.3 * h[0] * v[0]


def quadrature(energy, low=-8.0, high=8.0, points=1201):
    """log Z and weights on a grid of (v, h)."""
    x = np.linspace(low, high, points)
    v, h = np.meshgrid(x, x, indexing="ij")
    logs = -np.asarray(jax.vmap(lambda v, h: energy(None, v, h))(v.reshape(-1, 1), h.reshape(-1, 1)), np.float64)
    weights = np.exp(logs - logs.max()).reshape(v.shape)
    return logs.max() + np.log(weights.sum() * (x[1] - x[0]) ** 2), v, h, weights / weights.sum()


def test_continuous_latents_against_quadrature(float64):
    model = EnergyModel(curved, jnp.zeros(1), v=Real(1), h=Real(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # a few moves diverge in the narrow bend
        samples = vages.sample(KEY, model, 32_000)
    _, v, h, weights = quadrature(curved)
    for drawn, grid in ((samples.v, v), (samples.h, h)):
        mean = np.sum(weights * grid)
        assert_close(drawn, mean, np.sqrt(np.sum(weights * grid**2) - mean**2))


def mixed():
    centers = jnp.asarray([[4.0, 0.0, -3.0], [0.0, 3.0, -1.0]])

    def energy(centers, v, h):
        z, y = h["z"], h["y"][0]
        return 0.5 * jnp.sum((v - centers @ y - z) ** 2) / 0.3 + 0.5 * jnp.sum(z**2) - y[0]

    return EnergyModel(energy, centers, v=Real(2), h={"z": Real(2), "y": Categorical(1, 3)})


@pytest.mark.parametrize("summed", [True, False])
def test_mixed_latents_against_enumeration(summed):
    model = mixed()
    samples = vages.sample(KEY, model, 16_000, sampler=MCMC("hmc", sum_latents=summed))
    weights = np.exp([1, 0, 0]) / np.exp([1, 0, 0]).sum()
    centers = np.asarray(model.params).T
    mean = weights @ centers
    assert_close(samples.v, mean, np.sqrt(weights @ (centers - mean) ** 2 + 1.3))
    assert_close(samples.h["z"], np.zeros(2), np.ones(2))
    assert np.max(np.abs(np.asarray(samples.h["y"]).mean((0, 1)) - weights)) < 0.025
    assert set(samples.rhat) == {"v", "h.z", "h.y"}
    assert samples.worst_rhat < 1.02


def test_discrete_v_with_discrete_latents_against_enumeration():
    """There are no gradients: v and h are drawn given each other. 8,000 draws, tolerances of 6 standard errors."""
    coupling = jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32)
    model = EnergyModel(lambda J, v, h: -v[0] @ J @ h - 0.5 * h[0], coupling, v=Categorical(1, 3), h=Binary(2))
    samples = vages.sample(KEY, model, 8000, sampler=MCMC("mala", warmup=50))
    v, h = np.asarray(model.v.states(), np.float64)[:, 0], np.asarray(model.h.states(), np.float64)
    weights = np.exp(v @ np.asarray(coupling, np.float64) @ h.T + 0.5 * h[:, 0])
    weights /= weights.sum()
    pairs = np.asarray(samples.v)[:, 0].T @ np.asarray(samples.h) / 8000
    assert np.max(np.abs(np.asarray(samples.v)[:, 0].mean(0) - weights.sum(1))) < 0.04
    assert np.max(np.abs(pairs - v.T @ weights @ h)) < 0.04
    given = vages.sample_posterior(KEY, model, jnp.asarray([[[0.0, 1.0, 0.0]]]), 8000, sampler=MCMC("mala", warmup=50))
    expected = weights[1] / weights[1].sum() @ h
    assert np.max(np.abs(np.asarray(given.h)[0].mean(0) - expected)) < 0.04


def test_posteriors_in_closed_form():
    """The default, exact draws, and MCMC of h given v against the known posterior."""
    model = vages.LinearGaussian.init(KEY, 3, 2)
    v = jnp.asarray([[0.5, -1.0, 2.0], [3.0, 0.0, -2.0]])
    mean = np.asarray(jax.vmap(lambda v: model.posterior(model.features(v)).mean)(v))
    exact = vages.sample_posterior(KEY, model, v, 8000)
    chains = vages.sample_posterior(KEY, model, v, 8000, sampler=MCMC("hmc"))
    for samples in (exact, chains):
        assert samples.h.shape == (2, 8000, 2)
        for drawn, center in zip(samples.h, mean, strict=True):
            assert_close(drawn, center, np.ones(2))
    assert exact.gradients == 0
    assert exact.least_ess == 8000
    assert chains.worst_rhat < 1.02
    assert chains.rhat["h"].shape == (2, 2)


def test_posteriors_of_mixed_latents():
    model = mixed()
    v = jnp.asarray([[1.8, 1.2]])
    samples = vages.sample_posterior(KEY, model, v, 8000, sampler=MCMC("hmc"))
    centers = np.asarray(model.params, np.float64).T
    logs = -0.5 * ((np.asarray(v) - centers) ** 2).sum(1) / 1.3 + np.array([1, 0, 0])
    weights = np.exp(logs - logs.max())
    assert np.max(np.abs(np.asarray(samples.h["y"])[0, :, 0].mean(0) - weights / weights.sum())) < 0.03


@pytest.mark.long_runs
def test_exact_posteriors_of_many_states_and_of_coarse_numbers():
    """4,096 states; and four states in bfloat16, where coarse noise would draw the rarest 16 % too rarely.

    For 20,000 draws, 0.022 is 6 standard errors of a mean of zeros and ones. For 160,000, 0.0013 is more than 4
    standard errors of the frequency of the rarest state.
    """
    c = jnp.asarray(RNG.normal(size=12), jnp.float32)
    model = EnergyModel(lambda c, v, h: -c @ h - 2 * h[0] * h[11] - v[0] * h[1], c, v=Real(1), h=Binary(12))
    samples = vages.sample_posterior(KEY, model, jnp.zeros((1, 1)), 20_000)
    states = np.asarray(model.h.states(), np.float64)
    weights = np.exp(states @ np.asarray(c, np.float64) + 2 * states[:, 0] * states[:, 11])
    weights /= weights.sum()
    drawn = np.asarray(samples.h)[0]
    assert np.max(np.abs(drawn.mean(0) - weights @ states)) < 0.022
    assert np.max(np.abs(drawn.T @ drawn / 20_000 - (weights[:, None] * states).T @ states)) < 0.022
    assert samples.least_ess == 20_000
    logs = jnp.log(jnp.asarray([0.02, 0.28, 0.3, 0.4])).astype(jnp.bfloat16)
    coarse = EnergyModel(lambda p, v, h: -jnp.sum(p * h[0]) + v[0], logs, v=Real(1), h=Categorical(1, 4))
    h = vages.sample_posterior(KEY, coarse, jnp.zeros((1, 1), jnp.bfloat16), 160_000).h
    rare = float(jnp.mean(h[0, :, 0, 0].astype(jnp.float32)))
    assert abs(rare - float(jax.nn.softmax(logs.astype(jnp.float32))[0])) < 0.0013


def test_examples_without_a_posterior_are_refused():
    """Otherwise a state whose energy is NaN would always be drawn, and the first state if all are forbidden."""
    nan = EnergyModel(lambda p, v, h: jnp.where(h[0] > 0, jnp.nan, v[0]), jnp.zeros(1), v=Real(1), h=Binary(1))
    half = EnergyModel(lambda p, v, h: jnp.where(v[0] > 0, h[0], jnp.inf), jnp.zeros(1), v=Real(1), h=Binary(1))
    for model in (nan, half):
        with refused("v", "others in row"):
            vages.sample_posterior(KEY, model, jnp.asarray([[1.0], [-1.0]]), 5)


def test_posteriors_in_another_precision_and_of_no_latents(float64):
    energy = lambda p, v, h: 0.5 * jnp.sum((v - h) ** 2) + p[0]
    model = EnergyModel(energy, jnp.zeros(1, jnp.float32), v=Real(2), h=Real(2))
    with jax.numpy_dtype_promotion("standard"):  # v is in float64, the parameters and chains are in float32
        samples = vages.sample_posterior(KEY, model, jnp.ones((1, 2)), 2000, sampler=MCMC("hmc", warmup=100))
    assert_close(samples.h[0], np.ones(2), np.ones(2), 0.15)
    without = EnergyModel(lambda p, v, h: jnp.sum(v**2), jnp.zeros(1), v=Real(2))
    assert vages.sample_posterior(KEY, without, jnp.zeros((2, 2)), 5, sampler=MCMC()).h.shape == (2, 5, 0)


@pytest.mark.filterwarnings("ignore:.*moves diverged:vages.SamplingWarning")  # in one of 32 short warm-ups
def test_a_posterior_of_two_modes_is_seen_whole():
    """32 posteriors with two modes. 16 chains miss a mode of any for one key in a thousand, 4 chains nearly always."""
    energy = lambda p, v, h: 0.5 * v[0] ** 2 + two_modes(p, h, None)
    model = EnergyModel(energy, jnp.zeros(1), v=Real(1), h=Real(1))
    with pytest.warns(SamplingWarning, match="R̂"):
        samples = vages.sample_posterior(KEY, model, jnp.zeros((32, 1)), 100, sampler=MCMC("mala", warmup=50))
    right = np.mean(np.asarray(samples.h) > 0, axis=1)
    assert samples.h.shape == (32, 100, 1)
    assert np.all((right > 0) & (right < 1))


def test_v_given_h():
    model = mixture()
    h = jnp.asarray([1.0, 0, 0, 1])
    samples = vages.sample(KEY, model, 8000, h=h, sampler=MCMC("hmc"))
    center = np.asarray(model.params["b"] + model.params["W"] @ h)
    assert_close(samples.v, center, np.full(5, 0.6))
    assert bool(jnp.all(samples.h == h[None]))
    rows = jnp.tile(Binary(4).states(), (5, 1))
    ends = vages.sample(KEY, model, 80, h=rows, sampler=MCMC("hmc", warmup=200))
    rest = ends.v - model.params["b"][None] - rows @ model.params["W"].T
    assert abs(float(jnp.std(rest)) / 0.6 - 1) < 0.15
    begun = rows @ model.params["W"].T
    near = vages.sample(KEY, model, 80, h=rows, start=begun, sampler=MCMC("hmc", warmup=200))
    assert near.v.shape == ends.v.shape
    assert bool(jnp.all(ends.h == rows))


@pytest.mark.parametrize("sampler", [None, MCMC("hmc")], ids=["gibbs", "hmc"])
def test_held_entries(sampler):
    """The other entries of a GRBM given one of them, against enumeration."""
    model = vages.GRBM.init(jax.random.key(3), 3, 4)
    held = Held(jnp.asarray([True, False, False]), jnp.asarray([2.0, 0.0, 0.0]))
    samples = vages.sample(KEY, model, 16_000, held=held, sampler=sampler)
    states = np.asarray(Binary(4).states(), np.float64)
    W, b, c = (np.asarray(x, np.float64) for x in (model.weight, model.visible_bias, model.latent_bias))
    centers = b + states @ W.T
    logs = states @ c + 0.5 * ((centers**2).sum(1) - (b**2).sum()) - 0.5 * (2 - centers[:, 0]) ** 2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ centers[:, 1:]
    assert_close(samples.v[:, 1:], mean, np.sqrt(weights @ (centers[:, 1:] - mean) ** 2 + 1))
    assert bool(jnp.all(samples.v[:, 0] == 2))
    assert float(samples.rhat["v"][0]) == 1


def test_held_entries_move_freely_beside_the_model():
    """The chain's held entries are independent standard normal numbers that affect nothing else."""
    model = vages.GRBM.init(KEY, 3, 4)
    held = targets.Target(
        model, mask=jnp.asarray([True, False, False]), known=jnp.asarray([2.0, 0.0, 0.0]), summed=True
    )
    v = jnp.asarray([0.7, 1.0, -1.0])
    expected = -0.5 * 0.7**2 - model.free_energy(v.at[0].set(2))
    assert float(held.log_prob({"v": v}, {})) == pytest.approx(float(expected), abs=1e-5)


def test_exact_draws_where_closed_forms_allow():
    def conditional(p, h):
        return vages.Gaussian(p["b"] + p["W"] @ h, jnp.full(5, jnp.log(p["s"])))

    for model in (vages.GRBM.init(KEY, 3, 4), mixture(conditional=conditional)):
        samples = vages.sample(KEY, model, 16_000)
        assert samples.gradients == 0
        assert samples.rhat == {}
        assert samples.worst_rhat == 1
        assert samples.least_ess == 16_000
    assert_close(samples.v, *its_moments(model)[:2])
    weight = jnp.asarray([[0.6, 0.2], [0.5, -0.3], [-0.4, 0.5]])
    model = vages.LinearGaussian(weight, jnp.ones(3), jnp.zeros(2), jnp.zeros(()))
    samples = vages.sample(KEY, model, 16_000)
    covariance = np.linalg.inv(np.asarray(model.marginal_precision(), np.float64))
    assert_close(samples.v, np.asarray(model.marginal_mean()), np.sqrt(np.diag(covariance)))
    assert np.max(np.abs(np.cov(np.asarray(samples.v).T) / covariance - 1)) < 0.15


class BinaryRBM(vages.TractableEBLVM):
    """Both v and h are binary. The closed forms can be relaxed, like those of a learned posterior."""

    weight: jax.Array

    @property
    def v(self):
        return Binary(3)

    @property
    def h(self):
        return Binary(2)

    def features(self, v):  # pyright: ignore[reportIncompatibleMethodOverride]
        return v

    def log_joint(self, features, h):
        return features @ self.weight @ h

    def posterior(self, features):
        return vages.Bernoulli(features @ self.weight)

    def conditional(self, h):
        return vages.Bernoulli(self.weight @ h)

    def free_energy(self, v):
        return -jnp.sum(jax.nn.softplus(v @ self.weight))

    def log_partition(self):
        return jax.nn.logsumexp(jax.vmap(self.free_energy)(self.v.states()))


@pytest.mark.parametrize("sampler", [None, Gibbs(20), MCMC("mala", warmup=20)], ids=["exact", "gibbs", "redrawn"])
def test_relaxed_closed_forms_draw_states(sampler):
    model = BinaryRBM(jnp.asarray([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.3]]))
    samples = vages.sample(KEY, model, 8000, sampler=sampler)
    assert set(np.unique(samples.v)) == {0, 1} == set(np.unique(samples.h))
    v, h = (np.asarray(x.states(), np.float64) for x in (model.v, model.h))
    weights = np.exp(v @ np.asarray(model.weight, np.float64) @ h.T)
    pairs = np.asarray(samples.v).T @ np.asarray(samples.h) / 8000
    assert np.max(np.abs(pairs - v.T @ (weights / weights.sum()) @ h)) < 0.04


class NamedLatents(vages.TractableEBLVM):
    """A model whose two latents are called a and b."""

    model: Any

    @property
    def v(self):
        return self.model.v

    @property
    def h(self):
        return Product(dict.fromkeys("ab", type(self.model.h)(1)))

    def features(self, v):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.model.features(v)

    def log_joint(self, features, h):
        return self.model.log_joint(features, jnp.concatenate([h["a"], h["b"]]))

    def posterior(self, features):
        q = self.model.posterior(features)
        return vages.Joint({"a": jax.tree.map(lambda x: x[:1], q), "b": jax.tree.map(lambda x: x[1:], q)})

    def conditional(self, h):
        return self.model.conditional(jnp.concatenate([h["a"], h["b"]]))

    def free_energy(self, v):
        return self.model.free_energy(v)

    def log_partition(self):
        return self.model.log_partition()


@pytest.mark.parametrize("sampler", [Gibbs(20), MCMC("mala", warmup=20)], ids=["gibbs", "redrawn"])
def test_closed_forms_of_named_latents(sampler):
    """Six means of products against enumeration, within 0.04: 5.3 standard errors. False-alarm rate 7e-7."""
    rbm = BinaryRBM(jnp.asarray([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.3]]))
    samples = vages.sample(KEY, NamedLatents(rbm), 8000, sampler=sampler)
    assert samples.least_ess > 4500
    v, h = (np.asarray(x.states(), np.float64) for x in (rbm.v, rbm.h))
    weights = np.exp(v @ np.asarray(rbm.weight, np.float64) @ h.T)
    drawn = np.concatenate([samples.h["a"], samples.h["b"]], 1)
    pairs = np.asarray(samples.v).T @ drawn / 8000
    assert np.max(np.abs(pairs - v.T @ (weights / weights.sum()) @ h)) < 0.04


def test_named_real_latents_are_drawn_by_default():
    """The mean and standard deviation of v are within 6 standard errors, if half of the draws count."""
    model = vages.LinearGaussian(jnp.asarray([[0.3, -0.2]]), jnp.ones(1), jnp.zeros(2), jnp.zeros(()))
    samples = vages.sample(KEY, NamedLatents(model), 8000)
    assert_close(samples.v, model.marginal_mean(), np.sqrt(1 / np.asarray(model.marginal_precision())[0]), 0.09)
    assert samples.least_ess > 4500
    assert samples.h["a"].shape == samples.h["b"].shape == (8000, 1)


def test_a_conditional_of_another_energy_is_refused():
    model = mixture(conditional=lambda p, h: vages.Gaussian(p["b"], jnp.zeros(5)))
    with refused("conditional"):
        vages.sample(KEY, model, 10)


def test_forbidden_states_beside_a_conditional():
    """The energy is infinite for one of four states of h. One of the conditionals is correct for binary v only."""
    both = lambda h: jnp.where(h[0] * h[1] > 0, jnp.inf, 0.0)
    real = EnergyModel(
        lambda p, v, h: both(h) + 0.5 * jnp.sum((v - h) ** 2),
        jnp.zeros(1),
        v=Real(2),
        h=Binary(2),
        conditional=lambda p, h: vages.Gaussian(h, jnp.zeros(2)),
    )
    binary = EnergyModel(
        lambda p, v, h: both(h) - jnp.sum(v**2 * h),
        jnp.zeros(1),
        v=Binary(2),
        h=Binary(2),
        conditional=lambda p, h: vages.Bernoulli(h),
    )
    for model, weight in ((real, 1), (binary, (1 + np.e) / 2)):
        h = np.asarray(vages.sample(KEY, model, 8000).h)
        assert np.max(np.abs(h.mean(0) - weight / (1 + 2 * weight))) < 0.03
        assert np.all(h.sum(1) < 2)
    assert vages.log_partition(KEY, real).forward.value == pytest.approx(np.log(3 * 2 * np.pi), abs=1e-5)
    with refused("energy", "none"):
        never = lambda p, v, h: jnp.sum(v) + jnp.inf
        vages.sample(KEY, EnergyModel(never, 0.0, v=Real(2), h=Binary(2), conditional=real.given_latents), 5)


def test_gibbs_of_a_grbm_against_enumeration():
    model = vages.GRBM.init(jax.random.key(3), 3, 4)
    samples = vages.sample(KEY, model, 16_000, sampler=Gibbs(warmup=100))
    exact = vages.sample(jax.random.key(1), model, 64_000)
    assert_close(samples.v, np.asarray(exact.v).mean(0), np.asarray(exact.v).std(0))
    assert samples.worst_rhat < 1.01
    gaussian = vages.LinearGaussian.init(KEY, 3, 2)
    samples = vages.sample(KEY, gaussian, 16_000, sampler=Gibbs(warmup=100))
    covariance = np.linalg.inv(np.asarray(gaussian.marginal_precision(), np.float64))
    assert_close(samples.v, np.asarray(gaussian.marginal_mean()), np.sqrt(np.diag(covariance)))


def coupled(p, v, h):
    """p(z | v) = N(16 v, 1), and y is v, but for one draw in e³²."""
    h = {"z": h} if not isinstance(h, dict) else h
    return 0.5 * jnp.sum((h["z"] - 16 * v) ** 2) - 16 * jnp.sum((2 * v - 1) * (2 * h.get("y", v) - 1))


@pytest.mark.filterwarnings("ignore::vages.SamplingWarning")  # the chains of two modes have different means
@pytest.mark.parametrize(
    "model",
    [
        vages.GRBM(jnp.full((1, 1), 16.0), jnp.zeros(1), jnp.full(1, -128.0), jnp.zeros(())),
        EnergyModel(lambda p, v, h: -16 * jnp.sum((2 * v - 1) * (2 * h - 1)), 0.0, v=Binary(3), h=Binary(1)),
        EnergyModel(coupled, 0.0, v=Binary(1), h=Real(1)),
        EnergyModel(coupled, 0.0, v=Binary(1), h={"y": Binary(1), "z": Real(1)}),
    ],
    ids=["gibbs", "discrete", "real latents", "mixed latents"],
)
def test_chains_stay_in_the_mode_that_they_start_in(model):
    """Each chain begins at v, whatever h a random start would have. Modes are 8 standard deviations from their border.

    A chain crosses it at one step in 10¹⁴, so that the false-alarm rate is 1e-10.
    """
    size = 1 if model.v.continuous else 0  # of a mode, which is at 0 and 16, or 0 and 1
    second = jnp.arange(8) % 2 == 1
    start = jnp.where(second[:, None], 16.0 if size else 1.0, jnp.zeros(model.v.shape)[None])
    samples = vages.sample(KEY, model, 16, chains=8, start=start)
    assert samples.trace is not None
    far = np.abs(np.asarray(samples.trace["v"]) - np.asarray(start)[:, None])
    assert far.max() <= 8 * size


def test_latents_are_drawn_given_the_v_that_chains_start_at():
    """In closed form, from all states and by chains, for held entries and a context; false-alarm rate 1e-6 each."""
    n, v = 1000, jnp.asarray([0.3, -0.5])
    start = jnp.broadcast_to(v, (n, 2))
    drawn = lambda model, **given: jax.tree.map(
        lambda x: np.asarray(x)[0], starts(tuple(jax.random.split(KEY)), model, given, (1, n), start)
    )
    rbm = vages.GRBM.init(KEY, 2, 3)
    sigmoid = lambda v: jax.nn.sigmoid(rbm.latent_bias + v @ rbm.weight)
    assert not mean_differs(drawn(rbm)["h"], sigmoid(v))
    same = EnergyModel(lambda p, v, h: -rbm.log_joint(rbm.features(v), h), 0.0, v=Real(2), h=Binary(3))
    held = {"mask": jnp.asarray([[True, False]]), "known": jnp.asarray([[2.0, 9.0]])}
    assert not mean_differs(drawn(same, **held)["h"], sigmoid(v.at[0].set(2)))
    energy = lambda p, v, h, context: 2 * jnp.sum((h["z"] - v - context["at"]) ** 2) - h["y"][0] * v[0]
    mixed = EnergyModel(energy, 0.0, v=Real(2), h={"z": Real(2), "y": Binary(1)})
    states = drawn(mixed, context={"at": jnp.asarray([7.0])})
    assert not mean_differs(states["h.z"], v + 7)
    assert not mean_differs((states["h.z"] - np.asarray(v) - 7) ** 2, np.full(2, 0.25))
    assert not mean_differs(states["h.y"], jax.nn.sigmoid(v[:1]))


def test_contexts_shared_and_one_for_each_draw():
    def energy(p, v, h, context):
        return 0.5 * jnp.sum((v - context["center"]) ** 2)

    model = EnergyModel(energy, jnp.zeros(1), v=Real(2))
    one = vages.sample(KEY, model, 4000, context={"center": jnp.asarray([[3.0, -3.0]])}, sampler=MCMC("hmc"))
    assert_close(one.v, [3, -3], np.ones(2), 0.08)
    number = vages.sample(KEY, model, 4000, context={"center": 3.0}, sampler=MCMC("hmc"))
    assert_close(number.v, [3, 3], np.ones(2), 0.08)
    centers = jnp.arange(200.0).reshape(100, 2)
    each = vages.sample(KEY, model, 100, context={"center": centers}, sampler=MCMC("hmc", warmup=100))
    assert float(jnp.max(jnp.abs(each.v - centers))) < 5
    assert abs(float(jnp.std(each.v - centers)) - 1) < 0.2


@pytest.mark.parametrize("kind", ["all at once", "one by one", "summed out"])
def test_a_step_leaves_the_law_as_it_is(kind, monkeypatch):
    """Exact draws are still exact after three steps (Geweke 2004): means of v, h, v² and products.

    4,000 chains and some 60 means. A difference of 5 standard errors in any of them is a false alarm for one seed in
    30,000.
    """
    if kind == "one by one":
        monkeypatch.setattr(targets, "MAX_SUMMED", 1)
    model, chains = mixture(), 4000
    p, states = model.params, Binary(4).states()
    h = states[jax.random.categorical(jax.random.key(5), states @ p["c"], shape=(chains,))]
    v = p["b"][None] + h @ p["W"].T + p["s"] * jax.random.normal(jax.random.key(6), (chains, 5))
    sampler = MCMC("mala", warmup=0, sum_latents=kind == "summed out")
    drawn = sampler.run(KEY, Job(model, {}, {"v": v[None], "h": h[None]}, 3))
    after = jax.tree.map(lambda x: x[-1, 0], drawn.states)

    def statistics(v, h):
        rest = v - p["b"][None] - h @ p["W"].T
        return jnp.concatenate([v, h, v**2, rest * h[:, :1], rest * h[:, 1:2], rest**2, h * jnp.roll(h, 1, axis=1)], 1)

    before, now = statistics(v, h), statistics(after["v"], after["h"])
    error = jnp.sqrt((jnp.var(before, axis=0) + jnp.var(now, axis=0)) / chains)
    assert float(jnp.max(jnp.abs(jnp.mean(before, axis=0) - jnp.mean(now, axis=0)) / error)) < 5
    assert float(jnp.mean(jnp.any(after["v"] != v, axis=1))) > 0.3
    assert float(jnp.mean(jnp.any(after["h"] != h, axis=1))) > 0.3


def drawn_at(model, temperatures, count, *, summed):
    """Exact draws of p̃^(1/T) at each temperature, (count, temperatures, …): v from a fine grid, or h and then v."""
    betas, states = 1 / np.asarray(temperatures), np.asarray(model.h.states(), np.float64)
    centers, masses = (states @ np.asarray(model.params[name], np.float64) for name in "Wc")
    uniform, normal = RNG.uniform(size=(count, len(betas))), RNG.normal(size=(count, len(betas)))
    x = np.linspace(-40, 40, 8001)
    logs = np.logaddexp.reduce(masses - 0.5 * (x[:, None] - centers) ** 2, axis=1) if summed else masses
    below = [np.cumsum(np.exp(beta * (logs - logs.max()))) for beta in betas]
    numbers = np.stack([np.searchsorted(b, u * b[-1]) for b, u in zip(below, uniform.T, strict=True)], axis=1)
    if summed:
        return {"v": jnp.asarray(x[numbers][..., None], jnp.float32)}
    v = centers[numbers] + normal / np.sqrt(betas)
    return {"v": jnp.asarray(v[..., None], jnp.float32), "h": jnp.asarray(states[numbers], jnp.float32)}


@pytest.mark.long_runs
@pytest.mark.parametrize("summed", [True, False], ids=["summed out", "drawn in turn"])
def test_a_tempered_step_leaves_the_law_of_all_temperatures_as_it_is(summed):
    """Exact draws at three temperatures are still exact and independent after eight steps (Geweke 2004).

    40,000 chains, 24 means; a difference of 6 standard errors is a false alarm for one seed in 2 · 10⁷.
    """
    energy = lambda p, v, h: 0.5 * (v[0] - p["W"] @ h) ** 2 - p["c"] @ h
    params = {"W": jnp.asarray([5.0, -3.0]), "c": jnp.asarray([1.0, -0.5])}
    model = EnergyModel(energy, params, v=Real(1), h=Binary(2))
    sampler, count = MCMC("mala", warmup=0, temperatures=(1.0, 2.0, 5.0)), 40_000
    start = drawn_at(model, sampler.temperatures, count, summed=summed)

    @jax.jit
    @jax.numpy_dtype_promotion("standard")
    def after(key, start):
        make = lambda given: targets.Target(model, **given, summed=summed)
        rows = jax.tree.map(lambda x: x.reshape(1, count * 3, *x.shape[2:]), start)
        chains = jax.tree.map(lambda x: x.reshape(1, count, 3, *x.shape[2:]), mcmc._begin(make, {}, rows))
        slope = jnp.broadcast_to(params["W"][:, None], (1, 3, 2, 1))  # jumps lead to the centers of p(v | h)
        some = {"v": jnp.zeros((1, count, 1)), "h": jnp.zeros((1, count, 2))}
        learnt = mcmc._begin_learning(make, {}, some, chains, 0.5)
        learnt = learnt._replace(jumps=learnt.jumps._replace(slope=slope))
        step = mcmc._all_chains(make, sampler, 1 / jnp.asarray(sampler.temperatures))
        one = lambda i, chains: step(jax.random.fold_in(key, i), {}, learnt.tuning.step_size, learnt, chains, i)[0]
        chains = jax.lax.fori_loop(0, 8, one, chains)
        return jax.tree.map(lambda x: x[0], chains.continuous | chains.discrete)

    def statistics(state):
        v, h = state["v"][..., 0], state.get("h", jnp.zeros((count, 3, 2)))
        near = jnp.min((v[..., None] - (model.h.states() @ params["W"])[None, None]) ** 2, axis=2)
        rest = (v - h @ params["W"])[..., None] * h
        parts = [v, v**2, near, v * jnp.roll(v, 1, axis=1), h.reshape(count, -1), rest.reshape(count, -1)]
        return jnp.concatenate(parts, axis=1)

    now = after(jax.random.key(1), start)
    before, later = statistics(start), statistics(now)
    error = jnp.sqrt((jnp.var(before, axis=0) + jnp.var(later, axis=0)) / count) + 1e-12
    assert float(jnp.max(jnp.abs(jnp.mean(before, axis=0) - jnp.mean(later, axis=0)) / error)) < 6
    assert float(jnp.min(jnp.mean(now["v"] != start["v"], axis=0))) > 0.3


def test_two_temperatures_propose_an_exchange_at_every_step():
    model = EnergyModel(two_modes, jnp.zeros(1), v=Real(1))
    sampler = MCMC("mala", warmup=0, temperatures=(1.0, 1.001))
    drawn = sampler.run(KEY, Job(model, {}, {"v": jnp.ones((1, 2, 1))}, 20))
    assert drawn.swapped is not None
    assert float(jnp.min(drawn.swapped)) > 0.9


def test_chains_far_from_zero_are_told_apart(float64):
    """Two chains at 10⁸ and two at 10⁸ + 1. In float32 these are the same number."""
    places = 1e8 + np.repeat([0.0, 1.0], 2)[None, :, None, None]
    rhat, _ = diagnose({"v": jnp.asarray(places + 1e-3 * RNG.normal(size=(1, 4, 100, 1)))})
    assert float(rhat["v"][0, 0]) > 1.5


def test_draws_without_a_density_are_refused(as_users_have_it):
    """The chains start where the energy is infinite, and leave that region only while draws are kept."""
    half = EnergyModel(lambda p, v, h: jnp.where(v[0] > 0, v[0], jnp.inf), jnp.zeros(1), v=Real(1))
    outside = jnp.full((4, 1), -0.5)
    drawn = MCMC("hmc", warmup=0).run(KEY, Job(half, {}, {"v": outside[None]}, 250))
    assert bool(jnp.all(drawn.states["v"][-1] > 0))
    with refused("sample"):
        vages.sample(KEY, half, 1000, chains=4, start=outside, sampler=MCMC("hmc", warmup=0))


def test_the_annealed_sampler_is_named():
    model = vages.DeepEBLVM.vectors(KEY, 2, width=4, depth=1, latents=2, head_width=3)
    schedule = Schedule().scaled(0.005)
    samples = vages.sample(KEY, model, 5, sampler=Annealed(schedule))
    assert samples.v.shape == (5, 2)
    assert samples.h.shape == (5, 2)
    assert samples.gradients == 5 * (schedule.steps + 1)
    fixed = vages.sample(KEY, model, 5, h=jnp.ones(2), sampler=Annealed(schedule))
    assert bool(jnp.all(fixed.h == 1))
    pool = vages.sample(KEY, model, 5, sampler=Annealed(schedule, latents=jnp.full((3, 2), 2.0)))
    assert bool(jnp.all(pool.h == 2))
    with refused("start", kind=TypeError):
        vages.sample(KEY, model, 5, start=jnp.zeros((5, 2)), sampler=Annealed(schedule))
    with refused("latents", kind=TypeError):
        vages.sample(KEY, model, 5, h=jnp.ones(2), sampler=Annealed(schedule, latents=jnp.ones((3, 2))))


def test_annealed_draws_hold_entries_whatever_their_latents():
    """v given h and one of its entries, with h from the pool: the law of the discrete chain of the other entry.

    Both entries have variance 1 and are independent given h. At temperature 1, steps of size s add to x the drift
    ½ s² (m − x) and noise of variance s². 4,000 draws; the mean is within 5 standard errors (false-alarm rate 6e-7).
    """
    weight = jnp.asarray([[1.0], [0.5]])
    model, s, steps = vages.LinearGaussian(weight, jnp.zeros(2), jnp.zeros(1), jnp.zeros(())), 0.5, 10
    schedule = Schedule(steps, 0, 0, top_temperature=1.0, step_size=s, denoise=None)
    held = Held(jnp.asarray([True, False]), jnp.asarray([3.0, 0.0]))
    annealed = Annealed(schedule, latents=jnp.full((3, 1), 6.0))
    drawn = vages.sample(KEY, model, 4000, held=held, sampler=annealed)
    np.testing.assert_array_equal(drawn.h, np.full((4000, 1), 6))
    np.testing.assert_array_equal(drawn.v[:, 0], np.full(4000, 3))
    keep = 1 - 0.5 * s**2
    mean = 3 + keep**steps * (0.5 - 3)
    variance = keep ** (2 * steps) + s**2 * sum(keep ** (2 * i) for i in range(steps))
    assert abs(float(drawn.v[:, 1].mean()) - mean) < 5 * np.sqrt(variance / 4000)


def test_annealed_draws_of_discrete_v_or_named_latents_are_refused(as_users_have_it):
    """Steps along gradients do not sample discrete variables, and the chains hold h in one array."""
    discrete = EnergyModel(lambda p, v, h: jnp.sum((h - v[0]) ** 2), jnp.zeros(1), v=Binary(3), h=Real(1))
    energy = lambda p, v, h: jnp.sum(v**2) + jnp.sum(h["a"] ** 2) + jnp.sum(h["b"] ** 2)
    named = EnergyModel(energy, jnp.zeros(1), v=Real(3), h={"a": Real(2), "b": Real(1)})
    schedule = Schedule().scaled(0.005)
    for model, got in ((discrete, discrete.v), (named, named.h)):
        h = model.h.zeros(jnp.float32, 2)
        for call in (
            partial(vages.sample, KEY, model, 2, sampler=Annealed(schedule)),
            partial(vages.sample, KEY, model, 2, h=h, sampler=Annealed(schedule)),
            partial(sample_v, KEY, model, h, schedule),
            partial(sample_joint, KEY, model, 2, schedule),
            partial(sample_unconditional, KEY, model, 2, schedule),
        ):
            with refused("annealed Langevin dynamics", got, kind=TypeError):
                call()


@pytest.mark.filterwarnings("ignore::vages.SamplingWarning")  # R̂ of five draws from two chains is random
def test_numbers_of_numpy_and_lists(as_users_have_it):
    """n, chains and samples may be NumPy integers, and h may be lists."""
    model, (two, three, five) = mixed(), np.asarray([2, 3, 5])
    h = {"z": [0.5, -0.5], "y": [[0, 1, 0]]}
    samples = vages.sample(KEY, model, five, chains=two, h=h, sampler=MCMC("hmc", warmup=100))
    assert samples.v.shape == (5, 2)
    assert np.array_equal(samples.h["z"], np.tile([0.5, -0.5], (5, 1)))
    assert np.array_equal(samples.h["y"], np.tile([[0, 1, 0]], (5, 1, 1)))
    assert vages.sample_posterior(KEY, mixture(), jnp.zeros((2, 5)), three).h.shape == (2, 3, 4)


@pytest.mark.parametrize("kept", [4000, 500, 40, 16, 5, 1])
def test_draws_are_taken_from_all_chains_alike(kept):
    places = jnp.stack(jnp.meshgrid(jnp.arange(16), jnp.arange(250), indexing="ij"), axis=-1)[None]
    chains, steps = np.asarray(_spread(places, kept)[0]).T
    counts = np.bincount(chains, minlength=16)
    assert len(chains) == kept
    assert counts.max() - counts.min() <= 1
    assert steps.max() == 249
    assert np.all(np.diff(steps) >= 0)


def test_the_warm_up_aims_at_the_acceptance_that_is_asked_for():
    model = EnergyModel(lambda p, v, h: 0.5 * jnp.sum(v**2), jnp.zeros(1), v=Real(20))
    for rate, least, most in ((None, 0.5, 0.8), (0.95, 0.9, 1.0)):
        sampler = MCMC("mala", thin=10, target_acceptance=rate)
        assert least < vages.sample(KEY, model, 50, chains=8, sampler=sampler).acceptance < most


def test_the_effective_sample_size_is_that_of_the_tails():
    """Draws are independent, except that they stay inside or outside the highest 5 % with autocorrelation 0.9.

    For this tail, (1 − 0.9) / (1 + 0.9) of the draws count: 3,400 of 64,000. The estimate is some 10 % too high and
    varies by 6 %.
    """
    chains, draws = 32, 2000
    uniform, stays = RNG.uniform(size=(2, chains, draws))
    tail = np.zeros((chains, draws), bool)
    for i in range(1, draws):
        tail[:, i] = np.where(stays[:, i] < 0.9, tail[:, i - 1], RNG.uniform(size=chains) < 0.05)
    x = np.where(tail, 0.95 + 0.05 * uniform, 0.95 * uniform)
    _, ess = diagnose({"v": jnp.asarray(x, jnp.float32)[None, :, :, None]})
    assert abs(float(ess["v"][0, 0]) / (chains * draws * 0.1 / 1.9) - 1) < 0.3
    rare = RNG.uniform(size=(1, 4, 500, 3)) < np.asarray([0.5, 0.02, 0.98])  # a tail may hold all of them
    assert float(jnp.min(diagnose({"v": jnp.asarray(rare, jnp.float32)})[1]["v"])) > 1000
    with pytest.warns(SamplingWarning, match="the effective sample size is 20"):
        warn(Samples(None, None, 1.0, {"v": jnp.ones(1)}, {}, 0, 0), chains=2, ess=20.0)


def test_diagnostics_are_those_of_blackjax():
    """Up to float32 rounding, for correlated, repeated, drifting and discrete draws, and with a constant chain."""
    from blackjax.diagnostics import effective_sample_size, ess_bulk, rhat

    rng = np.random.default_rng(0)  # own seed: rounding decides whether a draw at the edge of a tail is in it
    x = rng.normal(size=(8, 100, 12))  # the last columns are independent
    for i in range(1, 100):
        x[:, i, 1:3] += np.asarray([0.9, -0.6]) * x[:, i - 1, 1:3]
    x[:, :, 3] = np.repeat(x[:, ::4, 3], 4, axis=1)
    x[:, :, 4] += np.linspace(0, 2, 100)
    x[:, :, 5] = rng.integers(0, 4, size=(8, 100))
    x[0, :, 6] = 0.3
    x = (x - x[:1, :1]).astype(np.float32)  # as `diagnose` does, so that float32 rounding makes no other ties
    worst, ess = diagnose({"v": jnp.asarray(x)[None]})
    one = x[1:2] - x[1:2, :1]
    alone, _ = diagnose({"v": jnp.asarray(one)[None]})
    low, high = np.quantile(x, [0.05, 0.95], axis=(0, 1))
    halves = np.concatenate([x[:, :50], x[:, 50:]])
    tails = np.stack([halves <= low, halves >= high]).astype(np.float32)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs, bulk, of_tails, of_halves = jax.jit(
            lambda x, y, z: (rhat(x), ess_bulk(x), jax.vmap(effective_sample_size)(y), rhat(z))
        )(x, tails, np.concatenate([one[:, :50], one[:, 50:]]))
    np.testing.assert_allclose(worst["v"][0], theirs, rtol=1e-5)
    np.testing.assert_allclose(alone["v"][0], of_halves, rtol=1e-5)
    np.testing.assert_allclose(ess["v"][0], np.minimum(bulk, of_tails.min(axis=0)), rtol=1e-4)


def test_chains_that_stand_still_apart_have_no_finite_rhat():
    places = np.broadcast_to(RNG.normal(size=(1, 4, 1, 2)), (1, 4, 100, 2))
    rhat, ess = diagnose({"v": jnp.asarray(places, jnp.float32)})
    assert np.isinf(rhat["v"]).all()
    assert (ess["v"] == 1).all()


def test_rhat_where_ranks_tell_nothing():
    """As many zeros as ones: all draws are equally far from the median, so R̂ is that of the halves."""
    x = np.repeat([[1, 1, 0, 1], [0, 0, 1, 0]], 25, axis=0).T.reshape(4, 50)  # chains, draws
    x = np.stack([RNG.permutation(row) for row in np.concatenate([x, 1 - x], axis=1)])
    halves = x.reshape(8, 50)
    between, within = 50 * halves.mean(axis=1).var(ddof=1), halves.var(axis=1, ddof=1).mean()
    rhat, _ = diagnose({"v": jnp.asarray(x, jnp.float32)[None, :, :, None]})
    assert float(rhat["v"][0, 0]) == pytest.approx(np.sqrt((between / within + 49) / 50), rel=1e-5)


def test_diagnostics_in_blocks_are_those_of_one(monkeypatch):
    x = RNG.normal(size=(5, 2, 40))
    expected = diagnostics.rhat_and_ess(x)
    monkeypatch.setattr(diagnostics, "_BLOCK", 2 * x[0].size)
    np.testing.assert_array_equal(diagnostics.rhat_and_ess(x), expected)


def test_draws_that_alternate_count_for_a_bounded_number():
    """N log₁₀ N, as in Stan. Autocorrelations of −1 would otherwise make the number infinite."""
    x = np.broadcast_to(np.where(np.arange(50) % 2, 1.0, -1.0), (1, 4, 50))
    np.testing.assert_allclose(diagnostics._ess(x), 200 * np.log10(200))


def test_one_chain_that_drifts_is_told():
    with pytest.warns(SamplingWarning, match="R̂.*halves of the chain"):
        warn(Samples(None, None, 1.0, {"v": jnp.full(1, 1.2)}, {}, 0, 0), chains=1)


def test_warnings_count_and_compare():
    """One bad coordinate is enough, one move is singular, and R̂ slightly above 1.05 is not rounded to 1.05."""
    said = lambda rhat, diverged: Samples(None, None, 1.0, {"v": rhat}, {}, diverged, 0)
    with pytest.warns(SamplingWarning, match="R̂ is 1.2, expected at most 1.05, and above it in 1 of 1000"):
        warn(said(jnp.ones(1000).at[7].set(1.2), 0), chains=2)
    with pytest.warns(SamplingWarning, match="R̂ is 1.0502, expected at most 1.05, and above it in 2 of 2"):
        warn(said(jnp.full(2, 1.0502), 0), chains=2)
    with pytest.warns(SamplingWarning, match="1 move diverged.*target_acceptance"):
        warn(said(jnp.ones(1), 1), chains=2)


def test_samples_in_a_few_lines():
    samples = vages.sample(KEY, vages.GRBM.init(KEY, 3, 2), 100, sampler=Gibbs(warmup=10))
    assert repr(samples).splitlines()[0] == "Samples: v (100, 3), h (100, 2)"
    assert "trace: h (16, 250, 2), v (16, 250, 3)" in repr(samples)
    assert "R̂ at most 1.0" in repr(samples)
    assert len(repr(samples).splitlines()) == 3
    exact = vages.sample(KEY, vages.GRBM.init(KEY, 3, 2), 100)
    assert "ESS at least 100" in repr(exact)
    assert "R̂" not in repr(exact)
    assert "'z': (3, 2)" in repr(Samples(None, {"z": jnp.zeros((3, 2))}, 1.0, {}, {}, 0, 0))


def test_temperatures_may_be_a_list(as_users_have_it):
    assert MCMC(temperatures=[1, 4]) == MCMC(temperatures=(1.0, 4.0))
    assert hash(MCMC(temperatures=[1, 4])) == hash(MCMC(temperatures=(1.0, 4.0)))


def test_gibbs_chains_have_no_log_density():
    """It is not computed, and zeros could be mistaken for values."""
    start = {"v": jnp.zeros((1, 2, 3)), "h": jnp.zeros((1, 2, 2))}
    assert Gibbs(warmup=0).run(KEY, Job(vages.GRBM.init(KEY, 3, 2), {}, start, 5)).log_prob is None


def test_calls_that_are_mixed_up(as_users_have_it):
    model = mixture()
    with refused("key", "int", kind=TypeError):
        vages.sample(0, model, 10)  # pyright: ignore[reportArgumentType]
    with refused("key", "EnergyModel", kind=TypeError):
        vages.sample(model, KEY, 10)  # pyright: ignore[reportArgumentType]
    with refused("model", "the class GRBM", kind=TypeError):
        vages.sample(KEY, vages.GRBM, 10)  # pyright: ignore[reportArgumentType]
    with refused("key", "a traced one", kind=TypeError):
        jax.jit(lambda key: vages.sample(key, model, 10).v)(KEY)
    with refused("model", "a traced one", kind=TypeError):
        jax.grad(lambda p: jnp.sum(vages.sample(KEY, EnergyModel(shifted, p, v=Real(5)), 10).v))(model.params)
    for name in ("start", "h"):
        with refused(name, "a traced one", kind=TypeError):
            jax.jit(lambda x, name=name: vages.sample(KEY, model, 5, chains=2, **{name: x}).v)(jnp.zeros((2, 5)))
    with refused("context", "a traced one", kind=TypeError):
        jax.vmap(lambda x: vages.sample(KEY, model, 5, context={"label": x}).v)(jnp.zeros(2, int))
    with refused("held", "a traced one", kind=TypeError):
        jax.jit(lambda x: vages.sample(KEY, model, 5, held=Held(jnp.ones(5, bool), x)).v)(jnp.zeros(5))
    with refused("known", "a traced one", kind=TypeError):
        mask = np.ones(5, bool)
        jax.jit(lambda x: sample_v(KEY, model, jnp.zeros((2, 4)), Schedule(), mask=mask, known=x).v)(jnp.zeros(5))
    with refused("v", "a traced one", kind=TypeError):
        jax.jit(lambda v: vages.sample_posterior(KEY, model, v, sampler=MCMC()).h)(jnp.zeros((2, 5)))
    for wrong in (4, (), [2, 4], "1", (1.0, float("inf"))):
        with refused("temperatures"):
            MCMC(temperatures=wrong)  # pyright: ignore[reportArgumentType]
    for rate in (0, 1.0, "high"):
        with refused("target_acceptance"):
            MCMC(target_acceptance=rate)  # pyright: ignore[reportArgumentType]


def test_bad_input(as_users_have_it):
    model, binary = EnergyModel(two_modes, jnp.zeros(1), v=Real(1)), mixture()
    with refused("n", 0):
        vages.sample(KEY, model, 0)
    with refused("chains", 0):
        vages.sample(KEY, model, 5, chains=0)
    with refused("start", "(3, 1)"):
        vages.sample(KEY, model, 5, start=jnp.zeros((3, 1)))
    with refused("start"):
        vages.sample(KEY, model, 5, chains=2, start=jnp.asarray([[0.0], [jnp.nan]]))
    with refused("h"):
        vages.sample(KEY, binary, 5, h=jnp.full(4, 0.5))
    with refused("h", "(5,)"):
        vages.sample(KEY, binary, 5, h=jnp.zeros(5))
    with refused("start: h"):
        vages.sample(KEY, binary, 5, chains=2, start=(jnp.zeros((2, 5)), jnp.full((2, 4), 0.5)))
    with refused("mask", "(3,)"):
        vages.sample(KEY, binary, 5, held=Held(jnp.zeros(3, bool), jnp.zeros(5)))
    discrete = lambda v: EnergyModel(lambda p, v, h: jnp.sum(v), jnp.zeros(1), v=v)
    with refused("known"):
        vages.sample(KEY, discrete(Binary(2)), 5, held=Held(jnp.asarray([True, False]), jnp.full(2, 0.5)))
    with refused("known"):
        vages.sample(KEY, discrete(Categorical(1, 3)), 5, held=Held(jnp.ones((1, 3), bool), jnp.ones((1, 3))))
    with refused("mask", "some at (0, 0)"):  # the row would have two ones
        vages.sample(
            KEY, discrete(Categorical(1, 3)), 5, held=Held(jnp.asarray([[True, False, False]]), jnp.ones((1, 3)))
        )
    with refused("held", kind=TypeError):
        vages.sample(KEY, binary, 5, held=jnp.zeros(5, bool))  # pyright: ignore[reportArgumentType]
    with refused("sampler", kind=TypeError):
        vages.sample(KEY, binary, 5, sampler=Gibbs())
    with refused("held", kind=TypeError):
        each = Held(jnp.zeros((5, 3), bool), jnp.zeros((5, 3)))
        vages.sample(KEY, vages.GRBM.init(KEY, 3, 2), 5, held=each, sampler=Gibbs())
    with refused("sampler", "str", kind=TypeError):
        vages.sample(KEY, binary, 5, sampler="nuts")  # pyright: ignore[reportArgumentType]
    with refused("kernel", "'gibbs'"):
        MCMC("gibbs")  # pyright: ignore[reportArgumentType]
    with refused("temperatures"):
        MCMC(temperatures=(2.0, 1.0))
    with refused("sum_latents"):
        vages.sample(KEY, model, 5, sampler=MCMC(sum_latents=True))
    with refused("samples", 0):
        vages.sample_posterior(KEY, binary, jnp.zeros((2, 5)), 0)
    with refused("v"):
        vages.sample_posterior(KEY, binary, jnp.full((2, 5), jnp.nan))
    with refused("sample"):
        nowhere = EnergyModel(lambda p, v, h: jnp.sum(v) * jnp.nan, jnp.zeros(1), v=Real(1))
        vages.sample(KEY, nowhere, 5, sampler=MCMC("hmc", warmup=20))
