"""A normalized noise-conditional EBLVM: slopes along the context, the level score, densities that integrate to 1."""

from typing import Literal

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
    Along,
    Batch,
    Binary,
    Empty,
    EnergyModel,
    Enumerated,
    ExactPosterior,
    FeaturePosterior,
    InContext,
    Learner,
    NoiseConditionalDSM,
    NoiseConditionalEBLVM,
    Real,
    bits_per_dim,
    encode,
    flow_likelihood,
    gradient_estimate,
    infer,
    level_normalizers,
    log_density,
    log_likelihood,
    log_partition,
    surrogate,
    vaes,
)
from vages.app.recipes.units import Units
from vages.app.runs import likelihoods
from vages.app.runs.assessment_rows import Row, Sizes
from vages.app.settings import PointSettings
from vages.evaluation import Density, FlowLikelihood, LevelNormalizer, Likelihood, LogPartition, gaussian_log_density
from vages.evaluation.bits import _found_again
from vages.models import Coupling
from vages.nets.readout import Readout
from vages.objectives import Given

SIGMA_DATA = 0.7
LEVELS = (0.006, 0.3, 0.7, 5.0, 25.0)
VARIANCES = (0.04, 0.5, 0.93)  # of the Gaussian data; their mean is SIGMA_DATA²


def energy(params, v, h, context):
    """An energy whose context has two real entries and a label."""
    warm = jnp.tanh(v @ params["w"]) @ h / context["scale"]
    return 0.5 * v @ v / context["scale"] ** 2 - warm - context["shift"] @ v * jnp.sum(params["b"] * h)


def own_model():
    params = {"w": normal(1, 3, 4), "b": normal(2, 4)}
    return EnergyModel(energy, params, Real(3), Binary(4))


def context_of(rows):
    return {
        "scale": 1 + jnp.abs(normal(3, rows)),
        "shift": normal(4, rows, 3),
        "label": jnp.arange(rows),
    }


def log_marginals(model, v, context):
    """log Σ_h p̃(v, h) of each row, by a sum over all states."""
    states = model.h.states(v.dtype)

    def one(v, context):
        features = model.features(v, context)
        return jax.nn.logsumexp(jax.vmap(lambda h: model.log_joint(features, h))(states))

    return jax.vmap(one)(v, context)


def all_states(model, v, context):
    """States of h (batch, all, …) and their posterior probabilities."""
    states = model.h.states(v.dtype)
    logs = jax.vmap(lambda v, context: jax.vmap(lambda h: model.log_joint(model.features(v, context), h))(states))(
        v, context
    )
    return jnp.broadcast_to(states, (len(v), *states.shape)), jax.nn.softmax(logs, axis=1)


def test_slopes_along_the_context_are_those_of_the_marginal(float64):
    """VaES and VaGES over all states, against autodiff through the sum over them."""
    model, v, context = own_model(), normal(0, 5, 3), context_of(5)
    z = Along(normal(5, 5, 3), {"shift": normal(6, 5, 3), "scale": normal(7, 5)})

    @quick
    def everything(model, v, context, z):
        h, weights = all_states(model, v, context)
        got = vaes(model, v, h, weights, context=context, along=("scale", "shift"))
        gradient = gradient_estimate(model, v, h, z, weights, context=context)

        def total(v, real):
            return jnp.sum(log_marginals(model, v, context | real))

        real = {name: context[name] for name in ("scale", "shift")}
        score, slopes = jax.grad(total, (0, 1))(v, real)

        def along_z(model):
            of = lambda v, real: log_marginals(model, v, context | real)
            return jnp.mean(jax.jvp(of, (v, real), (z.v, z.context))[1])

        value = surrogate(model, v, h, z, weights, context=context)
        return got, Along(score, slopes), gradient, eqx.filter_grad(along_z)(model), value, along_z(model)

    got, expected, gradient, expected_gradient, value, slope = everything(model, v, context, z)
    assert set(got.context) == {"scale", "shift"}
    assert relative_error(got, expected) < 1e-12
    assert relative_error(gradient.params, expected_gradient.params) < 1e-12
    np.testing.assert_allclose(value, slope, rtol=1e-12)


def test_what_is_no_real_entry_of_the_context_is_refused():
    model, v, context = own_model(), normal(0, 5, 3), context_of(5)
    h = jnp.zeros((5, 2, 4))
    for name, kind in (("sigma", ValueError), ("label", TypeError)):
        with refused("along" if name == "sigma" else "context['label']", kind=kind):
            vaes(model, v, h, context=context, along=(name,))
    wrong = {"shift": normal(0, 5), "sigma": normal(0, 5), "scale": jnp.full(5, jnp.nan)}
    for name, slopes in wrong.items():
        with refused("along" if name == "sigma" else f"z.context['{name}']"):
            surrogate(model, v, h, Along(v, {name: slopes}), context=context)


def network_model(h, seed=0):
    """A normalized model of vectors of length 3 with random parameters."""
    sizes = {"width": 5, "depth": 2, "features": 4, "head_width": 6, "embedding": 6, "frequencies": (1.0,)}
    make = lambda key: NoiseConditionalEBLVM.vectors(key, 3, sigma_data=SIGMA_DATA, h=h, normalized=True, **sizes)
    return filled(make, seed=seed)


@pytest.mark.parametrize("latents", [Weighted(), Enumerated()])
def test_the_gradient_is_that_of_both_losses(float64, latents):
    """Mean of σ² t² / σ_d² ‖∇_v log p̃ + ε / σ‖² / d + λ (∂ log p̃ / ∂ ln σ − ‖ε‖² + d)² / 2d, by autodiff."""
    model, batch = network_model(Binary(3)), Batch(normal(1, 6, 3))
    objective = NoiseConditionalDSM(SIGMA_DATA, latents, level_weight=0.7)
    points = objective.perturb(jax.random.key(0), batch)
    sigma = points.context["sigma"]
    epsilon = (points.v - batch.v) / sigma[:, None]

    def loss(model):
        of = lambda v, log_sigma: log_marginals(model, v, {"sigma": jnp.exp(log_sigma)})
        score, slope = jax.grad(lambda *at: jnp.sum(of(*at)), (0, 1))(points.v, jnp.log(sigma))
        weight = sigma**2 * (sigma**2 + SIGMA_DATA**2) / SIGMA_DATA**2
        first = jnp.mean(weight * jnp.mean((score + epsilon / sigma[:, None]) ** 2, axis=1))
        return first + 0.7 * jnp.mean((slope - jnp.sum(epsilon**2, axis=1) + 3) ** 2) / 6

    def value(model):
        given = Given(batch, points, encode(model, points.v, points.context), None, None)
        value, metrics, _ = objective.loss(jax.random.key(1), model, ExactPosterior(), given)
        return value, metrics

    both = quick(lambda model: (eqx.filter_value_and_grad(loss)(model), eqx.filter_grad(value, has_aux=True)(model)))
    (expected, gradient), (got, metrics) = both(model)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-10)
    np.testing.assert_allclose(metrics["score_loss"] + 0.7 * metrics["level_loss"], expected, rtol=1e-10)
    compared = 0
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(gradient), strict=True):
        if np.linalg.norm(other) > 1e-8:
            compared += 1
            assert relative_error(one, other) < 1e-8
    assert compared > 10


def test_slopes_and_gradient_have_samples_of_their_own(float64):
    """VaES uses the first set of h for z, and VaGES uses the second set, each with its own passes."""
    model, objective = network_model(Real(2)), NoiseConditionalDSM(SIGMA_DATA, Fixed(), level_weight=0.7)
    batch = Batch(normal(1, 5, 3))
    points = objective.perturb(jax.random.key(0), batch)
    posterior = FeaturePosterior.init(jax.random.key(2), model, width=4)
    first, second = (normal(seed, 5, 3, 2) for seed in (7, 8))
    sigma = points.context["sigma"]

    @quick
    def both(model):
        def value(model):
            given = Given(batch, points, objective.encode(model, points), None, None)
            return objective.loss(jax.random.key(1), model, posterior, given)[0]

        def separate(model):
            assert points.loss_weight is not None
            slope = jax.lax.stop_gradient(vaes(model, points.v, first, context=points.context, along=("sigma",)))
            wanted = jnp.sum((sigma[:, None] * points.target) ** 2, axis=1) - 3
            z = Along(
                points.loss_weight[:, None] * (slope.v - points.target),
                {"sigma": 0.7 / 3 * sigma * (sigma * slope.context["sigma"] - wanted)},
            )
            return surrogate(model, points.v, second, z, context=points.context)

        return [eqx.filter_value_and_grad(function)(model) for function in (value, separate)]

    (got, got_gradient), (expected, gradient) = both(model)
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    for one, other in zip(jax.tree.leaves(got_gradient), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11 * float(np.abs(other).max()) + 1e-14)


class GaussianField(eqx.Module):
    """A network for which the energy is that of Gaussian data if both gains are 1; the last feature gives e."""

    gain: jax.Array
    in_shape: tuple[int, ...] = eqx.field(static=True, default=(3,))
    out_size: int = eqx.field(static=True, default=4)
    classes: int = eqx.field(static=True, default=0)
    unit: str = eqx.field(static=True, default="density")

    def __call__(self, u, level, label=None):
        ratio = jnp.exp(4 * level)
        total = 1 + ratio**2
        shares = (jnp.asarray(VARIANCES, u.dtype) / SIGMA_DATA**2 + ratio**2) / total  # variances relative to u's
        constant = -0.5 * total * jnp.sum(jnp.log(shares))
        outside_the_ball = jnp.sqrt(1 + jnp.mean(u**2) / 4) * u  # within a ball, the energy multiplies by u
        size = total if self.unit == "density" else ratio * jnp.sqrt(total)
        return -0.5 * self.gain * size * (1 / shares - 1) * outside_the_ball, jnp.append(jnp.tanh(u), constant)


def gaussian(gain, offset, h=None, unit: Literal["density", "score"] = "density"):
    """A normalized model of Gaussian data, with a weak coupling if there is an h."""
    dtype = jnp.result_type(float)
    readout = eqx.tree_at(
        lambda readout: (readout.linear.weight, readout.linear.bias),
        Readout(jax.random.key(0), 4, 1),
        (jnp.asarray([[0, 0, 0, offset]], dtype), jnp.zeros(1, dtype)),
    )
    head = None if h is None else filled(Coupling, 4, h.size, 4)
    if head is not None:
        head = eqx.tree_at(lambda head: head.log_scale, head, jnp.asarray(-6.0, dtype))
    network = GaussianField(jnp.asarray(gain, dtype), unit=unit)
    return NoiseConditionalEBLVM(network, head, SIGMA_DATA, Real(3), h or Empty(), offset=readout, unit=unit)


@pytest.mark.parametrize("unit", ["density", "score"])
def test_log_p_of_gaussian_data_is_exact_at_every_level(float64, unit):
    model, v = gaussian(1.0, 1.0, unit=unit), normal(0, 7, 3)
    assert model.normalized
    for sigma in LEVELS:
        found = log_density(None, model, None, v, context={"sigma": jnp.full(7, sigma)})
        expected = stats.norm.logpdf(np.asarray(v), scale=np.sqrt(np.asarray(VARIANCES) + sigma**2)).sum(axis=1)
        np.testing.assert_allclose(found.value, expected, rtol=1e-11)
        assert found.normalized
    assert not log_density(None, own_model(), None, v, context=context_of(7)).normalized


@pytest.mark.parametrize(("h", "level_weight"), [(Real(2), 1.0), (None, 1e-9)])
def test_the_level_score_finds_the_constants(h, level_weight):
    """The score alone does not determine e, which is here a constant per level."""
    model = gaussian(0.0, 0.0, h)
    posterior = ExactPosterior() if h is None else FeaturePosterior.init(jax.random.key(1), model, width=8)
    objective = NoiseConditionalDSM(SIGMA_DATA, level_weight=level_weight)
    learner = Learner(objective, learning_rate=0.03, posterior_steps=1)
    state = learner.init(jax.random.key(0), model, posterior, 512)
    rng = np.random.default_rng(0)
    step = eqx.filter_jit(learner.step)
    for i in range(200):
        v = jnp.asarray(rng.normal(size=(512, 3)) * np.sqrt(VARIANCES), jnp.float32)
        state, _ = step(jax.random.key(i), state, Batch(v))
    learnt = state.model
    assert abs(float(learnt.network.gain) - 1) < 0.1
    offset = float(learnt.offset.linear.weight[0, 3])
    assert abs(offset - 1) < 0.1 if level_weight == 1 else abs(offset - 1) > 0.5


def test_log_z_of_gaussian_data_is_zero_at_every_level(float64):
    """By draws in three dimensions, by a grid in one. A constant error of e is detected. One false alarm in 10⁵."""
    rng = np.random.default_rng(0)
    examples = jnp.asarray(rng.normal(size=(4000, 3)) * np.sqrt(VARIANCES))
    levels = (0.5, 2.0, 20.0)
    found = level_normalizers(jax.random.key(0), gaussian(1.0, 1.0), None, examples, sigmas=levels)
    assert [level.sigma for level in found] == list(levels)
    for level in found:
        assert level.ess > 300
        assert abs(level.value) < 4.4 * level.error + 0.02  # the proposal is a mixture around only 4,000 examples
    shifted = level_normalizers(jax.random.key(0), gaussian(1.0, 0.0), None, examples, sigmas=(0.5,))[0]
    shares = (np.asarray(VARIANCES) + 0.25) / (SIGMA_DATA**2 + 0.25)
    assert abs(shifted.value - 0.5 * np.log(shares).sum()) < 4.4 * shifted.error + 0.02


def test_log_z_on_a_grid(float64):
    make = lambda key: NoiseConditionalEBLVM.vectors(
        key, 2, sigma_data=SIGMA_DATA, h=Binary(2), normalized=True, width=4, depth=1, features=3, embedding=4
    )
    model, examples = filled(make), normal(0, 50, 2)
    (found,) = level_normalizers(jax.random.key(0), model, None, examples, sigmas=(0.8,))
    axis = (np.arange(200) + 0.5) / 200 * 24 - 12
    points = jnp.asarray(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2))
    density = log_density(None, model, None, points, context={"sigma": jnp.full(len(points), 0.8)})
    assert abs(found.value - np.log(np.sum(np.exp(density.value)) * (24 / 200) ** 2)) < 1e-3
    assert abs(found.value) > 0.01  # the model is not trained


def test_a_pixel_is_found_again_by_its_noise_and_the_grid():
    """log P(x | v) − log q(v | x), against a sum over 801 grid points."""
    epsilon, grid = np.asarray(normal(0, 2, 5), np.float64), np.arange(-400, 401)
    for width in (0.3, 0.79, 0.81, 2.0, 30.0):
        each = stats.norm.logpdf(epsilon[..., None], width * grid)
        expected = -np.log(np.sum(np.exp(each), axis=-1)).sum(axis=1)
        np.testing.assert_allclose(_found_again(epsilon, np.full(5, width)), expected, rtol=1e-10)
    widths = np.array([0.01, 0.3, 0.81, 2.0, 30.0])  # each entry on its own grid
    each = [_found_again(epsilon[:, [i]], widths[[i]]) for i in range(5)]
    np.testing.assert_allclose(_found_again(epsilon, widths), np.sum(each, axis=0), rtol=1e-12)


@pytest.mark.parametrize("width", [0.01, 2.0, np.array([0.01, 2.0, 0.3])])
def test_bits_in_one_pass_are_those_of_the_ode_and_of_the_closed_form(float64, width):
    """Noise of one level; one false alarm in 10⁶ for the closed form. With a width of 2.0, bins exceed the noise."""
    model, sigma, rng = gaussian(1.0, 1.0), 0.5, np.random.default_rng(1)
    v = width * np.round(rng.normal(size=(400, 3)) * np.sqrt(VARIANCES) / width)
    how = {"width": width, "noise": "gaussian", "sigma_min": sigma, "batch": 200}
    key = jax.random.key(0)
    got = bits_per_dim(key, model, None, jnp.asarray(v), one_pass=True, **how)
    flow = bits_per_dim(key, model, None, jnp.asarray(v), steps=40, sigma_max=2000.0, **how)
    assert abs(got.mean - flow.mean) < 2e-3
    epsilon = rng.normal(size=(40, *v.shape))
    logs = stats.norm.logpdf(v + sigma * epsilon, scale=np.sqrt(np.asarray(VARIANCES) + sigma**2)).sum(axis=-1)
    cells = _found_again(epsilon.reshape(-1, 3), np.broadcast_to(width / sigma, 3)).reshape(logs.shape) + 3 * np.log(
        sigma
    )
    bits = -(logs + cells) / (3 * np.log(2))
    spread = np.hypot(bits.std(axis=0).mean() / 20, bits.std() / np.sqrt(bits.size))
    assert abs(got.mean - bits.mean()) < 4.9 * spread


def test_far_from_the_data_a_normalized_model_is_nearly_gaussian(float64):
    """For any parameters, the energy has no mass far away."""
    model = jax.tree.map(lambda x: 3 * x, network_model(Empty()))
    directions = normal(3, 20, 3)
    for sigma in (0.01, 0.7, 7.0):
        at = lambda r, sigma=sigma: (
            log_density(None, model, None, r * directions, context={"sigma": jnp.full(20, sigma)}).value
        )
        near, far = np.asarray(at(30.0)), np.asarray(at(60.0))
        gaussian_fall = 0.5 * (60.0**2 - 30.0**2) * np.sum(np.square(directions), axis=1) / (sigma**2 + SIGMA_DATA**2)
        assert (near - far > 0.5 * gaussian_fall).all()


def test_what_is_not_normalized_is_refused_in_one_line(as_users_have_it):
    make = lambda key: NoiseConditionalEBLVM.vectors(key, 3, sigma_data=SIGMA_DATA, h=Empty(), width=4, depth=1)
    plain = filled(make)
    model, v = network_model(Empty()), normal(0, 4, 3)
    with refused("model"):
        log_density(None, plain, None, v, normalized=True)
    with refused("model"):
        bits_per_dim(jax.random.key(0), plain, None, v, width=0.1, one_pass=True)
    for wrong, got in ((np.array([0.1, -1.0, 0.1]), -1.0), (np.array([]), np.nan), (np.array([0.1, 0.1]), "(2,)")):
        with refused("width", got):
            bits_per_dim(jax.random.key(0), model, None, v, width=wrong, one_pass=True)
    with refused("model"):
        level_normalizers(jax.random.key(0), plain, None, v)
    with refused("noise", "'normal'"):
        bits_per_dim(jax.random.key(0), model, None, v, width=0.1, noise="normal")  # pyright: ignore[reportArgumentType]
    with refused("sigma"):
        log_density(None, model, None, v, context={"sigma": jnp.full(4, 0.5 * model.sigma_min)})
    with refused("sigma"):
        level_normalizers(jax.random.key(0), model, None, v, sigmas=(1e-4,))
    for none in ((), 1.0):
        with refused("sigmas", none):
            level_normalizers(jax.random.key(0), model, None, v, sigmas=none)  # pyright: ignore[reportArgumentType]
    with refused("frequencies", -1.0):
        NoiseConditionalEBLVM.vectors(jax.random.key(0), 3, sigma_data=SIGMA_DATA, frequencies=(-1.0,))
    with refused("along", "'sigma'", kind=TypeError):
        vaes(model, v, jnp.zeros((4, 1, 0)), context={"sigma": jnp.ones(4)}, along="sigma")  # pyright: ignore[reportArgumentType]
    with refused("center", "nan"):
        PointSettings(center=float("nan"))
    with refused("model", kind=TypeError):
        level_normalizers(jax.random.key(0), own_model(), None, v)  # pyright: ignore[reportArgumentType]
    q = infer(model, ExactPosterior(), v)
    with refused("level_weight", 0):
        NoiseConditionalDSM(SIGMA_DATA).check(model, q)
    with refused("level_weight", 1.0):
        NoiseConditionalDSM(SIGMA_DATA, level_weight=1.0).check(plain, q)
    with refused("level_weight", -1.0):
        NoiseConditionalDSM(SIGMA_DATA, level_weight=-1.0)
    with refused("uniform", 1.5):
        NoiseConditionalDSM(SIGMA_DATA, uniform=1.5)


def test_levels_may_be_uniform_in_part():
    """Of 4,000 strata, a quarter is uniform in ln σ from 0.008 to 40 σ_d, and the rest is log-normal."""
    objective = NoiseConditionalDSM(0.3, level_weight=1.0, uniform=0.25, log_mean=-1.0, log_std=0.5)
    logs = np.log(np.asarray(objective.levels(jax.random.key(0), 4000), np.float64) / 0.3)
    expected = np.log(0.008) + np.log(40 / 0.008) * (np.arange(1000) + 0.5) / 1000
    np.testing.assert_allclose(logs[:1000], expected, atol=0.006)
    places = 3000 * stats.norm.cdf((logs[1000:] + 1.0) / 0.5)
    assert np.abs(places - np.arange(3000) - 0.5).max() < 0.51
    everything = np.log(np.asarray(NoiseConditionalDSM(0.3, level_weight=1.0).levels(jax.random.key(0), 1000)) / 0.3)
    np.testing.assert_allclose(everything, expected, atol=0.006)


def labeled_model(h):
    """A normalized model of two classes."""
    make = lambda key: NoiseConditionalEBLVM.vectors(
        key, 3, sigma_data=SIGMA_DATA, h=h, normalized=True, width=4, depth=1, features=3, embedding=4, classes=2
    )
    return filled(make)


def test_levels_and_labels_that_a_model_does_not_know_are_refused_before_anything_is_compiled(as_users_have_it):
    model, v, key = labeled_model(Empty()), normal(0, 4, 3), jax.random.key(0)
    low, rows = 0.5 * model.sigma_min, jnp.full(4, 0.1)
    for sigma in (low, 0.0, -1.0, float("nan")):
        with refused("sigma"):
            log_likelihood(key, model, None, v, context={"sigma": sigma})
        with refused("sigma"):
            log_partition(key, model, context={"sigma": sigma})
        for one_pass in (True, False):
            with refused("sigma_min"):
                bits_per_dim(key, model, None, v, width=0.1, sigma_min=sigma, one_pass=one_pass)
        with refused("sigma_min"):
            flow_likelihood(key, model, None, v, sigma_min=sigma)
    with refused("sigma_max", "nan"):
        flow_likelihood(key, model, None, v, sigma_max=float("nan"))
    with refused("label", 7):
        log_likelihood(key, model, None, v, context={"label": 7})
    with refused("label", 7):
        log_density(None, InContext(model, {"sigma": 0.1}), None, v, context={"label": jnp.full(4, 7)})
    with refused("sigma", "'a'", kind=TypeError):
        log_density(None, model, None, v, context={"sigma": "a"})
    with refused("sigma", kind=TypeError):
        log_density(None, model, None, v, context={"sigma": rows + 0j})
    with refused("label", kind=TypeError):
        log_density(None, model, None, v, context={"label": "a"})
    with refused("context['label']", "shape (3,)"):
        flow_likelihood(key, model, None, v, context={"label": jnp.zeros(3, int)})


def test_what_a_model_does_not_know_is_no_number_inside_jit():
    """Value and gradient are NaN for those examples alone; the others are bit-identical to a call outside."""
    model, v = labeled_model(Empty()), normal(0, 5, 3)
    sigma = jnp.asarray([1.0, 0.5 * model.sigma_min, 0.3, model.sigma_min, 1.0])
    label = jnp.asarray([0, 0, 7, -1, 1])
    total = lambda v, context: log_density(None, model, None, v, context=context).value
    value, slope = jax.jit(lambda v, context: (total(v, context), jax.grad(lambda v: total(v, context).sum())(v)))(
        v, {"sigma": sigma, "label": label}
    )
    np.testing.assert_array_equal(np.isnan(value), [False, True, True, False, False])
    np.testing.assert_array_equal(np.isnan(slope).all(axis=1), np.isnan(value))
    good = np.asarray([0, 3, 4])
    outside = log_density(None, model, None, v[good], context={"sigma": sigma[good], "label": label[good]}).value
    np.testing.assert_allclose(value[good], outside, rtol=1e-6)
    inside = InContext(model, {"sigma": 1.0})
    found = jax.jit(lambda label: log_density(None, inside, None, v, context={"label": label}).value)(label)
    np.testing.assert_array_equal(np.isnan(found), [False, False, True, False, False])
    plain = NoiseConditionalEBLVM.vectors(jax.random.key(0), 2, sigma_data=1.0, width=4, depth=1, embedding=4)
    for level in (1e-20, 1e20):
        with refused("sigma", level):
            plain.check_context({"sigma": level})
        assert not plain.knows({"sigma": jnp.asarray(level)})
    assert plain.knows({"sigma": jnp.asarray([0.0, 1e-6, jnp.nan, jnp.inf])}).tolist() == [False, True, False, False]


def test_bits_in_one_pass_take_labels_and_refuse_options_of_the_ode():
    model, v, key = labeled_model(Binary(2)), normal(0, 4, 3), jax.random.key(0)
    how = {"width": 0.1, "one_pass": True, "batch": 3}
    for_noise, _ = jax.random.split(key)
    noisy = v + 0.1 * jax.random.uniform(for_noise, v.shape, minval=-0.5, maxval=0.5)
    for label in (1, jnp.asarray([0, 1, 1, 0])):
        got = bits_per_dim(key, model, None, v, context={"label": label}, **how)
        context = {"label": jnp.broadcast_to(label, 4), "sigma": jnp.full(4, model.sigma_min)}
        logs = np.asarray(log_density(None, model, None, noisy, context=context).value, np.float64)
        assert got.mean == pytest.approx(-(logs.mean() / 3 + np.log(0.1)) / np.log(2), rel=1e-5)
    with refused("label", 7):
        bits_per_dim(key, model, None, v, context={"label": 7}, **how)
    with refused("context", "'sigma'"):
        bits_per_dim(key, model, None, v, context={"sigma": 1.0}, **how)
    for name, value in {"steps": 5, "foo": 3, "sigma_max": 9.0}.items():
        with refused(name, value, kind=TypeError):
            bits_per_dim(key, model, None, v, **{name: value}, **how)
    for one_pass in (True, False):
        with refused("samples", 0):
            bits_per_dim(key, model, None, v, width=0.1, one_pass=one_pass, samples=0)


@pytest.mark.long_runs
def test_log_z_says_how_good_q_is(float64):
    """Its error is the spread over keys within factors of 2 (a false alarm in 1e8). A poor q has a low `share`."""
    make = lambda key: NoiseConditionalEBLVM.vectors(
        key, 1, sigma_data=SIGMA_DATA, h=Real(2), normalized=True, width=4, depth=1, features=3, embedding=4
    )
    model, examples = filled(make), normal(0, 50, 1)
    good = filled(lambda key: FeaturePosterior.init(key, model, width=4))
    bad = jax.tree.map(lambda x: 3 * x, good)
    how = {"sigmas": (0.8,), "samples": 64}
    levels = [level_normalizers(jax.random.key(i), model, good, examples, **how)[0] for i in range(40)]
    spread = np.std([level.value for level in levels], ddof=1)
    error = np.sqrt(np.mean([level.error**2 for level in levels]))
    assert 0.5 < spread / error < 2
    (poor,) = level_normalizers(jax.random.key(0), model, bad, examples, **how)
    assert 0 < poor.share < 0.5 * levels[0].share <= 0.5
    assert np.isinf(levels[0].ess)
    (few,) = level_normalizers(jax.random.key(0), model, good, examples[:5], **how)
    assert np.isinf(few.error)
    with refused("v", 1):
        level_normalizers(jax.random.key(0), model, good, examples[:1], **how)


def test_rows_of_a_normalized_likelihood(monkeypatch):
    """The sources are: one pass, the ODE, their difference, and log Z of the lowest and of the other levels."""
    model, v = gaussian(1.0, 1.0), normal(0, 3, 3)
    one, ode = np.asarray([0.0, 1.0, 2.0]), np.asarray([0.5, 0.0, 4.0])  # rank correlation ½
    density = Density(jnp.asarray(one, jnp.float32), jnp.zeros(3), jnp.full(3, jnp.inf), True, True)
    found = Likelihood(1.0, 1.0, 0.1, True, density, LogPartition.known(0.0))
    levels = [LevelNormalizer(model.sigma_min, 0.3, 0.01, np.inf), LevelNormalizer(9.0, -2.0, 0.01, 20.0)]
    for name, result in (
        ("log_likelihood", found),
        ("flow_likelihood", FlowLikelihood(ode, np.zeros(3))),
        ("level_normalizers", levels),
    ):
        monkeypatch.setattr(likelihoods, name, lambda *_, result=result, **__: result)
    inside = InContext(model, {"sigma": model.sigma_min})
    units = Units(np.zeros(3), np.exp([0.5, 0.25, 0.0]))  # a log-volume of 0.75
    rows = likelihoods.likelihood_rows(jax.random.key(0), inside, ExactPosterior(), v, Sizes(), units=units)
    names = ["log-likelihood", "log-likelihood by the ODE", "one pass less ODE, nats", "log Z at noise of 0.0056"]
    assert [row.name for row in rows] == [*names, "log Z at noise of 9"]
    assert [row.value for row in rows] == pytest.approx([1.0, 1.5, -0.5, 0.3, -2.0])
    assert rows[0].means.endswith("; too high by 0.3 nats, log Z of this level")
    assert rows[1].means.endswith("in one pass 0.25 nats")  # converted to the data's units
    assert rows[2].means.endswith("rank correlation 0.500")


@pytest.mark.parametrize("shape", [(3,), (1, 1, 3)])
def test_a_gaussian_beside_a_normalized_likelihood_has_its_noise(shape, monkeypatch):
    """The noise of the lowest level, whatever the noise of other rows. For images, the test examples are noisy, too."""
    model = gaussian(1.0, 1.0)
    monkeypatch.setattr(likelihoods, "conditional_model", lambda _: model)
    domain = EnergyModel(lambda p, v, h: jnp.sum(v**2), jnp.zeros(1), v=Real(*shape))
    train, v = 0.01 * normal(0, 50, *shape), 0.01 * normal(1, 9, *shape)
    (row,) = likelihoods.gaussian_rows(domain, train, v, 0.7, [Row("log-likelihood", 0.0, None, "")])
    logs = gaussian_log_density(train, v, model.sigma_min, noisy=len(shape) == 3)
    assert logs is not None
    assert row.value == pytest.approx(logs.mean(), rel=1e-5)
