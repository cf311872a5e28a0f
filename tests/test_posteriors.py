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
)
from vages.distributions import logistic
from vages.domains import Real


def batch(kind, dtype="float32", size=6):
    keys = jax.random.split(jax.random.key(7), 3)
    model = bilinear(kind, keys[0], 5, 4, dtype)
    v = jax.random.normal(keys[1], (size, 5), dtype)
    return model, v, keys[2]


def test_relaxed_samples_are_the_gumbel_softmax():
    """sigmoid((logit + g1 − g2)/τ) with Gumbel g1, g2 is softmax(([logit, 0] + g)/τ)[0], and g1 − g2 is logistic."""
    logits, key = jnp.asarray([[0.3, -1.2]]), jax.random.key(0)
    noise = logistic(key, (6,), jnp.float32).reshape(1, 3, 2)
    both = jnp.stack(jnp.broadcast_arrays(logits[:, None] + noise, jnp.zeros(())))
    assert relative_error(Bernoulli(logits, 0.1).sample(key, 3), jax.nn.softmax(both / 0.1, axis=0)[0]) < 1e-5


def test_logistic_noise():
    """The distribution function is the sigmoid, so it gives uniform numbers. False-alarm rate 1e-6 each."""
    u = jax.nn.sigmoid(logistic(jax.random.key(0), (40_000,), jnp.float32))
    assert not mean_differs(u, 1 / 2)
    assert not mean_differs(u**2, 1 / 3)
    assert not mean_differs(u**3, 1 / 4)


@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_bernoulli_samples(temperature):
    logits = jnp.asarray([[0.3, -1.2, 2.0]])
    draws = Bernoulli(logits, temperature).sample(jax.random.key(0), 40_000)
    assert draws.shape == (1, 40_000, 3)
    if temperature == 0:
        assert set(np.unique(draws)) == {0.0, 1.0}
    assert not mean_differs(draws[0] > 0.5, jax.nn.sigmoid(logits[0]))  # false-alarm rate 1e-6
    np.testing.assert_allclose(Bernoulli(logits).variance, jax.nn.sigmoid(logits) * (1 - jax.nn.sigmoid(logits)), 1e-6)


def test_gaussian_samples_and_density():
    q = Gaussian(jnp.asarray([[0.5, -1.0]]), jnp.asarray([[-0.3, 0.4]]))
    draws = q.sample(jax.random.key(0), 40_000)[0]
    assert not mean_differs(draws, q.mean[0])  # false-alarm rates 1e-6
    assert not mean_differs((draws - q.mean[0][None]) ** 2, q.variance[0])
    one = Gaussian(q.loc[0], q.log_std[0])
    expected = jax.scipy.stats.norm.logpdf(draws[0], q.loc[0], jnp.exp(q.log_std[0])).sum()
    np.testing.assert_allclose(one.log_prob(draws[0]), expected, rtol=1e-5)


def test_kl_of_the_exact_posterior_is_the_free_energy(float64):
    """For q = p, log q(h) − log p̃(v, h) = −log p̃(v) for every h, without variance."""
    for kind in (GRBM, LinearGaussian):
        model, v, key = batch(kind, "float64")
        got = kl(key, model, ExactPosterior(), v)
        assert relative_error(got, jax.vmap(model.free_energy)(v)) < 1e-12


def test_fisher_of_the_exact_posterior_is_zero(float64):
    model, v, key = batch(LinearGaussian, "float64")
    np.testing.assert_allclose(fisher(key, model, ExactPosterior(), v), 0, atol=1e-24)


def test_kl_and_fisher_of_a_gaussian_against_closed_forms(float64):
    """q = N(m', s²) and p = N(m, I): sample means, with a false-alarm rate of 1e-6."""
    model, v, key = batch(LinearGaussian, "float64", size=2)
    posterior = GaussianPosterior.linear(key, 5, 4)
    q, p = infer(model, posterior, v), infer(model, ExactPosterior(), v)
    square = (q.mean - p.mean) ** 2
    expected_kl = 0.5 * jnp.sum(q.variance + square - 1 - jnp.log(q.variance), 1) + jax.vmap(model.free_energy)(v)
    scale = jnp.sqrt(q.variance)
    expected_fisher = 0.5 * jnp.sum(square + (scale - 1 / scale) ** 2, 1)
    keys = jax.random.split(key, 20_000)
    for divergence, expected in ((kl, expected_kl), (fisher, expected_fisher)):
        draws = jax.jit(jax.vmap(lambda key: divergence(key, model, posterior, v)))(keys)  # noqa: B023
        assert not mean_differs(draws, expected)


def descend(divergence, model, posterior, v, key):
    """A thousand steps of gradient descent with momentum on a divergence, for the posterior only."""
    optimizer = optax.sgd(0.01, momentum=0.9)

    @eqx.filter_jit
    def step(posterior, state, key):
        loss = lambda posterior: jnp.mean(divergence(key, model, posterior, v, samples=16))
        updates, state = optimizer.update(eqx.filter_grad(loss)(posterior), state)
        return eqx.apply_updates(posterior, updates), state

    state = optimizer.init(eqx.filter(posterior, eqx.is_inexact_array))
    for step_key in jax.random.split(key, 1000):
        posterior, state = step(posterior, state, step_key)
    return infer(model, posterior, v), infer(model, ExactPosterior(), v)


@pytest.mark.parametrize("divergence", [kl, fisher])
def test_descending_a_divergence_finds_the_gaussian_posterior(divergence):
    """q gets gradients through its samples and through its density."""
    model, v, key = batch(LinearGaussian, size=64)
    q, p = descend(divergence, model, GaussianPosterior.linear(key, 5, 4), v, key)
    np.testing.assert_allclose(q.mean, p.mean, atol=0.1)
    np.testing.assert_allclose(q.variance, p.variance, atol=0.15)


def test_descending_kl_finds_the_grbm_posterior():
    """Binary h with relaxed samples, which have a small bias at temperature 0.1."""
    model, v, key = batch(GRBM, size=64)
    q, p = descend(kl, model, BernoulliPosterior.linear(key, 5, 4), v, key)
    np.testing.assert_allclose(q.mean, p.mean, atol=0.05)


def test_any_network_makes_a_posterior():
    model, v, key = batch(GRBM)
    network = eqx.nn.MLP(5, 4, 8, 2, key=key)
    assert infer(model, BernoulliPosterior(network), v).sample(key, 3).shape == (6, 3, 4)
    hard = infer(model, BernoulliPosterior(network, temperature=0.0), v).sample(key, 3)
    assert set(np.unique(hard)) <= {0.0, 1.0}
    two = GaussianPosterior(lambda v: (v[:4], jnp.tanh(v[1:])))
    assert infer(model, two, v).sample(key, 3).shape == (6, 3, 4)


def test_the_corrector_samples_the_posterior():
    """Many small steps with noise √α, from far away, reach N(c + Wᵀv, I): false-alarm rate 1e-6 for the means."""
    model, v, key = batch(LinearGaussian, size=1)
    start = jnp.full((1, 4000, 4), 5.0)
    h = langevin_corrector(key, model, encode(model, v).features, start, steps=400, step_size=0.05)
    p = infer(model, ExactPosterior(), v)
    assert not mean_differs(h[0], p.mean[0])
    variance = 1 / (1 - 0.05 / 4)  # of the discretized chain: h ← (1 − α/2) h + √α ε
    assert not mean_differs((h[0] - p.mean[0][None]) ** 2, jnp.full(4, variance))


def test_the_corrector_without_noise_climbs_to_the_mode():
    model, v, key = batch(LinearGaussian)
    h = langevin_corrector(
        key, model, encode(model, v).features, jnp.zeros((6, 2, 4)), steps=200, step_size=0.2, noise_std=0.0
    )
    p = infer(model, ExactPosterior(), v)
    np.testing.assert_allclose(h, jnp.broadcast_to(p.mean[:, None], h.shape), atol=1e-5)
    once = langevin_corrector(key, model, encode(model, v).features, h * 0, steps=1, step_size=0.2, noise_std=0.0)
    np.testing.assert_allclose(once[:, 0], 0.1 * p.mean, rtol=1e-5)


def test_what_cannot_work_says_so():
    model, v, key = batch(GRBM)
    with pytest.raises(TypeError, match="^fisher: .*got Bernoulli; .*kl"):
        fisher(key, model, BernoulliPosterior.linear(key, 5, 4), v)
    with pytest.raises(ValueError, match="^kl: .*temperature"):
        kl(key, model, BernoulliPosterior.linear(key, 5, 4, temperature=0.0), v)
    with refused("h", got="int32", kind=TypeError):
        langevin_corrector(key, model, encode(model, v).features, jnp.zeros((6, 2, 4), int), steps=1, step_size=0.1)
    with refused("corrector", got="Binary(4)", kind=TypeError):
        langevin_corrector(key, model, encode(model, v).features, jnp.zeros((6, 2, 4)), steps=1, step_size=0.1)
    plain = EnergyModel(lambda params, v, h: jnp.sum(v) * jnp.sum(h), None, Real(5), Real(4))
    with refused("ExactPosterior", got="EnergyModel", kind=TypeError):
        infer(plain, ExactPosterior(), v)
