import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from truth import mean_differs
from vages.distributions import logistic
from vages.domains import Binary
from vages.models import GRBM
from vages.samplers import (
    GibbsState,
    gibbs_init,
    gibbs_sample,
    gibbs_step,
)

CHAINS = 50_000


def coupled_grbm(scalar_sigma=False):
    """A GRBM with v and h coupled so strongly that a wrong chain shows."""
    rng = np.random.default_rng(4)
    weight, b, c = rng.uniform(-1, 1, (3, 4)), rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 4)
    log_sigma = -0.4 if scalar_sigma else rng.uniform(-0.6, 0.1, 3)
    return GRBM(*(jnp.asarray(x, jnp.float32) for x in (weight, b, c, log_sigma)))


def latent_marginal(model):
    """All latent states, their probabilities, and the mean of v for each, by enumeration in float64."""
    w, b, c = (np.asarray(x, np.float64) for x in (model.weight, model.visible_bias, model.latent_bias))
    variance = np.exp(2 * np.asarray(model.log_sigma, np.float64)) * np.ones_like(b)
    states = np.asarray(Binary(len(c)).states(), np.float64)
    pull = states @ w.T
    mass = np.exp(states @ c + pull @ b + 0.5 * (pull**2 * variance).sum(1))
    return states, mass / mass.sum(), b + variance * pull, variance


def latent_field(model, v):
    return v @ np.asarray(model.weight, np.float64) + np.asarray(model.latent_bias, np.float64)


def statistics(v, h):
    """v and h, v vᵀ, v hᵀ and h hᵀ of each chain, to compare joint distributions."""
    x = np.concatenate([np.asarray(v, np.float64), np.asarray(h, np.float64)], axis=1)
    pairs = x[:, :, None] * x[:, None, :]
    return np.concatenate([x, pairs[:, *np.triu_indices(x.shape[1])]], axis=1)


def expected_statistics(model):
    """The mean of `statistics` under p(v, h)."""
    states, probability, mean_v, variance = latent_marginal(model)
    mean = probability @ statistics(mean_v, states)
    dim = len(variance) + states.shape[1]
    rows, columns = np.triu_indices(dim)
    mean[dim:] += np.where(rows == columns, np.append(variance, np.zeros(states.shape[1]))[rows], 0)
    return mean


def exact_latents(model, chains):
    states, probability, _, _ = latent_marginal(model)
    drawn = np.random.default_rng(0).choice(len(states), chains, p=probability)
    return jnp.asarray(states[drawn], model.weight.dtype)


@pytest.mark.parametrize("scalar_sigma", [True, False])
def test_a_transition_leaves_the_model_as_it_is(scalar_sigma):
    """Chains with exact draws of h have exact draws of (v, h) after a transition. False-alarm rate 1e-6."""
    model = coupled_grbm(scalar_sigma)
    h = exact_latents(model, CHAINS)
    state = eqx.filter_jit(gibbs_step)(jax.random.key(0), model, GibbsState(jnp.zeros((CHAINS, 3)), h))
    assert not mean_differs(statistics(*state), expected_statistics(model))
    assert set(np.unique(state.h)) == {0.0, 1.0}


def test_chains_converge_to_the_model():
    """False-alarm rate 1e-6. The next test shows that the initial distribution is different."""
    model = coupled_grbm()
    state = gibbs_sample(jax.random.key(1), model, CHAINS, steps=40)
    assert state.v.shape == (CHAINS, 3)
    assert state.h.shape == (CHAINS, 4)
    assert not mean_differs(statistics(*state), expected_statistics(model))


def test_the_start_is_uniform_with_latents_of_the_posterior():
    """False-alarm rates 1e-6."""
    model = coupled_grbm()
    state = eqx.filter_jit(gibbs_init)(jax.random.key(2), model, CHAINS)
    assert mean_differs(statistics(*state), expected_statistics(model))
    v, h = (np.asarray(x, np.float64) for x in state)
    assert v.min() >= 0
    assert v.max() <= 1
    assert not mean_differs(v, np.full(3, 1 / 2))
    assert not mean_differs(v**2, np.full(3, 1 / 3))
    residual = h - 1 / (1 + np.exp(-latent_field(model, v)))
    products = residual[:, None, :] * v[:, :, None]
    assert not mean_differs(np.concatenate([residual, products.reshape(CHAINS, -1)], axis=1), np.zeros(16))


def test_a_step_by_hand():
    """v and h, computed from the noise of the key."""
    model, key = coupled_grbm(), jax.random.key(3)
    h = jnp.asarray([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    step = eqx.filter_jit(gibbs_step)(key, model, GibbsState(jnp.zeros((2, 3)), h))
    for_h, for_v = jax.random.split(key)
    weight, b, sigma = (np.asarray(x) for x in (model.weight, model.visible_bias, jnp.exp(model.log_sigma)))
    v = b + sigma**2 * (np.asarray(h) @ weight.T) + sigma * np.asarray(jax.random.normal(for_v, (2, 3)))
    np.testing.assert_allclose(step.v, v, rtol=1e-5)
    noise = np.asarray(logistic(for_h, (8,), jnp.float32)).reshape(2, 4)
    np.testing.assert_array_equal(step.h, latent_field(model, v) + noise > 0)
