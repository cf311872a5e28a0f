"""Domains, and exact scores, gradients and posteriors by enumeration for any energy."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from fitting import fit_state
from vages import (
    DSM,
    EBM,
    KSD,
    Batch,
    BernoulliPosterior,
    Binary,
    Categorical,
    CategoricalPosterior,
    Empty,
    EnergyModel,
    Enumerated,
    ExactPosterior,
    GaussianPosterior,
    Importance,
    Learner,
    OneHot,
    Real,
    Variational,
    adam,
    encode,
    gradient_estimate,
    infer,
    kl,
    vaes,
)

KEY = jax.random.key(0)
DISCRETE = [Binary(6), Binary(2, 3), Categorical(2, 4), Categorical(1, 5)]


def energy(params, v, h):
    """An energy that couples v and h, and the latents with each other; its posterior does not factorize."""
    h = h.reshape(-1)
    pull = jnp.tanh(params["W"] @ h) * (1 + 0.3 * jnp.sin(v))
    return 0.5 * jnp.sum((v - pull) ** 2) + h @ params["J"] @ h - params["c"] @ h


def own(h, dtype=jnp.float64):
    normal = lambda seed, *shape: jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)
    params = {"W": normal(0, 3, h.size), "J": 0.3 * normal(1, h.size, h.size), "c": normal(2, h.size)}
    return EnergyModel(energy, params, v=Real(3), h=h)


def every_state(h):
    """All states, computed in another way."""
    if isinstance(h, Binary):
        return np.array(list(itertools.product((0, 1), repeat=h.size))).reshape(-1, *h.shape)
    n, k = h.shape
    return np.array([np.eye(k)[list(choice)] for choice in itertools.product(range(k), repeat=n)])


def log_density(model, v):
    """log p̃(v), summed over all states."""
    states = jnp.asarray(every_state(model.h), v.dtype)
    return jax.nn.logsumexp(jax.vmap(lambda h: -energy(model.params, v, h))(states))


@pytest.mark.parametrize("h", DISCRETE)
def test_states_are_all_of_them_each_in_its_place(h):
    states = np.asarray(h.states())
    assert {tuple(one.ravel()) for one in states} == {tuple(one.ravel()) for one in every_state(h)}
    assert len(states) == h.count == len(every_state(h))
    np.testing.assert_array_equal(jax.vmap(h.index)(h.states()), np.arange(h.count))
    np.testing.assert_array_equal(jax.vmap(h.index)(0.9 * h.states() + 0.03), np.arange(h.count))


def test_domains_are_values():
    assert Real(2) == Real(2) != Real(3)
    assert Real(2) != Binary(2)
    assert len({Real(2), Real(2), Binary(2), Empty(), Empty(), Categorical(1, 2)}) == 4
    shown = ["Real(3, 8, 8)", "Binary(6)", "Categorical(2, 10)", "Empty()"]
    assert [repr(one) for one in (Real(3, 8, 8), Binary(6), Categorical(2, 10), Empty())] == shown
    assert [one.size for one in (Real(3, 8, 8), Categorical(2, 10), Empty())] == [192, 20, 0]
    assert [one.continuous for one in (Real(1), Binary(1), Categorical(1, 2), Empty())] == [True, False, False, True]
    assert [one.enumerable for one in (Real(1), Binary(20), Binary(21), Categorical(6, 10), Categorical(7, 10))] == [
        *(False, True, False, True, False)
    ]
    assert Empty().states().shape == (1, 0)


@pytest.mark.parametrize("make", [lambda: Real(), lambda: Real(0), lambda: Real(2, -1)])
def test_sizes_that_are_none(make):
    with refused("Real"):
        make()


@pytest.mark.parametrize("parts", [{1: Real(2)}, {1: Real(2), "z": Real(1)}], ids=["number", "both"])
def test_names_of_variables_are_text(as_users_have_it, parts):
    with refused("domains", got=1, kind=TypeError):
        EnergyModel(lambda params, v, h: jnp.sum(v), {}, v=Real(2), h=parts)


def test_what_cannot_be_listed():
    with refused("Categorical", got="1"):
        Categorical(3, 1)
    with refused("Binary(21)"):
        Binary(21).states()
    with refused("Real(2)"):
        Real(2).states()
    with refused("Real(2)"):
        Real(2).index(jnp.zeros(2))


@pytest.mark.parametrize("h", DISCRETE)
def test_score_and_gradient_of_any_energy_are_exact(float64, h):
    """VaES is ∇ log p̃(v) and zᵀVaGES its gradient in θ, to 1e-10; also the posterior, its mean and its samples."""
    model, v = own(h), jax.random.normal(KEY, (4, 3))
    z = jax.random.normal(jax.random.key(1), v.shape)
    q: Any = infer(model, ExactPosterior(), v)
    states, weights = jnp.broadcast_to(h.states(v.dtype), (4, h.count, *h.shape)), jnp.exp(q.log_probs)
    score = jax.vmap(jax.grad(lambda v: log_density(model, v)))(v)
    np.testing.assert_allclose(vaes(model, v, states, weights), score, rtol=1e-10, atol=1e-12)
    (latents,) = Enumerated()(KEY, model, q, encode(model, v))
    np.testing.assert_allclose(latents.score(model, encode(model, v)), score, rtol=1e-10, atol=1e-12)

    def slope(model):
        return jnp.mean(jnp.sum(z * jax.vmap(jax.grad(lambda v: log_density(model, v)))(v), axis=1))

    want = eqx.filter_grad(slope)(model)
    listed, summed = (
        gradient_estimate(model, v, states, z, weights),
        eqx.filter_grad(lambda model: latents.surrogate(model, encode(model, v), z))(model),
    )
    for name in model.params:
        np.testing.assert_allclose(listed.params[name], want.params[name], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(summed.params[name], want.params[name], rtol=1e-10, atol=1e-12)

    probability = jnp.exp(jax.vmap(lambda q: jax.vmap(q.log_prob)(h.states(v.dtype)))(q))
    np.testing.assert_allclose(probability, weights, rtol=1e-12)
    np.testing.assert_allclose(q.mean, jnp.einsum("bs,s...->b...", weights, h.states(v.dtype)), rtol=1e-12)


@pytest.mark.parametrize("h", [Binary(18), Categorical(9, 3)])
def test_moments_of_one_example_and_many_states(h):
    """Independent latents have known moments. A plain float32 sum of 2¹⁸ terms has an error of 1e-4."""
    bias = 0.3 if isinstance(h, Binary) else jnp.asarray([[0.3, -0.5, 0.0]])
    mean = jax.nn.sigmoid(bias) if isinstance(h, Binary) else jax.nn.softmax(bias, axis=1)
    model = EnergyModel(lambda p, v, h: -jnp.sum(bias * h), jnp.zeros(1), v=Real(1), h=h)
    q = jax.jit(lambda v: infer(model, ExactPosterior(), v))(jnp.zeros((1, 1)))
    np.testing.assert_allclose(q.mean, np.broadcast_to(mean, (1, *h.shape)), atol=1e-5)
    np.testing.assert_allclose(q.variance, np.broadcast_to(mean * (1 - mean), (1, *h.shape)), atol=1e-5)


def test_samples_of_the_exact_posterior():
    """Frequencies of 64 states in 100,000 samples: χ² has 63 degrees of freedom, one false alarm in 1e6."""
    model = own(Binary(6), jnp.float32)
    v = jnp.array([[0.3, -0.5, 0.8]])
    q: Any = infer(model, ExactPosterior(), v)
    drawn = q.sample(KEY, 100_000)[0]
    counts = np.bincount(np.asarray(jax.vmap(model.h.index)(drawn)), minlength=64)
    expected = 100_000 * np.exp(np.asarray(q.log_probs[0], np.float64))
    many = expected > 5
    rest = (counts[~many].sum(), expected[~many].sum())
    seen, wanted = np.append(counts[many], rest[0]), np.append(expected[many], max(rest[1], 1e-9))
    assert ((seen - wanted) ** 2 / wanted).sum() < 134
    assert set(np.unique(drawn)) == {0.0, 1.0}


def first_gradient(objective, model, data):
    """The gradient of the learner's first step: ten times Adam's first moment."""
    learner = Learner(objective, learning_rate=1e-3)
    state = learner.init(KEY, model, ExactPosterior(), batch=len(data))
    state, _ = eqx.filter_jit(learner.step)(KEY, state, Batch(data))
    return jax.tree.map(lambda moment: 10 * moment, state.optimizer[0].mu[0])


def test_ksd_of_any_energy_is_exact(float64):
    """The gradient equals that of the discrepancy with log p̃ written out, over the pairs of the batch.

    θ is differentiated in one point of each pair, times two: the other half is that of the swapped pairs.
    """
    model, data = own(Binary(6)), jax.random.normal(KEY, (6, 3))

    def discrepancy(model):
        score = jax.vmap(jax.grad(lambda v: log_density(model, v)))

        def term(v, other, s, s_other):
            kernel = lambda v, other: jnp.exp(-0.5 * jnp.sum((v - other) ** 2))
            along, along_other = (jax.grad(kernel, i)(v, other) for i in (0, 1))
            trace = jnp.trace(jax.jacfwd(jax.grad(kernel, 0), 1)(v, other))
            return kernel(v, other) * (s @ s_other) + s @ along_other + s_other @ along + trace

        return jnp.mean(jax.vmap(term)(data[3:], data[:3], score(data[3:]), score(data[:3])))

    got, want = first_gradient(KSD(1.0, Enumerated()), model, data), eqx.filter_grad(discrepancy)(model)
    mirrored = first_gradient(KSD(1.0, Enumerated()), model, jnp.concatenate([data[3:], data[:3]]))
    for name in model.params:
        both = (got.params[name] + mirrored.params[name]) / 2
        np.testing.assert_allclose(both, want.params[name], rtol=1e-10, atol=1e-12)


def test_a_one_hot_posterior_draws_choices_and_is_learnt():
    """Its probabilities sum to one, its mean is that of its samples, and KL falls to nearly 0 for one choice."""
    q = OneHot(jnp.array([[0.5, -1.0, 2.0], [0.0, 0.3, -0.2]]), temperature=0.0)
    states = Categorical(2, 3).states()
    np.testing.assert_allclose(jnp.sum(jnp.exp(jax.vmap(q.log_prob)(states))), 1.0, rtol=1e-5)
    batch = jax.tree.map(lambda x: x[None], q)
    drawn = batch.sample(KEY, 20_000)[0]
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(drawn.sum(-1), 1.0)
    np.testing.assert_allclose(drawn.mean(0), q.mean, atol=5 * 0.5 / np.sqrt(20_000))  # five errors of six means
    relaxed = jax.tree.map(lambda x: x[None], OneHot(q.logits, 0.3)).sample(KEY, 5)
    np.testing.assert_allclose(relaxed.sum(-1), 1.0, rtol=1e-5)

    model = own(Categorical(1, 4), jnp.float32)
    v = jax.random.normal(KEY, (500, 3))
    posterior = CategoricalPosterior(eqx.nn.MLP(3, 4, 32, 1, key=KEY), (1, 4), temperature=0.3)
    learner = Learner(DSM(0.1, Variational(2)), adam(0.0), adam(1e-2), posterior_steps=1, divergence=kl)
    fitted = fit_state(learner, learner.init(KEY, model, posterior, batch=100), v, steps=2000, batch=100)
    exact = infer(model, ExactPosterior(), v).mean
    before, after = (
        jnp.mean(jnp.sum(exact * (jnp.log(exact) - jnp.log(infer(model, one, v).mean)), axis=(1, 2)))
        for one in (posterior, fitted.state.posterior)
    )
    assert after < 0.1 * before


@pytest.mark.parametrize(
    ("h", "posterior", "advice"),
    [
        (Binary(2), GaussianPosterior.linear(KEY, 3, 2), "BernoulliPosterior"),
        (Real(2), BernoulliPosterior.linear(KEY, 3, 2), "GaussianPosterior"),
        (Categorical(1, 2), BernoulliPosterior(lambda v: v[:2][None]), "CategoricalPosterior"),
        (Real(1, 2), CategoricalPosterior.linear(KEY, 3, 1, 2), "GaussianPosterior"),
    ],
)
def test_a_posterior_of_another_domain_is_refused(h, posterior, advice):
    with pytest.raises(TypeError, match=rf"^posterior: .*got .*{advice}"):
        Learner(DSM(0.1, Variational(2)), learning_rate=1e-3).init(KEY, own(h, jnp.float32), posterior, batch=4)


def test_values_outside_their_domain():
    model, v = own(Binary(2), jnp.float32), jnp.zeros((1, 3))
    vaes(model, v, jnp.array([[[0.0, 0.3], [1.0, 1.0]]]))  # relaxed
    with refused("h", got="-31.8"):
        vaes(model, v, jnp.array([[[0.0, 1.0], [-31.8, 1.0]]]))
    with refused("h", got="2"):
        vaes(model, v, jnp.array([[[0, 2], [1, 0]]]))


def test_a_model_without_latents_takes_every_source(float64):
    model = EnergyModel(lambda params, v, h: jnp.sum(params * v**4), jnp.ones(3), v=Real(3))
    v = jax.random.normal(KEY, (2, 3))
    q, encoding = infer(model, ExactPosterior(), v), encode(model, v)
    for source in (Variational(3), Enumerated(), Importance(3)):
        first, second = source(KEY, model, q, encoding, 2)
        np.testing.assert_allclose(first.score(model, encoding), -4 * v**3, rtol=1e-12)
        np.testing.assert_allclose(second.surrogate(model, encoding, v), jnp.mean(-4 * v**4) * 3, rtol=1e-12)
    np.testing.assert_allclose(vaes(model, v, jnp.zeros((2, 1, 0))), -4 * v**3, rtol=1e-12)


def test_a_model_without_latents_is_trained_in_narrow_numbers():
    model = EBM.vectors(KEY, 3, width=4, depth=1)
    learner = Learner(DSM(0.1), learning_rate=1e-3, compute_dtype=jnp.bfloat16)
    state, metrics = learner.step(KEY, learner.init(KEY, model, ExactPosterior(), batch=4), Batch(jnp.ones((4, 3))))
    assert np.isfinite(metrics["loss"])
    assert {leaf.dtype for leaf in jax.tree.leaves(state.model)} == {jnp.dtype("float32")}
