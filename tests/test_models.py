import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from errors import refused
from truth import bilinear, relative_error
from vages import GRBM, EnergyModel, LinearGaussian
from vages.domains import Binary, Real


def energy_of_the_paper(model, v, h):
    """Eq. 15, or the energy of the Gaussian model, term by term in NumPy."""
    w, b, c, log_sigma = (
        np.asarray(x, np.float64) for x in (model.weight, model.visible_bias, model.latent_bias, model.log_sigma)
    )
    visible = 0.5 * np.sum(((v - b) / np.exp(log_sigma)) ** 2)
    latent = -c @ h if isinstance(model, GRBM) else 0.5 * np.sum((h - c) ** 2)
    return visible + latent - v @ w @ h


@pytest.mark.parametrize("kind", [GRBM, LinearGaussian])
@pytest.mark.parametrize("scalar_sigma", [True, False])
def test_the_energy_is_the_papers(float64, kind, scalar_sigma):
    keys = jax.random.split(jax.random.key(0), 3)
    model = bilinear(kind, keys[0], 5, 4, "float64", scalar_sigma)
    v, h = jax.random.normal(keys[1], (5,)), jax.random.normal(keys[2], (4,))
    expected = -energy_of_the_paper(model, np.asarray(v), np.asarray(h))
    np.testing.assert_allclose(model.log_joint(model.features(v), h), expected, rtol=1e-12)
    assert model.v.shape == (5,)
    assert model.h.shape == (4,)


@pytest.mark.parametrize("scalar_sigma", [True, False])
def test_grbm_against_enumeration_and_quadrature(float64, scalar_sigma):
    model = bilinear(GRBM, jax.random.key(0), 2, 3, "float64", scalar_sigma)
    states = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    v = np.array([0.3, -0.8])
    mass = np.array([np.exp(-energy_of_the_paper(model, v, h)) for h in states])
    np.testing.assert_allclose(model.free_energy(jnp.asarray(v)), -np.log(mass.sum()), rtol=1e-12)
    posterior = model.posterior(model.features(jnp.asarray(v)))
    np.testing.assert_allclose(posterior.mean, mass @ states / mass.sum(), rtol=1e-12)

    axis = jnp.linspace(-12, 12, 601)  # the trapezoidal rule converges geometrically for such smooth densities
    grid = jnp.stack(jnp.meshgrid(axis, axis), -1).reshape(-1, 2)
    z = float(jnp.sum(jnp.exp(-jax.vmap(model.free_energy)(grid)))) * float(axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(model.log_partition(), np.log(z), rtol=1e-10)
    np.testing.assert_allclose(model.log_prob(jnp.asarray(v)), np.log(mass.sum() / z), rtol=1e-10)


def test_grbm_score_and_conditional(float64):
    model = bilinear(GRBM, jax.random.key(0), 3, 4, "float64")
    v = jnp.asarray([0.3, -0.8, 1.1])
    sigma = np.exp(np.asarray(model.log_sigma))
    mean_h = np.asarray(model.posterior(model.features(v)).mean)
    expected = -(np.asarray(v - model.visible_bias)) / sigma**2 + np.asarray(model.weight) @ mean_h
    assert relative_error(model.score(v), expected) < 1e-12
    h = jnp.asarray([1.0, 0.0, 1.0, 1.0])
    conditional = model.conditional(h)
    # log p(v | h) differs from log p̃(v, h) by a term that does not depend on v
    gaps = [conditional.log_prob(v) - model.log_joint(model.features(v), h) for v in (v, -v, 3 * v)]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-12)


@pytest.mark.parametrize("units", [1, 5, 12, 14])
def test_log_partition_in_blocks_is_one_sum(float64, units):
    model = bilinear(GRBM, jax.random.key(0), 3, units, "float64")
    states = np.asarray(Binary(units).states(), np.float64)
    assert len(np.unique(states, axis=0)) == 2**units
    w, b, c = (np.asarray(x) for x in (model.weight, model.visible_bias, model.latent_bias))
    sigma = np.exp(np.asarray(model.log_sigma))
    pull = states @ w.T
    log_mass = states @ c + pull @ b + 0.5 * ((sigma * pull) ** 2).sum(1)
    expected = np.logaddexp.reduce(log_mass) + np.log(sigma).sum() + 1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(model.log_partition(), expected, rtol=1e-12)


def test_log_partition_refuses_what_it_cannot_enumerate():
    model = GRBM.init(jax.random.key(0), 2, 21)
    with refused("log_partition", got=21):
        model.log_partition()


def normal(mean, covariance):
    return stats.multivariate_normal(mean=mean, cov=covariance)  # pyright: ignore[reportArgumentType]


def test_linear_gaussian_is_the_normal_that_its_joint_precision_says(float64):
    model = bilinear(LinearGaussian, jax.random.key(3), 3, 4, "float64")
    w, b, c = (np.asarray(x) for x in (model.weight, model.visible_bias, model.latent_bias))
    inverse_variance = np.exp(-2 * np.asarray(model.log_sigma))
    precision = np.block([[np.diag(inverse_variance), -w], [-w.T, np.eye(4)]])
    mean = np.linalg.solve(precision, np.concatenate([b * inverse_variance, c]))
    covariance = np.linalg.inv(precision)
    joint, marginal = normal(mean, covariance), normal(mean[:3], covariance[:3, :3])
    v, h = np.array([0.3, -0.8, 1.1]), np.array([0.5, 1.0, -1.0, 0.2])
    log_joint = model.log_joint(model.features(jnp.asarray(v)), jnp.asarray(h)) - model.log_partition()
    np.testing.assert_allclose(log_joint, joint.logpdf(np.concatenate([v, h])), rtol=1e-10)
    np.testing.assert_allclose(model.log_prob(jnp.asarray(v)), marginal.logpdf(v), rtol=1e-10)
    np.testing.assert_allclose(model.marginal_mean(), mean[:3], rtol=1e-10)
    np.testing.assert_allclose(model.marginal_precision(), np.linalg.inv(covariance[:3, :3]), rtol=1e-9)
    np.testing.assert_allclose(model.score(jnp.asarray(v)), -model.marginal_precision() @ (v - mean[:3]), rtol=1e-9)


def test_an_improper_linear_gaussian_says_so():
    model = LinearGaussian.init(jax.random.key(0), 3, 4)
    improper = eqx.tree_at(lambda m: m.weight, model, 10 * model.weight)
    for quantity in (improper.log_partition, improper.marginal_mean):
        with refused("LinearGaussian", got="the smallest eigenvalue"):
            quantity()
    assert jnp.isnan(eqx.filter_jit(lambda m: m.log_partition())(improper))


@pytest.mark.parametrize("dims", [(3, 4), (560, 400), (10, 1)])
def test_a_fresh_linear_gaussian_is_proper(dims):
    assert jnp.isfinite(LinearGaussian.init(jax.random.key(0), *dims).log_partition())


def test_an_energy_function_is_a_model_in_one_line():
    def energy(params, v, h):
        return 0.5 * jnp.sum(v**2) - v @ params["w"] @ h

    model = EnergyModel(energy, {"w": jnp.ones((2, 3))}, v=Real(2), h=Real(3))
    v, h = jnp.asarray([1.0, 2.0]), jnp.ones(3)
    assert float(model.log_joint(model.features(v), h)) == -2.5 + 9.0
    split = EnergyModel(
        lambda params, f, h: 0.5 * f[1] - f[0] @ h,
        model.params,
        v=Real(2),
        h=Real(3),
        features=lambda params, v: (v @ params["w"], jnp.sum(v**2)),
    )
    assert float(split.log_joint(split.features(v), h)) == 6.5


class Holder:
    def __init__(self):
        self.w = jnp.ones(2)

    def energy(self, params, v, h):
        return params * jnp.sum((v - self.w) ** 2)

    __call__ = energy


class HoldingModule(eqx.Module):
    w: jax.Array

    def __call__(self, params, v, h):
        return params * jnp.sum((v - self.w) ** 2)


def test_arrays_that_an_energy_holds_are_refused():
    """They would be neither trained nor saved. NumPy arrays, and arrays in closures, are accepted as constants."""
    module, w = HoldingModule(jnp.ones(2)), jnp.ones(2)
    partly = functools.partial(lambda w, params, v, h: params * jnp.sum((v - w) ** 2), w)
    for held in (module, module.__call__, jax.jit(module), partly, Holder(), Holder().energy):
        with refused("energy", kind=TypeError):
            EnergyModel(held, jnp.ones(()), v=Real(2))
        with refused("features", kind=TypeError):
            EnergyModel(lambda params, f, h: f, jnp.ones(()), v=Real(2), features=held)
    for constant in (lambda params, v, h: params * jnp.sum((v - w) ** 2), functools.partial(partly.func, np.ones(2))):
        model = EnergyModel(constant, jnp.ones(()), v=Real(2))
        assert float(model.log_joint(jnp.zeros(2), jnp.zeros(0))) == -2
