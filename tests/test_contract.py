"""The contracts of objectives, contexts and mixed latents, with user-defined models, against closed forms."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from fitting import fit_state
from small_nets import quick
from truth import mean_differs, relative_error
from vages import (
    DSM,
    GRBM,
    KSD,
    VNCE,
    Batch,
    BernoulliPosterior,
    BiDSM,
    Binary,
    Categorical,
    CategoricalPosterior,
    EnergyModel,
    Enumerated,
    ExactPosterior,
    Gaussian,
    GaussianPosterior,
    Joint,
    JointPosterior,
    Learner,
    OneHot,
    Posterior,
    Real,
    RunFolder,
    Variational,
    encode,
    gradient_estimate,
    infer,
    kl,
    learning_rate,
    surrogate,
    vaes,
    vaes_cv,
)
from vages.data import load_labels, load_splits
from vages.domains import Product
from vages.models import log_marginal
from vages.training.trees import named_arrays, with_arrays

KEY = jax.random.key(0)
normal = lambda seed, *shape: jax.random.normal(jax.random.key(seed), shape)


def causes(params, v, h):
    """Binary causes of v that are not independent given v."""
    return jnp.sum((v - h @ params["w"]) ** 2) / 2 - params["c"] @ h


def six_causes() -> EnergyModel:
    return EnergyModel(causes, {"w": normal(1, 6, 4), "c": normal(2, 6)}, v=Real(4), h=Binary(6))


def exact_score(model, v):
    log_p = lambda v: jax.nn.logsumexp(jax.vmap(lambda h: -causes(model.params, v, h))(Binary(6).states(v.dtype)))
    return jax.grad(log_p)(v)


def own_dsm(key, model, posterior, batch):
    """An objective in ten lines: denoising score matching by VaGES."""
    for_noise, for_score, for_gradient = jax.random.split(key, 3)
    noise = jax.random.normal(for_noise, batch.v.shape)
    v = batch.v + 0.3 * noise
    q = infer(model, posterior, v, batch.context)
    residual = vaes(model, v, q.sample(for_score, 2)) + noise / 0.3
    loss = jnp.mean(jnp.sum(residual**2, axis=1)) / 2
    return surrogate(model, v, q.sample(for_gradient, 2), residual), {"loss": loss}


def exact_dsm(key, model, posterior, batch):
    """The same with the score by enumeration, and autodiff through all of it."""
    noise = jax.random.normal(key, batch.v.shape)
    residual = jax.vmap(lambda v: exact_score(model, v))(batch.v + 0.3 * noise) + noise / 0.3
    return jnp.mean(jnp.sum(residual**2, axis=1)) / 2, {}


def followed(objective, key, model, posterior, data):
    """The gradient of a learner's first step: ten times Adam's first moment."""
    learner = Learner(objective, learning_rate=1e-3, posterior_steps=0)
    state, metrics = learner.step(key, learner.init(KEY, model, posterior, batch=len(data)), Batch(data))
    return jax.tree.map(lambda moment: 10 * moment, state.optimizer[0].mu[0]), metrics


def test_exact_dsm_of_an_own_energy_is_plain_autodiff(float64):
    model, data = six_causes(), normal(3, 8, 4)
    for_points = jax.random.split(KEY, 3)[1]
    got, metrics = quick(lambda: followed(DSM(0.3, Enumerated()), KEY, model, ExactPosterior(), data))()
    function = lambda key, *rest: exact_dsm(for_points, *rest)  # with the same noise
    want, expected = quick(lambda: followed(function, KEY, model, ExactPosterior(), data))()
    assert relative_error(got, want) < 1e-10
    assert relative_error(metrics["loss"], expected["loss"]) < 1e-12


def test_an_own_objective_is_unbiased(float64):
    """With the exact posterior the mean is the gradient of exact DSM with the same noise. False-alarm rate 1e-6."""
    model, batch = six_causes(), Batch(normal(3, 1, 4))

    def difference(key):
        own = eqx.filter_grad(lambda model: own_dsm(key, model, ExactPosterior(), batch)[0])(model)
        for_noise = jax.random.split(key, 3)[0]
        exact = eqx.filter_grad(lambda model: exact_dsm(for_noise, model, None, batch)[0])(model)
        return jax.tree.map(jnp.subtract, own.params, exact.params)

    keys = jax.random.split(jax.random.key(9), 20_000)
    draws = quick(lambda keys: jax.lax.map(difference, keys, batch_size=500))(keys)
    for leaf in draws.values():
        assert not mean_differs(leaf, jnp.zeros(leaf.shape[1:]), 1e-6 / 2)


def test_a_function_is_an_objective():
    """Exact DSM and VaGES-DSM both learn from the same data and reach similar losses, measured by exact DSM."""
    truth = {"w": 2 * jnp.eye(6, 4), "c": -jnp.ones(6)}
    h = jax.random.bernoulli(KEY, 0.3, (2000, 6)).astype(jnp.float32)
    data = h @ truth["w"] + 0.3 * normal(4, 2000, 4)
    start = EnergyModel(causes, {"w": 0.5 * normal(1, 6, 4), "c": jnp.zeros(6)}, v=Real(4), h=Binary(6))
    posterior = BernoulliPosterior.linear(KEY, 4, 6)
    judge = quick(lambda model: exact_dsm(jax.random.key(7), model, None, Batch(data))[0])
    losses = {}
    for name, objective, q in (("exact", exact_dsm, ExactPosterior()), ("own", own_dsm, posterior)):
        learner = Learner(objective, learning_rate=1e-2)
        fitted = fit_state(learner, learner.init(KEY, start, q, batch=100), data, steps=600, batch=100)
        losses[name] = float(judge(fitted.state.model))
    assert losses["exact"] < float(judge(start)) - 0.5
    assert losses["own"] < losses["exact"] + 0.1 * (float(judge(start)) - losses["exact"])


# mixed latents: given v, z and y are independent, and everything has a closed form


def mixed_energy(params, v, h):
    pull = params["w"] @ h["z"] + params["u"] @ h["y"][0]
    return jnp.sum(v**2) / 2 + jnp.sum(h["z"] ** 2) / 2 - v @ pull - params["c"] @ h["y"][0]


def mixed() -> EnergyModel:
    params = {"w": 0.4 * normal(1, 3, 2), "u": normal(2, 3, 4), "c": normal(3, 4)}
    return EnergyModel(mixed_energy, params, v=Real(3), h={"z": Real(2), "y": Categorical(1, 4)})


def mixed_log_density(model, v):
    p = model.params
    return -jnp.sum(v**2) / 2 + jnp.sum((v @ p["w"]) ** 2) / 2 + jax.nn.logsumexp(v @ p["u"] + p["c"])


class MixedTruth(Posterior):
    """N(Wᵀv, I) and softmax(Uᵀv + c)."""

    def __call__(self, model: Any, features, v, context=None):
        p = model.params
        mean = v @ p["w"]
        return Joint({"y": OneHot((v @ p["u"] + p["c"])[None], 0.0), "z": Gaussian(mean, jnp.zeros_like(mean))})


def test_gradients_with_mixed_latents_are_exact(float64):
    """Gauss–Hermite nodes of z, which are exact for these polynomials, and all y, with their probabilities."""
    model, v, direction = mixed(), normal(4, 5, 3), normal(5, 5, 3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    grid = jnp.asarray(np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2))
    mass = jnp.asarray(np.outer(weights, weights).reshape(-1) / (2 * np.pi))
    q: Any = infer(model, MixedTruth(), v)
    z = jnp.repeat(q.parts["z"].mean[:, None] + grid[None], 4, axis=1)
    y = jnp.broadcast_to(jnp.tile(jnp.eye(4), (16, 1))[None, :, None], (5, 64, 1, 4))
    share = jnp.repeat(mass, 4)[None] * jnp.tile(q.parts["y"].mean[:, 0], (1, 16))
    h = {"z": z, "y": y}
    score = jax.vmap(jax.grad(lambda v: mixed_log_density(model, v)))(v)
    assert relative_error(vaes(model, v, h, share), score) < 1e-10

    def slope(model):
        scores = jax.vmap(jax.grad(lambda v: mixed_log_density(model, v)))(v)
        return jnp.mean(jnp.sum(direction * scores, axis=1))

    got = gradient_estimate(model, v, h, direction, share)
    assert relative_error(got.params, eqx.filter_grad(slope)(model).params) < 1e-10


def test_the_control_variate_of_mixed_latents_removes_all_variance(float64):
    model, v = mixed(), normal(4, 5, 3)
    log_q = lambda v, h: MixedTruth()(model, v, v).log_prob(h)
    h = infer(model, MixedTruth(), v).sample(KEY, 3)
    assert jax.tree.map(jnp.shape, h) == {"y": (5, 3, 1, 4), "z": (5, 3, 2)}
    score = jax.vmap(jax.grad(lambda v: mixed_log_density(model, v)))(v)
    assert relative_error(vaes_cv(model, log_q, v, h), score) < 1e-10
    assert (
        relative_error(
            kl(KEY, model, MixedTruth(), v), -jax.vmap(lambda v: mixed_log_density(model, v))(v) - np.log(2 * np.pi)
        )
        < 1e-10
    )


def test_mixed_latents_are_learnt():
    """q approaches the posterior of both parts, and the model approaches the data."""
    data = mixed().params["u"].T[jax.random.randint(KEY, (2000,), 0, 4)] + 0.5 * normal(6, 2000, 3)
    parts = {"z": GaussianPosterior.linear(KEY, 3, 2), "y": CategoricalPosterior.linear(KEY, 3, 1, 4, temperature=0.3)}
    posterior = JointPosterior(parts)
    learner = Learner(DSM(0.5), learning_rate=1e-2, posterior_steps=3)
    state = learner.init(KEY, mixed(), posterior, batch=100)
    fitted = fit_state(learner, state, data, steps=500, batch=100, chunk=100)
    before, after = fitted.curve("loss")[1][[0, -1]]
    assert after < before
    both: Any = [infer(fitted.state.model, one, data).mean for one in (fitted.state.posterior, MixedTruth())]
    q, p = both
    assert float(jnp.mean((q["z"] - p["z"]) ** 2)) < 0.05
    assert float(jnp.mean(jnp.abs(q["y"] - p["y"]))) < 0.1


def test_discrete_parts_are_enumerated_together(float64):
    """A dict of binary and categorical latents: score and gradient sum over all 8 × 3 states."""

    def energy(params, v, h):
        return (
            jnp.sum((v - params["w"] @ h["a"] - params["u"] @ h["y"][0]) ** 2) + params["t"] * h["a"][0] * h["y"][0, 1]
        )

    params = {"w": normal(1, 2, 3), "u": normal(2, 2, 3), "t": jnp.asarray(0.7)}
    model = EnergyModel(energy, params, v=Real(2), h={"a": Binary(3), "y": Categorical(1, 3)})
    states = model.h.states(jnp.float64)
    assert model.h.count == 24
    assert len({tuple(np.concatenate([a, y[0]])) for a, y in zip(states["a"], states["y"], strict=True)}) == 24
    np.testing.assert_array_equal(jax.vmap(model.h.index)(states), np.arange(24))
    v, z = normal(4, 3, 2), normal(5, 3, 2)
    log_p = lambda model, v: jax.nn.logsumexp(jax.vmap(lambda h: -energy(model.params, v, h))(states))
    slope = lambda model: jnp.mean(jnp.sum(z * jax.vmap(jax.grad(lambda v: log_p(model, v)))(v), axis=1))
    encoding = encode(model, v)
    (latents,) = Enumerated()(KEY, model, infer(model, ExactPosterior(), v), encoding)
    assert relative_error(latents.score(model, encoding), jax.vmap(jax.grad(lambda v: log_p(model, v)))(v)) < 1e-10
    got = eqx.filter_grad(lambda model: latents.surrogate(model, encoding, z))(model)
    assert relative_error(got.params, eqx.filter_grad(slope)(model).params) < 1e-10
    drawn = infer(model, ExactPosterior(), v).sample(KEY, 5)
    assert jax.tree.map(jnp.shape, drawn) == {"a": (3, 5, 3), "y": (3, 5, 1, 3)}


@pytest.mark.parametrize(
    ("h", "total"),
    [
        (Binary(14), lambda pull: jnp.sum(jax.nn.softplus(pull))),
        (Categorical(8, 3), lambda pull: jnp.sum(jax.nn.logsumexp(pull.reshape(8, 3), axis=1))),
    ],
    ids=["binary", "categorical"],
)
def test_many_states_are_summed_in_blocks(float64, h, total):
    """2¹⁴ states in four blocks, and 3⁸ in two blocks, the last of them not full, against products of sums."""
    energy = lambda params, v, h: jnp.sum(v**2) / 2 - (params @ v) @ h.reshape(-1)
    model, v = EnergyModel(energy, normal(1, h.size, 2), v=Real(2), h=h), normal(2, 2)

    def all_of_it(log_p):
        slope = lambda model: jax.jvp(lambda v: log_p(model, v), (v,), (v,))[1]
        return log_p(model, v), jax.grad(lambda v: log_p(model, v))(v), eqx.filter_grad(slope)(model).params

    got = quick(lambda: all_of_it(lambda model, v: log_marginal(model, model.features(v), v.dtype)))()
    want = quick(lambda: all_of_it(lambda model, v: -jnp.sum(v**2) / 2 + total(model.params @ v)))()
    assert relative_error(got, want) < 1e-10


# contexts


def shifted(params, v, h, context):
    return jnp.sum((v - context["shift"] - params["w"] @ h) ** 2) / 2 + jnp.sum(h**2) / 2


class Conditioned(Posterior):
    """A Gaussian q that depends on the context."""

    inner: GaussianPosterior
    shift: float | None = None  # instead of a context

    def __call__(self, model, features, v, context: Any = None):
        return self.inner(model, features, v - (context["shift"] if self.shift is None else self.shift))


@pytest.mark.parametrize(
    "objective", [DSM(0.3), DSM(0.3, Variational(2), True), KSD(1.0), BiDSM(0.3, 1), VNCE(2)], ids=str
)
def test_a_context_reaches_energy_and_posterior(objective):
    """A constant context gives the same results as a constant in the energy and the posterior."""
    params, data = {"w": normal(1, 3, 2)}, normal(2, 6, 3)
    plain = lambda params, v, h: shifted(params, v, h, {"shift": 0.5})
    inner = GaussianPosterior.linear(KEY, 3, 2)
    learner = Learner(objective, learning_rate=1e-2, posterior_steps=2)
    results = []
    for energy, batch in ((plain, Batch(data)), (shifted, Batch(data, {"shift": jnp.full((6, 1), 0.5)}))):
        model = EnergyModel(energy, params, v=Real(3), h=Real(2))
        posterior = Conditioned(inner, 0.5 if batch.context is None else None)
        state = learner.init(KEY, model, posterior, batch=6, context=batch.context)
        results.append(quick(learner.step)(KEY, state, batch))
    (one, metrics), (other, expected) = results
    for name in metrics:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4)
    np.testing.assert_allclose(one.model.params["w"], other.model.params["w"], rtol=1e-4, atol=1e-5)
    leaves = lambda state: jax.tree.leaves(eqx.filter(state.posterior.inner, eqx.is_array))
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_conditional_model_is_trained():
    """Two classes with two means: the energy depends on the label, and learns the means."""

    def energy(params, v, h, context):
        return jnp.sum((v - params["means"][context["label"]] - 0.3 * h) ** 2) / 0.18 + jnp.sum(h**2) / 2

    labels = jnp.arange(2000) % 2
    data = jnp.asarray([[1.0, 0.0], [-1.0, 2.0]])[labels] + 0.3 * normal(1, 2000, 2)
    model = EnergyModel(energy, {"means": jnp.zeros((2, 2))}, v=Real(2), h=Real(2))
    rate = learning_rate(2e-2, decay="cosine", steps=1000)
    learner = Learner(DSM(0.2), learning_rate=rate, posterior_steps=2)
    posterior = GaussianPosterior.linear(KEY, 2, 2, context={"label": 2})
    examples = Batch(data, {"label": labels})
    state = learner.init(KEY, model, posterior, batch=100, context=examples.context)
    fitted = fit_state(learner, state, examples, steps=1000, batch=100)
    np.testing.assert_allclose(fitted.state.model.params["means"], [[1.0, 0.0], [-1.0, 2.0]], atol=0.15)


def test_what_cannot_work_says_so():
    learner = Learner(DSM(0.3), learning_rate=1e-2)
    model, posterior, data = GRBM.init(KEY, 3, 2), BernoulliPosterior.linear(KEY, 3, 2), normal(1, 20, 3)
    state = learner.init(KEY, model, posterior, batch=4)
    with refused("context['label']", got="shape (5,)"):
        fit_state(learner, state, Batch(data, {"label": jnp.zeros(5, int)}), steps=2, batch=4)
    with refused("context", kind=TypeError):
        fit_state(learner, state, Batch(data, jnp.zeros(20)), steps=2, batch=4)
    with refused("features", got="TypeError"):  # the model takes no context
        fit_state(learner, state, Batch(data, {"label": jnp.zeros(20, int)}), steps=2, batch=4)
    with refused("objective", kind=TypeError, got="float"):
        Learner(0.3, learning_rate=1e-2)
    with refused("objective", kind=TypeError, got="the class DSM"):
        Learner(DSM, learning_rate=1e-2)
    for wrong, kind in (
        (lambda key, model, posterior, batch: (batch.v, {}), ValueError),
        (lambda key, model, posterior, batch: jnp.mean(batch.v), TypeError),
    ):
        own = Learner(wrong, learning_rate=1e-2)
        with refused("objective", kind=kind):
            fit_state(own, own.init(KEY, model, posterior, batch=4), data, steps=2, batch=4)
    with refused("h", kind=TypeError):
        vaes(mixed(), data[:1], {"z": jnp.zeros((1, 2, 2))})
    with refused("h['z']"):
        vaes(mixed(), data[:1], {"z": jnp.zeros((1, 2, 3)), "y": jnp.zeros((1, 2, 1, 4))})
    with refused("posterior", kind=TypeError, got="Gaussian"):
        learner.init(KEY, mixed(), GaussianPosterior.linear(KEY, 3, 2), batch=4)
    with refused("domains"):
        Product({})
    with refused("z", kind=TypeError):
        Product({"z": 3})


def test_a_refused_objective_leaves_no_run(tmp_path):
    own = Learner(lambda key, model, posterior, batch: (batch.v, {}), learning_rate=1e-2)
    state = own.init(KEY, GRBM.init(KEY, 3, 2), BernoulliPosterior.linear(KEY, 3, 2), batch=4)
    folder = RunFolder(tmp_path / "run", {})
    with refused("objective"):
        fit_state(own, state, normal(1, 20, 3), steps=2, batch=4, folder=folder)
    folder.close()
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_names_of_an_older_state_are_known():
    learner = Learner(VNCE(2), learning_rate=1e-2)
    state = learner.init(KEY, GRBM.init(KEY, 3, 2), BernoulliPosterior.linear(KEY, 3, 2), batch=4)
    old = {"extras": "extra", "optimizer": "optimiser", "posterior_optimizer": "posterior_optimiser"}
    arrays = {"/".join(old.get(part, part) for part in name.split("/")): x for name, x in named_arrays(state).items()}
    assert {name.split("/")[0] for name in arrays} > set(old.values())
    for a, b in zip(jax.tree.leaves(with_arrays(state, arrays)), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_labels_are_divided_as_the_examples_are(tmp_path):
    examples, labels = np.arange(40.0).reshape(20, 2), np.arange(20)
    np.savez(tmp_path / "one.npz", examples=examples, labels=labels)
    found = load_labels(tmp_path / "one.npz", seed=3)
    for rows, own in zip(load_splits(tmp_path / "one.npz", seed=3), found, strict=True):
        np.testing.assert_array_equal(rows[:, 0], 2 * own)
    three = {"train": examples, "validation": examples[:3], "test": examples[:2]}
    both: Any = three | {f"{name}_labels": np.arange(len(x)) for name, x in three.items()}
    np.savez(tmp_path / "three.npz", **both)
    assert [len(part) for part in load_labels(tmp_path / "three.npz", seed=0)] == [20, 3, 2]
    for wrong in (labels[:5], labels - 1, labels / 2):
        np.savez(tmp_path / "wrong.npz", examples=examples, labels=wrong)
        with pytest.raises(ValueError, match="array 'labels': expected 20 whole numbers from 0, got "):
            load_labels(tmp_path / "wrong.npz", seed=0)
    np.savez(tmp_path / "none.npz", examples=examples)
    with pytest.raises(ValueError, match="expected labels in 'labels', got none"):
        load_labels(tmp_path / "none.npz", seed=0)
