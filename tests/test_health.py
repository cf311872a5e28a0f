"""Findings on a run's health, for curves, samples and latents that are healthy or not by construction; a run's page."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from truth import mean_differs
from vages import (
    DSM,
    Binary,
    Empty,
    EnergyModel,
    Enumerated,
    Gaussian,
    Joint,
    Learner,
    Posterior,
    Real,
    Training,
    infer,
)
from vages.app.recipes import Examples, Recipe, Trained
from vages.app.runs import health as runs_health
from vages.app.runs.health import examples_of, noise_of_samples
from vages.app.runs.reports import build_report
from vages.app.runs.train import run_recipe
from vages.data import Splits
from vages.models import NoiseConditionalEBLVM
from vages.objectives import Batch, NoiseConditionalDSM
from vages.objectives.noise import NoiseRange, zero_score_loss
from vages.objectives.objective import Given
from vages.posteriors import ExactPosterior, FeaturePosterior
from vages.storage.directory import Directory
from vages.training import health
from vages.training.dependence import lost_dependence
from vages.training.folder import RunFolder, read_object
from vages.training.health import (
    Baseline,
    look_at_averages,
    look_at_data,
    look_at_divergence,
    look_at_gradient,
    look_at_history,
    look_at_latents,
    look_at_loss,
    look_at_mass,
    look_at_samples,
    look_far_out,
)

RNG = np.random.default_rng(0)
STEPS = np.arange(200)


def told(findings):
    return [f"{one.level} {one.told}" for one in findings]


def noisy(curve, noise=0.3):
    return curve + noise * RNG.normal(size=len(curve))


@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0])
def test_losses_that_fall_or_stay_are_well(noise):
    """180 noisy curves that fall or stay give no warning: at 6 errors of a median, false alarms are far below 1e-6."""
    for curve in (5 + 20 * np.exp(-STEPS / 30), np.full(200, 400.0), 1000.0 / (1 + STEPS)):
        for _ in range(60):
            assert look_at_loss(noisy(curve, noise), baseline=Baseline("a score of 0", 1e4)) == []
    assert look_at_loss(np.linspace(1, 100, 11)) == []  # too few points to judge
    (found,) = look_at_loss(np.where(STEPS % 2, np.nan, 1.0))
    assert "not finite at 100 of 200" in found.told


def test_losses_that_rise_are_told():
    (found,) = look_at_loss(noisy(np.linspace(148, 4650, 200), 20))
    assert (found.of, found.level) == ("loss", "warning")
    assert "above its start" in found.told
    curve = np.where(STEPS < 130, 100 * np.exp(-STEPS / 20) + 5, 5 + 0.3 * (STEPS - 130))
    (found,) = look_at_loss(noisy(curve))
    assert "rises over the last third" in found.told
    assert look_at_loss(noisy(curve), ended=False) == []
    (found,) = look_at_loss(noisy(np.linspace(50, 30, 200)), baseline=Baseline("a score of 0", 20.0))
    assert "a score of 0" in found.told
    assert "not 20" in found.told
    for error, count in ((0.0, 1), (0.1, 1), (3.0, 0)):
        baseline = Baseline("a Gaussian as wide as the data", 20.0, error)
        assert len(look_at_loss(noisy(np.linspace(50, 30, 200)), baseline)) == count


def test_gradients_and_divergences_that_grow_are_told():
    growing = np.geomspace(1, 1000, 200)
    assert "gradient" in told(look_at_gradient(growing))[0]
    assert "lags" in told(look_at_divergence(growing))[0]
    for look in (look_at_gradient, look_at_divergence):
        assert look(noisy(np.full(200, 10.0))) == []
        assert look(growing[::-1]) == []


def test_samples_beside_data():
    data = RNG.normal(size=(400, 2, 3))
    same = np.broadcast_to(data[:1], data.shape)
    assert look_at_data(data) == []
    assert "constant" in told(look_at_data(same))[0]
    assert look_at_samples(RNG.normal(size=(300, 2, 3)), data) == []
    for samples, says in (
        (np.where(data > 2.5, np.nan, data), "not finite"),
        (20 * data, "outside the data"),
        (same + 1e-4 * data, "constant"),
        (data[np.arange(400) % 4], "duplicates"),
        (0.3 * data, "narrower"),
        (2.2 * np.clip(data, -2, 2), "wider"),
    ):
        (found,) = look_at_samples(samples, data)
        assert (found.of, found.level) == ("samples", "warning")
        assert says in found.told


def test_bounds_of_samples():
    """Thresholds for data from −1 to 1.

    More than 1 % of the values lie further outside than the data's range; the spread is below 0.05 or 0.5 times, or
    above twice, that of the data; and nearest neighbors are closer than 0.05 times the distance usual in the data.
    """
    data = RNG.uniform(-1, 1, size=(1000, 1, 5))
    data.flat[:2] = -1, 1
    far = lambda count, value: np.where(np.arange(5000).reshape(data.shape) < count, value, data)
    assert look_at_samples(far(500, 2.9), data) == look_at_samples(far(500, -2.9), data) == []
    for within, beyond, says in (
        (far(50, 3.1), far(51, 3.1), "outside the data: 1 %"),
        (far(50, -3.1), far(51, -3.1), "outside the data: 1 %"),
        (0.51 * data, 0.49 * data, "narrower"),
        (1.99 * data, 2.01 * data, "wider"),
    ):
        assert look_at_samples(within, data) == []
        assert says in look_at_samples(beyond, data)[0].told
    narrow = [look_at_samples(scale * data, data)[0].told for scale in (0.051, 0.049)]
    assert ["duplicates" in narrow[0], "narrower" in narrow[0], "constant" in narrow[1]] == [False, True, True]
    pairs = lambda apart: np.concatenate([data[:500], data[:500] + apart])[np.arange(1000).reshape(2, 500).T.ravel()]
    distances = np.linalg.norm(data[:500, None, 0] - data[None, :500, 0], axis=-1) + 9 * np.eye(500)
    usual = np.median(distances.min(axis=1)) / math.sqrt(5)
    assert look_at_samples(pairs(0.052 * usual), data) == []
    assert "duplicates" in look_at_samples(pairs(0.048 * usual), data)[0].told


def test_duplicates_are_more_than_those_that_data_have():
    """Samples have duplicates only if the data have fewer.

    If about half of the data have a twin, the median sample has one or not by chance. Rounding errors do not count as
    distances. A false alarm needs a share of twins that is six errors too large: less than 1e-6.
    """
    corners = lambda count: (RNG.random((count, 5)) < 0.5) * 1.0
    few = RNG.normal(size=(3, 10))
    for rows in (30, 40, 100):
        for _ in range(50):
            assert "duplicates" not in str(look_at_samples(corners(rows), corners(60)))
            samples, data = (few[RNG.integers(0, 3, size)] for size in (rows, 60))
            assert "duplicates" not in str(look_at_samples(samples, data))
    data = np.sort(np.maximum(RNG.normal(size=(1000, 1, 2)), -0.85), axis=0)  # about the first 200 are equal
    assert look_at_samples(data[5::10], data) == []
    assert "duplicates" in look_at_samples(data[np.arange(100) % 20 * 50], data)[0].told
    far = 1e8 + RNG.normal(size=(400, 1, 3))  # the rounding of its squares exceeds the distances
    assert look_at_samples(far[:200], far) == []
    assert "duplicates" in look_at_samples(far[np.arange(200) % 20], far)[0].told


@pytest.mark.parametrize("size", [1, 2, 30])
def test_few_outliers_of_the_data_do_not_make_samples_narrow(size):
    """Up to 1 % of the rows are outliers. More than that are a mode, and samples that lack it give a warning."""
    made = lambda rows: correlated(0.9, rows, size)
    for rows, count in ((1000, 5000), (1000, 100), (100, 100)):
        for value in (30.0, 1e3, -1e6):
            few, many = (np.where(np.arange(rows)[:, None] < share * rows, value, made(rows)) for share in (0.01, 0.1))
            assert look_at_samples(made(count), few) == []
            assert any(word in look_at_samples(made(count), many)[0].told for word in ("constant", "narrower"))
    few = np.where(np.arange(1000)[:, None] < 10, 1e3, made(1000))
    assert "narrower" in look_at_samples(0.4 * made(1000), few)[0].told
    if 1 < size < 20:
        found = look_at_samples(made(1000) * np.where(np.arange(size) == 1, 0.2, 1), few)
        assert "column 1 has a standard deviation of " in found[0].told
        assert f", not {few[10:, 1].std():.3g};" in found[0].told


def test_samples_beside_the_data_are_told():
    """The mean over all columns is far off, where there are too few rows to check each column, or for images."""
    for made in (lambda n: correlated(0.9, n, 30), lambda n: correlated(0.8, n, 64).reshape(n, 1, 8, 8)):
        for count in (30, 100, 1000):
            data, samples, sure = made(1000), made(count), 6 / math.sqrt(count)
            assert look_at_samples(samples + 0.8, data) == []
            assert "far from the data" in look_at_samples(samples + 1.2 + 2 * sure, data)[0].told
            assert look_at_samples(samples + 1.2 + 2 * sure, data, noise=3.0) == []
    dark = np.maximum(correlated(0.8, 1100, 64) - 1.5, 0).reshape(-1, 1, 8, 8)
    assert look_at_samples(dark[:100], dark[100:]) == []
    assert "far from the data" in look_at_samples(dark.max() - dark[:100], dark[100:])[0].told


def test_averages_and_energies_far_out():
    parameters = [RNG.normal(size=(3, 4)), RNG.normal(size=5)]
    assert look_at_averages([1.4 * x for x in parameters], parameters) == []
    assert "60 %" in told(look_at_averages([1.6 * x for x in parameters], parameters))[0]


@pytest.mark.parametrize("size", [1, 3])
def test_energies_far_out(size):
    """|v|^-a is integrable at infinity if a exceeds the dimension. A Gaussian is integrable, waves are not."""
    radius = 30 * RNG.uniform(0.5, 2, 64)
    said = lambda log_p: told(look_far_out(log_p(radius), log_p(10 * radius), size))
    power = lambda a: lambda r: -a * np.log(r)
    assert said(power(size + 0.1)) == said(lambda r: -(r**2)) == said(lambda r: np.where(r > 40, -np.inf, -r)) == []
    for improper in (power(size - 0.1), lambda r: 9 * np.cos(r), lambda r: r, lambda r: np.full(64, np.nan)):
        assert "no normalizer" in said(improper)[0]
    falls = lambda flat: told(look_far_out(np.zeros(64), np.where(np.arange(64) < flat, 0.0, -1e3), size))
    assert falls(16) == []  # up to a quarter of the directions is allowed
    assert "in 27 % of the directions" in falls(17)[0]


def test_latents_of_examples():
    """log p̃(v_i, h_j) of a linear-Gaussian model: h follows v, follows −v, or is not coupled to v."""
    v, noise = RNG.normal(size=(2, 300))
    joint = lambda h, weight: -0.5 * (v[:, None] - weight * h) ** 2 - 0.5 * h**2
    assert look_at_latents(joint(v + 0.5 * noise, 1.0)) == []
    blocks = lambda joint: np.stack([joint[i : i + 50, i : i + 50] for i in range(0, 300, 50)])
    assert look_at_latents(blocks(joint(v + 0.5 * noise, 1.0))) == []
    assert look_at_latents(blocks(joint(-v + 0.5 * noise, 1.0)))[0].of == "posterior"
    (lagging,) = look_at_latents(joint(-v + 0.5 * noise, 1.0))
    assert (lagging.of, lagging.level) == ("posterior", "warning")
    assert look_at_latents(joint(-v + 0.5 * noise, 1.0), learnt=False) == []
    weak = lambda h: 0.2 * v[:, None] * h  # the coupling is too weak to judge h, unless h contradicts the posterior
    assert look_at_latents(weak(noise)) == []
    assert look_at_latents(weak(v)) == []
    assert look_at_latents(weak(-v))[0].of == "posterior"
    (unused,) = look_at_latents(joint(v, 0.0) + noise[:, None])
    assert (unused.of, unused.level) == ("latents", "notice")
    assert look_at_latents(np.full((4, 4), np.inf))[0].level == "warning"


def test_seeds_are_told_apart():
    rows = [{"loss": [1.0, 1.0 + i, 1.0 + 2 * i], "step": i} for i in range(40)]
    (found,) = look_at_history(rows, falls=True)
    assert "(seed 2 of 3, 2 like it)" in found.told
    assert look_at_history(rows, falls=False) == []


def test_loss_of_a_score_of_zero():
    """d / (2 σ²) at one level; E[1 + (σ / σ_d)²] over all levels in units of the noise; by hand over a range."""
    key, v = jax.random.key(0), jnp.zeros((4000, 3))
    loss = lambda objective: zero_score_loss(key, objective, Batch(v))
    assert loss(DSM(0.1, Enumerated())) == pytest.approx(150, rel=0.07)  # 5.5 errors
    levels = NoiseRange(0.1, 1.0, "geometric", 0.1)
    assert loss(DSM(levels, Enumerated())) == pytest.approx(3 / (2 * 0.1**4), rel=0.07)
    v = jnp.zeros((500, 3000))  # so many dimensions that ‖ε‖² / d is 1 within 14 %, 5.5 errors
    for weight in (0.0, 20.0):
        objective = NoiseConditionalDSM(1.0, Enumerated(), level_weight=weight)
        sigma = objective.perturb(key, Batch(v)).context["sigma"]
        found = loss(objective)
        assert found is not None
        assert found - weight == pytest.approx(float(jnp.mean(1 + sigma**2)), rel=0.15)
    assert loss(lambda *_: None) is None


@pytest.mark.long_runs
@pytest.mark.parametrize("normalized", [False, True])
def test_loss_of_a_gaussian_is_that_of_a_model_at_its_start(normalized):
    """A model whose network is 0 has the same loss, averaged over noise (one false alarm in 500,000).

    For data as wide as `sigma_data` the loss is 1.
    """
    v = 0.7 + 0.3 * jax.random.normal(jax.random.key(1), (2000, 30))
    model = NoiseConditionalEBLVM.vectors(
        jax.random.key(2), 30, sigma_data=0.3, h=Empty(), width=8, depth=1, center=0.7, normalized=normalized
    )
    objective = NoiseConditionalDSM(0.3, Enumerated(), level_weight=float(normalized))

    @jax.jit
    def both(key):
        points = objective.perturb(key, Batch(v))
        given = Given(Batch(v), points, objective.encode(model, points), None, None)
        _, metrics, _ = objective.loss(key, model, ExactPosterior(), given)
        for_levels, _ = jax.random.split(key)  # the same split as in `perturb`
        found = jnp.mean(objective.gaussian_losses(for_levels, v, 0.7))
        return metrics["loss"] - found, metrics.get("score_loss", metrics["loss"])

    apart, score = jax.lax.map(both, jax.random.split(jax.random.key(0), 100))
    assert not mean_differs(np.asarray(apart)[:, None], 0)
    assert float(score.mean()) == pytest.approx(1, abs=5.5 * math.sqrt(2 / v.size))


def test_a_model_of_noisy_data_is_as_wide_as_these():
    """Like those of Frey face, the pixels vary by a third of the noise."""
    faces = np.clip(0.5 + 0.1 * RNG.normal(size=(400, 560)), 0.05, 0.95)
    samples = faces + 0.3 * RNG.normal(size=faces.shape)
    assert look_at_samples(samples, faces, 0.3) == []
    assert "wider" in look_at_samples(samples, faces)[0].told
    spread = math.hypot(faces.std(), 0.3)
    told = lambda x, noise: [one.told for one in look_at_samples(x, faces, noise)]
    for factor, words in ((1.95, []), (2.05, [f"not {spread:.3g}"])):  # times the correct spread
        found = told(0.5 + factor * spread * RNG.normal(size=faces.shape), 0.3)
        assert (len(found), [word for word in words if word not in found[0]]) == (len(words), [])
    assert "narrower" in told(0.5 + 0.4 * (faces - 0.5), 0.3)[0]
    spikes = 0.5 + 0.1 * RNG.normal(size=faces.shape)
    spikes[:, :10] = 0.95 + 0.9 + 0.8  # 1.8 % of the values; noise of 0.3 extends the range by 0.9
    assert told(spikes, 0.3) == []
    assert "outside" in told(spikes, 0.2)[0]


def test_samples_of_a_table_are_held_against_each_column_and_direction():
    """Sample sizes are large compared with the bounds, so a healthy run never gives a warning."""
    data = RNG.normal(size=(1000, 2)) * [1000, 0.01] + [5000, -3]
    again = lambda: RNG.normal(size=(1000, 2)) * [1000, 0.01] + [5000, -3]
    told = lambda samples, data=data, noise=0.0: [one.told for one in look_at_samples(samples, data, noise)]
    for _ in range(20):
        assert told(again()) == []
    assert "column 1 has a standard deviation of" in told(again() * [1, 0.1] + [0, -2.7])[0]
    assert "column 1 has a standard deviation of" in told(np.add(again(), [0, 3]) * [1, 1000] - [0, 3])[0]
    assert "mean of column 0 is 2.9" in told(np.add(data, [2.9 * data[:, 0].std(), 0]))[0]
    assert told(again() + RNG.normal(size=(1000, 2)) * 0.2, noise=0.2) == []  # as from a model of noisy data
    mixing = np.linalg.cholesky([[1, 0.99], [0.99, 1]]).T
    one, other = (RNG.normal(size=(1000, 2)) @ mixing * [1, sign] for sign in (1, -1))
    assert "one direction is" in told(other, one)[0]
    assert told(RNG.normal(size=(1000, 2)) @ mixing, one) == []
    assert told(other[:29], one) == []  # too few rows to judge
    assert "lack the data's structure" in told(other[:50], one)[0]  # and too few rows to check directions
    assert "one direction" in told(other[:100], one)[0]
    constant = np.concatenate([np.full((1000, 1), 4.0), one], axis=1)
    assert told(constant + 1e-3 * RNG.normal(size=constant.shape), constant) == []
    assert "column 2 has" in told(constant * [1, 1, 0.2], constant)[0]
    assert "mean of column 2 is 1.5" in told(np.add(constant, [0, 0, 1.5 * one[:, 1].std()]), constant)[0]
    assert told(again(), noise=0.2) == []  # as from a model that adds no noise
    assert told(np.add(data, [0, 0.1]), noise=0.2) == []  # an error of the mean that is small compared with the noise


def test_bounds_of_samples_of_a_table():
    """Rows with mean 0 and covariance 1 exactly. The bounds are 1 for a mean and a factor of 10 for a variance."""
    rows = RNG.normal(size=(1100, 4))
    rows -= rows.mean(axis=0)
    rows = np.linalg.solve(np.linalg.cholesky(rows.T @ rows / 1100), rows.T).T
    column, along = np.array([1.0, 0, 0, 0]), np.full((4, 4), 0.25)  # the direction in which all columns are equal
    stretched = lambda by: rows @ (np.eye(4) + (math.sqrt(by) - 1) * along)
    widened = lambda by: rows * (1 + (math.sqrt(by) - 1) * column)
    for within, beyond, says in (
        (rows + 0.99 * column, rows + 1.01 * column, "mean of column 0 is 1 "),
        (widened(9.9), widened(10.1), "column 0 has a standard deviation of 3.18, not 1"),
        (widened(1 / 9.9), widened(1 / 10.1), "column 0 has a standard deviation of 0.315, not 1"),
        (stretched(9.9), stretched(10.1), "one direction is 3.2 times as wide"),
        (stretched(1 / 9.9), stretched(1 / 10.1), "one direction is 0.31 times as wide"),
    ):
        assert look_at_samples(within, rows) == []
        assert says in look_at_samples(beyond, rows)[0].told
    long = np.tile(rows, 6)[:, :20]
    changed = long * np.where(np.arange(20) == 5, 4.0, 1.0)
    assert "column 5" in look_at_samples(changed, long)[0].told
    assert look_at_samples(changed.reshape(-1, 4, 5), long.reshape(-1, 4, 5)) == []
    wider = [np.concatenate([x, rows[:, :1]], axis=1) for x in (changed, long)]  # too many columns to check each one
    assert look_at_samples(wider[0], wider[1]) == []


def correlated(rho, rows=400, size=2):
    """Standard normal columns; every two have the correlation ρ."""
    common = math.sqrt(rho) * RNG.normal(size=(rows, 1))
    return common + math.sqrt(1 - rho) * RNG.normal(size=(rows, size))


def test_lost_dependence_of_gaussians_is_that_of_the_closed_form():
    """The loss is 1 − r / ρ if the correlation is r instead of ρ, and e / (1 + e) with noise of variance e.

    The strength for two columns is (1 + λ) / (1 + λ − ρ²) with λ = 0.1. The mean of 40 estimates is within 6 errors of
    its mean, plus 0.02 for the bias from few rows. In two dimensions, and where nothing is lost, the ratio of their
    spread to the estimated errors is 0.7 to 1.6. Elsewhere the covariance of one half is uncertain too, and the ratio
    is at most 4.
    """
    for rho, size, each, made, truth in (
        (0.9, 2, True, lambda: correlated(0.9), 0.0),
        (0.9, 2, True, lambda: correlated(0.45) * [1, 1000] + [0, 5], 0.5),
        (0.9, 2, True, lambda: RNG.normal(size=(400, 2)), 1.0),
        (0.8, 10, True, lambda: correlated(0.6, size=10), 0.25),
        (0.8, 10, False, lambda: 3 * correlated(0.2, size=10), 0.75),
        (0.8, 30, False, lambda: correlated(0.8, size=30) + RNG.normal(size=(400, 30)) * math.sqrt(0.5), 1 / 3),
        (0.8, 30, False, lambda: correlated(0.8, rows=100, size=30), 0.0),
        (0.5, 300, False, lambda: correlated(0.5, rows=100, size=300), 0.0),  # more columns than rows in a half
    ):
        found = [lost_dependence(made(), correlated(rho, size=size), each=each) for _ in range(40)]
        lost, error = (np.array([one[i] for one in found]) for i in (0, 1))
        assert abs(lost.mean() - truth) < 6 * lost.std() / math.sqrt(40) + 0.02
        assert 0.7 < lost.std() / error.mean() < (1.6 if truth == 0 or size == 2 else 4)
        if size == 2:
            assert np.mean([one.strength for one in found]) == pytest.approx(1.1 / (1.1 - rho**2), rel=0.05)


def test_what_lost_dependence_does_not_depend_on():
    data, samples = correlated(0.9, size=3), correlated(0.3, size=3)
    found = lost_dependence(samples, data, each=True)
    again = lost_dependence(samples * [1, 1e6, 1e-6] - 3, data * [1e3, 1, 1e-3] + 7, each=True)  # units and means
    np.testing.assert_allclose(again, found, rtol=1e-6)
    wider = [np.insert(x, 1, constant, axis=1) for x, constant in ((data, 4.0), (samples, RNG.normal(size=400)))]
    np.testing.assert_allclose(lost_dependence(wider[1], wider[0], each=True), found, rtol=1e-6)
    noisy = lambda rows, noise: rows + noise * RNG.normal(size=rows.shape)
    (own, error, strength), (other, *_) = (
        lost_dependence(noisy(correlated(0.9, size=3), 0.5), data, noise=noise, each=True) for noise in (0.5, 0.0)
    )
    assert abs(own) < 6 * error
    assert other > 0.1
    assert strength < found.strength
    for rows, columns in ((29, 300), (300, 59)):
        assert lost_dependence(samples[:rows], data[:columns], each=True) == (0.0, math.inf, 1.0)
        assert math.isfinite(lost_dependence(samples[: rows + 1], data[: columns + 1], each=True).error)
    assert lost_dependence(samples, np.ones((400, 3)), each=True).strength == 1


def smooth(rows, side=64):
    """Images whose pixels are nearly determined by their neighbors."""
    x = np.linspace(0, 1, side)
    waves = np.stack([np.cos(math.pi * i * x)[:, None] * np.cos(math.pi * j * x) for i in range(3) for j in range(3)])
    return np.einsum("ncw,whv->nchv", RNG.normal(size=(rows, 3, 9)), waves)


@pytest.mark.parametrize(
    ("made", "count", "draws"),
    [
        (lambda n: correlated(0.85, n), 300, 10),
        (lambda n: correlated(0.9, n, 10), 64, 10),
        (lambda n: correlated(0.8, n, 64).reshape(n, 1, 8, 8), 64, 10),
        (lambda n: smooth(n), 64, 2),
    ],
)
def test_samples_that_are_noise_are_told(made, count, draws):
    """Samples with independent columns give a warning, samples of the data's distribution do not.

    A false alarm needs an estimate that is too large by a quarter plus 6 of its errors. Estimates scatter by up to 1.6
    errors, and a quarter is at least two errors, so the rate is less than 1e-6 if they are Gaussian.
    """
    data = made(600)
    for _ in range(draws):
        assert look_at_samples(made(count), data) == []
        (found,) = look_at_samples(RNG.permuted(data[:count], axis=0), data)
        assert (found.of, found.level) == ("samples", "warning")
        assert found.told.startswith("samples lack the data's structure: in how columns depend on each other, ")
        assert found.told.endswith(" % as far from the data as independent ones; train for longer")


def test_data_without_dependence_say_nothing_of_that_of_samples():
    """Even if the samples' columns depend on each other, or if the data's do, but as weakly as a checkerboard's."""
    for size in (2, 10, 64):
        rows = lambda size=size: RNG.normal(size=(500, size))
        for _ in range(10):
            assert look_at_samples(rows(), rows()) == look_at_samples(correlated(0.5, 500, size), rows()) == []
    assert look_at_samples(RNG.normal(size=(500, 2)), correlated(0.75, 1000)) == []


@pytest.mark.parametrize("rows", [100, 600, 1000])
def test_columns_that_are_constant_up_to_rounding_have_no_scale(rows):
    """The mean of a constant is rounded, so its deviation may not be exactly 0; or it is 0 in one half of the rows."""
    for value in (0.1, 1 / 3, -2.7):
        data, samples = (np.insert(correlated(0.9, count), 0, value, axis=1) for count in (rows, 5000))
        jitter = samples * (1 + 1e-4 * RNG.normal(size=(5000, 1)) * [1, 0, 0])
        assert look_at_samples(jitter, data) == look_at_samples(samples, data) == []
        found, without = (lost_dependence(samples[:, i:], data[:, i:], each=True) for i in (0, 1))
        np.testing.assert_allclose(found, without, rtol=1e-6)
        varying = np.insert(data[:, 1:], 0, RNG.normal(size=rows), axis=1)
        assert np.isfinite(lost_dependence(samples[:rows], varying, each=True)).all()


def test_bounds_of_lost_dependence(monkeypatch):
    """The lost share must exceed a quarter by six errors, and the strength must be at least 2.5."""
    data = RNG.normal(size=(100, 30))
    for lost, error, strength, count in ((0.32, 0.01, 2.6, 1), (0.3, 0.01, 2.6, 0), (0.32, 0.01, 2.4, 0)):
        monkeypatch.setattr(health, "lost_dependence", lambda *_, found=(lost, error, strength), **__: found)
        assert len(look_at_samples(data, data)) == count


def test_samples_are_held_against_all_that_is_trained_on():
    """Examples are spread evenly over sorted arrays and mirrored copies. Noise counts only if samples contain it."""
    rows = np.arange(5000.0, dtype=np.float32).reshape(-1, 1)
    splits = Splits(rows, rows[:1], rows[:1])
    held = lambda *parts: examples_of(Examples(splits, parts=parts))[:, 0]
    assert len(held()) == len(np.unique(held())) == 1000
    assert np.max(np.diff(held(), prepend=0, append=5000)) < 20
    both = held(rows, -rows)
    assert [len(both), np.count_nonzero(both > 0), np.count_nonzero(both < 0)] == [1000, 499, 499]
    model = NoiseConditionalEBLVM.vectors(jax.random.key(0), (2,), sigma_data=1.0, width=4, depth=1)
    recipe = replace(sick(1e-2), noise=0.3)
    assert (noise_of_samples(recipe, model), noise_of_samples(recipe, None)) == (0, 0.3)


@pytest.mark.parametrize("noise", [0.5, 1e-9])
def test_the_latents_of_a_noise_conditional_model_are_those_of_noisy_examples(noise, monkeypatch):
    """The model only knows noisy examples of its level. For clean images q is wrong, and was once said to lag."""
    rows = RNG.normal(size=(100, 20)).astype(np.float32)
    examples = Examples(Splits(rows, rows[:1], rows[:1]))
    model = NoiseConditionalEBLVM.vectors(jax.random.key(0), (20,), sigma_data=1.0, h=Real(2), width=4, depth=1)
    posterior = FeaturePosterior.init(jax.random.key(1), model, width=4)
    seen = []

    def joints(key, model, posterior, v, group):
        seen.append((float(model.context["sigma"]), np.asarray(v)))
        return np.zeros((2, group, group)), np.zeros(100), np.zeros(100)

    monkeypatch.setattr(runs_health, "_joints", joints)
    fitted: Any = None  # not used by the checks
    trained = Trained(replace(sick(1e-2), noise=noise), examples, model, posterior, {}, fitted)
    runs_health._of_model(trained)
    ((level, v),) = seen
    assert level == pytest.approx(max(noise, model.sigma_min))
    assert np.std(v - rows) == pytest.approx(level, rel=0.1)  # 2,000 numbers: six errors


class StandardPosterior(Posterior):
    """N(0, 1) of two latents with names."""

    def __call__(self, model, features, v, context=None):
        return Joint({name: Gaussian(jnp.zeros(2), jnp.zeros(2)) for name in "ab"})


def test_the_noise_on_examples_is_not_that_of_their_latents(monkeypatch):
    """Correlations of 200 independent pairs are below 0.4: one false alarm in 1e7 for each of two."""
    model = EnergyModel(
        lambda p, v, h: jnp.sum((v - h["a"] - h["b"]) ** 2), None, Real(2), {"a": Real(2), "b": Real(2)}
    )
    recipe, seen = replace(sick(1e-2), noise=0.5), []

    def joints(key, model, posterior, v, group):
        seen.append((v, infer(model, posterior, v).sample(key, 1)))
        return np.zeros((2, group, group)), np.zeros(100), np.zeros(100)

    monkeypatch.setattr(runs_health, "_joints", joints)
    rows = np.zeros((100, 2), np.float32)
    fitted: Any = None
    examples = Examples(Splits(rows, rows[:1], rows[:1]))
    runs_health._of_model(Trained(recipe, examples, model, StandardPosterior(), {}, fitted))
    ((noise, h),) = seen
    for part in h.values():
        assert abs(np.corrcoef(np.ravel(noise), np.ravel(part))[0, 1]) < 0.4


def test_the_gaussian_that_a_loss_is_held_against_is_that_of_all_examples():
    """Also if examples are sorted by size. The loss is within six errors of 1; the error is that of a small sample."""
    rows = np.sort(RNG.normal(size=(20_000, 1)), axis=0).astype(np.float32)
    rows = rows[np.argsort(np.abs(rows[:, 0]))]
    model = NoiseConditionalEBLVM.vectors(jax.random.key(0), (1,), sigma_data=1.0, h=Empty(), width=4, depth=1)
    recipe = replace(sick(1e-2), learner=Learner(NoiseConditionalDSM(1.0, Enumerated()), optax.adam(1e-3)))
    fitted: Any = None
    trained = Trained(recipe, Examples(Splits(rows, rows[:1], rows[:1])), model, ExactPosterior(), {}, fitted)
    found = runs_health._baseline(trained)
    assert found is not None
    assert abs(found.loss - 1) < 6 * found.error < 0.1
    assert found.of == "a Gaussian as wide as the data"


def test_examples_of_whole_numbers_stay_as_they_are(monkeypatch):
    rows = RNG.integers(0, 2, (100, 3)).astype(np.int8)
    model = EnergyModel(lambda p, v, h: jnp.sum(p * h), jnp.zeros(1), v=Binary(3), h=Real(1))
    seen = []

    def joints(key, model, posterior, v, group):
        seen.append(np.asarray(v))
        return np.zeros((2, group, group)), np.zeros(100), np.zeros(100)

    monkeypatch.setattr(runs_health, "_joints", joints)
    fitted: Any = None
    trained = Trained(sick(1e-2), Examples(Splits(rows, rows[:1], rows[:1])), model, ExactPosterior(), {}, fitted)
    runs_health._of_model(trained)
    np.testing.assert_array_equal(seen[0], rows)
    assert seen[0].dtype == rows.dtype


def test_a_density_that_is_not_normalized_is_told():
    assert look_at_mass(0.02) == look_at_mass(-0.015) == []
    (small,), (large,) = look_at_mass(0.06), look_at_mass(-2.0)
    assert (small.level, large.level) == ("notice", "warning")
    assert "integrates to 1.06, not to 1: log-likelihoods are 0.06 nats too high" in small.told
    assert "too low" in large.told
    levels = [look_at_mass(log_z)[0].level for log_z in (-0.021, 0.1, 0.101, -0.101, math.nan, math.inf, -math.inf)]
    assert levels == ["notice", "notice", *["warning"] * 5]
    assert "integrates to e^3e+18, not to 1: " in look_at_mass(3e18)[0].told  # e^3e18 overflows a float


def sick(rate, steps=60):
    rows = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)

    def build(key, settings, data):
        energy = lambda p, v, h: jnp.sum((v - p) ** 2) / 2
        return EnergyModel(energy, jnp.zeros(2), v=Real(2)), ExactPosterior()

    learner = Learner(DSM(0.5, Enumerated()), optax.adam(rate), ema=0.9)
    return Recipe(data=rows, build=build, learner=learner, settings=Training(steps=steps, batch=50))


@pytest.mark.parametrize(("rate", "status"), [(1e-2, "finished, healthy"), (-0.3, "finished, with warnings")])
def test_a_run_tells_its_health(rate, status, tmp_path):
    run_recipe(sick(rate), tmp_path / "run", chunk=2)
    health = read_object(tmp_path / "run", "result.json")["health"]
    first = health["warnings"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert status in page
    assert health["notices"] == []
    assert health["loss of a score of 0"] == pytest.approx(4, rel=0.5)
    assert "(of a score of 0:" in page
    health["loss of a score of 0"] = 1e4
    Directory(tmp_path / "run").write_json("result.json", {"health": health, "loss": 1.0})
    assert "a score of 0: 10,000" in (far := build_report(tmp_path / "run"))
    assert far.count("a score of 0") < page.count("a score of 0")  # not drawn, as the curve would look flat
    assert health["judged"]
    for warnings, said in (([], "too short to judge"), (["odd"], "with warnings, too short to judge")):
        health |= {"judged": False, "warnings": warnings}
        Directory(tmp_path / "run").write_json("result.json", {"health": health})
        assert f"finished, {said}<" in build_report(tmp_path / "run")
    warned = [event["problem"] for event in RunFolder.events(tmp_path / "run") if event["event"] == "warning"]
    if rate > 0:
        assert first == warned == []
    else:
        assert "the loss is above its start" in first[0]
        assert f"Warning: {first[0]}." in page
        assert "the loss is above its start" in warned[0]
