"""Figure 5 and the experiment on Stein tests: small runs, and claims that follow the numbers."""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from vages import GRBM
from vages.app.experiments import fig5, stein_tests
from vages.evaluation import CriticTraining, LatentCritic, MLPCritic


def test_a_small_figure_5(monkeypatch):
    critic = CriticTraining(steps=60, batch=20, learning_rate=1e-2, posterior_steps=1, checks=2)
    critics = dict.fromkeys(fig5.PAPER.critics, critic)
    small = fig5.Settings({3: (0.0, 1.0)}, critics, train=100, validation=50, test=50, together=1)
    monkeypatch.setattr(fig5, "QUICK", small)
    said, used = [], []
    divergence = fig5.fisher_divergence
    monkeypatch.setattr(
        fig5, "fisher_divergence", lambda *args, **how: used.append(type(how["critic"])) or divergence(*args, **how)
    )
    outcome = fig5.run(quick=True, seed=0, say=said.append)
    assert used == [MLPCritic] * 2 + [LatentCritic] * 2
    assert len(outcome.claims) == 6
    assert len(said) == 4
    runs = outcome.measurements["runs"]
    assert [row["critic"] for row in runs] == ["critic of v"] * 2 + ["critic of v and E[h | v]"] * 2
    assert runs[1]["last"] != runs[3]["last"]
    none, some = runs[:2]
    assert none["accurate"] == 0
    assert some["accurate"] > 0.1
    assert [step for step, _ in some["validation"]] == [30, 60]
    assert list(outcome.figures) == ["fig5"]


def test_accurate_divergence_of_a_perturbed_grbm():
    """½ ‖b + W sigmoid(c + Wᵀv)‖² by hand; the noise is the same at every level."""
    model, twice = (fig5.perturbed(jax.random.key(1), 4, level) for level in (0.5, 1.0))
    weight, b, c = (np.asarray(x, np.float64) for x in (model.weight, model.visible_bias, model.latent_bias))
    v = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = 0.5 * ((b + expit(c + v @ weight) @ weight.T) ** 2).sum(1)
    np.testing.assert_allclose(fig5._accurate(model, jnp.asarray(v)), expected, rtol=1e-4)
    np.testing.assert_allclose(twice.weight, 2 * model.weight, rtol=1e-6)
    assert float(model.log_sigma) == 0


@pytest.mark.parametrize(
    ("accurate", "best", "error", "share"),
    [
        (100.0, 95.0, 0.1, 0.5),
        (100.0, 85.0, 0.1, 1.5),
        (100.0, 85.0, 10.0, 0.75),
        (100.0, 75.0, 50.0, 1.25),  # so large an error supports nothing
        (100.0, 100.0, math.inf, math.nan),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 3.0, 2.0, 0.75),
        (0.0, 3.0, 0.0, math.inf),
    ],
)
def test_closeness(accurate, best, error, share):
    row = {
        "dimension": 2,
        "perturbation": 0.1,
        "critic": "a critic",
        "accurate": accurate,
        "best": best,
        "best_error": error,
    }
    claim = fig5.closeness(row)
    assert claim.value == pytest.approx(share, nan_ok=True)
    assert claim.holds == (share <= 1)


def test_exact_samples_have_the_moments_of_the_model():
    """Means and second moments against enumeration, each within 5.5 standard errors."""
    model = GRBM(*(jnp.asarray(x) for x in ([[1.0, -0.5], [0.3, 0.8]], [0.2, -0.1], [0.4, -0.3], [0.1, -0.2])))
    v = np.asarray(jax.jit(lambda key: stein_tests.exact_samples(key, model, 40_000))(jax.random.key(0)), np.float64)
    weight, b, c = (np.asarray(x, np.float64) for x in (model.weight, model.visible_bias, model.latent_bias))
    variance = np.exp(2 * np.asarray(model.log_sigma, np.float64))
    h = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float64)
    pull = h @ weight.T
    mass = np.exp(h @ c + pull @ b + 0.5 * (variance * pull**2).sum(1))
    mass /= mass.sum()
    means = b + variance * pull
    for got, expected in ((v, mass @ means), (v**2, mass @ (means**2 + variance))):
        assert np.all(np.abs(got.mean(0) - expected) < 5.5 * got.std(0) / 200)


def test_shifted_posteriors():
    model = GRBM.init(jax.random.key(0), 3, 2)
    v = jnp.asarray([0.3, -1.0, 0.5])
    exact, other = (
        stein_tests.shifted_posterior(model, shift)(model, None, v) for shift in (None, jnp.asarray([1.0, 0.0]))
    )
    np.testing.assert_allclose(exact.logits, model.features(v).field, rtol=1e-5)
    np.testing.assert_allclose(other.logits - exact.logits, [1.0, 0.0], atol=1e-6)
    assert exact.temperature == 0


def test_a_small_experiment_of_levels(monkeypatch):
    """A hundred data sets reject a wrong model. The exact level of the test is left to the full experiment."""
    small = replace(
        stein_tests.QUICK,
        sets=100,
        examples=60,
        replicates=40,
        v_dim=2,
        h_dim=1,
        perturbations=(0.0, 1.0),
        gaps=(0.0, 3.0),
        critic_steps=20,
        critic_width=3,
    )
    monkeypatch.setattr(stein_tests, "QUICK", small)
    monkeypatch.setattr(stein_tests, "TESTS", ("KSD, IMQ",))
    outcome = stein_tests.run(quick=True, seed=0, say=lambda line: None)
    assert outcome.claims[-1].bound == pytest.approx(3 * (2 * 0.05 * 0.95 / 100) ** 0.5)
    rates = outcome.measurements["rejection rates"]["KSD, IMQ"]
    assert rates["exact"][0] < 0.2  # a binomial exceeds it with probability 1e-8
    assert rates["exact"][1] > 0.5
    assert [len(rates[kind]) for kind in ("exact", "VaES", "gap")] == [2, 2, 2]
    assert rates["gap"][0] == rates["VaES"][0]
    gaps = outcome.measurements["KL of q"]
    assert gaps[0] == pytest.approx(0, abs=1e-6)
    assert gaps[1] > 0.1
    assert len(outcome.claims) == 5
    model = GRBM.init(jax.random.key(1), 2, 1)
    wrong = lambda v: 1 - v
    p_values = stein_tests._p_values(
        jax.random.key(0), model, wrong, "learned Stein", replace(small, sets=20, critic_steps=150)
    )
    nowhere = lambda v: v * jnp.nan
    lost = stein_tests._p_values(jax.random.key(0), model, nowhere, "KSD, IMQ", replace(small, sets=2))
    assert jnp.isnan(lost).all()
    assert p_values.shape == (20,)
    assert float(jnp.mean(p_values)) < 0.05


def test_a_perturbed_model_keeps_sigma():
    model = GRBM.init(jax.random.key(0), 3, 2)
    ones = jax.tree.map(jnp.ones_like, model)
    moved = stein_tests.perturbed(model, ones, 0.5)
    np.testing.assert_allclose(moved.weight, model.weight + 0.5)
    assert eqx.tree_equal(moved.log_sigma, model.log_sigma)


def test_claims_say_no():
    rates = {"exact": [0.08, 0.5, 0.4], "VaES": [0.05, 0.3, 0.9], "gap": [0.05, 0.02]}
    hold = lambda **change: [claim.holds for claim in stein_tests._claims("a test", rates | change, sets=2000)]
    assert hold() == [False, False, True, True, False]
    assert not hold(gap=[0.05, 0.05])[-1]
    assert not hold(gap=[0.05, 0.06])[-1], "less than chance may do in 2,000 data sets"
    assert hold(gap=[0.05, 0.08])[-1]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([0.05, 0.05, 0.05], False),
        ([0.05, 0.9, 0.9], False),
        ([0.05, 0.9, 1.0, 1.0], True),  # a rate of 1 cannot rise
        ([0.05, 1.0, 0.9], False),
        ([1.0, 1.0, 1.0], False),
        ([0.05, float("nan"), 1.0], False),
        ([0.05], False),
    ],
)
def test_power_that_does_not_rise(rates, expected):
    claims = stein_tests._claims("a test", {"exact": rates, "VaES": rates, "gap": [0.05, 0.9]}, sets=2000)
    assert [claims[1].holds, claims[3].holds] == [expected] * 2
