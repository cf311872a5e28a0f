"""Checks of an implementation of the estimators, as functions of that implementation.

`test_estimators.py` applies them to the library, `test_mutations.py` to deliberately broken copies of it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from one_step import follow
from truth import (
    bilinear,
    closed_form_vages,
    enumerated,
    expected_vaes,
    expected_vages,
    mean_differs,
    relative_error,
    structured_model,
)
from vages import GRBM, Bernoulli, BernoulliPosterior, LinearGaussian, Variational, perturb


def vages_is_the_closed_form(estimators, kind, dtype, tolerance, *, samples=3, scalar_sigma=False):
    keys = jax.random.split(jax.random.key(1), 4)
    model = bilinear(kind, keys[0], 5, 4, dtype, scalar_sigma)
    v, z = (jax.random.normal(key, (7, 5), dtype) for key in keys[1:3])
    h = jax.random.normal(keys[3], (7, samples, 4), dtype)
    got = eqx.filter_jit(estimators.gradient_estimate)(model, v, h, z)
    for name in ("weight", "visible_bias", "latent_bias", "log_sigma"):
        expected = getattr(closed_form_vages(model, v, h, z), name)
        assert relative_error(getattr(got, name), expected) <= tolerance, name


def enumerated_vages_is_the_gradient_of_the_score(estimators, dtype, tolerance):
    keys = jax.random.split(jax.random.key(2), 3)
    model = bilinear(GRBM, keys[0], 5, 6, dtype)
    v, z = (jax.random.normal(key, (4, 5), dtype) for key in keys[1:])
    h, weights = enumerated(jax.vmap(model.features)(v).field)

    def score_along_z(model):
        return jnp.mean(jax.vmap(lambda v, z: jnp.dot(z, model.score(v)))(v, z))

    @eqx.filter_jit
    def both(model, v, h, z, weights):
        got = estimators.gradient_estimate(model, v, h, z, weights), estimators.vaes(model, v, h, weights)
        return got, (eqx.filter_grad(score_along_z)(model), jax.vmap(model.score)(v))

    for got, expected in zip(*both(model, v, h, z, weights), strict=True):
        assert relative_error(got, expected) <= tolerance


def any_energy_is_differentiated_rightly(estimators, dtype, tolerance):
    """Structured parameters, matrix v and integer h, against ∂/∂θ zᵀ∇_v log Σ_h p̃(v, h) by plain autodiff."""
    keys = jax.random.split(jax.random.key(3), 3)
    model = structured_model(keys[0], dtype)
    v, z = (jax.random.normal(key, (4, 2, 3), dtype) for key in keys[1:])
    states = jnp.stack(jnp.meshgrid(jnp.arange(3), jnp.arange(3)), -1).reshape(9, 2)
    h = jnp.broadcast_to(states, (4, 9, 2))

    def log_joints(model, v):
        return jax.vmap(lambda h: model.log_joint(model.features(v), h))(states)

    def score_along_z(model):
        score = lambda v: jax.grad(lambda v: jax.nn.logsumexp(log_joints(model, v)))(v)
        return jnp.mean(jax.vmap(lambda v, z: jnp.sum(z * score(v)))(v, z))

    @eqx.filter_jit
    def both(model):
        weights = jax.vmap(lambda v: jax.nn.softmax(log_joints(model, v)))(v)
        return estimators.gradient_estimate(model, v, h, z, weights), eqx.filter_grad(score_along_z)(model)

    assert relative_error(*both(model)) <= tolerance


def vages_is_the_sum_of_its_terms(estimators, dtype, tolerance):
    """zᵀ(ê + ĉ) with the terms as full matrices, on samples, for structured and for bilinear models."""
    keys = jax.random.split(jax.random.key(4), 4)
    structured = structured_model(keys[0], dtype)
    cases = [
        (structured, jax.random.randint(keys[1], (3, 4, 2), 0, 3)),
        (bilinear(LinearGaussian, keys[0], 3, 2, dtype), jax.random.normal(keys[1], (3, 4, 2), dtype)),
    ]

    @eqx.filter_jit
    def both(model, v, h, z):
        axes = tuple(range(z.ndim))
        terms = [term(model, v, h) for term in (estimators.expectation_term, estimators.covariance_term)]
        total = jax.tree.map(lambda e, c: jnp.tensordot(z, e + c, (axes, axes)) / len(z), *terms)
        return estimators.gradient_estimate(model, v, h, z), total

    for model, h in cases:
        v, z = (jax.random.normal(key, (3, *model.v.shape), dtype) for key in keys[2:])
        assert relative_error(*both(model, v, h, z)) <= tolerance


def vages_is_unbiased(estimators, samples=2, replicates=20_000):
    """The mean of VaES and VaGES over draws from q is the expectation under q. False-alarm rate 1e-6 each."""
    with jax.enable_x64(True):
        model, v, z, q, key = _grbm_and_any_posterior()
        h = _draws(key, q, replicates, samples)
        expected = expected_vages(model, v, q.mean, jax.vmap(jnp.diag)(q.variance), z)
        _assert_unbiased(lambda h: estimators.gradient_estimate(model, v, h, z), h, expected)
        _assert_unbiased(lambda h: estimators.vaes(model, v, h), h, expected_vaes(model, v, q.mean))


def vages_dsm_is_unbiased(objective, samples=2, replicates=20_000):
    """The mean of the VaGES-DSM gradient is the product of the expectations. False-alarm rate 1e-6."""
    with jax.enable_x64(True):
        model, w, epsilon, q, key = _grbm_and_any_posterior()
        noised = perturb(w, epsilon, 0.5)
        h = _draws(key, q, replicates, 2 * samples)
        residual = expected_vaes(model, noised.v, q.mean) - noised.target
        expected = expected_vages(model, noised.v, q.mean, jax.vmap(jnp.diag)(q.variance), residual)
        _assert_unbiased(lambda h: objective.vages_dsm(model, noised, h)[1], h, expected)


def dsm_objective_is_unbiased(objective, samples=2, replicates=20_000):
    """The same for the objective that learners descend, which draws its own samples. False-alarm rate 1e-6."""
    with jax.enable_x64(True):
        model, w, epsilon, q, key = _grbm_and_any_posterior()
        posterior = BernoulliPosterior(lambda v: q.logits[0], temperature=0.0)
        dsm = objective.DSM(0.5, Variational(samples))
        noised = perturb(w, epsilon, 0.5)

        def gradient(key):
            return follow(dsm, key, model, posterior, w, points=noised).gradient[0]

        residual = expected_vaes(model, noised.v, q.mean) - noised.target
        expected = expected_vages(model, noised.v, q.mean, jax.vmap(jnp.diag)(q.variance), residual)
        _assert_unbiased(gradient, jax.random.split(key, replicates), expected)


def _grbm_and_any_posterior():
    keys = jax.random.split(jax.random.key(5), 5)
    model = bilinear(GRBM, keys[0], 3, 4, "float64")
    v, z, logits = (jax.random.normal(key, (1, n)) for key, n in zip(keys[1:4], (3, 3, 4), strict=True))
    return model, v, z, Bernoulli(logits, temperature=0.0), keys[4]


def _draws(key, q, replicates, samples):
    return q.sample(key, replicates * samples).reshape(1, replicates, samples, -1).swapaxes(0, 1)


def _assert_unbiased(estimate, draws, expected):
    leaves = jax.tree.leaves(expected)
    for got, truth in zip(jax.tree.leaves(jax.jit(jax.vmap(estimate))(draws)), leaves, strict=True):
        assert not mean_differs(got, truth, 1e-6 / len(leaves))
