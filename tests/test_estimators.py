import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import checks_of_estimators as checks
from truth import bilinear, enumerated, relative_error
from vages import GRBM, EnergyModel, ExactPosterior, LinearGaussian, estimators, infer
from vages.domains import Binary, Real
from vages.objectives import dsm


@pytest.mark.parametrize("kind", [GRBM, LinearGaussian])
@pytest.mark.parametrize("samples", [2, 3, 10])
@pytest.mark.parametrize("scalar_sigma", [False, True])
def test_vages_is_the_closed_form(precision, kind, samples, scalar_sigma):
    checks.vages_is_the_closed_form(estimators, kind, *precision, samples=samples, scalar_sigma=scalar_sigma)


def test_enumerated_vages_is_the_gradient_of_the_score(precision):
    checks.enumerated_vages_is_the_gradient_of_the_score(estimators, *precision)


def test_any_energy_is_differentiated_rightly(precision):
    checks.any_energy_is_differentiated_rightly(estimators, *precision)


def test_vages_is_the_sum_of_its_terms(precision):
    checks.vages_is_the_sum_of_its_terms(estimators, *precision)


@pytest.mark.parametrize("samples", [2, 5])
def test_vages_is_unbiased(samples):
    checks.vages_is_unbiased(estimators, samples)


def test_vages_dsm_is_unbiased():
    checks.vages_dsm_is_unbiased(dsm)
    checks.dsm_objective_is_unbiased(dsm)


@pytest.mark.parametrize("kind", [GRBM, LinearGaussian])
def test_control_variate_with_the_exact_posterior_is_the_score(float64, kind):
    keys = jax.random.split(jax.random.key(0), 3)
    model = bilinear(kind, keys[0], 5, 4, "float64")
    v = jax.random.normal(keys[1], (6, 5), "float64")
    log_q = lambda v, h: model.posterior(model.features(v)).log_prob(h)

    @jax.jit
    def estimates(v):
        h = infer(model, ExactPosterior(), v).sample(keys[2], 1)
        return estimators.vaes_cv(model, log_q, v, h), estimators.vaes(model, v, h), jax.vmap(model.score)(v)

    steady, plain, score = estimates(v)
    assert relative_error(steady, score) < 1e-12
    assert relative_error(plain, score) > 1e-3


def test_an_encoding_stands_for_v():
    keys = jax.random.split(jax.random.key(0), 3)
    model = bilinear(GRBM, keys[0], 5, 4)
    v, h = jax.random.normal(keys[1], (6, 5)), jax.random.normal(keys[2], (6, 3, 4))

    @jax.jit
    def both(v, h):
        encoding = estimators.encode(model, v)
        assert estimators.encode(model, encoding) is encoding
        return [(estimators.vaes(model, at, h), estimators.gradient_estimate(model, at, h, v)) for at in (encoding, v)]

    assert relative_error(*both(v, h)) < 1e-6


def test_value_of_the_surrogate_is_the_slope_of_vaes(float64):
    keys = jax.random.split(jax.random.key(0), 4)
    model = bilinear(GRBM, keys[0], 5, 4, "float64")
    v, z = (jax.random.normal(key, (6, 5), "float64") for key in keys[1:3])
    h = jax.random.normal(keys[3], (6, 3, 4), "float64")

    @jax.jit
    def both(v, h, z):
        along = jnp.mean(jnp.sum(z * estimators.vaes(model, v, h), axis=1))
        return estimators.surrogate(model, v, h, z), along

    value, along = both(v, h, z)
    assert abs(float(value - along)) < 1e-12


def without_both(params, v, h):
    """An energy that forbids a state of two units: both on."""
    return jnp.where(jnp.sum(h) > 1.5, jnp.inf, 0.5 * jnp.sum((v - params @ h) ** 2) * (1 + h[0]))


def test_a_state_of_weight_zero_is_absent(float64):
    """The value and the gradient are those of the score summed over the states that are allowed."""
    model = EnergyModel(without_both, jnp.asarray([[0.3, -1.2], [0.8, 0.5]]), Real(2), Binary(2))
    v, z = jnp.asarray([[0.4, -0.2], [1.1, 0.3]]), jnp.asarray([[1.0, 0.5], [-0.7, 2.0]])
    states = model.h.states(jnp.float64)
    log_joints = lambda model, v, states: jax.vmap(lambda h: model.log_joint(model.features(v), h))(states)
    weights = jax.vmap(lambda v: jax.nn.softmax(log_joints(model, v, states)))(v)
    assert np.all(weights[:, 3] == 0)

    def along_z(model):
        score = jax.grad(lambda v: jax.nn.logsumexp(log_joints(model, v, states[:3])))
        return jnp.mean(jax.vmap(lambda v, z: jnp.dot(z, score(v)))(v, z))

    surrogate = lambda model: estimators.surrogate(model, v, jnp.broadcast_to(states, (2, 4, 2)), z, weights)
    got, expected = (eqx.filter_jit(eqx.filter_value_and_grad(f))(model) for f in (surrogate, along_z))
    assert relative_error(got, expected) < 1e-12


@eqx.filter_jit
def both_estimates(model, v, h, z):
    return estimators.gradient_estimate(model, v, h, z), estimators.vaes(model, v, h)


def coupled(params, v, h):
    """An energy with a constant that is not trained."""
    return jnp.sum(jnp.cosh(v)) - v @ params["w"] @ h + jax.lax.stop_gradient(params["c"])


@given(seed=st.integers(0, 2**31 - 1), constant=st.floats(-1e3, 1e3), samples=st.integers(2, 5))
@settings(max_examples=10, deadline=None)
def test_a_constant_in_the_energy_changes_nothing(seed, constant, samples):
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), 5)
        params = {"w": jax.random.normal(keys[0], (3, 2), "float64"), "c": jnp.asarray(constant)}
        v, z = (jax.random.normal(key, (4, 3), "float64") for key in keys[1:3])
        h = jax.random.normal(keys[3], (4, samples, 2), "float64")
        (got, score), (expected, plain_score) = (
            both_estimates(EnergyModel(coupled, {**params, "c": c}, Real(3), Real(2)), v, h, z)
            for c in (params["c"], jnp.zeros(()))
        )
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((got, expected)))
        np.testing.assert_allclose(got.params["w"], expected.params["w"], rtol=0, atol=1e-10 * (1 + abs(constant)))
        assert relative_error(score, plain_score) < 1e-12


@given(seed=st.integers(0, 2**31 - 1), order=st.permutations(range(4)))
@settings(max_examples=10, deadline=None)
def test_permuting_the_latents_permutes_the_gradient(seed, order):
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), 4)
        model = bilinear(GRBM, keys[0], 3, 4, "float64")
        order = np.asarray(order)
        permuted = GRBM(model.weight[:, order], model.visible_bias, model.latent_bias[order], model.log_sigma)
        v, z = (jax.random.normal(key, (5, 3), "float64") for key in keys[1:3])
        h = jax.random.normal(keys[3], (5, 3, 4), "float64")
        (got, score), (plain, plain_score) = (
            both_estimates(permuted, v, h[..., order], z),
            both_estimates(model, v, h, z),
        )
        assert relative_error(got.weight, plain.weight[:, order]) < 1e-12
        assert relative_error(got.latent_bias, plain.latent_bias[order]) < 1e-12
        assert relative_error(score, plain_score) < 1e-12


def test_features_are_passed_once_whatever_the_number_of_samples():
    """The design promises this. Matrix products of the features are counted in the compiled program."""

    def products(samples):
        network = eqx.nn.MLP(8, 16, 32, 2, key=jax.random.key(0))
        params, static = eqx.partition(network, eqx.is_array)
        model = EnergyModel(
            lambda params, f, h: jnp.sum(f[:4] * h) + jnp.sum(f**2),
            params,
            Real(8),
            Real(4),
            features=lambda params, v: eqx.combine(params, static)(v),
        )
        v, h = jnp.ones((5, 8)), jnp.ones((5, samples, 4))
        return str(jax.make_jaxpr(lambda v, h: estimators.gradient_estimate(model, v, h, v))(v, h)).count("dot_general")

    assert products(2) == products(10)


def test_enumeration_helper_sums_to_one():
    _, weights = enumerated(jax.random.normal(jax.random.key(0), (3, 5)))
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
