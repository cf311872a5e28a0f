"""The noise-conditional EBLVM against closed forms: Gaussian data, enumerated latents, autodiff in float64."""

import itertools
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from errors import refused
from known_latents import Fixed, Weighted
from small_nets import filled, normal, quick
from truth import relative_error
from vages import (
    Batch,
    Binary,
    Empty,
    Enumerated,
    ExactPosterior,
    FeaturePosterior,
    GaussianPosterior,
    Held,
    Heun,
    Learner,
    NoiseConditionalDSM,
    NoiseConditionalEBLVM,
    Real,
    bits_per_dim,
    encode,
    fit,
    flow_likelihood,
    interpolate,
    measure_sigma_data,
    sample,
    surrogate,
    vaes,
)
from vages.models import Coupling
from vages.nets import ConditionalMLP, ConditionalNetwork, UNet
from vages.objectives import Given
from vages.objectives.noise import scale
from vages.samplers import SamplingWarning

SIGMA_DATA = 0.7
LEVELS = (0.01, 0.3, 0.7, 5.0, 60.0)
VARIANCES = (0.04, 0.5, 2.0)  # of the Gaussian data


class GaussianField(eqx.Module):
    """A network for which the energy is that of Gaussian data if `gain` is 1; the features are tanh(u)."""

    gain: jax.Array
    in_shape: tuple[int, ...] = eqx.field(static=True, default=(3,))
    out_size: int = eqx.field(static=True, default=3)
    classes: int = eqx.field(static=True, default=0)

    def __call__(self, u, level, label=None):
        ratio = jnp.exp(4 * level)
        variances = jnp.asarray(VARIANCES, u.dtype)
        excess = (variances - SIGMA_DATA**2) / (variances + (ratio * SIGMA_DATA) ** 2)
        return 0.5 * self.gain * ratio * excess * u, jnp.tanh(u)


def gaussian(gain=1.0, h=None):
    head = None if h is None else filled(Coupling, 3, h.size, 4)
    return NoiseConditionalEBLVM(
        GaussianField(jnp.asarray(gain, jnp.result_type(float))), head, SIGMA_DATA, Real(3), Empty() if h is None else h
    )


def network_model(h, seed=0, **sizes: Any):
    """A model of vectors of length 3 with random parameters, including the last layer."""
    sizes = {"width": 5, "depth": 2, "features": 4, "head_width": 6, "embedding": 6} | sizes
    return filled(lambda key: NoiseConditionalEBLVM.vectors(key, 3, sigma_data=SIGMA_DATA, h=h, **sizes), seed=seed)


def test_the_optimal_energy_of_gaussian_data_is_theirs_at_every_level(float64):
    """Except for the normalizer, which is that of N(0, (σ² + σ_d²) I)."""
    model, v, nothing = gaussian(), normal(0, 3), jnp.zeros(0)
    for sigma in LEVELS:
        variance = np.asarray(VARIANCES) + sigma**2
        got = model.log_joint(model.features(v, {"sigma": sigma}), nothing)
        expected = stats.norm.logpdf(np.asarray(v), scale=np.sqrt(variance)).sum()
        constant = 0.5 * np.log(variance / (sigma**2 + SIGMA_DATA**2)).sum()
        np.testing.assert_allclose(got, expected + constant, rtol=1e-11)
        best = np.asarray(VARIANCES) / variance * np.asarray(v)  # E[w | v]
        np.testing.assert_allclose(model.denoiser(v, sigma, nothing[None]), best, rtol=1e-10)


@pytest.mark.parametrize("h", [Real(2), Binary(3), Empty()])
def test_the_denoiser_is_preconditioned_to_round_off(float64, h):
    """D = v + σ² mean_i ∇_v log p̃ = c_skip v + c_out F, where F is the gradient in u; both by autodiff."""
    model = network_model(h)
    v, states = normal(1, 3), h.zeros(jnp.float64, 1) if not h.size else jax.nn.sigmoid(normal(2, 4, *h.shape))

    @quick
    def all_of_it(sigma):
        def mean_log_joint(v):
            features = model.features(v, {"sigma": sigma})
            return jnp.mean(jax.vmap(lambda h: model.log_joint(features, h))(states))

        def unit_potential(u):
            array, coupled = model.network(u, jnp.log(sigma / SIGMA_DATA) / 4)
            energies = jax.vmap(lambda h: model.head(coupled, h))(states) if h.size else jnp.zeros(1)
            return jnp.sum(u * array) - jnp.minimum(1, sigma / SIGMA_DATA) * jnp.mean(energies)

        total = sigma**2 + SIGMA_DATA**2
        field = jax.grad(unit_potential)(v / jnp.sqrt(total))
        return (
            model.denoiser(v, sigma, states),
            model.field(v, {"sigma": sigma}, states),
            v + sigma**2 * jax.grad(mean_log_joint)(v),
            field,
            SIGMA_DATA**2 / total * v + sigma * SIGMA_DATA / jnp.sqrt(total) * field,
        )

    for sigma in LEVELS:
        denoised, field, by_score, expected, by_field = all_of_it(jnp.asarray(sigma))
        assert np.abs(expected).max() > 0.01
        assert relative_error(field, expected) < 1e-12
        assert relative_error(denoised, by_field) < 1e-13
        assert relative_error(denoised, by_score) < 1e-11


@pytest.mark.parametrize("h", [Real(1), Binary(3)])
def test_latents_are_proper_whatever_the_parameters(float64, h):
    """log p̃ is at most the sum of the log-prior and the term of v. Without coupling, h sums out exactly."""
    model, v = network_model(h), normal(1, 3)
    large = eqx.tree_at(lambda head: head.log_scale, jax.tree.map(lambda x: 1e3 * x, model.head), jnp.asarray(3.0))
    wild = eqx.tree_at(lambda m: m.head, model, large)
    loose = eqx.tree_at(lambda m: m.head.log_scale, model, jnp.asarray(-jnp.inf))
    states = h.states(jnp.float64) if h.enumerable else jnp.linspace(-20, 20, 4001)[:, None]
    of_prior = -h.size * math.log(2) if h.enumerable else stats.norm.logpdf(np.asarray(states)[:, 0])
    step = 1.0 if h.enumerable else 0.01

    @quick
    def logs(sigma):
        features = model.features(v, {"sigma": sigma})
        return features, [jax.vmap(lambda h, m=m: m.log_joint(features, h))(states) for m in (wild, loose)]

    for sigma in LEVELS:
        features, (of_wild, of_loose) = logs(jnp.asarray(sigma))
        alone = features.gaussian + features.potential * SIGMA_DATA / sigma
        assert np.all(np.asarray(of_wild) <= alone + of_prior)
        np.testing.assert_allclose(jax.nn.logsumexp(of_loose) + math.log(step), alone, rtol=1e-10)


def test_far_from_the_data_the_energy_is_nearly_gaussian(float64):
    """F is bounded there, so log p̃ is integrable in v, and steps of samplers do not diverge."""
    model = jax.tree.map(lambda x: 3 * x, network_model(Real(2), width=16))
    h, ways = normal(2, 1, 2), normal(1, 20, 3)
    ways = ways / jnp.linalg.norm(ways, axis=1, keepdims=True)

    @quick
    def sizes(sigma, far):
        fields = jax.vmap(lambda way: model.field(far * way, {"sigma": sigma}, h))(ways)
        coupled = jax.vmap(lambda way: model.features(far * way, {"sigma": sigma}).coupled)(ways)
        return jnp.linalg.norm(fields, axis=1), jnp.sqrt(jnp.mean(coupled**2, axis=1))

    for sigma in (0.01, 0.7, 5.0):
        scale = math.hypot(sigma, SIGMA_DATA)
        found = [sizes(jnp.asarray(sigma), jnp.asarray(x * scale)) for x in (3.0, 1e6, 1e8)]
        assert all(coupled.max() <= 2 for _, coupled in found)
        near, far, farther = (np.asarray(field) for field, _ in found)
        assert 1 < farther.max() < 3 * near.max()
        np.testing.assert_allclose(farther, far, rtol=0.05)


def test_levels_that_are_hardly_trained_are_like_the_nearest_that_are():
    """F of the same u is equal. A network that extrapolates in σ would start the sampler at arbitrary values."""
    model, u, h = network_model(Real(2)), normal(1, 3), normal(2, 1, 2)
    at = lambda ratio: model.field(u * SIGMA_DATA * math.hypot(1, ratio), {"sigma": jnp.asarray(ratio * SIGMA_DATA)}, h)
    np.testing.assert_allclose(at(160.0), at(20.0), rtol=1e-3)
    assert relative_error(at(10.0), at(20.0)) > 0.01
    low, lower = (model.network(u, jnp.log(jnp.asarray(ratio)) / 4) for ratio in (0.01, 0.004))
    for one, other in zip(low, lower, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def test_steep_energies_do_not_run_away():
    """Parameters three times their initial size, in all layers. Without a bound, most draws would not be finite."""
    model = jax.tree.map(lambda x: 3 * x, network_model(Real(2), width=16))
    posterior = filled(lambda key: FeaturePosterior.init(key, model, width=8))
    drawn = sample(jax.random.key(0), model, 500, sampler=Heun(posterior))
    assert drawn.diverged == 0


@pytest.mark.parametrize("latents", [Weighted(), Enumerated()])
def test_the_gradient_is_that_of_the_denoising_loss(float64, latents):
    """Loss and gradient of mean (F − (w − c_skip v) / c_out)², by autodiff through a sum over the states of h."""
    model, objective = network_model(Binary(3)), NoiseConditionalDSM(SIGMA_DATA, latents, log_std=2.0)
    batch = Batch(normal(1, 6, 3))
    points = objective.perturb(jax.random.key(0), batch)

    def loss(model):
        states = Binary(3).states(jnp.float64)

        def one(w, v, sigma):
            total = sigma**2 + SIGMA_DATA**2
            c_skip, c_out = SIGMA_DATA**2 / total, sigma * SIGMA_DATA / jnp.sqrt(total)

            def log_marginal(v):
                u = v / jnp.sqrt(total)
                array, coupled = model.network(u, jnp.log(sigma / SIGMA_DATA) / 4)
                energies = jnp.minimum(1, SIGMA_DATA / sigma) * jax.vmap(lambda h: model.head(coupled, h))(states)
                return -0.5 * v @ v / total + SIGMA_DATA / sigma * u @ array + jax.nn.logsumexp(-energies)

            denoised = v + sigma**2 * jax.grad(log_marginal)(v)
            return jnp.mean(((denoised - c_skip * v) / c_out - (w - c_skip * v) / c_out) ** 2)

        return jnp.mean(jax.vmap(one)(batch.v, points.v, points.context["sigma"]))

    def surrogate(model):
        given = Given(batch, points, encode(model, points.v, points.context), None, None)
        value, metrics, _ = objective.loss(jax.random.key(1), model, ExactPosterior(), given)
        return value, metrics["loss"]

    both = quick(
        lambda model: (eqx.filter_value_and_grad(loss)(model), eqx.filter_grad(surrogate, has_aux=True)(model))
    )
    (expected, gradient), (got, metric) = both(model)
    np.testing.assert_allclose(metric, expected, rtol=1e-10)
    compared = 0
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(gradient), strict=True):
        if np.linalg.norm(other) > 1e-8:
            compared += 1
            assert relative_error(one, other) < 1e-8
    assert compared > 10


def test_score_and_gradient_have_samples_of_their_own(float64):
    """VaES uses the first set of h for z, and VaGES uses the second set, each with its own passes."""
    model, objective = network_model(Real(2)), NoiseConditionalDSM(SIGMA_DATA, Fixed())
    batch = Batch(normal(1, 5, 3))
    points = objective.perturb(jax.random.key(0), batch)
    posterior = FeaturePosterior.init(jax.random.key(2), model, width=4)
    first, second = (normal(seed, 5, 3, 2) for seed in (7, 8))

    @quick
    def both(model):
        def value(model):
            given = Given(batch, points, objective.encode(model, points), None, None)
            return objective.loss(jax.random.key(1), model, posterior, given)[0]

        def separate(model):
            score = jax.lax.stop_gradient(vaes(model, points.v, first, context=points.context))
            z = scale(points.loss_weight, score - points.target)
            return surrogate(model, points.v, second, z, context=points.context)

        return [eqx.filter_value_and_grad(function)(model) for function in (value, separate)]

    (got, got_gradient), (expected, gradient) = both(model)
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    for one, other in zip(jax.tree.leaves(got_gradient), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11 * float(np.abs(other).max()) + 1e-14)


def test_levels_are_stratified_and_log_normal():
    objective = NoiseConditionalDSM(0.3, log_mean=-1.0, log_std=0.5)
    sigma = np.asarray(objective.levels(jax.random.key(0), 50), np.float64)
    places = 50 * stats.norm.cdf((np.log(sigma / 0.3) + 1.0) / 0.5)
    assert np.abs(places - np.arange(50) - 0.5).max() < 0.501
    points = objective.perturb(jax.random.key(0), Batch(jnp.zeros((5000, 2)), {"label": jnp.zeros(5000, int)}))
    assert set(points.context) == {"label", "sigma"}
    # v / σ is standard normal: 10,000 squares; one false alarm in 10⁶
    square = float(np.sum((np.asarray(points.v) / np.asarray(points.context["sigma"])[:, None]) ** 2))
    assert 5e-7 < stats.chi2.cdf(square, 10_000) < 1 - 5e-7


@pytest.mark.parametrize("h", [Empty(), Real(2)])
def test_one_parameter_learns_the_energy_of_gaussian_data(h):
    """The optimum is gain = 1, where a model with no coupling, or with a small one, has the score of the data."""
    model = gaussian(0.0, h if h.size else None)
    if h.size:
        model = eqx.tree_at(lambda m: m.head.log_scale, model, jnp.asarray(-6.0))
        posterior = FeaturePosterior.init(jax.random.key(1), model, width=8)
    else:
        posterior = ExactPosterior()
    learner = Learner(NoiseConditionalDSM(SIGMA_DATA), learning_rate=0.03, posterior_steps=1)
    state = learner.init(jax.random.key(0), model, posterior, 256)
    rng = np.random.default_rng(0)
    step, metrics = eqx.filter_jit(learner.step), {}
    for i in range(200):
        v = jnp.asarray(rng.normal(size=(256, 3)) * np.sqrt(VARIANCES), jnp.float32)
        state, metrics = step(jax.random.key(i), state, Batch(v))
    assert abs(float(state.model.network.gain) - 1) < 0.1
    assert 0 < float(metrics["loss"]) < 2
    if h.size:
        assert np.isfinite(float(metrics["divergence"]))


def heun_variance(steps, churn=0.0):
    """The variance of Heun's method for Gaussian data, as each step is linear in v."""
    first, last = (160 * SIGMA_DATA) ** (1 / 7), (0.004 * SIGMA_DATA) ** (1 / 7)
    levels = [*np.linspace(first, last, steps) ** 7, 0.0]
    data = np.asarray(VARIANCES)
    variance = np.full(3, levels[0] ** 2)
    for sigma, below in itertools.pairwise(levels):
        above = sigma * (1 + min(churn / steps, math.sqrt(2) - 1))
        variance += above**2 - sigma**2
        first = above / (data + above**2)
        euler = 1 + (below - above) * first
        second = below / (data + below**2) * euler
        factor = euler if below == 0 else 1 + (below - above) * (first + second) / 2
        variance *= factor**2
    return variance


@pytest.mark.parametrize("churn", [0.0, 10.0])
def test_the_law_of_the_sampler_on_gaussian_data(churn):
    """Variances and correlations; one false alarm in 10⁶."""
    n = 5000
    drawn = sample(jax.random.key(3), gaussian(), n, sampler=Heun(churn=churn, batch=2000))
    v = np.asarray(drawn.v, np.float64)
    assert v.shape == (n, 3)
    assert drawn.h.shape == (n, 0)
    assert (drawn.gradients, drawn.diverged) == (35 * n, 0)
    standard = v / np.sqrt(heun_variance(18, churn))
    tail = 1e-6 / 9 / 2
    for i in range(3):
        assert tail < stats.chi2.cdf(np.sum(standard[:, i] ** 2), n) < 1 - tail
        assert abs(standard[:, i].sum()) / math.sqrt(n) < stats.norm.isf(tail)
        assert abs(np.sum(standard[:, i] * standard[:, i - 1])) / math.sqrt(n) < 1.05 * stats.norm.isf(tail)


def test_the_sampler_approaches_the_data():
    """Second order: with 18 steps the variance is up to a fifth too large, with 180 a hundredth of that."""
    few, many = (np.abs(heun_variance(steps) / np.asarray(VARIANCES) - 1).max() for steps in (18, 180))
    assert few < 0.25
    assert many < few / 50


def test_the_posterior_starts_at_the_prior():
    for h in (Real(2), Binary(2)):
        model, v = gaussian(h=h), normal(0, 3)
        posterior = FeaturePosterior.init(jax.random.key(0), model, width=4)
        q = posterior(model, model.features(v, {"sigma": 0.3}), v, {"sigma": 0.3})
        np.testing.assert_array_equal(q.mean, jnp.full(2, 0.5 if isinstance(h, Binary) else 0.0))
        expected = -2 * math.log(2) if isinstance(h, Binary) else stats.norm.logpdf([0.3, -2.0]).sum()
        at = jnp.asarray([1.0, 0.0]) if isinstance(h, Binary) else jnp.asarray([0.3, -2.0])
        np.testing.assert_allclose(q.hard().log_prob(at), expected, rtol=1e-5)


def test_latents_are_drawn_at_each_step_or_held():
    model = gaussian(h=Real(2))
    posterior = FeaturePosterior.init(jax.random.key(0), model, width=4)
    drawn = sample(jax.random.key(1), model, 5, sampler=Heun(posterior, steps=3, samples=2, batch=3))
    assert drawn.v.shape == (5, 3)
    assert drawn.h.shape == (5, 2)
    assert len({float(x) for x in drawn.h[:, 0]}) == 5
    h = normal(0, 5, 2)
    held = sample(jax.random.key(1), model, 5, h=h, sampler=Heun(steps=3))
    np.testing.assert_array_equal(held.h, h)
    again = sample(jax.random.key(1), model, 5, h=h[0], sampler=Heun(steps=3))
    np.testing.assert_allclose(again.v[0], held.v[0], rtol=1e-5)
    assert np.abs(np.asarray(again.v[1:] - held.v[1:])).max() > 1e-3


def test_draws_that_are_not_finite_are_counted():
    with pytest.warns(SamplingWarning, match="4 of 4 draws"):
        drawn = sample(jax.random.key(0), gaussian(jnp.nan), 4, sampler=Heun(steps=2))
    assert drawn.diverged == 4


def test_the_unet_takes_images_of_any_size():
    shape = (2, 7, 10)
    net = filled(UNet, shape, widths=(4, 6), blocks=1, attention=8, out=5, embedding=6, classes=3)
    assert isinstance(net, ConditionalNetwork)
    u, gains = normal(1, *shape), jnp.asarray([0, 1.0, 1, 1, 1])
    labels, levels = jnp.asarray([0, 0, 1, -1, 0]), jnp.asarray([0.3, 0.3, 0.3, 0.3, 0.4])

    @quick
    def results(net, u, gains, labels, levels):  # one program for all
        one = lambda gain, label, level: eqx.tree_at(lambda net: net.gain, net, gain)(u, level, label)
        return jax.vmap(one)(gains, labels, levels)

    arrays, features = results(net, u, gains, labels, levels)
    assert arrays.shape == (5, *shape)
    assert features.shape == (5, 5)
    np.testing.assert_array_equal(arrays[0], jnp.zeros(shape))
    for x in (arrays[1], features[1]):  # the mean square stays in the same range
        assert 0.2 < float(jnp.std(x)) < 3
    for other in (2, 3, 4):  # another label, none, another level
        assert relative_error(arrays[other], arrays[1]) > 1e-6
        assert relative_error(features[other], features[1]) > 1e-6


@pytest.mark.parametrize(("shape", "longer"), [((2, 7, 10), [12, 6, 3]), ((1, 4, 4), [4, 2, 1])])
def test_attention_is_where_the_longer_side_is_short(shape, longer):
    net = eqx.filter_eval_shape(
        UNet, jax.random.key(0), shape, widths=(4, 6, 8), blocks=1, attention=4, out=5, embedding=6
    )
    attends = [block.attention is not None for block in net.encoder]
    assert attends == [longer[0] <= 4, False, longer[1] <= 4, False, longer[2] <= 4]
    array, features = eqx.filter_eval_shape(net, jnp.zeros(shape), jnp.zeros(()))
    assert (array.shape, features.shape) == (shape, (5,))


def test_narrow_numbers_are_for_the_network_alone():
    """The energy of v is in float32, and its gradient is close to that of the float32 network."""
    make = lambda dtype: filled(
        lambda key: NoiseConditionalEBLVM.images(
            key,
            (1, 5, 6),
            sigma_data=0.5,
            h=Real(2),
            widths=(4,),
            blocks=1,
            attention=0,
            features=3,
            compute_dtype=dtype,
        )
    )
    v, h, context = normal(0, 1, 5, 6), normal(1, 2, 2), {"sigma": jnp.asarray(0.2)}

    @quick
    def both(wide, narrow, v, h):
        return [(model.features(v, context), model.field(v, context, h)) for model in (wide, narrow)]

    (features, field), (rough_features, rough_field) = both(make(None), make(jnp.bfloat16), v, h)
    assert rough_field.dtype == rough_features.potential.dtype == rough_features.coupled.dtype == jnp.float32
    assert float(rough_features.gaussian) == float(features.gaussian)
    assert 0 < relative_error(rough_field, field) < 0.1
    learner = Learner(NoiseConditionalDSM(0.5), learning_rate=1e-3, compute_dtype="bfloat16")
    model = gaussian()
    state = Learner(NoiseConditionalDSM(SIGMA_DATA), learning_rate=1e-3).init(
        jax.random.key(0), model, ExactPosterior(), 2
    )
    with refused("v", "bfloat16", kind=TypeError):
        learner.step(jax.random.key(0), state, Batch(jnp.zeros((2, 3))))


def test_sigma_data_is_measured():
    v = np.random.default_rng(0).normal(size=(100, 3))
    np.testing.assert_allclose(measure_sigma_data(v), np.sqrt((v**2).mean()), rtol=1e-12)
    with refused("v", 0.0):
        measure_sigma_data(np.zeros((3, 2)))


def test_without_a_level_it_is_the_lowest():
    model, v = gaussian(), normal(0, 3)
    of_data, lowest = model.features(v), model.features(v, {"sigma": model.sigma_min})
    assert all(np.array_equal(one, other) for one, other in zip(of_data, lowest, strict=True))


def test_bad_input_is_refused_in_one_line():
    v, key = jnp.zeros(3), jax.random.key(0)
    model, latent = gaussian(), gaussian(h=Real(2))
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with refused("sigma", sigma):
            model.features(v, {"sigma": sigma})
        with refused("sigma", sigma):
            model.denoiser(v, sigma, jnp.zeros((1, 0)))
    with refused("sigma", "(2,)"):
        model.features(v, {"sigma": jnp.ones(2)})
    with refused("context"):
        model.features(v, {"sgima": 1.0})
    with refused("label"):
        model.features(v, {"sigma": 1.0, "label": 0})
    labeled = network_model(Empty(), classes=4)
    for label in (4, -2):
        with refused("label", label):
            labeled.features(v, {"sigma": 1.0, "label": label})
        with refused("label", label):
            sample(key, labeled, 2, context={"label": label}, sampler=Heun())
    with refused("label", kind=TypeError):
        labeled.features(v, {"label": 1.5})
    with refused("h", "(3,)"):
        latent.log_joint(latent.features(v), jnp.zeros(3))
    with refused("h", "(2,)"):
        latent.denoiser(v, 1.0, jnp.zeros(2))
    patches = NoiseConditionalEBLVM.patches(key, (1, 4, 4), sigma_data=1.0, patch=2, width=4, depth=1)
    for of, shape in ((latent, (5, 3)), (latent, (2,)), (latent, ()), (patches, (16,)), (patches, (2, 1, 4, 4))):
        with refused("v", str(shape)):
            of.denoiser(jnp.zeros(shape), 1.0, jnp.zeros((1, *of.h.shape)))
    with refused("v", "int32", kind=TypeError):
        latent.denoiser(jnp.zeros(3, jnp.int32), 1.0, jnp.zeros((1, 2)))
    assert latent.denoiser(v, jnp.ones((1, 1)), jnp.zeros((1, 2))).shape == v.shape
    with refused("shape", "(1, 3, 8)"):
        UNet(key, (1, 3, 8), widths=(4, 4, 4), out=2)
    with refused("classes", -1):
        ConditionalMLP(key, 2, width=4, depth=1, out=2, classes=-1)
    with refused("sigma_data", 0.0):
        NoiseConditionalEBLVM.vectors(key, 2, sigma_data=0.0)
    with refused("network", "one for (3,)"):
        NoiseConditionalEBLVM(GaussianField(jnp.ones(())), None, 1.0, Real(2), Empty())
    with refused("head", "None"):
        NoiseConditionalEBLVM(GaussianField(jnp.ones(())), None, 1.0, Real(3), Real(2))
    with refused("sigma_data", 0.5):
        Learner(NoiseConditionalDSM(0.5), learning_rate=1e-3).init(key, model, ExactPosterior(), 2)
    with refused("context", "'sigma'"):
        NoiseConditionalDSM(0.5).perturb(key, Batch(jnp.zeros((2, 3)), {"sigma": jnp.ones(2)}))
    with refused("model", "Empty()", kind=TypeError):
        FeaturePosterior.init(key, model)


def test_the_sampler_refuses_what_it_cannot_do():
    key, model, latent = jax.random.key(0), gaussian(), gaussian(h=Real(2))
    with refused("steps", 1):
        Heun(steps=1)
    with refused("churn", -1.0):
        Heun(churn=-1.0)
    with refused("sigma_max", 0.1):
        sample(key, model, 2, sampler=Heun(sigma_max=0.1, sigma_min=0.2))
    with refused("posterior", "None", kind=TypeError):
        sample(key, latent, 2, sampler=Heun())
    with refused("context", "'sigma'"):
        sample(key, model, 2, context={"sigma": 1.0}, sampler=Heun())
    with refused("mask", "(2,)"):
        sample(key, model, 2, held=Held(jnp.ones(2, bool), jnp.zeros(3)), sampler=Heun())
    with refused("start", "(3,)"):
        sample(key, model, 2, start=jnp.zeros(3), sampler=Heun())
    with refused("guidance", "none"):
        sample(key, model, 2, sampler=Heun(guidance=1.5))
    with refused("guidance", -1):
        sample(key, network_model(Empty(), classes=4), 2, context={"label": -1}, sampler=Heun(guidance=1.5))
    with refused("guidance", -2.0):
        Heun(guidance=-2.0)
    with refused("resample", 0):
        Heun(resample=0)
    with refused("chains", 3, kind=TypeError):
        sample(key, model, 2, chains=3, sampler=Heun())
    with refused("h"):
        sample(key, latent, 2, h=jnp.zeros(3), sampler=Heun())


@pytest.mark.parametrize("of", ["array", "function"])
def test_labels_that_the_network_does_not_know_are_refused_in_training(of):
    """A label beyond the classes would be trained like no label."""
    model, v, label = network_model(Empty(), classes=2), normal(0, 6, 3), np.asarray([0, 1, 0, 7, 0, 1], np.int32)
    learner = Learner(NoiseConditionalDSM(SIGMA_DATA, label_dropout=0.1), learning_rate=1e-3)
    data: Any = Batch(v, {"label": label}) if of == "array" else lambda step: Batch(v, {"label": label})
    with refused("label", 7):
        fit(jax.random.key(0), model, ExactPosterior(), data, learner, steps=1, batch=6)


def test_the_sampler_refuses_a_posterior_that_is_not_the_models():
    key, v = jax.random.key(0), jnp.zeros((2, 3))
    latent, binary = network_model(Real(2)), network_model(Binary(2))
    other = FeaturePosterior.init(key, network_model(Real(3)), width=4)
    constant = GaussianPosterior(lambda v, context: (jnp.zeros(2), jnp.zeros(2)))
    for model, posterior, kind in (
        (latent, "q", TypeError),
        (latent, other, ValueError),
        (binary, constant, ValueError),
    ):
        with refused("posterior", kind=kind):
            sample(key, model, 2, sampler=Heun(posterior))
        with refused("posterior", kind=kind):
            interpolate(key, model, v, 3, sampler=Heun(posterior))
        with refused("posterior", kind=kind):
            Heun(posterior).invert(key, model, v)
    with refused("posterior"):
        flow_likelihood(key, latent, other, v, steps=2)


def test_rows_of_examples_that_are_inverted_are_checked():
    key, v, heun = jax.random.key(0), jnp.zeros((5, 3)), Heun(steps=2)
    labeled, latent = network_model(Empty(), classes=4), network_model(Real(2))
    assert heun.invert(key, labeled, v, context={"label": 1}).shape == v.shape
    with refused("context['label']", "shape (3,)"):
        heun.invert(key, labeled, v, context={"label": jnp.zeros(3, int)})
    with refused("context['label']", "shape (2,)"):
        interpolate(key, labeled, v[:2], 3, sampler=heun, context={"label": jnp.zeros(2, int)})
    for shape in ((2,), (3, 2), (1, 3), (2, 2, 2)):
        with refused("h", shape):
            heun.invert(key, latent, v, h=jnp.zeros(shape))
        with refused("h", shape):
            interpolate(key, latent, v[:2], 4, sampler=heun, h=jnp.zeros(shape))
    with refused("h", math.nan):
        interpolate(key, latent, v[:2], 3, sampler=heun, h=jnp.full((2, 2), math.nan))
    with refused("key", kind=TypeError):
        jax.jit(lambda key: heun.invert(key, labeled, v))(key)
    two = v[:2]
    for call in (
        lambda x: heun.invert(key, labeled, two, context={"label": x}),
        lambda x: interpolate(key, labeled, two, 3, sampler=heun, context={"label": x}).v,
    ):
        with refused("context", "a traced one", kind=TypeError):
            jax.jit(call)(1)
    with refused("v", "a traced one", kind=TypeError):
        jax.jit(lambda v: flow_likelihood(key, labeled, None, v).value)(v)


def test_numbers_of_64_bits_are_taken_without_a_warning():
    """NumPy's numbers have 64 bits, while JAX computes in 32 bits. Warnings are errors here."""
    key, v, heun = jax.random.key(0), np.random.default_rng(0).normal(size=(2, 3)), Heun(steps=2)
    model = network_model(Real(2))
    posterior = FeaturePosterior.init(key, model, width=4)
    assert interpolate(key, model, v, 3, sampler=replace(heun, posterior=posterior)).v.shape == (3, 3)
    narrow = bits_per_dim(key, model, posterior, v.astype(np.float32), width=0.1, steps=2)
    assert bits_per_dim(key, model, posterior, v, width=0.1, steps=2) == narrow


def test_how_much_too_wide_samples_of_a_gaussian_are(float64):
    """The numbers in the documentation: Heun's method is linear for a Gaussian, so its error is a single factor."""
    for width, steps, excess in ((1, 18, 0.055), (0.1, 18, 0.111), (1, 40, 0.010), (0.1, 40, 0.018)):
        ratios = np.linspace(160 ** (1 / 7), 0.004 ** (1 / 7), steps) ** 7
        factor, slope = ratios[0], lambda v, ratio, w=width: ratio * v / (w**2 + ratio**2)
        for high, low in itertools.pairwise(ratios):
            first = slope(factor, high)
            factor += (low - high) / 2 * (first + slope(factor + (low - high) * first, low))
        factor -= ratios[-1] * slope(factor, ratios[-1])
        assert abs(factor / width - 1 - excess) < 5e-4
        if width == 1:  # with its initial parameters, a model is N(0, σ_d² I)
            model = NoiseConditionalEBLVM.vectors(
                jax.random.key(0), 3, sigma_data=SIGMA_DATA, h=Empty(), width=4, depth=1, features=2
            )
            start = model.sigma_max * normal(0, 1, 3)
            drawn = sample(jax.random.key(0), model, 1, start=start, sampler=Heun(steps=steps))
            np.testing.assert_allclose(drawn.v, factor * SIGMA_DATA * normal(0, 1, 3), rtol=1e-5)
