"""Every objective's gradient against plain autodiff of what it stands for, or a finite enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from truth import adam_start, adam_steps, bilinear, mean_differs, relative_error
from vages import GRBM, BernoulliPosterior, ExactPosterior, encode, infer
from vages.objectives import DSM, KSD, NCE, VNCE, BiDSM, ContrastiveDivergence, Problem
from vages.objectives.ksd import rbf
from vages.posteriors import Enumerated, Importance, Variational, kl
from vages.samplers import gibbs_sample
from vages.training.learner import make_learner


def problem(model, posterior, points, w, extra=None, memory=None):
    return Problem(model, posterior, extra, memory, w, points, encode(model, points.v), lambda model: posterior)


def draw_and_differentiate(objective, model, posterior, w, key, extra=None, memory=None):
    @jax.jit
    def run(model, w, key, extra, memory):
        q = infer(posterior, model, jax.vmap(model.features)(w), w)
        noise = objective.draw(key, model, q, w)
        points = objective.points(w, noise)
        return points, noise, objective.gradient(problem(model, posterior, points, w, extra, memory), noise)

    return run(model, w, key, extra, memory)


@pytest.fixture
def grbm(float64):
    keys = jax.random.split(jax.random.key(0), 3)
    return bilinear(GRBM, keys[0], 3, 4, "float64"), jax.random.normal(keys[1], (8, 3)), keys[2]


def test_exact_dsm(grbm):
    model, w, key = grbm
    points, _, direction = draw_and_differentiate(DSM(0.3, Enumerated()), model, ExactPosterior(), w, key)

    def loss(model):
        return 0.5 * jnp.mean(jnp.sum((jax.vmap(model.score)(points.v) - points.target) ** 2, axis=1))

    value, gradient = jax.jit(jax.value_and_grad(loss))(model)
    assert relative_error(direction.loss, value) < 1e-12
    assert relative_error(direction.gradient[0], gradient) < 1e-12


def ksd(score, v, other, bandwidth):
    """Eq. 12 on pairs, every derivative of the kernel by autodiff."""
    kernel = lambda v, u: jnp.exp(-jnp.sum((v - u) ** 2) / 2 / bandwidth**2)

    def one(v, u):
        s, t = score(v), score(u)
        trace = jnp.trace(jax.jacfwd(jax.grad(kernel, 1), 0)(v, u))
        return kernel(v, u) * (s @ t) + s @ jax.grad(kernel, 1)(v, u) + t @ jax.grad(kernel, 0)(v, u) + trace

    return jnp.mean(jax.vmap(one)(v, other))


def both_ways(x):
    """A batch whose pairs come in both orders, so that the one-sided gradient of Eq. 14 is the whole gradient."""
    a, b = x[: len(x) // 2], x[len(x) // 2 :]
    return jnp.concatenate([a, b, b, a])


def test_exact_ksd(grbm):
    model, w, key = grbm
    w = both_ways(w)
    _, _, direction = draw_and_differentiate(KSD(0.7, Enumerated()), model, ExactPosterior(), w, key)
    loss = lambda model: ksd(model.score, w[8:], w[:8], 0.7)
    value, gradient = jax.jit(jax.value_and_grad(loss))(model)
    assert relative_error(direction.loss, value) < 1e-12
    assert relative_error(direction.gradient[0], gradient) < 1e-12


def test_importance_sampled_ksd(grbm):
    """Against KSD of the score of log Σ_i p̃(v, h_i), each point with its own fixed states."""
    model, w, key = grbm
    noise = both_ways(jnp.sign(jax.random.normal(key, (8, 3, 4))))
    w = both_ways(w)
    objective = KSD(0.7, Importance(3))
    at = problem(model, ExactPosterior(), objective.points(w, noise), w)
    direction = jax.jit(lambda: objective.gradient(at, noise))()

    def loss(model):
        def score(pair):
            v, h = pair[:3], pair[3:].reshape(3, 4)
            log_p = lambda v: jax.nn.logsumexp(jax.vmap(lambda h: model.log_joint(model.features(v), h))(h))
            return jnp.concatenate([jax.grad(log_p)(v), jnp.zeros(12)])

        kernel = rbf(w[8:], w[:8], 0.7)
        pairs = jnp.concatenate([w, (0.5 + 0.5 * noise).reshape(16, 12)], axis=1)
        s = jax.vmap(score)(pairs)[:, :3]
        s, t = s[8:], s[:8]
        cross = jnp.sum((t - s) * kernel.gradient, axis=1)
        return jnp.mean(kernel.value * jnp.sum(s * t, axis=1) + cross + kernel.trace)

    value, gradient = jax.jit(jax.value_and_grad(loss))(model)
    assert relative_error(direction.loss, value) < 1e-12
    assert relative_error(direction.gradient[0], gradient) < 1e-12


def test_importance_states_are_fair_coins():
    q = infer(ExactPosterior(), GRBM.init(jax.random.key(0), 2, 3), *_features(jnp.zeros((1, 2))))
    source = Importance(30_000)
    h = 0.5 + 0.5 * source.noise(jax.random.key(1), q)[0]
    assert set(np.unique(h)) == {0.0, 1.0}
    assert not mean_differs(h, np.full(3, 0.5))  # false-alarm rate 1e-6


def _features(v):
    return jax.vmap(GRBM.init(jax.random.key(0), 2, 3).features)(v), v


def test_control_variate_makes_dsm_exact_where_q_is_the_posterior(grbm):
    """With q = p, VaES-CV is the score whatever the samples: the loss is then the exact one."""
    model, w, key = grbm
    points, _, plain = draw_and_differentiate(DSM(0.3, Variational(2)), model, ExactPosterior(), w, key)
    _, _, steady = draw_and_differentiate(DSM(0.3, Variational(2), True), model, ExactPosterior(), w, key)
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
    learner = make_learner(objective, learning_rate=rate, posterior_steps=2)
    state = learner.init(keys[0], model, BernoulliPosterior(layer), batch=5)
    after, metrics = jax.jit(learner.step)(state, w, keys[3])
    q = infer(BernoulliPosterior(layer), model, jax.vmap(model.features)(w), w)
    for_posterior, for_unrolled, for_objective = jax.random.split(keys[3], 3)
    first, ahead_of_it = q.noise(for_posterior, (2, 5, 1, 4)), q.noise(for_unrolled, (unrolled, 5, 1, 4))
    epsilon, last = objective.draw(for_objective, model, q, w)
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
    first_moment = after.optimiser[0].mu[0]  # of Adam after one step: (1 − b1) times the gradient
    assert relative_error(jax.tree.map(lambda m: m / (1 - decay[0]), first_moment), gradient) < 1e-8


def test_contrastive_divergence_from_long_chains_is_the_likelihood_gradient():
    """k = 30 steps from the data reach the model, and the gradient is that of −log p. False-alarm rate 1e-6."""
    model = bilinear(GRBM, jax.random.key(0), 2, 3)
    w = gibbs_sample(jax.random.key(1), bilinear(GRBM, jax.random.key(5), 2, 3), 1, steps=2).v
    objective = ContrastiveDivergence(steps=30)

    def one(key):
        noise = objective.draw(key, model, infer(ExactPosterior(), model, jax.vmap(model.features)(w), w), w)
        return objective.gradient(problem(model, ExactPosterior(), objective.points(w, noise), w), noise).gradient[0]

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
    _, memory = objective.start(key, model, 8)
    seen = []

    @jax.jit
    def both(key, memory):
        _, noise, direction = draw_and_differentiate(objective, model, ExactPosterior(), w, key, memory=memory)
        v = jax.vmap(lambda h, noise: model.conditional(h).transform(noise))(memory, noise[1].v[0])
        contrast = lambda model: jnp.mean(jax.vmap(model.free_energy)(w)) - jnp.mean(jax.vmap(model.free_energy)(v))
        return direction, jax.grad(contrast)(model)

    for step_key in jax.random.split(key, 3):
        direction, gradient = both(step_key, memory)
        assert relative_error(direction.gradient[0], gradient) < 1e-12
        memory = direction.memory
        seen.append(memory)
    assert set(np.unique(memory)) <= {0.0, 1.0}
    assert not np.array_equal(seen[0], seen[1])


def test_nce_gradient_is_zero_at_the_truth_and_vnce_with_the_posterior_is_nce():
    """With data from the model and c = log Z the expected gradient vanishes. False-alarm rate 1e-6."""
    model = bilinear(GRBM, jax.random.key(0), 2, 3)
    chains = gibbs_sample(jax.random.key(1), model, 20_000, steps=200)
    c = jax.jit(lambda model: model.log_partition())(model)
    objective = NCE()

    def one(v, key, c):
        noise = jax.random.normal(key, (1, 2))
        return objective.gradient(problem(model, ExactPosterior(), objective.points(v[None], noise), v[None], c), noise)

    keys = jax.random.split(jax.random.key(2), 20_000)
    many = jax.jit(jax.vmap(one, (0, 0, None)))
    directions = many(chains.v, keys, c)
    for leaf in jax.tree.leaves(directions.gradient):
        assert not mean_differs(leaf, np.zeros(leaf.shape[1:]), 1e-6 / 5)
    wrong = many(chains.v, keys, c + 0.5)
    assert mean_differs(wrong.gradient[1], 0.0)
    assert float(wrong.gradient[1].mean()) > 0  # descending brings c back down

    w, y = chains.v[:50], jax.random.normal(keys[0], (50, 2))
    latents = [jax.random.logistic(key, (50, n, 3)) for key, n in zip(keys[:2], (1, 5), strict=True)]

    @jax.jit
    def both(w, y, latents):
        variational = VNCE(5).gradient(problem(model, ExactPosterior(), VNCE(5).points(w, None), w, c), (y, *latents))
        return variational, NCE().gradient(problem(model, ExactPosterior(), NCE().points(w, y), w, c), y)

    variational, exact = both(w, y, latents)
    assert relative_error(variational.loss, exact.loss) < 1e-5
    assert relative_error(variational.gradient[1], exact.gradient[1]) < 1e-4


def test_kl_steps_use_the_noise_they_are_given(grbm):
    model, w, key = grbm
    posterior = BernoulliPosterior(lambda v: v @ jnp.ones((3, 4)))

    @jax.jit
    def both(w):
        features = jax.vmap(model.features)(w)
        noise = infer(posterior, model, features, w).noise(key, (8, 1, 4))
        return kl.at(model, posterior, features, w, noise), kl(model, posterior, features, w, key)

    assert relative_error(*both(w)) < 1e-12
