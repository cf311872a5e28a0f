"""Every objective's gradient against plain autodiff of its definition, or against a finite enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from one_step import follow
from truth import adam_start, adam_steps, bilinear, mean_differs, relative_error
from vages import GRBM, Batch, Bernoulli, BernoulliPosterior, ExactPosterior, encode
from vages.distributions import logistic
from vages.objectives import DSM, KSD, NCE, VNCE, BiDSM, ContrastiveDivergence, Enumerated, Importance, Variational
from vages.objectives.ksd import rbf
from vages.objectives.nce import classification_loss
from vages.samplers import gibbs_sample, gibbs_step
from vages.samplers.gibbs import GibbsState
from vages.training.learner import Learner

quick_follow = eqx.filter_jit(follow)


@pytest.fixture
def grbm(float64):
    keys = jax.random.split(jax.random.key(0), 3)
    return bilinear(GRBM, keys[0], 3, 4, "float64"), jax.random.normal(keys[1], (8, 3)), keys[2]


def test_exact_dsm(grbm):
    model, w, key = grbm
    direction = quick_follow(DSM(0.3, Enumerated()), key, model, ExactPosterior(), w)
    points = direction.points

    def loss(model):
        return 0.5 * jnp.mean(jnp.sum((jax.vmap(model.score)(points.v) - points.target) ** 2, axis=1))

    value, gradient = jax.jit(jax.value_and_grad(loss))(model)
    assert relative_error(direction.loss, value) < 1e-12
    assert relative_error(direction.gradient[0], gradient) < 1e-12


def ksd(score, v, other, bandwidth):
    """Eq. 12 on pairs, with every derivative of the kernel by autodiff."""
    kernel = lambda v, u: jnp.exp(-jnp.sum((v - u) ** 2) / 2 / bandwidth**2)

    def one(v, u):
        s, t = score(v), score(u)
        trace = jnp.trace(jax.jacfwd(jax.grad(kernel, 1), 0)(v, u))
        return kernel(v, u) * (s @ t) + s @ jax.grad(kernel, 1)(v, u) + t @ jax.grad(kernel, 0)(v, u) + trace

    return jnp.mean(jax.vmap(one)(v, other))


def both_ways(x):
    """A batch with all pairs in both orders, so the one-sided gradient of Eq. 14 is the whole gradient."""
    a, b = x[: len(x) // 2], x[len(x) // 2 :]
    return jnp.concatenate([a, b, b, a])


def test_exact_ksd(grbm):
    model, w, key = grbm
    w = both_ways(w)
    direction = quick_follow(KSD(0.7, Enumerated()), key, model, ExactPosterior(), w)
    loss = lambda model: ksd(model.score, w[8:], w[:8], 0.7)
    value, gradient = jax.jit(jax.value_and_grad(loss))(model)
    assert relative_error(direction.loss, value) < 1e-12
    assert relative_error(direction.gradient[0], gradient) < 1e-12


def score_of_states(model, v, h):
    """The score of log Σ_i p̃(v, h_i) over fixed states h_i, at each v."""

    def one(v, h):
        log_p = lambda v: jax.nn.logsumexp(jax.vmap(lambda h: model.log_joint(model.features(v), h))(h))
        return jax.grad(log_p)(v)

    return jax.vmap(one)(v, h)


def coins(key, *shape):
    return jax.random.bernoulli(key, 0.5, shape).astype("float64")


def test_importance_sampled_dsm(grbm):
    model, w, key = grbm
    got = quick_follow(DSM(0.3, Importance(3)), key, model, ExactPosterior(), w)
    first, second = (coins(key, 8, 3, 4) for key in jax.random.split(jax.random.split(key)[1]))

    @jax.jit
    def by_hand(model):
        residual = score_of_states(model, got.points.v, first) - got.points.target
        slope = lambda model: jnp.mean(jnp.sum(residual * score_of_states(model, got.points.v, second), axis=1))
        return 0.5 * jnp.mean(jnp.sum(residual**2, axis=1)), jax.grad(slope)(model)

    value, gradient = by_hand(model)
    assert relative_error(got.loss, value) < 1e-12
    assert relative_error(got.gradient[0], gradient) < 1e-12


def test_importance_sampled_ksd(grbm):
    """The loss is that of the pairs. Its gradient is twice that with respect to one point of each pair (Eq. 14)."""
    model, w, key = grbm
    got = quick_follow(KSD(0.7, Importance(3)), key, model, ExactPosterior(), w)
    keys = jax.random.split(jax.random.split(key)[1])
    first, second = (coins(jax.random.split(key, 1)[0], 4, 3, 4) for key in keys)

    @jax.jit
    def by_hand(model):
        kernel, s = rbf(w[4:], w[:4], 0.7), score_of_states(model, w[4:], first)

        def loss(model):
            t = score_of_states(model, w[:4], second)
            cross = jnp.sum((t - s) * kernel.gradient, axis=1)
            return jnp.mean(kernel.value * jnp.sum(s * t, axis=1) + cross + kernel.trace)

        return jax.value_and_grad(loss)(model)

    value, gradient = by_hand(model)
    assert relative_error(got.loss, value) < 1e-12
    assert relative_error(got.gradient[0], jax.tree.map(lambda g: 2 * g, gradient)) < 1e-12


def test_importance_states_are_fair_coins():
    model, v = GRBM.init(jax.random.key(0), 2, 3), jnp.zeros((1, 2))
    (latents,) = Importance(30_000)(jax.random.key(1), model, Bernoulli(jnp.zeros((1, 3))), encode(model, v))
    assert set(np.unique(latents.h)) == {0.0, 1.0}
    assert not mean_differs(latents.h[0], np.full(3, 0.5))  # false-alarm rate 1e-6


def test_control_variate_makes_dsm_exact_where_q_is_the_posterior(grbm):
    """For q = p, VaES-CV is the score for any samples, so the loss is exact."""
    model, w, key = grbm
    plain = quick_follow(DSM(0.3, Variational(2)), key, model, ExactPosterior(), w)
    steady = quick_follow(DSM(0.3, Variational(2), True), key, model, ExactPosterior(), w)
    points = plain.points
    exact = 0.5 * jnp.mean(jnp.sum((jax.jit(jax.vmap(model.score))(points.v) - points.target) ** 2, axis=1))
    assert relative_error(steady.loss, exact) < 1e-12
    assert relative_error(plain.loss, exact) > 1e-3


@pytest.mark.parametrize("objective", [DSM, KSD])
@pytest.mark.parametrize("latents", [Enumerated(), Importance(3)])
def test_the_control_variate_is_refused_where_h_are_not_draws_of_q(objective, latents):
    with pytest.raises(ValueError, match="^control_variate: .*Variational"):
        objective(0.3, latents, control_variate=True)


@pytest.mark.parametrize("unrolled", [0, 1, 3])
def test_bidsm_is_the_gradient_through_a_hand_written_unroll(float64, unrolled):
    keys = jax.random.split(jax.random.key(0), 4)
    model = bilinear(GRBM, keys[0], 3, 4, "float64")
    weight, bias = jax.random.normal(keys[1], (4, 3)), jax.random.normal(keys[2], (4,))
    layer = eqx.tree_at(lambda x: (x.weight, x.bias), eqx.nn.Linear(3, 4, key=keys[1]), (weight, bias))
    w, rate, decay = jax.random.normal(keys[3], (5, 3)), 0.01, (0.9, 0.95)
    objective = BiDSM(0.3, unrolled, samples=2)
    learner = Learner(objective, learning_rate=rate, posterior_steps=2)
    state = learner.init(keys[0], model, BernoulliPosterior(layer), batch=5)
    after, metrics = jax.jit(learner.step)(keys[3], state, Batch(w))
    for_posterior, for_points, for_loss = jax.random.split(keys[3], 3)
    for_unrolled, for_loss = jax.random.split(for_loss) if unrolled else (for_loss, for_loss)
    noise = lambda key, n: logistic(key, (20 * n,), w.dtype).reshape(5, n, 4)
    first = [noise(key, 1) for key in jax.random.split(for_posterior, 2)]
    ahead_of_it = [noise(key, 1) for key in jax.random.split(for_unrolled, unrolled)]
    epsilon, last = jax.random.normal(for_points, w.shape), noise(for_loss, 2)
    v, target = w + 0.3 * epsilon, -epsilon / 0.3

    def lower(phi, model, noise):
        logits = v @ phi[0].T + phi[1][None]
        h = jax.nn.sigmoid((logits + noise[:, 0]) / 0.1)
        log_q = jnp.sum(h * logits - jax.nn.softplus(logits), axis=1)
        energy = jax.vmap(lambda v, h: -model.log_joint(model.features(v), h))(v, h)
        return jnp.mean(energy + log_q)

    def descend(start, model, noises):
        return adam_steps(lambda phi, noise: jax.grad(lower)(phi, model, noise), start, noises, rate, decay)

    @jax.jit
    def by_hand(model):
        kept = descend(adam_start([weight, bias]), model, first)

        def upper(model):
            ahead = descend(kept, model, ahead_of_it).at

            def one(v, target, noise):
                h = jax.nn.sigmoid((ahead[0] @ v + ahead[1] + noise) / 0.1)

                def log_ratio(v):
                    logits = ahead[0] @ v + ahead[1]
                    return model.log_joint(model.features(v), h) - h @ logits + jnp.sum(jax.nn.softplus(logits))

                return 0.5 * jnp.sum((jax.grad(log_ratio)(v) - target) ** 2)

            return jnp.mean(jax.vmap(lambda v, t, n: jnp.mean(jax.vmap(lambda n: one(v, t, n))(n)))(v, target, last))

        return kept.at, jax.value_and_grad(upper)(model)

    phi, (value, gradient) = by_hand(model)
    assert relative_error(metrics["loss"], value) < 1e-9
    assert relative_error(after.posterior.network.weight, phi[0]) < 1e-9  # the unrolled steps are not kept
    first_moment = after.optimizer[0].mu[0]  # Adam after one step: (1 − b1) times the gradient
    assert relative_error(jax.tree.map(lambda m: m / (1 - decay[0]), first_moment), gradient) < 1e-8


def test_contrastive_divergence_from_long_chains_is_the_likelihood_gradient():
    """k = 30 steps from the data reach the model, so the gradient is that of −log p. False-alarm rate 1e-6."""
    model = bilinear(GRBM, jax.random.key(0), 2, 3)
    w = gibbs_sample(jax.random.key(1), bilinear(GRBM, jax.random.key(5), 2, 3), 1, steps=2).v
    objective = ContrastiveDivergence(steps=30)

    def one(key):
        return follow(objective, key, model, ExactPosterior(), w).gradient[0]

    draws = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), 20_000))
    expected = jax.jit(jax.grad(lambda model: -jnp.mean(jax.vmap(model.log_prob)(w))))(model)
    for got, truth in zip(jax.tree.leaves(draws), jax.tree.leaves(expected), strict=True):
        assert not mean_differs(got, truth, 1e-6 / 4)
    assert any(
        mean_differs(-got, truth) for got, truth in zip(jax.tree.leaves(draws), jax.tree.leaves(expected), strict=True)
    )


def test_persistent_chains_go_on_from_where_they_were(grbm):
    model, w, key = grbm
    objective = ContrastiveDivergence(steps=1, persistent=True)
    _, chains = objective.init(key, model, 8)
    seen = []

    @jax.jit
    def both(key, chains):
        direction = follow(objective, key, model, ExactPosterior(), w, carry=chains)
        for_step = jax.random.split(jax.random.split(jax.random.split(key)[1])[1], 1)[0]
        v = gibbs_step(for_step, model, GibbsState(w, chains)).v
        contrast = lambda model: jnp.mean(jax.vmap(model.free_energy)(w)) - jnp.mean(jax.vmap(model.free_energy)(v))
        return direction, jax.grad(contrast)(model)

    for step_key in jax.random.split(key, 3):
        direction, gradient = both(step_key, chains)
        assert relative_error(direction.gradient[0], gradient) < 1e-12
        chains = direction.carry
        seen.append(chains)
    assert set(np.unique(chains)) <= {0.0, 1.0}
    assert not np.array_equal(seen[0], seen[1])


def test_nce_gradient_is_zero_at_the_truth_and_vnce_with_the_posterior_is_nce():
    """With data from the model and c = log Z, the expected gradient is 0. False-alarm rate 1e-6."""
    model = bilinear(GRBM, jax.random.key(0), 2, 3)
    chains = gibbs_sample(jax.random.key(1), model, 20_000, steps=200)
    c = jax.jit(lambda model: model.log_partition())(model)
    objective = NCE()
    one = lambda v, key, c: follow(objective, key, model, ExactPosterior(), v[None], extras=c)
    keys = jax.random.split(jax.random.key(2), 20_000)
    many = jax.jit(jax.vmap(one, (0, 0, None)))
    directions = many(chains.v, keys, c)
    for leaf in jax.tree.leaves(directions.gradient):
        assert not mean_differs(leaf, np.zeros(leaf.shape[1:]), 1e-6 / 5)
    wrong = many(chains.v, keys, c + 0.5)
    assert mean_differs(wrong.gradient[1], 0.0)
    assert float(wrong.gradient[1].mean()) > 0  # gradient descent decreases c

    w, key = chains.v[:50], keys[0]

    @jax.jit
    def both(w):
        variational = follow(VNCE(5), key, model, ExactPosterior(), w, extras=c)
        y = jax.random.normal(jax.random.split(jax.random.split(key)[1], 3)[0], w.shape)  # the draws of VNCE
        log_density = jax.vmap(lambda v: -model.free_energy(v))
        loss = lambda c: classification_loss(log_density(w), log_density(y), w, y, c)
        return variational, jax.value_and_grad(loss)(c)

    variational, (loss, gradient) = both(w)
    assert relative_error(variational.loss, loss) < 1e-5
    assert relative_error(variational.gradient[1], gradient) < 1e-4
