"""The closed form for chains with an exact score, against real chains."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from truth import mean_differs
from vages import Empty, EnergyModel, Real
from vages.app.experiments import annealing
from vages.app.recipes.deep import sampler
from vages.app.settings import DIGITS
from vages.samplers import sample_v

SHORT = replace(DIGITS, sampling=0.02, sigma_begin=0.05, sigma_end=1.2)  # 54 steps
VARIANCES = np.array([30.0, 1.0, 0.01])


def test_the_sampler_of_the_library_ends_where_the_recursion_says():
    """One noise level, where the denoiser is the gradient of an energy; one false alarm in 500,000."""
    recipe = replace(SHORT, sigma_begin=0.5, sigma_end=0.5, top_temperature=40.0)
    mean, error = np.array([-2.0, 0.3, 1.0]), 0.2
    pull = 0.25 / (VARIANCES + 0.25)

    def energy(params, v, h):
        return jnp.sum(pull * (v - mean) ** 2 / 2 - error * v) / recipe.sigma_base**2

    model = EnergyModel(energy, {}, v=Real(3), h=Empty())
    chains = 20_000
    drawn = sample_v(jax.random.key(0), model, jnp.zeros((chains, 0)), sampler(recipe).schedule, batch=chains)
    ends = annealing.chain_ends(recipe, VARIANCES, 0.5 - mean, error=error)
    v = np.asarray(drawn.v, np.float64)
    assert not mean_differs(v, mean + ends.offset)
    assert not mean_differs((v - v.mean(0)) ** 2 * chains / (chains - 1), ends.variance)


def test_the_denoiser_is_that_of_the_noise_in_the_chain():
    """The noise level is measured in coordinates where the data are constant; one false alarm in 500,000."""
    schedule, chains, flat = sampler(SHORT).schedule, 2000, 1000
    rng = np.random.default_rng(0)
    offset, variances = np.array([1.0, -2.0, 3.0]), np.append(VARIANCES, np.zeros(flat))
    v = np.append(offset, np.zeros(flat)) + rng.standard_normal((chains, 3 + flat))

    def force(v):
        level = np.clip(np.mean(v[:, 3:] ** 2), SHORT.sigma_begin**2, SHORT.sigma_end**2)
        return -v * level / (variances + level) / SHORT.sigma_base**2

    for temperature in schedule.temperatures():
        noise = np.sqrt(temperature) * rng.standard_normal(v.shape)
        v = v + schedule.step_size**2 / 2 * force(v) + schedule.step_size * noise
    v = (v + SHORT.sigma_base**2 * force(v))[:, :3]
    ends = annealing.chain_ends(SHORT, VARIANCES, offset)
    assert not mean_differs(v, ends.offset)
    assert not mean_differs((v - v.mean(0)) ** 2 * chains / (chains - 1), ends.variance)


def test_a_gaussian_has_the_mean_and_covariance_of_its_rows():
    rows = np.random.default_rng(0).normal(size=(50, 4)) @ np.diag([3.0, 1.0, 2.0, 0.1]) + 5
    data = annealing.fitted(rows)
    covariance = data.directions.T * data.variances @ data.directions
    np.testing.assert_allclose(data.mean, rows.mean(0))
    np.testing.assert_allclose(covariance, np.cov(rows, rowvar=False, ddof=0), rtol=1e-4, atol=1e-4)
    assert (np.diff(data.variances) < 0).all()


def test_colors_are_those_of_samples():
    """Against 200,000 samples; a false alarm in 500,000."""
    rng = np.random.default_rng(0)
    data = annealing.fitted(rng.normal(size=(20, 12)) * np.linspace(1, 3, 12) + np.arange(12))
    variance = data.variances * rng.uniform(0.2, 2, len(data.variances))
    ends = annealing.Ends(rng.normal(size=len(variance)), variance)
    found = annealing.colors(data, ends, 3)
    noise = np.sqrt(variance) * rng.standard_normal((200_000, len(variance)))
    images = (data.mean + (ends.offset + noise) @ data.directions).reshape(-1, 3, 4)
    names = ("red", "green", "blue")
    assert not mean_differs(images.mean(2), np.array([found[f"mean {color}, samples"] for color in names]))
    np.testing.assert_allclose([found[f"mean {color}, data"] for color in names], data.mean.reshape(3, 4).mean(1))
    brightness = images.mean((1, 2))
    exact = found["spread of brightness over the data's"] ** 2 * np.sum(data.directions.mean(1) ** 2 * data.variances)
    assert not mean_differs((brightness - brightness.mean()) ** 2, exact)
    assert list(annealing.colors(data, ends, 1)) == ["spread of brightness over the data's"]


def test_high_noise_forgets_the_start_where_the_paper_s_does_not(tmp_path):
    wide = annealing.Gaussian(np.full(4, 0.3), np.full((1, 4), 0.5), np.array([200.0]))
    ways = {"paper": DIGITS, "high": annealing.from_high_noise(DIGITS, wide)}
    offset = wide.directions @ (0.5 - wide.mean)
    found = {
        name: annealing.compare(way, wide, annealing.chain_ends(way, wide.variances, offset))
        for name, way in ways.items()
    }
    assert [[claim.holds for claim in annealing.verdicts(name, one)] for name, one in found.items()] == [
        [False, False, False, True],
        [True, True, True, True],
    ]
    assert found["paper"]["mean pixel over the data's"] == pytest.approx(
        1 + 2 / 3 * found["paper"]["share of the start's distance that is left there"]
    )


def test_chains_that_overshoot_or_spread_too_far_support_no_claim():
    good = {
        "share of the start's distance that is left there": 0.0,
        "mean pixel over the data's": 1.0,
        "spread of pixels over the data's": 1.0,
    }
    hold = lambda **change: [claim.holds for claim in annealing.verdicts("toy", good | change)]
    assert hold() == [True] * 4
    assert hold(**{"share of the start's distance that is left there": -3.0}) == [False, True, True, True]
    assert hold(**{"spread of pixels over the data's": 1.3}) == [True, True, True, False]
