"""The probability-flow ODE against closed forms: guidance, inpainting, inversion, interpolation, likelihood."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from errors import refused
from small_nets import filled, normal, quick
from vages import (
    EBLVM,
    Batch,
    Binary,
    Empty,
    EnergyModel,
    FeaturePosterior,
    Held,
    Heun,
    NoiseConditionalDSM,
    NoiseConditionalEBLVM,
    Real,
    bits_per_dim,
    flow_likelihood,
    interpolate,
    sample,
)
from vages.domains import Domain, Product
from vages.samplers.flow import Flow
from vages.samplers.interpolation import slerp

LOW, HIGH = 0.01, 80.0
TAIL = 1e-6  # false-alarm rate of each test


class Levels(EBLVM):
    """A density without latents that is known at every level."""

    @property
    def h(self) -> Domain:
        return Empty()

    @property
    def sigma_min(self):
        return LOW

    @property
    def sigma_max(self):
        return HIGH

    def log_joint(self, features, h):
        return features


class Classes(Levels):
    """N(m_k, 0.3²) on the line given the label k; the mixture without a label."""

    means: jax.Array
    log_weights: jax.Array

    @property
    def v(self):
        return Real(1)

    def features(self, v, context=None):
        context = {} if context is None else context
        variance = 0.3**2 + jnp.asarray(context.get("sigma", LOW), v.dtype).reshape(()) ** 2
        label = jnp.asarray(context.get("label", -1)).reshape(())
        logs = jax.scipy.stats.norm.logpdf(v[0], self.means, jnp.sqrt(variance))
        of_label = logs[jnp.maximum(label, 0)]
        return jnp.where(label < 0, jax.nn.logsumexp(self.log_weights + logs), of_label)


class Correlated(Levels):
    """A Gaussian."""

    covariance: jax.Array

    @property
    def v(self):
        return Real(len(self.covariance))

    def features(self, v, context=None):
        sigma = jnp.asarray(LOW if context is None else context["sigma"], v.dtype).reshape(())
        total = self.covariance + sigma**2 * jnp.eye(len(v), dtype=v.dtype)
        return jax.scipy.stats.multivariate_normal.logpdf(v, jnp.zeros_like(v), total)


COVARIANCE = np.array([[1.0, 0.48, 0.3], [0.48, 0.36, 0.2], [0.3, 0.2, 0.5]])


def classes():
    return Classes(jnp.asarray([-1.5, 1.0]), jnp.log(jnp.asarray([0.3, 0.7])))


def correlated():
    return Correlated(jnp.asarray(COVARIANCE))


def levels(steps, low=LOW, high=HIGH):
    return np.linspace(high ** (1 / 7), low ** (1 / 7), steps) ** 7


def check_normal(x, mean, covariance):
    """Test independent draws (n, d) of a Gaussian: their mean, squares and products."""
    z = np.linalg.solve(np.linalg.cholesky(covariance), (np.asarray(x, np.float64) - mean).T).T
    n, d = z.shape
    tail = TAIL / 2 / (2 * d + d * (d - 1) // 2)
    for i in range(d):
        assert abs(z[:, i].sum()) / math.sqrt(n) < stats.norm.isf(tail)
        assert tail < stats.chi2.cdf(np.sum(z[:, i] ** 2), n) < 1 - tail
        for j in range(i):
            assert abs(np.sum(z[:, i] * z[:, j])) / math.sqrt(n) < 1.05 * stats.norm.isf(tail)


def test_an_own_energy_of_v_and_a_level_is_sampled():
    """N(m, 1 + σ²), by an energy that cannot be called without a context."""
    energy = lambda m, v, h, context: jnp.sum((v - m) ** 2) / 2 / (1 + context["sigma"] ** 2)
    mean = jnp.asarray([0.5, -1.0])
    model, sampler = EnergyModel(energy, mean, v=Real(2)), Heun(steps=40, sigma_min=LOW, sigma_max=HIGH)
    drawn = sample(jax.random.key(0), model, 2000, sampler=sampler)
    check_normal(drawn.v, np.asarray(mean), np.eye(2))


@pytest.mark.parametrize("guidance", [None, 1.0])
def test_a_label_gives_the_law_of_its_class(guidance):
    """Heun's steps are linear in v − m, so mean and variance are known."""
    n, steps = 4000, 18
    context = {"label": 1}
    drawn = sample(jax.random.key(0), classes(), n, context=context, sampler=Heun(steps=steps, guidance=guidance))
    factor = 1.0
    for a, b in itertools.pairwise([*levels(steps), 0.0]):
        slope = lambda sigma: sigma / (0.3**2 + sigma**2)
        euler = 1 + (b - a) * slope(a)
        factor *= euler if b == 0 else 1 + (b - a) * (slope(a) + slope(b) * euler) / 2
    check_normal(drawn.v, 1.0 - factor * 1.0, np.array([[factor * HIGH]]) ** 2)
    assert drawn.gradients == n * (2 * steps - 1)


def test_guidance_of_zero_gives_the_law_without_a_label():
    """The Kolmogorov–Smirnov distance from the mixture, with 0.005 for the error of the ODE."""
    n = 3000
    context = {"label": jnp.asarray([0, 1] * (n // 2))}
    drawn = sample(jax.random.key(1), classes(), n, context=context, sampler=Heun(steps=50, guidance=0.0))
    mixture = lambda x: 0.3 * stats.norm.cdf(x, -1.5, 0.3) + 0.7 * stats.norm.cdf(x, 1.0, 0.3)
    distance = stats.kstest(np.asarray(drawn.v, np.float64)[:, 0], mixture).statistic
    assert distance < math.sqrt(math.log(2 / TAIL) / 2 / n) + 0.005
    assert drawn.gradients == 2 * n * 99


def test_the_guided_score(float64):
    flow, key = Flow(classes(), guidance=2.5), jax.random.key(0)
    for v, sigma, label in ((0.3, 0.5, 0), (-1.0, 2.0, 1)):
        variance = 0.3**2 + sigma**2
        of = (np.array([-1.5, 1.0]) - v) / variance
        logs = np.log([0.3, 0.7]) - 0.5 * variance * of**2
        weights = np.exp(logs - logs.max())
        free = weights @ of / weights.sum()
        got, _ = flow.score(key, jnp.asarray([v]), jnp.asarray(sigma), jnp.zeros(0), {"label": jnp.asarray(label)})
        np.testing.assert_allclose(got, [free + 2.5 * (of[label] - free)], rtol=1e-10)


def test_labels_are_dropped_while_training():
    """Each with the same probability; everything else is unchanged. One false alarm in 10⁶."""
    n = 5000
    batch = Batch(jnp.zeros((n, 2)), {"label": jnp.arange(n, dtype=jnp.int32) % 4})
    points = NoiseConditionalDSM(0.5, label_dropout=0.1).perturb(jax.random.key(0), batch)
    plain = NoiseConditionalDSM(0.5).perturb(jax.random.key(0), batch)
    label = np.asarray(points.context["label"])
    dropped = label == -1
    assert 5e-7 < stats.binom.cdf(dropped.sum(), n, 0.1) < 1 - 5e-7
    np.testing.assert_array_equal(label[~dropped], np.asarray(batch.context["label"])[~dropped])
    np.testing.assert_array_equal(plain.context["label"], batch.context["label"])
    np.testing.assert_array_equal(points.v, plain.v)
    with refused("label_dropout", "0.1"):
        NoiseConditionalDSM(0.5, label_dropout=0.1).perturb(jax.random.key(0), Batch(jnp.zeros((2, 2))))
    for share in (1.0, -0.1):
        with refused("label_dropout", share):
            NoiseConditionalDSM(0.5, label_dropout=share)


def test_labels_are_dropped_whatever_the_noise():
    """The mean noise of examples without a label is 0, as is that of the others. One false alarm in 10⁶."""
    n = 5000
    batch = Batch(jnp.zeros((n, 1)), {"label": jnp.zeros(n, jnp.int32)})
    points = NoiseConditionalDSM(0.5, label_dropout=0.1).perturb(jax.random.key(0), batch)
    noise = np.asarray(points.v[:, 0] / points.context["sigma"])
    for some in (noise[dropped := np.asarray(points.context["label"]) == -1], noise[~dropped]):
        assert abs(some.mean()) < 5 / len(some) ** 0.5


KNOWN = 1.5  # the held value of the first of three entries


def inpainted(steps, repeats):
    """Mean and covariance of inpainting, which is affine in all noises. The state is the free entries and the noise."""
    a = levels(steps)
    mean, covariance = np.zeros(3), np.diag([a[0] ** 2, a[0] ** 2, 1.0])

    def parts(sigma):
        slope = sigma * np.linalg.inv(COVARIANCE + sigma**2 * np.eye(3))
        return slope[1:, 1:], np.hstack([slope[1:, 1:], sigma * slope[1:, :1]]), slope[1:, 0] * KNOWN

    def step(mean, covariance, a, b):
        mean, covariance = mean * [1, 1, 0], covariance * np.outer([1, 1, 0], [1, 1, 0]) + np.diag([0, 0, 1.0])
        stay = np.eye(2, 3)
        _, linear, constant = parts(a)
        move, shift = stay + (b - a) * linear, (b - a) * constant
        if b:
            through, below, more = parts(b)
            second = through @ move + np.hstack([np.zeros((2, 2)), below[:, 2:]])
            move, shift = (
                stay + (b - a) / 2 * (linear + second),
                (b - a) / 2 * (constant + through @ shift + more),
            )
        whole = np.vstack([move, [0, 0, 1]])
        return whole @ mean + [*shift, 0], whole @ covariance @ whole.T

    for above, below in itertools.pairwise(a):
        for i in range(repeats):
            if i:
                covariance = covariance + (above**2 - below**2) * np.diag([1, 1, 0])
            mean, covariance = step(mean, covariance, above, below)
    mean, covariance = step(mean, covariance, a[-1], 0.0)
    return mean[:2], covariance[:2, :2]


def test_inpainting_has_the_law_of_its_scheme():
    n = 2000
    held = Held(jnp.asarray([True, False, False]), jnp.asarray([KNOWN, 9.0, 9.0]))
    drawn = sample(jax.random.key(2), correlated(), n, held=held, sampler=Heun(resample=3))
    np.testing.assert_array_equal(drawn.v[:, 0], np.float32(KNOWN))
    check_normal(drawn.v[:, 1:], *inpainted(18, 3))
    assert drawn.gradients == n * (2 * 3 * 17 + 1)


class Curved(Levels):
    """The slope of the second entry is 100 times the square of the first."""

    @property
    def v(self):
        return Real(2)

    def features(self, v, context=None):
        return 100 * v[1] * v[0] ** 2


def test_held_entries_have_the_noise_of_the_level():
    """At levels 1 and 0.5, squares of the held noise move the other entry by 28.125 ε² + 6.25 ε'²; within 6 errors."""
    n = 500
    held = Held(jnp.asarray([True, False]), jnp.zeros(2))
    heun = Heun(steps=2, sigma_max=1.0, sigma_min=0.5, resample=1)
    moved = np.asarray(sample(jax.random.key(0), Curved(), n, held=held, sampler=heun).v)[:, 1]
    error = math.sqrt((2 * 28.125**2 + 2 * 6.25**2 + 1) / n)
    assert abs(moved.mean() - 34.375) < 6 * error


def test_inpainting_approaches_the_conditional():
    """The bias falls as one over the number of repeats; means are compared in standard deviations."""
    gain = COVARIANCE[1:, 0] / COVARIANCE[0, 0]
    truth, rest = gain * KNOWN, COVARIANCE[1:, 1:] - np.outer(gain, COVARIANCE[0, 1:])
    bias = {}
    for repeats in (1, 10, 40):
        mean, covariance = inpainted(40, repeats)
        bias[repeats] = np.abs((mean - truth) / np.sqrt(np.diag(rest))).max(), np.abs(covariance / rest - 1).max()
    assert bias[1][0] > 0.5
    assert bias[10][0] < 0.1
    assert bias[40][0] < bias[10][0] / 3
    assert bias[10][1] < 0.1
    assert bias[40][1] < bias[10][1] / 3


def test_noise_and_back(float64):
    """The ODE of a Gaussian to high noise is known; back again it is the identity, to second order in the step."""
    model, v = correlated(), normal(0, 5, 3)
    values, vectors = np.linalg.eigh(COVARIANCE)
    growth = np.sqrt((values + HIGH**2) / values)
    expected = np.asarray(v) @ vectors * growth @ vectors.T
    off, back = {}, {}
    for steps in (40, 80):
        heun = Heun(steps=steps)
        noise = heun.invert(jax.random.key(0), model, v)
        off[steps] = np.abs(noise - expected).max() / HIGH
        again = sample(jax.random.key(0), model, 5, start=noise, sampler=heun)
        back[steps] = np.abs(again.v - v).max()
    assert off[40] < 0.02
    assert off[80] < off[40] / 3
    assert back[40] < 0.02
    assert back[80] < back[40] / 3


def test_the_way_between_two_examples():
    model, heun = correlated(), Heun(steps=60)
    ends = normal(3, 2, 3)
    path = interpolate(jax.random.key(0), model, ends, 5, sampler=heun)
    assert path.v.shape == (5, 3)
    np.testing.assert_allclose(path.v[::4], ends, atol=0.02)
    a, b = jnp.asarray([[2.0, 0]]), jnp.asarray([[0.0, 2]])
    np.testing.assert_allclose(slerp(a, b, 1 / 3), [[math.sqrt(3), 1]], rtol=1e-5)
    np.testing.assert_allclose(slerp(a, 2 * a, 0.25), 1.25 * a, rtol=1e-6)
    with refused("ends", 3):
        interpolate(jax.random.key(0), model, normal(0, 3, 3), 5, sampler=heun)


def test_the_way_goes_around_the_center(float64):
    """Data are N(50, I) in 20 dimensions, so that the ODE keeps the direction from the center, forth and back."""
    model = NoiseConditionalEBLVM.vectors(
        jax.random.key(0), 20, sigma_data=1.0, h=Empty(), width=2, depth=1, features=2, embedding=2, center=50.0
    )
    model = jax.tree.map(lambda x: 0 * x if eqx.is_inexact_array(x) else x, model)  # the network returns 0
    first, second = normal(0, 2, 20)
    path = interpolate(jax.random.key(0), model, 50 + jnp.stack([first, second]), 5, sampler=Heun(steps=40))
    expected = [50 + slerp(first, second, share) for share in np.linspace(0, 1, 5)]
    np.testing.assert_allclose(path.v, expected, atol=0.01)


def latent_model(h):
    return filled(
        lambda key: NoiseConditionalEBLVM.vectors(
            key, 2, sigma_data=0.7, h=h, width=5, depth=1, features=4, head_width=4, embedding=6
        )
    )


def test_latents_are_held_on_the_way():
    model = latent_model(Real(2))
    posterior = FeaturePosterior.init(jax.random.key(1), model, width=4)
    heun, ends = Heun(posterior, steps=30), normal(0, 2, 2)
    h = jnp.asarray([[1.0, 0.0], [0.0, 1.0]])
    path = interpolate(jax.random.key(0), model, ends, 3, sampler=heun, h=h)
    np.testing.assert_allclose(path.h, [h[0], jnp.full(2, math.sqrt(0.5)), h[1]], rtol=1e-5)
    np.testing.assert_allclose(path.v[::2], ends, atol=0.05)
    drawn = interpolate(jax.random.key(0), model, ends, 3, sampler=heun)
    np.testing.assert_allclose(drawn.v[::2], ends, atol=0.05)
    with refused("posterior", kind=TypeError):
        interpolate(jax.random.key(0), model, ends, 3, sampler=Heun())


class MixedLatents(Levels):
    """A Gaussian with mean z + y, for standard normal z and a fair coin y."""

    @property
    def v(self):
        return Real(2)

    @property
    def h(self):
        return Product({"z": Real(2), "y": Binary(1)})

    def features(self, v, context=None):
        return v, jnp.asarray(LOW if context is None else context["sigma"], v.dtype).reshape(())

    def log_joint(self, features, h):
        v, sigma = features
        return -0.5 * jnp.sum((v - h["z"] - h["y"]) ** 2) / (1 + sigma**2) - 0.5 * jnp.sum(h["z"] ** 2)


def test_of_mixed_latents_the_real_ones_are_interpolated():
    ends, heun = normal(0, 2, 2), Heun(steps=3)
    z, y = jnp.asarray([[1, 0], [0, 1]]), jnp.asarray([[0.0], [1.0]])
    path = interpolate(jax.random.key(0), MixedLatents(), ends, 4, sampler=heun, h={"z": z, "y": y})
    angles = jnp.linspace(0, jnp.pi / 2, 4)
    np.testing.assert_allclose(path.h["z"], jnp.stack([jnp.cos(angles), jnp.sin(angles)], 1), atol=1e-6)
    np.testing.assert_array_equal(path.h["y"], [[0], [0], [1], [1]])


def test_the_likelihood_of_a_gaussian(float64):
    """Exact except for the steps of the ODE, of fourth order, and for N(0, σ_max² I) at the highest level."""
    model, v = correlated(), normal(0, 6, 3)
    truth = stats.multivariate_normal(np.zeros(3), COVARIANCE + LOW**2 * np.eye(3)).logpdf(np.asarray(v))  # pyright: ignore[reportArgumentType]
    off = [
        np.abs(flow_likelihood(jax.random.key(0), model, None, v, steps=steps, batch=4).value - truth).max()
        for steps in (12, 24, 48)
    ]
    assert off[0] < 0.1
    assert off[1] < off[0] / 8
    assert off[2] < 5e-4


class Enlarged(Levels):
    """The density of `model` in units that are smaller by a factor, with the levels in these units."""

    model: Levels
    factor: float = eqx.field(static=True)

    @property
    def v(self):
        return self.model.v

    @property
    def sigma_min(self):
        return self.factor * LOW

    @property
    def sigma_max(self):
        return self.factor * HIGH

    def features(self, v, context=None):
        sigma = self.sigma_min if context is None else context["sigma"]
        return self.model.features(v / self.factor, {"sigma": sigma / self.factor})


def test_the_likelihood_does_not_depend_on_the_units(float64):
    """A model without `sigma_data` says nothing about the scale of its data but its levels."""
    model, v = correlated(), normal(0, 6, 3)
    value = lambda model, v: flow_likelihood(jax.random.key(0), model, None, v, steps=12).value
    for factor in (1e3, 1e-3):
        moved = value(Enlarged(model, factor), factor * v) + 3 * math.log(factor)
        np.testing.assert_allclose(moved, value(model, v), atol=1e-9)


def test_probes_are_unbiased(float64):
    """Hutchinson's estimate over 200 repeats; by Student's t, one false alarm in 10⁶ for each of three examples."""
    model, v = correlated(), normal(0, 3, 3)
    call = lambda **options: flow_likelihood(jax.random.key(0), model, None, v, steps=12, **options)
    exact, rough = call(), call(probes=2, repeats=200)
    assert np.all(rough.error > 1e-3)
    assert np.all(np.abs(rough.value - exact.value) / rough.error < stats.t.isf(5e-7, 199))
    one = call(probes=1, repeats=200)
    assert np.all(np.abs(one.error / rough.error / math.sqrt(2) - 1) < 0.4)


def test_the_likelihood_of_a_mixture(float64):
    """A density with two modes, with a label and without. σ_max is so high that the modes' means do not matter."""
    model, v = classes(), jnp.asarray([[-1.6], [0.0], [1.3]])
    each = stats.norm.logpdf(np.asarray(v), [-1.5, 1.0], math.hypot(0.3, LOW))
    truth = np.log(np.exp(each) @ [0.3, 0.7])
    for steps, most in ((60, 0.05), (240, 1e-3)):
        got = flow_likelihood(jax.random.key(0), model, None, v, steps=steps, sigma_max=4000.0)
        np.testing.assert_allclose(got.value, truth, atol=most)
    got = flow_likelihood(jax.random.key(0), model, None, v, context={"label": 1}, steps=60, sigma_max=4000.0)
    np.testing.assert_allclose(got.value, each[:, 1], atol=1e-2)


def test_bits_of_a_gaussian(float64):
    """Wide bins of a Gaussian with little noise: the bits of its density, except for the curvature within a bin."""
    model, width = correlated(), 0.05
    v = np.random.default_rng(0).multivariate_normal(np.zeros(3), COVARIANCE, 200)
    v = jnp.asarray(width * np.round(v / width))
    got = bits_per_dim(jax.random.key(0), model, None, v, width=width, steps=24, batch=200)
    logs = stats.multivariate_normal(np.zeros(3), COVARIANCE + LOW**2 * np.eye(3)).logpdf(np.asarray(v))  # pyright: ignore[reportArgumentType]
    expected = -(logs.mean() / 3 + math.log(width)) / math.log(2)
    assert abs(got.mean - expected) < 0.03
    assert 0 < got.error < 0.2


def test_the_noise_of_h_is_the_same_along_the_path(float64):
    """The density integrates to 1 for each noise: the divergence of the field includes that of the posterior."""
    model = latent_model(Real(2))
    posterior = filled(lambda key: FeaturePosterior.init(key, model, width=4))
    grid = np.linspace(-6, 6, 41)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)

    @eqx.filter_vmap(in_axes=(None, 0))
    def density(key, v):
        from vages.evaluation.flow_likelihood import _log_density

        flow = Flow(model, posterior)
        up = jnp.asarray(levels(25, 0.4, 100.0)[::-1])
        return _log_density(key, flow, up, 0.7, None, v[None], {})[0]

    logs = quick(density)(jax.random.key(0), jnp.asarray(points))
    total = np.exp(np.asarray(logs)).sum() * (grid[1] - grid[0]) ** 2
    assert abs(total - 1) < 0.01


def test_what_has_no_likelihood_is_refused():
    key, v = jax.random.key(0), jnp.zeros((2, 2))
    with refused("model", "Binary", kind=TypeError):
        flow_likelihood(key, latent_model(Binary(2)), None, v)
    with refused("posterior", kind=TypeError):
        flow_likelihood(key, latent_model(Real(2)), None, v)
    with refused("width", 0.0):
        bits_per_dim(key, latent_model(Empty()), None, v, width=0.0)
    with refused("v", "(2, 3)"):
        flow_likelihood(key, latent_model(Empty()), None, jnp.zeros((2, 3)))
