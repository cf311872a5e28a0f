"""Edge cases of the contract: unusual input works, or is refused in one line."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from fitting import fit_state
from truth import relative_error
from vages import (
    DSM,
    EBLVM,
    GRBM,
    KSD,
    Batch,
    BernoulliPosterior,
    BiDSM,
    Binary,
    Categorical,
    CategoricalPosterior,
    EnergyModel,
    ExactPosterior,
    Gaussian,
    GaussianPosterior,
    Heun,
    Joint,
    JointPosterior,
    Learner,
    LinearGaussian,
    LogPartition,
    Objective,
    Real,
    Variational,
    encode,
    fit,
    gradient_estimate,
    infer,
    log_density,
    log_likelihood,
    posterior_gap,
    sample,
    surrogate,
    vaes,
    vaes_cv,
)
from vages.domains import Product
from vages.objectives import Data, Marginal
from vages.objectives.objective import check_loss
from vages.posteriors import Conditioned, Halves, Heads, Listed, posterior_means
from vages.training.sources import source_of
from vages.training.trees import named_arrays, with_arrays

KEY = jax.random.key(0)
LEARNER = Learner(DSM(0.3), learning_rate=1e-2, posterior_steps=1)
normal = lambda seed, *shape: jax.random.normal(jax.random.key(seed), shape)


def energy(params, v, h):
    return jnp.sum((v - params["w"] @ h) ** 2) / 2 + jnp.sum(h**2) / 2


def own(v: Any = Real(3), h: Any = Real(2)) -> EnergyModel:  # noqa: B008
    return EnergyModel(energy, {"w": normal(1, 3, 2)}, v=v, h=h)


# estimators


def test_the_surrogate_holds_latents_fixed_that_are_made_of_the_model(float64):
    """Samples of a q with the model's own parameters, and its probabilities, are constants for the gradient."""
    model, v, z = LinearGaussian.init(KEY, 3, 2, dtype=jnp.float64), normal(1, 4, 3), normal(2, 4, 3)
    drawn = lambda model: infer(model, ExactPosterior(), v).sample(KEY, 3)
    got = eqx.filter_grad(lambda model: surrogate(model, v, drawn(model), z))(model)
    assert relative_error(got, gradient_estimate(model, v, drawn(model), z)) < 1e-12
    h = drawn(model)
    weights = lambda model: jax.nn.softmax(h[..., 0] * model.latent_bias[0], axis=1)
    got = eqx.filter_grad(lambda model: surrogate(model, v, h, z, weights(model)))(model)
    assert relative_error(got, gradient_estimate(model, v, h, z, weights(model))) < 1e-12


def test_the_surrogate_checks_what_it_is_given():
    model, v, h = own(), jnp.ones((5, 3)), jnp.ones((5, 2, 2))
    with refused("h", got=1):
        surrogate(model, v, h[:, :1], v)
    with refused("z", got="(5, 2)"):
        surrogate(model, v, h, v[:, :2])
    weights = jnp.full((5, 2), 0.5).at[3, 1].set(0.6)
    for estimate in (lambda weights: surrogate(model, v, h, v, weights), lambda weights: vaes(model, v, h, weights)):
        with refused("weights", got="1.1 in row 3"):
            estimate(weights)
        assert np.isfinite(estimate(weights.at[3, 1].set(0.5005))).all()
        jax.eval_shape(estimate, weights)  # their values are unknown


# distributions


def test_a_standard_deviation_of_another_shape_is_refused():
    """A batch of standard deviations would have one number per example, which broadcasts along the wrong axis."""
    with refused("log_std", got="()"):
        Gaussian(jnp.zeros(3), jnp.zeros(()))


def test_named_variables_draw_the_same_under_jit():
    """The draws do not depend on the order of the names."""
    part = Gaussian(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    q = Joint({"z": part, "y": part})
    for name, drawn in jax.jit(lambda q: q.sample(KEY, 3))(q).items():
        np.testing.assert_array_equal(q.sample(KEY, 3)[name], drawn)


# checkpoints


def test_a_parameter_may_have_the_name_of_an_older_field():
    """`memory` was the name of the carry. A parameter of that name is restored correctly."""
    state = {"params": {"memory": jnp.ones(2)}, "optimizer": {"memory": jnp.zeros(3)}, "carry": jnp.ones(4)}
    arrays = named_arrays(state)
    older = {"optimiser/memory": arrays["optimizer/memory"], "memory": arrays["carry"]}
    older |= {"params/memory": arrays["params/memory"]}
    for saved in (arrays, older):
        for a, b in zip(jax.tree.leaves(with_arrays(state, saved)), jax.tree.leaves(state), strict=True):
            np.testing.assert_array_equal(a, b)


# contexts


def shifted(params, v, h, context):
    return energy(params, v - context["shift"], h)


@pytest.mark.parametrize(
    ("context", "name", "kind"),
    [
        (jnp.zeros((20, 1)), "context", TypeError),
        ({}, "context", TypeError),
        ({"shift": jnp.zeros((20, 1)), 3: jnp.zeros(20)}, "context", TypeError),
        ({"shift": [0.0] * 20}, "context['shift']", TypeError),
        ({"shift": 0.0}, "context['shift']", TypeError),
        ({"shift": jnp.zeros(())}, "context['shift']", ValueError),
    ],
    ids=["array", "empty", "number as name", "list", "number", "no rows"],
)
def test_a_context_that_is_none_is_refused_at_the_start(context, name, kind):
    model = EnergyModel(shifted, {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    with refused(name, kind=kind):
        LEARNER.init(KEY, model, GaussianPosterior.linear(KEY, 3, 2, context={"shift": 1}), batch=4, context=context)


def test_data_of_several_seeds_need_as_many_rows_of_context():
    """Rows beyond the end would be read as the last row."""
    model = EnergyModel(shifted, {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    posterior = GaussianPosterior.linear(KEY, 3, 2, context={"shift": 1})
    keys = jax.random.split(KEY)
    models, posteriors = eqx.filter_vmap(lambda key: (model, posterior))(keys)
    for wrong in ((2, 5, 1), (20, 1), (2,)):
        with refused("context['shift']", got=f"shape {wrong}"):
            data = Batch(normal(2, 2, 20, 3), {"shift": jnp.zeros(wrong)})
            fit(keys, models, posteriors, data, LEARNER, steps=2, batch=4)


LABELS = {"label": jnp.arange(4) % 3, "level": normal(7, 4, 2)}
SIZES = {"label": 3, "level": 2}


@pytest.mark.parametrize(
    "posterior",
    [
        GaussianPosterior.linear(KEY, 3, 2, context=SIZES),
        GaussianPosterior.mlp(KEY, 3, 2, width=8, depth=2, context=SIZES),
        GaussianPosterior(
            Halves(lambda v, context: jnp.append(v, context["label"].astype(float) + context["level"][0]))
        ),
        GaussianPosterior(Heads(lambda v: v[:2], lambda v, context: context["level"] + context["label"].astype(float))),
        BernoulliPosterior.linear(KEY, 3, 2, context=SIZES),
        CategoricalPosterior.linear(KEY, 3, 1, 2, context=SIZES),
        BernoulliPosterior(Conditioned(eqx.nn.Linear(8, 2, key=KEY), SIZES)),
    ],
    ids=["linear", "mlp", "halves", "heads", "bernoulli", "categorical", "conditioned"],
)
def test_a_posterior_reads_the_context(posterior):
    """For the same v, another label or level gives another q; q still depends on v."""
    v = normal(1, 4, 3)
    of = lambda v, **other: jax.tree.leaves(infer(own(), posterior, v, LABELS | other))
    differs = lambda a, b: [any(np.any(x[i] != y[i]) for x, y in zip(a, b, strict=True)) for i in range(4)]
    here = of(v)
    assert differs(here, of(v, label=(LABELS["label"] + 1) % 3)) == [True] * 4
    assert differs(here, of(v, level=LABELS["level"] + 1)) == [True] * 4
    assert differs(here, of(v, label=LABELS["label"].at[2].set(1))) == [False, False, True, False]
    assert differs(here, of(v + 1)) == [True] * 4


@pytest.mark.parametrize("way", ["rows", "function", "iterator", "mapped", "density", "likelihood", "gap", "flow"])
def test_labels_that_q_does_not_know_are_refused(way, tmp_path):
    """q would encode them as zeros."""
    posterior, v = GaussianPosterior.linear(KEY, 3, 2, context={"label": 2}), normal(1, 20, 3)
    model = EnergyModel(lambda p, v, h, context: energy(p, v, h), {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    label = np.full(20, 1)
    label[7] = 2
    np.save(tmp_path / "v.npy", v)
    data = {
        "rows": Batch(v, {"label": label}),
        "function": lambda step: {"v": v, "label": label if step else label.clip(0, 1)},
        "iterator": iter([{"v": v, "label": label}]),
        "mapped": {"v": np.load(tmp_path / "v.npy", mmap_mode="r"), "label": label},
    }
    with refused("context['label']", 2):
        if way in data:
            fit(KEY, model, posterior, data[way], LEARNER, steps=2)
        elif way == "density":
            log_density(KEY, model, posterior, v, context={"label": label})
        elif way == "likelihood":
            log_likelihood(KEY, model, posterior, v, context={"label": 2}, log_z=LogPartition.known(0.0))
        elif way == "gap":
            posterior_gap(KEY, model, posterior, v, context={"label": label})
        else:
            sampler = Heun(posterior, steps=2, sigma_min=0.1, sigma_max=1.0)
            sample(KEY, model, 20, context={"label": label}, sampler=sampler)


@pytest.mark.parametrize(
    "network",
    [
        eqx.nn.Linear(3, 4, key=KEY),
        eqx.nn.MLP(3, 4, 8, 1, key=KEY),
        eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=KEY)]),
        lambda v: jnp.append(v, v[0]),
        lambda v, scale=2.0: scale * jnp.append(v, v[0]),
    ],
    ids=["linear", "mlp", "sequential", "function", "default"],
)
def test_a_posterior_that_ignores_the_context_is_refused(network):
    """q would be the same for all labels, and every estimate would be biased."""
    model = EnergyModel(shifted, {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    posterior, context = GaussianPosterior(Halves(network)), {"shift": jnp.zeros((20, 1))}
    with refused("posterior", kind=TypeError, got="a network of v alone"):
        LEARNER.init(KEY, model, posterior, batch=4, context=context)
    state = LEARNER.init(KEY, own(), posterior, batch=4)._replace(model=model)
    with refused("posterior", kind=TypeError, got="a network of v alone"):
        fit_state(LEARNER, state, Batch(normal(2, 20, 3), context), steps=2, batch=4)
    with refused("posterior", kind=TypeError, got="a network of v alone"):
        infer(model, posterior, normal(2, 20, 3), context)


def test_each_part_of_a_joint_posterior_reads_the_context():
    energy = lambda params, v, h, context: shifted(params, v, h["z"] + h["y"], context)
    model = EnergyModel(energy, {"w": normal(1, 3, 2)}, v=Real(3), h={"z": Real(2), "y": Binary(2)})
    reads = GaussianPosterior.linear(KEY, 3, 2, context={"shift": 1})
    posterior = JointPosterior({"z": reads, "y": BernoulliPosterior.linear(KEY, 3, 2)})
    with refused("posterior.parts['y']", kind=TypeError, got="a network of v alone"):
        LEARNER.init(KEY, model, posterior, batch=4, context={"shift": jnp.zeros((20, 1))})


@pytest.mark.parametrize(
    ("context", "sizes"),
    [({"shift": (20, 1)}, {"label": 3}), ({"shift": (20, 1)}, {"shift": 2}), (None, {"shift": 1})],
    ids=["name", "size", "none"],
)
def test_a_posterior_of_another_context_is_refused(context, sizes):
    model = EnergyModel(shifted if context else energy, {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    context = None if context is None else {name: jnp.zeros(shape) for name, shape in context.items()}
    with refused("posterior", got="ValueError"):
        LEARNER.init(KEY, model, GaussianPosterior.linear(KEY, 3, 2, context=sizes), batch=4, context=context)
    with refused("context['label']"):
        GaussianPosterior.linear(KEY, 3, 2, context={"label": 0})


def test_a_conditional_model_is_learnt_without_bias():
    """The energy of the docs with two classes. With a q of v alone, the learned means were 0.5 too close."""

    def energy(params, v, h, context):
        return jnp.sum((v - params["means"][context["label"]] - h) ** 2) + jnp.sum(h**2) / 2

    means, labels = jnp.asarray([[1.0, 0.0], [-1.0, 2.0]]), jnp.arange(2000) % 2
    examples = Batch(means[labels] + normal(1, 2000, 2) + 0.7 * normal(2, 2000, 2), {"label": labels})
    model = EnergyModel(energy, {"means": jnp.zeros((2, 2))}, v=Real(2), h=Real(2))
    learner = Learner(DSM(0.3, Variational(5)), learning_rate=2e-2, posterior_steps=3)
    posterior = GaussianPosterior.linear(KEY, 2, 2, context={"label": 2})
    fitted = fit_state(
        learner, learner.init(KEY, model, posterior, 100, examples.context), examples, steps=600, batch=100
    )
    np.testing.assert_allclose(fitted.state.model.params["means"], means, atol=0.25)


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_context_that_is_not_finite_is_named(value):
    model = EnergyModel(shifted, {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    context = {"shift": jnp.zeros((20, 1)).at[5, 0].set(value)}
    posterior = GaussianPosterior.linear(KEY, 3, 2, context={"shift": 1})
    state = LEARNER.init(KEY, model, posterior, batch=4, context=context)
    with refused("context['shift']", got=f"{value} at (5, 0)"):
        fit_state(LEARNER, state, Batch(normal(2, 20, 3), context), steps=2, batch=4)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_label_that_is_no_class_is_named(wrong):
    """Labels counted from 1 were encoded as no class, and an energy that indexes by the label used the last row."""
    shift = lambda params, v, h, context: jnp.sum((v - params["means"][context["label"]] - h) ** 2)
    model = EnergyModel(shift, {"means": jnp.zeros((3, 2))}, v=Real(2), h=Real(2))
    posterior = GaussianPosterior.linear(KEY, 2, 2, context={"label": 3})
    context = {"label": (jnp.arange(20) % 3).at[7].set(wrong)}
    examples, both = normal(2, 20, 2), JointPosterior({"z": posterior})
    with refused("context['label']", got=wrong):
        fit(KEY, model, posterior, Batch(examples, context), LEARNER, steps=1, batch=4)
    for asked in (posterior, both):
        with refused("context['label']", got=wrong):
            infer(model, asked, examples, context)
    with refused("context['label']", got=wrong):
        posterior_means(model, posterior, np.asarray(examples), context=context)
    assert infer(model, posterior, examples, {"label": jnp.arange(20) % 3}).mean.shape == (20, 2)


# data and parameters


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_narrow_data_are_trained_on_in_the_dtype_of_the_parameters(dtype):
    """Data are cast as float64 is. Otherwise the loss differed by 1e-3, from noise and scores of 16 bits.

    The two are different programs, and on some processors the cast changes the last bit of float32.
    """
    posterior = GaussianPosterior.linear(KEY, 3, 2, context={"shift": 1})
    model = EnergyModel(shifted, {"w": normal(1, 3, 2)}, v=Real(3), h=Real(2))
    narrow = Batch(normal(2, 20, 3).astype(dtype), {"shift": normal(3, 20, 1).astype(dtype)})
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), narrow)
    learner = Learner(DSM(0.3), learning_rate=1e-2, posterior_steps=1)
    got, want = (
        fit_state(learner, learner.init(KEY, model, posterior, 4, data.context), data, steps=4, batch=4)
        for data in (narrow, wide)
    )
    np.testing.assert_allclose(got.history[0]["loss"], want.history[0]["loss"], rtol=1e-6)
    np.testing.assert_allclose(got.state.model.params["w"], want.state.model.params["w"], rtol=1e-6)


@pytest.mark.parametrize("params", [[1.0, 2.0], jnp.arange(2), {}, None], ids=["list", "integers", "empty", "none"])
def test_a_model_with_nothing_to_train_is_refused(params):
    model = EnergyModel(lambda params, v, h: jnp.sum((v - jnp.sum(h)) ** 2), params, v=Real(3), h=Real(2))
    with refused("model", kind=TypeError, got="EnergyModel without any"):
        LEARNER.init(KEY, model, GaussianPosterior.linear(KEY, 3, 2), batch=4)


# user-defined classes


class OwnClass(EBLVM):
    w: jax.Array
    v: Any = eqx.field(static=True)
    h: Any = eqx.field(static=True)

    def features(self, v, context=None):
        return v

    def log_joint(self, features, h):
        return -energy({"w": self.w}, features, h["a"] if isinstance(h, dict) else h)


class NotStatic(EBLVM):
    w: jax.Array
    v: Any
    h: Any

    def features(self, v, context=None):
        return v

    def log_joint(self, features, h):
        return -energy({"w": self.w}, features, h)


def test_latents_of_a_class_are_a_dict_of_domains_too(float64):
    w, v, h = (normal(seed, *shape) for seed, shape in enumerate([(3, 2), (5, 3), (5, 4, 2)]))
    plain, named = OwnClass(w, Real(3), Real(2)), OwnClass(w, Real(3), {"a": Real(2)})
    assert named.h == Product({"a": Real(2)})
    np.testing.assert_array_equal(vaes(named, v, {"a": h}), vaes(plain, v, h))
    posterior = JointPosterior({"a": GaussianPosterior.linear(KEY, 3, 2)})
    LEARNER.init(KEY, named, posterior, batch=4)


def test_domains_of_a_class_that_are_none():
    with refused("v", kind=TypeError, got="tuple"):
        OwnClass(normal(1, 3, 2), (3,), Real(2))
    with refused("h", kind=TypeError, got="int"):
        OwnClass(normal(1, 3, 2), Real(3), 2)
    with refused("v", kind=TypeError, got="dict"):
        OwnClass(normal(1, 3, 2), {"a": Real(3)}, Real(2))
    with refused("v", kind=TypeError):  # the error was "'Real' object has no attribute 'dtype'"
        NotStatic(normal(1, 3, 2), Real(3), Real(2))


# enumeration


def test_whole_blocks_of_states_may_be_forbidden(float64):
    """E = ∞ in three blocks of four: score and gradient are those of the remaining states."""

    def free(params, v, h):
        return jnp.sum((v - h @ params) ** 2) / 2

    def forbidding(params, v, h):
        return jnp.where(jnp.sum(h[12:]) > 0, jnp.inf, free(params, v, h))

    params, v, z = 0.3 * normal(1, 14, 2), normal(2, 2, 2), normal(3, 2, 2)

    @jax.jit
    def found(params, v, z):
        results = []
        for energy, size in ((forbidding, 14), (free, 12)):
            model = EnergyModel(energy, params[:size], v=Real(2), h=Binary(size))
            encoding = encode(model, v)
            slope = lambda model: Marginal().surrogate(model, encoding, z)  # noqa: B023
            results.append((Marginal().score(model, encoding), eqx.filter_grad(slope)(model).params))
        return results

    (score, gradient), (expected, slope) = found(params, v, z)
    assert relative_error(score, expected) < 1e-10
    assert relative_error(gradient[:12], slope) < 1e-10
    assert not gradient[12:].any()


@pytest.mark.parametrize("labeled", [False, True])
def test_the_gap_of_a_posterior_over_few_states(float64, labeled):
    """KL and the squared bias of VaES over all 8 × 3 states, against sums by hand; with one context per v."""

    def energy(params, v, h, context={"label": 0}):  # noqa: B006
        pull = params["w"] @ h["a"] + params["u"] @ h["y"][0] + params["shift"][context["label"]]
        return jnp.sum((v - pull) ** 2) / 2 + h["a"][0] * h["y"][0, 1]

    params = {"w": normal(1, 2, 3), "u": normal(2, 2, 3), "shift": normal(3, 2, 2)}
    model = EnergyModel(energy, params, v=Real(2), h={"a": Binary(3), "y": Categorical(1, 3)})
    context, sizes = ({"label": jnp.arange(5) % 2}, {"label": 2}) if labeled else (None, None)
    parts = {
        "a": BernoulliPosterior.linear(KEY, 2, 3, context=sizes),
        "y": CategoricalPosterior.linear(KEY, 2, 1, 3, context=sizes),
    }
    posterior, v = JointPosterior(parts), normal(4, 5, 2)
    gap = posterior_gap(KEY, model, posterior, v, context=context)
    states = model.h.states(jnp.float64)
    kl, bias = [], []
    for i in range(5):
        known = () if context is None else ({"label": context["label"][i]},)
        q = posterior(model, None, v[i], *known)
        log_q = jax.vmap(q.log_prob)(states)
        log_joint = lambda v: jax.vmap(lambda h: -energy(params, v, h, *known))(states)  # noqa: B023
        kl.append(jnp.sum(jnp.exp(log_q) * (log_q - jax.nn.log_softmax(log_joint(v[i])))))
        weights = jnp.exp(log_q) - jax.nn.softmax(log_joint(v[i]))
        bias.append(jnp.sum((weights @ jax.jacobian(log_joint)(v[i])) ** 2))
    assert gap.kl is not None
    assert gap.vaes_bias is not None
    assert gap.kl.mean == pytest.approx(np.mean(kl), rel=1e-6)
    assert gap.vaes_bias.mean == pytest.approx(np.mean(bias), rel=1e-6)
    assert "Theorems 1 and 2" in gap.meaning()
    right = posterior_gap(KEY, model, ExactPosterior(), v, context=context)
    assert right.kl is not None
    assert abs(right.kl.mean) < 1e-6


def test_the_gap_of_mixed_latents_says_what_is_missing():
    energy = lambda params, v, h: jnp.sum((v - params["w"] @ (h["z"] + h["y"])) ** 2) + jnp.sum(h["z"] ** 2)
    model = EnergyModel(energy, {"w": normal(1, 3, 2)}, v=Real(3), h={"z": Real(2), "y": Binary(2)})
    parts = {"z": GaussianPosterior.linear(KEY, 3, 2), "y": BernoulliPosterior.linear(KEY, 3, 2)}
    gap = posterior_gap(KEY, model, JointPosterior(parts), normal(2, 4, 3))
    assert (gap.kl, gap.fisher) == (None, None)
    assert "every latent continuous" in gap.meaning()
    assert "Mixed latents" in gap.meaning()


def test_a_state_without_probability_is_never_drawn():
    """Two thirds of 2¹⁶ states have probability 0; two million draws."""
    states = 2**16
    log_probs = jnp.where(jnp.arange(states) % 3 == 1, normal(1, states), -jnp.inf)
    q = Listed(jax.nn.log_softmax(log_probs)[None], Binary(16))
    drawn = jax.jit(lambda key: jax.vmap(Binary(16).index)(q.sample(key, 2_000_000)[0]))(KEY)
    assert np.all(np.asarray(drawn) % 3 == 1)


def test_no_place_is_told_in_a_list_that_is_too_long():
    with refused("Binary(40)", got="1.1e+12"):
        Binary(40).index(jnp.ones(40))


# objectives


class Own(Objective):
    """An objective with any carry, any result of its loss, and any points."""

    def __init__(self, out, carry=None, points=None):
        self.out, self.carry, self.points = out, carry, points

    def init(self, key, model, size):
        return None, self.carry

    def perturb(self, key, batch):
        return super().perturb(key, batch) if self.points is None else self.points(batch)

    def loss(self, key, model: Any, posterior, given):
        return self.out(jnp.sum(model.params["w"] ** 2), given.carry)


def one_step(objective):
    learner = Learner(objective, learning_rate=1e-2)
    state = learner.init(KEY, own(), GaussianPosterior.linear(KEY, 3, 2), batch=4)
    return eqx.filter_eval_shape(learner.step, KEY, state, Batch(jnp.ones((4, 3))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0, lambda carry: carry + 1),  # a compiled loop would keep 0
        ("a", lambda carry: carry + "b"),
        (jnp.zeros(2), lambda carry: jnp.concatenate([carry, carry])),
        (jnp.zeros(2, int), lambda carry: carry.astype(float)),
        (None, lambda carry: jnp.zeros(2)),
        ({"a": jnp.zeros(2)}, lambda carry: None),
    ],
    ids=["number", "text", "longer", "dtype", "new", "gone"],
)
def test_a_carry_that_would_be_lost_is_refused(before, after):
    with refused("carry"):
        one_step(Own(lambda value, carry: (value, {}, after(carry)), before))


def test_a_carry_of_arrays_and_constants_goes_on():
    carry = {"count": jnp.zeros((), int), "name": "a", "key": jax.random.key(1), "none": None, "host": np.zeros(2)}
    after = lambda carry: carry | {"count": carry["count"] + 1, "key": jax.random.split(carry["key"])[0]}
    objective = Own(lambda value, carry: (value, {}, after(carry)), carry)
    assert one_step(objective)[0].carry["name"] == "a"
    check_loss((0.0, {}, carry | {"host": jnp.zeros(2)}), carry)  # NumPy arrays may have wider dtypes


@pytest.mark.parametrize("metric", [jnp.arange(3.0), "text", None, {"a": jnp.zeros(())}], ids=str)
def test_a_metric_is_one_number(metric):
    """A vector was averaged along the wrong axis, and the log had one number per iteration."""
    with refused("metrics['x']"):
        one_step(Own(lambda value, carry: (value, {"x": metric}, None)))
    assert one_step(Own(lambda value, carry: (value, {"x": jnp.ones(())}, None)))[1]["x"].shape == ()


def test_a_loss_and_points_that_are_none():
    for out in (lambda value, carry: (value, {}), lambda value, carry: value, lambda value, carry: (value, None, None)):
        with refused("loss", kind=TypeError):
            one_step(Own(out))
    fine = lambda value, carry: (value, {}, None)
    with refused("perturb", kind=TypeError, got="Batch without weight"):
        one_step(Own(fine, points=lambda batch: batch))
    with refused("perturb", kind=TypeError):
        one_step(Own(fine, points=lambda batch: batch.v))
    with refused("perturb", got="(2,)"):
        one_step(Own(fine, points=lambda batch: Data(batch.v[:, :2])))


def test_weights_and_a_start_of_another_shape():
    fine = lambda value, carry: (value, {}, None)
    weighted = lambda batch: Weighted(batch.v, None, jnp.ones(3))
    with refused("perturb", got="(3,)"):
        one_step(Own(fine, points=weighted))
    objective = Own(fine)
    objective.init = lambda key, model, size: jnp.zeros(())  # pyright: ignore[reportAttributeAccessIssue]
    with refused("init", kind=TypeError):
        one_step(objective)


class Weighted(NamedTuple):
    v: Any
    context: Any
    weight: Any


def test_a_metric_has_a_name_of_its_own(as_users_have_it):
    """A metric called "divergence" was silently replaced in the log by that of the posterior."""
    named = lambda name: Own(lambda value, carry: (value, {name: jnp.ones(())}, None))
    with refused("metrics", got=1, kind=TypeError):
        one_step(named(1))
    with refused("metrics", got="'divergence'"):
        one_step(named("divergence"))
    learner = Learner(named("divergence"), learning_rate=1e-2, posterior_steps=0)
    state = learner.init(KEY, own(), GaussianPosterior.linear(KEY, 3, 2), batch=4)
    assert "divergence" in eqx.filter_eval_shape(learner.step, KEY, state, Batch(jnp.ones((4, 3))))[1]


def test_a_step_is_on_examples(as_users_have_it):
    state = LEARNER.init(KEY, own(), GaussianPosterior.linear(KEY, 3, 2), batch=4)
    with refused("batch.v", got="list", kind=TypeError):
        LEARNER.step(KEY, state, Batch([[1.0, 2.0, 3.0]]))
    with refused("batch.v", got="int32", kind=TypeError):
        LEARNER.step(KEY, state, Batch(jnp.ones((4, 3), jnp.int32)))
    for rows in (jnp.ones((0, 3)), jnp.ones(())):
        with refused("batch.v", got=f"shape {rows.shape}"):
            LEARNER.step(KEY, state, Batch(rows))
    for size in (0, -1):
        with refused("batch", got=size):
            LEARNER.init(KEY, own(), GaussianPosterior.linear(KEY, 3, 2), batch=size)


@pytest.mark.parametrize("objective", [DSM(0.3), KSD(1.0), BiDSM(0.3)], ids=["DSM", "KSD", "BiDSM"])
def test_a_discrete_v_has_no_score(objective):
    learner = Learner(objective, learning_rate=1e-2)
    with refused(type(objective).__name__, got="Binary(3)", kind=TypeError):
        learner.init(KEY, own(v=Binary(3)), GaussianPosterior.linear(KEY, 3, 2), batch=4)


def test_the_control_variate_is_given_the_context(float64):
    """For q = p(h | v, context) there is no variance."""
    params, v, context = {"w": normal(1, 3, 2)}, normal(2, 4, 3), {"shift": normal(3, 4, 1)}
    model = EnergyModel(shifted, params, v=Real(3), h=Real(2))
    precision = params["w"].T @ params["w"] + jnp.eye(2)

    def log_q(v, h, context):
        gap = h - jnp.linalg.solve(precision, params["w"].T @ (v - context["shift"]))
        return -gap @ precision @ gap / 2

    got = vaes_cv(model, log_q, v, normal(4, 4, 5, 2), context=context)
    covariance = params["w"] @ params["w"].T + jnp.eye(3)
    assert relative_error(got, -(v - context["shift"]) @ jnp.linalg.inv(covariance)) < 1e-10


def test_a_key_is_kept_in_a_checkpoint():
    state = {"carry": jax.random.split(jax.random.key(3)), "other": jax.random.key(3, impl="rbg")}
    back = with_arrays(state, named_arrays(state))
    for name, key in state.items():
        assert back[name].dtype == key.dtype
        np.testing.assert_array_equal(jax.random.key_data(back[name]), jax.random.key_data(key))


def test_a_context_is_told_from_another_where_the_fingerprint_of_v_is_given():
    model, v, known = GRBM.init(KEY, 3, 2), normal(1, 4, 3), {"sha256": "known"}
    keys = jax.random.split(KEY, 4)
    contexts = [None, {"label": jnp.zeros(4)}, {"label": jnp.ones(4)}, {"key": keys}, {"key": keys[::-1]}]
    found = [source_of(Batch(v, context), 4, (0,), False, model, known=known).fingerprint() for context in contexts]
    assert all(one != other for i, one in enumerate(found) for other in found[:i])
    assert {one["sha256"] for one in found} == {"known"}


def test_means_of_mixed_latents_are_a_dict():
    model = own(h=Product({"z": Real(2), "y": Binary(1)}))
    parts = {"z": GaussianPosterior.linear(KEY, 3, 2), "y": BernoulliPosterior.linear(KEY, 3, 1)}
    means = posterior_means(model, JointPosterior(parts), np.ones((5, 3), np.float32), batch=2)
    assert {name: mean.shape for name, mean in means.items()} == {"z": (5, 2), "y": (5, 1)}
