"""The experiments' claims follow the numbers. Training is replaced by a stub, so both verdicts can be tested."""

import json
import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vages import GRBM
from vages.app.experiments import Claim, Outcome, comparison, fig4, reproduce
from vages.app.recipes import Examples, Trained, as_recipe
from vages.app.settings import CHECKERBOARD
from vages.data import Splits
from vages.training import Fitted
from vages.training.learner import LearnerState


@cache
def fresh_models(seeds):
    return jax.vmap(lambda key: GRBM.init(key, 2, 3))(jax.random.split(jax.random.key(0), seeds))


def stub(likelihood):
    """A `train` whose runs end at likelihood(settings), for every seed."""

    def train(recipe):
        seeds = len(recipe.seeds)
        models = fresh_models(seeds)
        end = np.full(seeds, likelihood(recipe.settings))
        history = [{"step": n, "test_log_likelihood": (end - 1 / n).tolist()} for n in (1, 2, 3)]
        fitted = Fitted(
            LearnerState(models, *[None] * 6, step=jnp.zeros((), jnp.int32), rate=jnp.ones(())), 3, 1.0, False, history
        )
        rows = np.zeros((5, 2), np.float32)
        data = Examples(Splits(rows, rows, rows))
        return Trained(recipe, data, models, None, {"test_log_likelihood": end}, fitted)

    return train


def verdicts(tmp_path, name):
    result = reproduce(name, tmp_path, quick=True)
    record = json.loads((tmp_path / name / "result.json").read_text())
    assert [claim["holds"] for claim in record["claims"]] == [claim.holds for claim in result.outcome.claims]
    assert result.sound
    assert len(list((tmp_path / name).glob("*.png"))) == len(result.outcome.figures)
    return [claim.holds for claim in result.outcome.claims]


@pytest.mark.parametrize(
    ("likelihoods", "expected"),
    [
        ({"ksd": 0.2, "vages-ksd": 0.19, "is-ksd": 0.1}, [True] * 4),
        ({"ksd": 0.2, "vages-ksd": 0.1, "is-ksd": 0.15}, [False] * 4),
    ],
)
def test_fig2(tmp_path, monkeypatch, likelihoods, expected):
    monkeypatch.setattr(comparison, "train", stub(lambda recipe: likelihoods[recipe.method]))
    assert verdicts(tmp_path, "fig2") == expected


@pytest.mark.parametrize("name", ["fig2", "checkerboard-methods", "control-variate"])
def test_runs_that_learned_nothing_support_no_claim(tmp_path, monkeypatch, name):
    """Equal runs, which may be one, and slightly different ones near the untrained models."""
    start = float(comparison.untrained_likelihood(stub(lambda settings: 0.0)(as_recipe(CHECKERBOARD))))
    small = lambda recipe: start + 0.001 * (recipe.method == "vages-dsm") + 0.001 * recipe.control_variate
    for likelihood in (lambda recipe: start + 2, small):
        monkeypatch.setattr(comparison, "train", stub(likelihood))
        assert not any(claim.holds for claim in reproduce(name, tmp_path, quick=True).outcome.claims)


@pytest.mark.parametrize(("ours", "expected"), [(0.3, [True] * 7), (0.2, [False] * 7)])
def test_checkerboard_methods(tmp_path, monkeypatch, ours, expected):
    others = {"cd": 0.31, "dsm": 0.301, "bidsm": 0.29}
    monkeypatch.setattr(
        comparison,
        "train",
        stub(lambda recipe: ours if recipe.method == "vages-dsm" else others.get(recipe.method, 0.25)),
    )
    assert verdicts(tmp_path, "checkerboard-methods") == expected


@pytest.mark.parametrize(("gain", "expected"), [(0.005, [True] * 3), (0.1, [False, True, False]), (-0.1, [False] * 3)])
def test_control_variate(tmp_path, monkeypatch, gain, expected):
    monkeypatch.setattr(comparison, "train", stub(lambda recipe: gain * recipe.control_variate))
    assert verdicts(tmp_path, "control-variate") == expected


@pytest.fixture
def made_up_fig4(monkeypatch):
    """A function that makes fig4 one of runs with a given quality and cost of each recipe."""

    def made(quality, cost):
        monkeypatch.setattr(fig4, "train", stub(quality))
        monkeypatch.setattr(fig4, "job_of", lambda recipe: recipe)
        monkeypatch.setattr(
            fig4, "seconds_per_iteration", lambda jobs, **_: {k: np.full(2, cost(r)) for k, r in jobs.items()}
        )
        monkeypatch.setattr(fig4, "step_bytes", lambda recipe: int(1e6 * cost(recipe)))
        monkeypatch.setattr(
            fig4, "QUICK", fig4.Settings(replace(CHECKERBOARD, steps=1), samples=(2, 4), posterior_steps=(1, 5))
        )

    return made


def test_fig4(tmp_path, made_up_fig4):
    """BiDSM N = 2 is better than VaGES-DSM, BiDSM N = 0 is worse. The stub's models have one score matching loss."""
    quality = {0: 1.0, 2: 3.0, 5: 2.01}
    made_up_fig4(
        lambda recipe: 2.0 if recipe.method == "vages-dsm" else quality[recipe.unrolled],
        lambda recipe: 1.0 if recipe.method == "vages-dsm" else 1.5 + recipe.unrolled,
    )
    assert verdicts(tmp_path, "fig4") == [True, True, True, True, False, False, False, True, True]


def test_equal_runs_support_nothing_in_fig4(tmp_path, made_up_fig4):
    made_up_fig4(lambda recipe: 2.0, lambda recipe: 1.0)
    assert not any(claim.holds for claim in reproduce("fig4", tmp_path, quick=True).outcome.claims)


def test_only_a_finite_value_can_hold():
    for value in (math.nan, math.inf, -math.inf):
        for kind in (Claim.at_least, Claim.above, Claim.at_most, Claim.below):
            assert not kind("x", value, 0.0).holds


def test_a_bound_that_is_reached_is_neither_above_nor_below():
    kinds = (Claim.at_least, Claim.above, Claim.at_most, Claim.below)
    assert [kind("x", 1.0, 1.0).holds for kind in kinds] == [True, False, True, False]
    assert [kind("x", 0.5, 1.0).holds for kind in kinds] == [False, False, True, True]


def test_an_experiment_without_claims_is_not_sound(tmp_path, monkeypatch):
    monkeypatch.setattr("vages.app.experiments.fig1.run", lambda **_: Outcome({}, [], {}))
    assert not reproduce("fig1", tmp_path, quick=True).sound
