"""Common mistakes are reported in one line, by the first call that can detect them, before anything is computed."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import vages
from fitting import fit_state
from small_recipes import with_settings
from vages import (
    DSM,
    EBLVM,
    EBM,
    GRBM,
    KSD,
    NCE,
    VNCE,
    Batch,
    Bernoulli,
    BernoulliPosterior,
    BiDSM,
    ContrastiveDivergence,
    Corrector,
    DeepEBLVM,
    EnergyModel,
    Enumerated,
    ExactPosterior,
    Gaussian,
    GaussianPosterior,
    Importance,
    JointPosterior,
    Learner,
    LinearGaussian,
    NoiseRange,
    Posterior,
    Schedule,
    Variational,
    ais,
    fid,
    fisher,
    fisher_divergence,
    infer,
    kid,
    kl,
    ksd_test,
    langevin_corrector,
    learned_stein_test,
    log_density,
    measure_sigma_data,
    posterior_gap,
    reverse_ais,
    sample,
    sample_posterior,
    score,
    score_matching_loss,
    sliced_score_matching_loss,
    vaes,
)
from vages.app.recipes import as_recipe, preset
from vages.app.runs.config import config_of, recipe_of
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS
from vages.domains import Binary, Real
from vages.evaluation import (
    as_pixels,
    extrapolated_fid,
    feature_moments,
    linear_probe,
    logistic_regression,
    majority_rate,
    median_distance,
    nearness,
    score_batch,
)
from vages.samplers import sample_v
from vages.training import Diverged, init_seeds

DIGITS = DEEP_PRESETS["digits-paper"]
KEY = jax.random.key(0)
IMAGE = (1, 8, 8)
V_DSM = DSM(0.1, Variational(2))
V_LEARNER = Learner(V_DSM, learning_rate=1e-3)


pytestmark = pytest.mark.usefixtures("as_users_have_it")  # the type checks would raise first


def refused(error, says, go):
    """The error is one line: what was expected, what was given, and advice."""
    with pytest.raises(error, match=says) as caught:
        go()
    assert "\n" not in str(caught.value)
    assert ": expected " in str(caught.value)
    assert ", got " in str(caught.value)
    return caught.value


def begin(model: Any, posterior: Any, objective: Any = V_DSM, **options: Any):
    return Learner(objective, learning_rate=1e-3, **options).init(KEY, model, posterior, batch=4)


def energy(params, v, h):
    return jnp.sum(h**2) / 2 + jnp.sum((v - params * h[0]) ** 2)


def own(energy: Any = energy, v: Any = Real(2), h: Any = Real(1), features: Any = None):  # noqa: B008
    return EnergyModel(energy, jnp.ones(()), v, h, features)


def gaussian(v=2, h=1):
    return GaussianPosterior.linear(KEY, v, h)


def bernoulli(v=2, h=3, temperature=0.1):
    return BernoulliPosterior.linear(KEY, v, h, temperature)


def grbm(v=2, h=3):
    return GRBM.init(KEY, v, h, dtype=jnp.zeros(()).dtype)


WHERE = r"\(2,\) .*\(1,\)"


@pytest.mark.parametrize(
    ("wrong", "says", "cause"),
    [
        (
            lambda params, v, h: params * v**2,
            r"got float32\[2\]",
            None,
        ),
        (lambda params, v, h: (params * jnp.sum(v))[None], r"got float32\[1\]", None),
        (lambda params, v, h: jnp.sum(h > 0), r"got int32\[\]", None),
        (lambda params, v, h: v @ h, rf"{WHERE}, got TypeError; .*got \(2,\) and \(1,\)", TypeError),
        (lambda params, v, h: jnp.sum(v, axis=1), f"{WHERE}, got ValueError; .*axis 1 is out of bounds", ValueError),
        (lambda params, v, h: {}["width"], f"{WHERE}, got KeyError; .*: 'width'$", KeyError),
        (lambda params, v, h: None, f"{WHERE}, got TypeError; .* unary -: 'NoneType'", TypeError),
        (lambda params, v, h: v[0] if v[0] > 0 else v[1], f"{WHERE}, got TracerBool", jax.errors.JAXTypeError),
        (lambda params, v, h: v[0] if params > 0 else v[1], f"{WHERE}, got TracerBool", jax.errors.JAXTypeError),
        (lambda params, v, h: next(iter(())), f"{WHERE}, got StopIteration", StopIteration),
    ],
)
def test_an_energy_that_is_no_number(wrong, says, cause):
    says = f"^log_joint: .*{says}"
    error = refused(ValueError, says, lambda: begin(own(wrong), gaussian()))
    assert isinstance(error.__cause__, cause or type(None))


def test_estimators_say_the_same():
    wrong, v, h = own(lambda params, v, h: v @ h), jnp.ones((4, 2)), jnp.ones((4, 2, 1))
    refused(ValueError, f"^log_joint: .*{WHERE}, got TypeError", lambda: vaes(wrong, v, h))


def test_features_that_cannot_take_v():
    says = r"^features: .*\(2,\), got TypeError; .*domain v.*\(2,\) and \(3,\)"
    wrong = own(features=lambda params, v: v @ jnp.ones((3, 4)))
    assert isinstance(refused(ValueError, says, lambda: begin(wrong, gaussian())).__cause__, TypeError)


class Listed(EBLVM):
    """A model whose v is not a domain."""

    v: Any = eqx.field(static=True)
    h: Any = Real(1)

    def features(self, v):  # pyright: ignore[reportIncompatibleMethodOverride]
        return v

    def log_joint(self, features, h):
        return jnp.sum(features)


def test_domains_that_are_none():
    refused(TypeError, r"^v: .*got int; .*Real\(2\)", lambda: own(v=2))
    refused(TypeError, r"^h: .*got tuple; .*Real\(2\)", lambda: own(h=(1,)))
    refused(TypeError, r"^v: .*got list", lambda: begin(Listed([2]), gaussian()))
    removed: Any = {"v_shape": (2,)}
    refused(TypeError, r"^v_shape: .*got .*former name of v", lambda: EnergyModel(energy, None, **removed))
    typo: Any = {"hh": Real(3)}
    refused(TypeError, r"^hh: .*got an unexpected argument", lambda: EnergyModel(energy, None, v=Real(2), **typo))
    refused(TypeError, r"^v: .*got NoneType", lambda: EnergyModel(energy, None))


class Given(Posterior):
    """A posterior that returns q(v), whatever that is."""

    q: Callable = eqx.field(static=True)

    def __call__(self, model, features, v):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.q(v)


class Unsummed(Gaussian):
    """A Gaussian that does not sum its log-density."""

    def log_prob(self, h):
        return -(h**2)


class Longer(Gaussian):
    """A Gaussian whose samples are longer than its mean."""

    def sample(self, key, n):
        h = super().sample(key, n)
        return jnp.concatenate([h, h], axis=2)


ONE = jnp.zeros(1)
PAIR = "GaussianPosterior .*: network: .*got one array"


@pytest.mark.parametrize(
    ("model", "posterior", "error", "says"),
    [
        (own(), gaussian(2, 3), ValueError, r"\(1,\), got \(3,\) from GaussianPosterior"),
        (grbm(), bernoulli(2, 4), ValueError, r"\(3,\), got \(4,\) from BernoulliPosterior"),
        (own(), Given(lambda v: Longer(ONE, ONE)), ValueError, r"\(1,\), got \(2,\) from Given"),
        (
            own(),
            gaussian(5, 1),
            ValueError,
            r"GaussianPosterior .*\(2,\), got TypeError",
        ),
        (
            grbm(),
            bernoulli(5, 3),
            ValueError,
            r"BernoulliPosterior .*\(2,\), got TypeError",
        ),
        (own(), ExactPosterior(), ValueError, "ExactPosterior .*got EnergyModel"),
        (own(), GaussianPosterior(eqx.nn.Linear(2, 2, key=KEY)), ValueError, f"{PAIR}.* posteriors.Halves"),  # pyright: ignore
        (own(), Given(lambda v: v), TypeError, r"Given, got float32\[2\]"),
        (own(), Given(lambda v: None), TypeError, "Given, got NoneType"),
        (own(), Given(lambda v: Gaussian(v, jnp.ones(3))), ValueError, "Given .*got ValueError; .*log_std"),
        (grbm(), gaussian(2, 3), TypeError, r"Binary\(3\).*got Gaussian; .*BernoulliPosterior"),
        (own(), bernoulli(2, 1), TypeError, r"Real\(1\).*got Bernoulli; .*GaussianPosterior"),
        (LinearGaussian.init(KEY, 2, 3), bernoulli(), TypeError, r"Real\(3\).*LinearGaussian.*; .*GaussianPosterior"),
    ],
)
def test_a_posterior_that_does_not_fit_the_model(model, posterior, error, says):
    refused(error, f"^posterior: .*{says}", lambda: begin(model, posterior))


def test_a_log_density_that_is_no_number():
    says = r"^log_prob: .*got float32\[1\]"
    refused(ValueError, says, lambda: begin(own(), Given(lambda v: Unsummed(ONE, ONE))))


ORDER = r"; .*\(key, model, posterior, batch\)"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((KEY, gaussian(), own(), 4), "model: .*got GaussianPosterior"),
        ((KEY, energy, gaussian(), 4), "model: .*got function"),
        ((KEY, own(), None, 4), "posterior: .*got NoneType"),
        ((KEY, grbm(), ExactPosterior, 4), "posterior: .*got the class ExactPosterior"),
        ((own(), gaussian(), KEY, 4), "key: .*got EnergyModel"),
        ((0, own(), gaussian(), 4), "key: .*got int"),
        ((jax.random.split(KEY), own(), gaussian(), 4), r"key: .*got key<fry>\[2\]"),
        ((KEY, own(), gaussian(), jnp.ones((4, 2))), r"batch: .*got float32\[4, 2\]"),
    ],
)
def test_arguments_in_the_wrong_place(arguments, says):
    learner = Learner(V_DSM, learning_rate=1e-3)
    refused(TypeError, f"^{says}{ORDER}", lambda: learner.init(*arguments))


def test_keys_of_either_kind_and_batches_of_numpy_will_do():
    learner = Learner(V_DSM, learning_rate=1e-3)
    learner.init(jax.random.PRNGKey(0), own(), gaussian(), batch=np.int64(4))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: begin(own(), gaussian(), divergence="fisher"),
            "divergence: .*got str",
        ),
        (lambda: begin(own(), gaussian(), DSM), "objective: .*got the class DSM"),
        (lambda: begin(own(), gaussian(), "dsm"), "objective: .*got str"),
        (lambda: DSM(0.1, 4), r"latents: .*got int; .*Variational\(2\)"),  # pyright: ignore
        (lambda: KSD(0.1, Variational), "latents: .*got the class Variational"),  # pyright: ignore
    ],
)
def test_a_name_a_class_or_a_number_in_the_place_of_an_object(make, says):
    refused(TypeError, f"^{says}", make)


CORRECTED = DSM(0.1, Variational(2, Corrector(1, 0.1)))


@pytest.mark.parametrize(
    ("model", "posterior", "objective", "error", "says"),
    [
        (
            own(),
            gaussian(),
            DSM(0.1, Enumerated()),
            TypeError,
            r"Enumerated: .*got Real\(1\)",
        ),
        (
            LinearGaussian.init(KEY, 2, 3),
            ExactPosterior(),
            KSD(1.0, Enumerated()),
            TypeError,
            r"Enumerated: .*got Real\(3\)",
        ),
        (
            own(),
            gaussian(),
            DSM(0.1, Importance(2)),
            TypeError,
            r"Importance: .*got Real\(1\)",
        ),
        (
            grbm(2, 21),
            ExactPosterior(),
            DSM(0.1, Enumerated()),
            ValueError,
            r"Enumerated: .*\b1048576\b.*Binary\(21\)",
        ),
        (own(), gaussian(), DSM(0.1, Enumerated()), TypeError, r"Enumerated: .*Real\(1\); .*Variational"),
        (grbm(), bernoulli(), CORRECTED, TypeError, r"corrector: .*got Binary\(3\)"),
        (grbm(), bernoulli(temperature=0.0), V_DSM, ValueError, "kl: .*got hard"),
        (own(), gaussian(), ContrastiveDivergence(), TypeError, "ContrastiveDivergence: .*EnergyModel"),
        (own(), gaussian(), NCE(), TypeError, "NCE: .*got EnergyModel; .*VNCE"),
    ],
)
def test_an_objective_that_cannot_have_this_model_or_posterior(model, posterior, objective, error, says):
    refused(error, f"^{says}", lambda: begin(model, posterior, objective))


def test_a_divergence_that_cannot_have_this_posterior():
    says = "^fisher: .*got Bernoulli; .*kl"
    refused(TypeError, says, lambda: begin(grbm(), bernoulli(), divergence=fisher))
    refused(TypeError, says, lambda: begin(grbm(), bernoulli(), BiDSM(0.1, 1), divergence=fisher, posterior_steps=0))
    begin(grbm(), bernoulli(), divergence=fisher, posterior_steps=0)  # the divergence is not needed
    begin(grbm(), ExactPosterior(), divergence=fisher)


def test_states_of_an_h_that_is_no_vector():
    square = Given(lambda v: Bernoulli(jnp.zeros((2, 2)), 0.0))
    model = own(lambda params, v, h: params * jnp.sum(v) * jnp.sum(h), h=Binary(2, 2))
    begin(model, square, DSM(0.1, Enumerated()))


def test_ksd_of_images():
    images = own(lambda params, v, h: params * jnp.sum(v**2) + jnp.sum(h**2), v=Real(2, 2))
    posterior = Given(lambda v: Gaussian(ONE, ONE))
    says = r"^KSD: .*\(2, 2\); .*DSM"
    refused(ValueError, says, lambda: begin(images, posterior, KSD(1.0, Variational(2))))
    begin(images, posterior)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            jnp.ones((8, 2), int),
            "got int32; .*astype",
        ),
        (np.ones((8, 2), np.uint8), "got uint8; .*255"),
        ([[1.0, 2.0]] * 8, "got list; .*asarray"),
    ],
)
def test_data_that_are_no_floating_array(data, says):
    learner = Learner(V_DSM, learning_rate=1e-3)
    state = learner.init(KEY, own(), gaussian(), batch=4)
    refused(TypeError, f"^data: .*{says}", lambda: fit_state(learner, state, data, steps=1, batch=4))


def test_many_seeds_say_the_same():
    learner = Learner(V_DSM, learning_rate=1e-3)
    says = r"^posterior: .*\(1,\), got \(3,\) from GaussianPosterior"
    refused(ValueError, says, lambda: init_seeds(learner, (0, 1), lambda key: (own(), gaussian(2, 3)), 4))


def test_each_function_is_looked_at_once_and_no_number_is_computed():
    seen = []

    def look(name, *arrays):
        assert all(isinstance(x, Tracer) for x in arrays)
        seen.append(name)

    def features(params, v):
        look("features", params, v)
        return v

    def watched(params, v, h):
        look("energy", params, v, h)
        return energy(params, v, h)

    def q(v):
        look("posterior", v)
        return Gaussian(ONE, ONE)

    begin(own(watched, features=features), Given(q))
    assert seen == ["features", "posterior", "energy"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("parts", "objective", "options"),
    [
        (lambda: (own(), gaussian()), DSM(0.1, Variational(2)), {}),
        (lambda: (own(), gaussian()), CORRECTED, {"divergence": fisher, "ema": 0.9}),
        (lambda: (own(), gaussian()), KSD(1.0, Variational(2), True), {"divergence": kl}),
        (lambda: (own(), gaussian()), BiDSM(0.1, 1), {"posterior_steps": 0}),
        (lambda: (own(), gaussian()), VNCE(), {}),
        (lambda: (own(h=Binary(2)), Given(lambda v: Bernoulli(v, 0.0))), DSM(0.1, Enumerated()), {}),
        (lambda: (own(), Given(lambda v: Gaussian(0 * v[:1], 0 * v[:1]))), V_DSM, {}),
        (lambda: (grbm(), bernoulli()), KSD(1.0, Importance(2)), {}),
        (lambda: (grbm(), bernoulli()), ContrastiveDivergence(persistent=True), {}),
        (lambda: (grbm(), ExactPosterior()), NCE(), {}),
        (lambda: (grbm(2, 20), ExactPosterior()), DSM(0.1, Enumerated()), {}),
        (lambda: (LinearGaussian.init(KEY, 2, 3), ExactPosterior()), V_DSM, {}),
        (
            lambda: (
                DeepEBLVM.images(KEY, IMAGE, width=2, depth=1, latents=1),
                GaussianPosterior.convolutional(KEY, IMAGE, 1, width=2),
            ),
            CORRECTED,
            {"compute_dtype": jnp.bfloat16, "divergence": fisher},
        ),
        (lambda: (EBM.vectors(KEY, 2, width=2, depth=1), ExactPosterior()), DSM(0.1, Enumerated()), {}),
    ],
)
def test_what_is_right_passes_under_vmap_too(parts, objective, options, dtype):
    """Only shapes are computed, so nothing is compiled."""
    with jax.enable_x64(dtype == "float64"):
        learner = Learner(objective, learning_rate=1e-3, **options)
        one = lambda key: learner.init(key, *parts(), batch=4)
        eqx.filter_eval_shape(one, jax.random.key(0))
        state = eqx.filter_eval_shape(eqx.filter_vmap(one), jax.random.split(jax.random.key(0)))
    assert state.step.shape == (2,)


@pytest.mark.parametrize("rate", ["1e-3", -1e-3, np.float32(np.nan), np.inf, (1e-3,)])
def test_a_rate_that_nothing_descends_by(rate):
    """A negative rate would ascend without an error, and a string would fail deep inside the first iteration."""
    refused(ValueError, r"^learning_rate: expected .*, got .*", lambda: Learner(V_DSM, learning_rate=rate))


@pytest.mark.parametrize("rate", [1, 0.0, np.float32(1e-3), jnp.asarray(1e-3), lambda count: 1e-3])
def test_rates_that_are_fine(rate):
    Learner(V_DSM, learning_rate=rate)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BiDSM(0.1, unrolled=-1), "unrolled: .*got -1"),
        (lambda: BiDSM(0.1, unrolled=1.0), "unrolled: .*got 1.0"),  # pyright: ignore
        (lambda: BiDSM(0.1, samples=0), "samples: .*got 0"),
        (lambda: BiDSM(None), "sigma: .*got None"),  # pyright: ignore
        (lambda: DSM("a", Variational(2)), "sigma: .*got 'a'"),  # pyright: ignore
        (lambda: DSM(np.inf, Variational(2)), "sigma: .*got inf"),
        (lambda: DSM(np.nan, Variational(2)), "sigma: .*got nan"),
        (lambda: DSM(np.ones((9, 9)), Variational(2)), "sigma: .*got array"),  # pyright: ignore
        (lambda: DSM(1e20, Variational(2)), r"sigma: .*got 1e\+20"),  # its square is not a float32 number
        (lambda: BiDSM(1e-20), "sigma: .*got 1e-20"),
        (lambda: NoiseRange(1e-20, 1.0), "begin: .*got 1e-20"),
        (lambda: Schedule(denoise=1e20), r"Schedule: denoise: .*got 1e\+20"),
        (lambda: measure_sigma_data(np.asarray([[1e20], [0.0]])), r"v: .*got 7\.07"),
        (lambda: NoiseRange(0.1, np.inf), "end: .*got inf"),
        (lambda: NoiseRange(0.1, 1.0, base=None), "base: .*got None"),  # pyright: ignore
        (lambda: KSD("a", Variational(2)), "bandwidth: .*got 'a'"),  # pyright: ignore
        (lambda: KSD(0.0, Variational(2)), "bandwidth: .*got 0.0"),
        (lambda: Corrector(1, np.inf), "step_size: .*got inf"),
        (lambda: Corrector(2.5, 0.1), "steps: .*got 2.5"),  # pyright: ignore
        (lambda: Corrector(1, 0.1, np.inf), "noise_std: .*got inf"),
        (lambda: Corrector(1, 0.1, "a"), "noise_std: .*got 'a'"),  # pyright: ignore
        (lambda: Variational(2.5), "samples: .*got 2.5"),  # pyright: ignore
        (lambda: Variational(1), "samples: .*got 1"),
        (lambda: Importance(0), "samples: .*got 0"),
        (lambda: VNCE(0), "samples: .*got 0"),
        (lambda: ContrastiveDivergence(0), "steps: .*got 0"),
    ],
)
def test_a_number_that_cannot_be_is_refused_where_it_is_given(make, says):
    refused(ValueError, f"^{says}", make)


def test_numbers_of_numpy_and_jax_are_fine():
    two, tenth = np.int64(2), np.float32(0.1)
    source = Variational(two, Corrector(np.int32(0), tenth, np.float16(0)))  # pyright: ignore
    levels = NoiseRange(tenth, 1, base=tenth)  # pyright: ignore
    for sigma in (1, tenth, np.asarray(0.1), jnp.asarray(0.1), jnp.bfloat16(0.1), levels):
        DSM(sigma, source)  # pyright: ignore
        BiDSM(sigma, two, two)  # pyright: ignore
    KSD(tenth, Importance(np.int64(1)))  # pyright: ignore
    VNCE(two), ContrastiveDivergence(two)  # pyright: ignore


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corrector_size": 0.0}, "corrector_size: .*got 0.0"),
        ({"corrector_size": np.nan}, "corrector_size: .*got nan"),
        ({"corrector_size": np.inf}, "corrector_size: .*got inf"),
        ({"corrector_noise": -1e-4}, "corrector_noise: .*got -0.0001"),
        ({"head_width": 0}, "head_width: .*got 0"),
        ({"batch": 1}, "batch: .*got 1"),
        ({"batch": 0}, "batch: .*got 0"),
        ({"method": "nosuch"}, "method: .*got 'nosuch'"),
        ({"network": "cnn"}, "network: .*got 'cnn'"),
        ({"divergence": None}, "divergence: .*got None"),
        ({"spacing": "log"}, "spacing: .*got 'log'"),
        ({"decay": "step"}, "decay: .*got 'step'"),
        ({"precision": ["int8"]}, r"precision: .*got \['int8'\]"),
    ],
)
def test_a_deep_recipe_names_the_setting_that_cannot_be(settings, message):
    refused(ValueError, f"^{message}", lambda: replace(DIGITS, **settings))


def test_the_least_that_a_deep_recipe_may_have():
    replace(DIGITS, batch=2, head_width=1, corrector_noise=0.0)


def test_a_recipe_of_a_grbm_knows_its_choices():
    for settings, message in (
        ({"method": "mdsm"}, "^method: .*got 'mdsm'"),
        ({"method": 3, "control_variate": True}, "^method: .*got 3"),
        ({"decay": "linear"}, "^decay: .*got 'linear'"),
    ):
        refused(ValueError, message, partial(replace, CHECKERBOARD, **settings))


def test_a_word_that_is_no_choice_is_named_with_its_file(tmp_path):
    for recipe, word in (
        (DIGITS, {"method": "nosuch"}),
        (DIGITS, {"precision": "int8"}),
        (CHECKERBOARD, {"method": "nosuch"}),
    ):
        (tmp_path / "config.json").write_text(json.dumps(with_settings(config_of(as_recipe(recipe)), **word)))
        ((name, value),) = word.items()
        says = f"^{tmp_path}/config.json: {name}: .*got '{value}'"
        refused(ValueError, says, lambda: recipe_of(tmp_path))


def test_a_step_on_something_else():
    learner = Learner(V_DSM, learning_rate=1e-3)
    state = learner.init(KEY, own(), gaussian(), batch=4)
    v: Any = jnp.ones((4, 2))
    refused(TypeError, r"^batch: .*got float32\[4, 2\]; .*Batch\(v\)", lambda: learner.step(KEY, state, v))
    short = Batch(v, {"label": jnp.zeros(3, int)})
    refused(ValueError, r"^context\['label'\]: .* 4 rows.*got shape \(3,\)", lambda: learner.step(KEY, state, short))


def conditional(params, v, h, context):
    return energy(params, v - context["label"], h)


def test_a_context_with_another_key():
    """The message names the keys of the context."""
    context, v = {"lable": jnp.zeros((4, 2))}, jnp.ones((4, 2))
    posterior = GaussianPosterior.linear(KEY, 2, 1, context={"lable": 2})
    learner = Learner(V_DSM, learning_rate=1e-3)
    says = "^log_joint: .*a context with lable, got KeyError; .*'label'"
    refused(ValueError, says, lambda: learner.init(KEY, own(conditional), posterior, 4, context))
    refused(ValueError, says, lambda: vaes(own(conditional), v, jnp.ones((4, 2, 1)), context=context))


def test_an_energy_without_h():
    """The energy of a model without latents still takes an empty h."""
    model = EnergyModel(lambda params, v: params * jnp.sum(v**2), jnp.ones(()), Real(2))
    refused(
        ValueError,
        r"^log_joint: .* h of shape \(0,\), got TypeError; .*h.*empty",
        lambda: begin(model, ExactPosterior()),
    )


def test_parts_of_a_posterior_that_differ():
    """The error names the latent that has no posterior, that does not exist, or that has another type."""
    mixed = own(lambda params, v, h: energy(params, v, h["z"]) + jnp.sum(h["y"]), h={"z": Real(1), "y": Binary(3)})
    says = lambda key, got: rf"^posterior\.parts\['{key}'\]: .*got {got}; "
    joint = lambda **parts: lambda: begin(mixed, JointPosterior(parts))
    refused(TypeError, says("y", "none"), joint(z=gaussian()))
    refused(TypeError, says("x", "Bernoulli"), joint(z=gaussian(), x=bernoulli()))
    refused(TypeError, says("y", "Gaussian"), joint(z=bernoulli(h=1), y=gaussian(h=3)))
    joint(z=gaussian(), y=bernoulli())()


def test_names_of_metrics_that_are_logged_anyway():
    state = begin(own(), gaussian())
    for name in ("gradient_norm", "step", "seconds"):
        objective = lambda key, model, posterior, batch: (model.params, {name: model.params})  # noqa: B023
        learner = Learner(objective, learning_rate=1e-3)
        step = lambda: eqx.filter_eval_shape(learner.step, KEY, state, Batch(jnp.ones((4, 2))))  # noqa: B023
        refused(ValueError, f"^metrics: .*got '{name}'", step)


def test_a_start_that_is_not_finite_and_a_curve_that_was_not_logged():
    """A smaller learning rate would not help."""

    def objective(key, model, posterior, batch):
        return jnp.log(model.params - 2) * 0 + model.params, {}

    learner = Learner(objective, learning_rate=1e-3)
    train = lambda model, **options: fit_state(
        learner, learner.init(KEY, model, ExactPosterior(), 4), jnp.ones((8, 2)), steps=2, batch=4, **options
    )
    plain = EnergyModel(lambda params, v, h: params * jnp.sum(v**2), jnp.ones(()), Real(2))
    with pytest.raises(Diverged, match="at iteration 1; at the start: the energy or the objective is not finite"):
        train(plain)
    fine = eqx.tree_at(lambda model: model.params, plain, jnp.asarray(3.0))
    fitted = train(fine, evaluate=lambda state: {"quality": 1.0})
    assert fitted.curve("quality")[1].tolist() == [1.0]
    refused(ValueError, "^curve: .*gradient_norm, loss, quality.*, got 'nonsense'", lambda: fitted.curve("nonsense"))
    refused(ValueError, "^metrics: .*got 'step'", lambda: train(fine, evaluate=lambda state: {"step": 1.0}))


GRBM_2 = GRBM.init(KEY, 2, 3)
V = jax.random.normal(KEY, (100, 2))
DISTRIBUTIONS = [
    Gaussian(V, V),
    vages.Joint({"a": Bernoulli(V), "b": Gaussian(V, V)}),
    infer(EnergyModel(energy, jnp.ones(()), Real(2), Binary(3)), ExactPosterior(), V),
]


@pytest.mark.parametrize("compute", [kl, posterior_gap])
def test_a_divergence_of_what_does_not_fit(compute):
    q, none = BernoulliPosterior.linear(KEY, 2, 3), None
    refused(TypeError, "^posterior: expected a Posterior, got NoneType; ", lambda: compute(KEY, GRBM_2, none, V))
    refused(TypeError, "^model: expected an EBLVM, got Bern", lambda: compute(KEY, q, GRBM_2, V))
    refused(ValueError, r"^v: expected shape \(batch, 2\), got \(2,\); ", lambda: compute(KEY, GRBM_2, q, V[0]))
    refused(ValueError, "^v: expected finite .* nan at .3, 1", lambda: compute(KEY, GRBM_2, q, V.at[3, 1].set(jnp.nan)))
    other = bernoulli(2, 4)
    refused(ValueError, r"^posterior: expected h of .* got \(4,\) ", lambda: compute(KEY, GRBM_2, other, V))
    refused(ValueError, "^samples: .* got 0", lambda: compute(KEY, GRBM_2, q, V, samples=0))


@pytest.mark.parametrize(
    "call",
    [
        lambda key: log_density(key, own(), gaussian(), V),
        lambda key: score(own(), gaussian())(key, V),
        lambda key: score_batch(key, score(own(), gaussian()), V),
        lambda key: sample(key, GRBM_2, 3),
        lambda key: sample_posterior(key, GRBM_2, V, 2),
        lambda key: posterior_gap(key, own(), gaussian(), V),
        lambda key: ksd_test(key, GRBM_2.score, V),
        lambda key: learned_stein_test(key, GRBM_2.score, V),
        lambda key: fisher_divergence(key, GRBM_2.score, V, V, V),
        lambda key: sliced_score_matching_loss(key, GRBM_2.score, V),
        lambda key: kl(key, own(), gaussian(), V),
        lambda key: fisher(key, own(), gaussian(), V),
        *[lambda key, q=q: q.sample(key, 2) for q in DISTRIBUTIONS],
        lambda key: langevin_corrector(key, own(), V, V[:, None, :1], steps=1, step_size=0.1),
        lambda key: ais(key, GRBM_2),
        lambda key: reverse_ais(key, GRBM_2),
        lambda key: Learner(V_DSM, learning_rate=1e-3).step(key, begin(own(), gaussian()), Batch(V)),
    ],
)
def test_what_is_not_one_key(call):
    several = jax.random.split(KEY, 3)
    for key, got in (([KEY, KEY], "list"), (0, "int"), (jnp.zeros(2), r"float32\[2\]"), (jnp.uint32(0), r"uint32\[\]")):
        refused(TypeError, f"^key: expected a key, got {got}; write jax.random.key", lambda: call(key))  # noqa: B023
    for keys in (several, jax.random.key_data(several)):
        refused(ValueError, r"^key: expected one key, got keys of shape \(3,\)", lambda: call(keys))  # noqa: B023


def test_a_key_is_accepted_in_both_forms():
    exact = log_density(KEY, own(), gaussian(), V).value
    raw = jax.random.key_data(KEY)
    both: list[Any] = [raw, np.asarray(raw)]
    for key in both:
        np.testing.assert_array_equal(log_density(key, own(), gaussian(), V).value, exact)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("data", lambda x: fit_state(V_LEARNER, begin(own(), gaussian()), x, steps=1)),
        ("data", lambda x: vages.fit(KEY, own(), gaussian(), lambda step: x, V_LEARNER, steps=1)),
        ("batch.v", lambda x: V_LEARNER.step(KEY, begin(own(), gaussian()), Batch(x))),
        ("v", lambda x: log_density(KEY, own(), gaussian(), x)),
        ("v", lambda x: vaes(own(), x, x[:, None, :1])),
        ("h", lambda x: vaes(own(), V, x[:, None, :1])),
        ("h", lambda x: sample(KEY, own(), 1, h=x[0, :1])),
        ("h", lambda x: sample_v(KEY, own(), x[:, :1], Schedule())),
        ("context['label']", lambda x: score(own(), gaussian())(KEY, V, {"label": x[:, 0]})),
    ],
)
def test_numbers_in_another_byte_order(name, call):
    """As in files of other machines and formats. JAX refuses them in several lines."""
    says = f"^{re.escape(name)}: expected numbers in the machine's byte order, got >f4; write x.astype.'float32'.$"
    refused(TypeError, says, lambda: call(np.ones(V.shape, ">f4")))


SCORES = [
    lambda score, v: score_matching_loss(score, v),
    lambda score, v: sliced_score_matching_loss(KEY, score, v),
    lambda score, v: score_batch(KEY, score, v),
    lambda score, v: ksd_test(KEY, score, v, replicates=3),
    lambda score, v: learned_stein_test(KEY, score, v, steps=1, batch=10),
    lambda score, v: fisher_divergence(KEY, score, v, v, v, steps=1, batch=10),
]


@pytest.mark.parametrize("call", SCORES)
def test_what_is_not_a_score(call):
    model = (
        r"^score: expected a score, got the model GRBM; give vages.score\(model\), or vages.score\(model, posterior\)"
    )
    refused(TypeError, model, lambda: call(GRBM_2, V))
    for value, got in ((None, "NoneType"), (GRBM, "the class GRBM"), (3.0, "float")):
        says = rf"^score: expected a function of one example, got {got}; give vages.score\(model\)"
        refused(TypeError, says, lambda: call(value, V))  # noqa: B023
    refused(
        TypeError,
        "^(v|train): expected an array, got list; wrap it in jnp.asarray",
        lambda: call(GRBM_2.score, [[1.0, 2.0]] * 100),
    )
    refused(
        ValueError, r"^score: expected .*, got one that fails there", lambda: call(lambda v: v @ jnp.ones((3, 3)), V)
    )
    refused(
        ValueError, r"^score: expected the shape of an example, \(2,\), got \(1,\)", lambda: call(lambda v: v[:1], V)
    )


def test_the_score_that_is_advised_is_accepted():
    """An estimate by VaES is refused where its variance would count as loss."""
    v = V[:20]
    expected = score_matching_loss(GRBM_2.score, v)
    assert score_matching_loss(score(GRBM_2), v).mean == pytest.approx(expected.mean, rel=1e-5)
    sliced = [sliced_score_matching_loss(KEY, one, v).mean for one in (score(GRBM_2), GRBM_2.score)]
    assert sliced[0] == pytest.approx(sliced[1], rel=1e-5)
    for call in SCORES[:2]:
        says = "^score: expected an exact score, .*, got a VariationalScore; "
        refused(TypeError, says, lambda: call(score(GRBM_2, bernoulli()), v))  # noqa: B023


def test_numbers_in_64_bits_are_tested_without_a_warning():
    wide: Any = np.asarray(V, np.float64)
    letters: Any = np.full((20, 2), "a")
    narrow, found = (ksd_test(KEY, GRBM_2.score, v, replicates=3) for v in (V, wide))
    assert found == narrow
    refused(TypeError, "^v: expected a floating, .* dtype, got <U1", lambda: ksd_test(KEY, GRBM_2.score, letters))


def test_features_are_no_statistics_of_images():
    features: Any = V
    refused(TypeError, r"^a: expected Statistics of images, got float32\[100, 2\]", lambda: fid(features, features))


def test_what_is_not_an_array_of_features():
    """Of the measures that take arrays and no model: features, labels and images."""
    x, labels = np.ones((20, 4), np.float32), np.arange(20)
    wrong: Any
    for wrong, got in (([[1.0, 2.0]] * 20, "list"), (None, "NoneType"), (3.0, "float")):
        for name, call in (
            ("x", lambda: kid(wrong, x)),  # noqa: B023
            ("y", lambda: kid(x, wrong)),  # noqa: B023
            ("samples", lambda: nearness(wrong, x)),  # noqa: B023
            ("train", lambda: linear_probe(wrong, labels, x, labels)),  # noqa: B023
            ("test_labels", lambda: linear_probe(x, labels, x, wrong)),  # noqa: B023
            ("features", lambda: logistic_regression(wrong, labels)),  # noqa: B023
            ("train_labels", lambda: majority_rate(wrong, labels)),  # noqa: B023
            ("v", lambda: median_distance(wrong)),  # noqa: B023
            ("images", lambda: as_pixels(wrong, "images")),  # noqa: B023
        ):
            refused(TypeError, f"^{name}: expected an array, got {got}; wrap it in jnp.asarray", call)
    features: Any = x
    refused(TypeError, r"^moments: .*, got float32\[20, 4\]; ", lambda: extrapolated_fid(features, features))
    refused(TypeError, r"^network: .*, got float32\[20, 4\]; ", lambda: feature_moments(features, [], 2))
    refused(ValueError, r"^x: expected shape \(n, d\), got \(20,\); ", lambda: kid(x[:, 0], x))
    refused(ValueError, r"^y: expected shape \(n, 4\), got \(20, 3\); ", lambda: kid(x, x[:, :3]))
    refused(ValueError, r"^size: .*, got 2.5; ", lambda: kid(x, x, size=2.5))  # pyright: ignore[reportArgumentType]
    refused(ValueError, "^subsets: .*, got 0; ", lambda: kid(x, x, subsets=0))
    refused(ValueError, "^seed: .*, got -1; ", lambda: kid(x, x, seed=-1))
    refused(ValueError, r"^samples: .* \(20, 4\), got \(20, 3\); ", lambda: nearness(x[:, :3], x))
    for wrong, got in (
        (labels[:3], r"int64\[3\]"),
        (labels.astype(float), r"float64\[20\]"),
        (labels.astype(str), r"<U\d+\[20\]"),
    ):
        says = rf"^train_labels: expected integers of shape \(20,\), got {got}; give the class of each example, "
        refused(ValueError, says, lambda: linear_probe(x, wrong, x, labels))  # noqa: B023
    refused(ValueError, "^test_labels: expected 0 or more, got -1; ", lambda: linear_probe(x, labels, x, labels - 1))
    lost = np.where(np.arange(20)[:, None] == 3, np.nan, x)
    for name, call in (
        ("x", lambda: kid(lost, x)),
        ("test", lambda: linear_probe(x, labels, lost, labels)),
        ("features", lambda: logistic_regression(lost, labels)),
        ("train", lambda: nearness(x, lost)),
        ("v", lambda: median_distance(jnp.asarray(lost))),
    ):
        refused(ValueError, rf"^{name}: expected finite numbers, got nan at \(3, 0\)", call)
    refused(ValueError, "^samples: expected a finite one or more, .* got 0 and 20; ", lambda: nearness(lost[3:4], x))
    refused(ValueError, r"^samples: .* of shape \(\), got \(20,\); ", lambda: nearness(x[:, 0], np.array(1.0)))
    refused(ValueError, "^most: .*, got 0; ", lambda: nearness(x, x, most=0))
    refused(ValueError, "^v: expected at least two rows, got one; ", lambda: median_distance(jnp.asarray(x[:1])))


def test_an_array_is_no_samples_to_anneal_from():
    v: Any = jnp.ones((100, 3))
    model = vages.LinearGaussian.init(KEY, 3, 2)
    says = r"^drawn: expected Samples, got float32\[100, 3\]; "
    refused(TypeError, says, lambda: vages.log_partition(KEY, model, chains=9, exact=False, drawn=v))


def test_features_may_be_arrays_of_jax():
    x, labels = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32), np.arange(20) % 3
    y = x[::-1] + 1
    own: Any = [jnp.asarray(one) for one in (x, labels, y, labels)]
    assert linear_probe(*own) == linear_probe(x, labels, y, labels)
    assert nearness(own[0], own[2]) == nearness(x, y)
    assert kid(own[0], own[2]) == kid(x, y)


def test_what_is_not_a_recipe(tmp_path):
    name: Any = "board"
    pair: Any = (1, 2)
    for path in (None, tmp_path / "run"):
        says = "^recipe: expected a vages.Recipe, got str; for a preset, give vages.app.recipes.preset"
        refused(TypeError, says, lambda: vages.train(name, path))  # noqa: B023
    assert preset(name).kind
    says = "^recipe: expected a vages.Recipe, or None for a preset, got str; import it from its file"
    refused(TypeError, says, lambda: vages.load_run(tmp_path, name))
    recipe = as_recipe(CHECKERBOARD)
    for path in (None, tmp_path / "run"):
        says = "^begin: expected a run, got tuple; load it with vages.load_run"
        refused(TypeError, says, lambda: vages.train(recipe, path, begin=pair))  # noqa: B023
    assert not (tmp_path / "run").exists()
