import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from errors import refused
from truth import bilinear, mean_differs, relative_error
from vages import (
    GRBM,
    Bernoulli,
    BernoulliPosterior,
    EnergyModel,
    ExactPosterior,
    Gaussian,
    GaussianPosterior,
    LinearGaussian,
    encode,
    fisher,
    infer,
    kl,
    langevin_corrector,
    sample,
)
from vages.domains import Real


def batch(kind, dtype="float32", size=6):
    keys = jax.random.split(jax.random.key(7), 3)
    model = bilinear(kind, keys[0], 5, 4, dtype)
    v = jax.random.normal(keys[1], (size, 5), dtype)
    return model, v, encode(model, v).features, keys[2]


def test_relaxed_samples_are_the_gumbel_softmax():
    """sigmoid((logit + g1 − g2)/τ) with two Gumbel draws is softmax(([logit, 0] + g)/τ)[0]; ours has logistic noise."""
    logits, g = jnp.asarray([0.3, -1.2]), jax.random.gumbel(jax.random.key(0), (2, 2))
    two_way = jax.nn.softmax((jnp.stack([logits, jnp.zeros(2)]) + g) / 0.1, axis=0)[0]
    assert relative_error(Bernoulli(logits, 0.1).transform(g[0] - g[1]), two_way) < 1e-5


@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_bernoulli_samples(temperature):
    logits = jnp.asarray([[0.3, -1.2, 2.0]])
    draws = sample(Bernoulli(logits, temperature), jax.random.key(0), 40_000)
    assert draws.shape == (1, 40_000, 3)
    if temperature == 0:
        assert set(np.unique(draws)) == {0.0, 1.0}
    assert not mean_differs(draws[0] > 0.5, jax.nn.sigmoid(logits[0]))  # false-alarm rate 1e-6
    np.testing.assert_allclose(Bernoulli(logits).variance, jax.nn.sigmoid(logits) * (1 - jax.nn.sigmoid(logits)), 1e-6)


def test_gaussian_samples_and_density():
    q = Gaussian(jnp.asarray([[0.5, -1.0]]), jnp.asarray([[-0.3, 0.4]]))
    draws = sample(q, jax.random.key(0), 40_000)[0]
    assert not mean_differs(draws, q.mean[0])  # false-alarm rates 1e-6
    assert not mean_differs((draws - q.mean[0][None]) ** 2, q.variance[0])
    one = Gaussian(q.loc[0], q.log_std[0])
    expected = jax.scipy.stats.norm.logpdf(draws[0], q.loc[0], jnp.exp(q.log_std[0])).sum()
    np.testing.assert_allclose(one.log_prob(draws[0]), expected, rtol=1e-5)


def test_kl_of_the_exact_posterior_is_the_free_energy(float64):
    """log q(h) − log p̃(v, h) = −log p̃(v) for every h where q = p: no variance at all."""
    for kind in (GRBM, LinearGaussian):
        model, v, features, key = batch(kind, "float64")
        got = kl(model, ExactPosterior(), features, v, key)
        assert relative_error(got, jax.vmap(model.free_energy)(v)) < 1e-12


def test_fisher_of_the_exact_posterior_is_zero(float64):
    model, v, features, key = batch(LinearGaussian, "float64")
    np.testing.assert_allclose(fisher(model, ExactPosterior(), features, v, key), 0, atol=1e-24)


def test_kl_and_fisher_of_a_gaussian_against_closed_forms(float64):
    """q = N(m', s²) against p = N(m, I): sample means within a test of false-alarm rate 1e-6."""
    model, v, features, key = batch(LinearGaussian, "float64", size=2)
    posterior = GaussianPosterior.linear(key, 5, 4)
    q, p = infer(posterior, model, features, v), infer(ExactPosterior(), model, features, v)
    square = (q.mean - p.mean) ** 2
    expected_kl = 0.5 * jnp.sum(q.variance + square - 1 - jnp.log(q.variance), 1) + jax.vmap(model.free_energy)(v)
    scale = jnp.sqrt(q.variance)
    expected_fisher = 0.5 * jnp.sum(square + (scale - 1 / scale) ** 2, 1)
    keys = jax.random.split(key, 20_000)
    for divergence, expected in ((kl, expected_kl), (fisher, expected_fisher)):
        draws = jax.jit(jax.vmap(lambda key: divergence(model, posterior, features, v, key)))(keys)  # noqa: B023
        assert not mean_differs(draws, expected)


def descend(divergence, model, posterior, features, v, key):
    """A thousand steps of gradient descent with momentum on a divergence, in the posterior alone."""
    optimiser = optax.sgd(0.01, momentum=0.9)

    @eqx.filter_jit
    def step(posterior, state, key):
        loss = lambda posterior: jnp.mean(divergence(model, posterior, features, v, key, samples=16))
        updates, state = optimiser.update(eqx.filter_grad(loss)(posterior), state)
        return eqx.apply_updates(posterior, updates), state

    state = optimiser.init(eqx.filter(posterior, eqx.is_inexact_array))
    for step_key in jax.random.split(key, 1000):
        posterior, state = step(posterior, state, step_key)
    return infer(posterior, model, features, v), infer(ExactPosterior(), model, features, v)


@pytest.mark.parametrize("divergence", [kl, fisher])
def test_descending_a_divergence_finds_the_gaussian_posterior(divergence):
    """Gradients reach q through its samples and its density."""
    model, v, features, key = batch(LinearGaussian, size=64)
    q, p = descend(divergence, model, GaussianPosterior.linear(key, 5, 4), features, v, key)
    np.testing.assert_allclose(q.mean, p.mean, atol=0.1)
    np.testing.assert_allclose(q.variance, p.variance, atol=0.15)


def test_descending_kl_finds_the_grbm_posterior():
    """For binary h by relaxed samples, which carry a small bias at temperature 0.1."""
    model, v, features, key = batch(GRBM, size=64)
    q, p = descend(kl, model, BernoulliPosterior.linear(key, 5, 4), features, v, key)
    np.testing.assert_allclose(q.mean, p.mean, atol=0.05)


def test_any_network_makes_a_posterior():
    model, v, features, key = batch(GRBM)
    network = eqx.nn.MLP(5, 4, 8, 2, key=key)
    assert sample(infer(BernoulliPosterior(network), model, features, v), key, 3).shape == (6, 3, 4)
    hard = sample(infer(BernoulliPosterior(network, temperature=0.0), model, features, v), key, 3)
    assert set(np.unique(hard)) <= {0.0, 1.0}
    two = GaussianPosterior(lambda v: (v[:4], jnp.tanh(v[1:])))
    assert sample(infer(two, model, features, v), key, 3).shape == (6, 3, 4)


def test_the_corrector_samples_the_posterior():
    """Many small steps with noise √α from far away reach N(c + Wᵀv, I): false-alarm rate 1e-6 on the means."""
    model, v, features, key = batch(LinearGaussian, size=1)
    start = jnp.full((1, 4000, 4), 5.0)
    h = langevin_corrector(model, features, start, key, steps=400, step_size=0.05)
    p = infer(ExactPosterior(), model, features, v)
    assert not mean_differs(h[0], p.mean[0])
    variance = 1 / (1 - 0.05 / 4)  # of the discretised chain: h ← (1 − α/2) h + √α ε
    assert not mean_differs((h[0] - p.mean[0][None]) ** 2, jnp.full(4, variance))


def test_the_corrector_without_noise_climbs_to_the_mode():
    model, v, features, key = batch(LinearGaussian)
    h = langevin_corrector(model, features, jnp.zeros((6, 2, 4)), key, steps=200, step_size=0.2, noise_std=0.0)
    p = infer(ExactPosterior(), model, features, v)
    np.testing.assert_allclose(h, jnp.broadcast_to(p.mean[:, None], h.shape), atol=1e-5)
    once = langevin_corrector(model, features, h * 0, key, steps=1, step_size=0.2, noise_std=0.0)
    np.testing.assert_allclose(once[:, 0], 0.1 * p.mean, rtol=1e-5)


def test_what_cannot_work_says_so():
    model, v, features, key = batch(GRBM)
    with pytest.raises(TypeError, match="^fisher: .*got Bernoulli; .*kl"):
        fisher(model, BernoulliPosterior.linear(key, 5, 4), features, v, key)
    with pytest.raises(ValueError, match="^kl: .*temperature"):
        kl(model, BernoulliPosterior.linear(key, 5, 4, temperature=0.0), features, v, key)
    with refused("h", got="int32", kind=TypeError):
        langevin_corrector(model, features, jnp.zeros((6, 2, 4), int), key, steps=1, step_size=0.1)
    plain = EnergyModel(lambda params, v, h: jnp.sum(v) * jnp.sum(h), None, Real(5), Real(4))
    with refused("ExactPosterior", got="EnergyModel", kind=TypeError):
        infer(ExactPosterior(), plain, v, v)
