"""Figures of chains show the right data."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from vages import MCMC, EnergyModel, Real, sample, sample_posterior
from vages.app.report.chains import autocorrelation, chains_figure
from vages.samplers import Samples

RNG = np.random.default_rng(0)


def test_the_autocorrelation_of_a_known_chain():
    """x' = 0.8 x + noise has correlations 0.8^lag. 4 standard errors at 100,000 draws: one false alarm in 15,000."""
    noise = np.random.default_rng(1).normal(size=100_000)
    chain = np.zeros_like(noise)
    for i in range(1, len(chain)):
        chain[i] = 0.8 * chain[i - 1] + noise[i]
    found = autocorrelation(chain, 0.0, 1 / (1 - 0.64), lags=20)
    np.testing.assert_allclose(found, 0.8 ** np.arange(20), atol=0.045)
    direct = [np.mean(chain[: len(chain) - lag] * chain[lag:]) * 0.36 for lag in range(5)]
    np.testing.assert_allclose(found[:5], direct, rtol=1e-6)


def test_the_coordinates_that_agree_least_come_first():
    apart = RNG.normal(size=(4, 100, 3))
    apart[:, :, 1] += np.arange(4)[:, None] * 10
    figure = chains_figure({"v": apart, "h": RNG.normal(size=(4, 100))}, coordinates=2)
    rows = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    assert len(rows) == 2
    assert rows[0] == "v[1]"
    lines = figure.axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), apart[0, :, 1])
    black = np.asarray(figure.axes[1].lines[-2].get_ydata())
    assert np.min(black[:20]) > 0.9  # chains that never meet stay correlated
    assert len(figure.axes) == 6


def test_chains_that_stand_still_make_no_picture():
    with refused("trace"):
        chains_figure({"v": np.ones((4, 10, 2))})


def test_zeros_and_ones_are_drawn_as_shares_and_rare_ones_stay_in_the_axes():
    rare = np.zeros((4, 100))
    rare[0, 20:40] = 1
    figure = chains_figure({"h": rare})
    trace, correlation = figure.axes[:2]
    assert trace.get_ylabel() == "h, share of ones"
    share = np.cumsum(rare[0]) / np.arange(1, 101)
    np.testing.assert_allclose(np.asarray(trace.lines[0].get_ydata(), float), share)
    assert autocorrelation(rare[0], rare.mean(), rare.var())[0] > 3
    assert max(np.max(np.asarray(line.get_ydata())) for line in correlation.lines) < 1 + 1e-9
    legends = [axes.get_legend() for axes in figure.axes[1:3]]
    assert [one.get_texts()[0].get_text() for one in legends if one] == ["mean of the chains", "all chains"]


def test_independent_draws_make_no_picture():
    with refused("trace", "None"):
        chains_figure(None)


def test_what_arviz_needs_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with refused("arviz", kind=ImportError) as caught:
        Samples(None, None, 1.0, {}, {}, 0, 0, trace={"v": jnp.zeros((2, 3))}).to_arviz()
    assert "pip install 'vages[arviz]'" in str(caught.value)


def test_arviz():
    pytest.importorskip("arviz")
    draws = {"v": RNG.normal(size=(4, 100, 3)), "h": RNG.normal(size=(4, 100, 2))}
    samples = Samples(None, None, 1.0, {}, {}, 0, 0, trace={name: jnp.asarray(x) for name, x in draws.items()})
    data = samples.to_arviz()
    np.testing.assert_array_equal(data.posterior["v"].values, draws["v"].astype(np.float32))


def test_chains_of_several_posteriors(monkeypatch):
    """Chains of h ~ N(v, 1) and of v ~ N(h, 1), with v or h at ±10: means are within 1, far more than 10 errors."""
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=lambda posterior: posterior))
    model = EnergyModel(lambda p, v, h: 0.5 * jnp.sum((v - h) ** 2), jnp.zeros(1), v=Real(2), h=Real(2))
    rows, how = jnp.asarray([[10.0, -10.0], [10.0, 10.0], [-10.0, 10.0]]), MCMC("hmc", warmup=50)
    of_h = sample_posterior(jax.random.key(0), model, rows, 10, chains=4, sampler=how)
    of_v = sample(jax.random.key(1), model, 3, h=rows, chains=4, sampler=how)
    for name, samples in {"h": of_h, "v": of_v}.items():
        chains = samples.to_arviz()[name]
        assert chains.shape == (4, 250, *samples.rhat[name].shape) == (4, 250, 3, 2)
        np.testing.assert_allclose(chains.mean(1), np.broadcast_to(rows, (4, 3, 2)), atol=1)
    figure = chains_figure(of_h.trace, coordinates=6)
    labels = {axes.get_ylabel(): axes for axes in figure.axes if axes.get_ylabel()}
    assert set(labels) == {f"h[{i}, {j}]" for i in range(3) for j in range(2)}
    for i, j in ((0, 1), (2, 0)):
        means = [float(np.mean(np.asarray(line.get_ydata()))) for line in labels[f"h[{i}, {j}]"].lines]
        assert means == pytest.approx([-10] * 4, abs=1)


def test_arviz_needs_chains():
    with refused("trace"):
        Samples(np.zeros(3), None, 1.0, {}, {}, 0, 0).to_arviz()
