import hashlib
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io

from truth import bilinear, enumerated
from vages import GRBM, Bernoulli, Gaussian, LinearGaussian, covariance_term, expectation_term
from vages.app.experiments import fig1, reproduce
from vages.data import checksums, load_freyface


def terms(model, v, h, weights):
    """E_q VaGES at one v as a flat matrix, from the estimators' own terms over enumerated states."""

    @jax.jit
    def total(model, v, h, weights):
        pair = (term(model, v[None], h, weights) for term in (expectation_term, covariance_term))
        return jax.tree.map(lambda e, c: (e + c)[0].reshape(len(v), -1), *pair)

    return np.concatenate(jax.tree.leaves(total(model, v, h, weights)), axis=1)


def test_grbm_biases_are_those_of_the_estimators(float64):
    keys = jax.random.split(jax.random.key(0), 3)
    model = bilinear(GRBM, keys[0], 3, 4, "float64")
    v, logits = jax.random.normal(keys[1], (3,)), jax.random.normal(keys[2], (4,))
    q, p = Bernoulli(logits), model.posterior(model.features(v))
    vaes_bias, vages_bias = fig1.biases(model, v, q.mean - p.mean, q.variance - p.variance)
    np.testing.assert_allclose(vaes_bias, np.linalg.norm(model.weight @ (q.mean - p.mean)), rtol=1e-12)
    gap = terms(model, v, *enumerated(logits[None])) - terms(model, v, *enumerated(p.logits[None]))
    np.testing.assert_allclose(vages_bias, np.linalg.norm(gap), rtol=1e-12)


def test_gaussian_biases_are_those_of_the_estimators(float64):
    """Two symmetric points per dimension can have any mean and variance, so they can stand for a Gaussian here."""
    keys = jax.random.split(jax.random.key(0), 4)
    model = bilinear(LinearGaussian, keys[0], 3, 2, "float64")
    v = jax.random.normal(keys[1], (3,))
    q = Gaussian(jax.random.normal(keys[2], (2,)), 0.3 * jax.random.normal(keys[3], (2,)))
    p = model.posterior(model.features(v))

    def support(r):
        signs = jnp.asarray(list(itertools.product([-1.0, 1.0], repeat=2)))
        return (r.mean[None] + jnp.sqrt(r.variance)[None] * signs)[None], jnp.full((1, 4), 0.25)

    gap = terms(model, v, *support(q)) - terms(model, v, *support(p))
    got = fig1.biases(model, v, q.mean - p.mean, q.variance - p.variance)[1]
    np.testing.assert_allclose(got, np.linalg.norm(gap), rtol=1e-12)


def test_divergences_are_expectations(float64):
    """KL by enumeration; Fisher by its definition at samples, with a false-alarm rate of about 1e-6 (5σ)."""
    q, p = Bernoulli(jnp.asarray([0.3, -1.0])), Bernoulli(jnp.asarray([1.1, 0.2]))
    (states,), (weights,) = enumerated(q.logits[None])
    expected = sum(w * (q.log_prob(h) - p.log_prob(h)) for h, w in zip(states, weights, strict=True))
    np.testing.assert_allclose(fig1.divergence(q, p), expected, rtol=1e-12)

    g, unit = Gaussian(jnp.asarray([0.3]), jnp.asarray([-0.4])), Gaussian(jnp.asarray([-0.1]), jnp.zeros(1))
    h = Gaussian(g.loc[None], g.log_std[None]).sample(jax.random.key(0), 100_000)[0]
    gaps = jax.jit(jax.vmap(jax.grad(lambda h: g.log_prob(h) - unit.log_prob(h))))(h)
    draws = 0.5 * np.sum(np.asarray(gaps) ** 2, axis=1)
    assert abs(draws.mean() - float(fig1.divergence(g, unit))) < 5 * draws.std() / np.sqrt(len(draws))


def test_the_constants_bound_every_state(float64):
    """Each factor of the constants, against the largest value over all h, from plain autodiff."""
    model = bilinear(GRBM, jax.random.key(0), 3, 4, "float64")
    v = jax.random.normal(jax.random.key(1), (3,))
    (states,), _ = enumerated(jnp.zeros((1, 4)))
    log_joint = lambda model, v, h: model.log_joint(model.features(v), h)
    norm = lambda tree: jnp.linalg.norm(jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)]))

    @jax.jit
    def norms(states):
        derivatives = (jax.grad(log_joint, 1), jax.grad(log_joint), jax.jacrev(jax.grad(log_joint, 1)))
        return [jnp.max(jax.vmap(lambda h: norm(d(model, v, h)))(states)) for d in derivatives]  # noqa: B023

    score, gradient, mixed = map(float, norms(states))
    first, second = fig1.kl_constants(model, v)
    assert np.sqrt(2) * score <= first <= 3 * np.sqrt(2) * score
    c = max(score, gradient)
    least = np.sqrt(2) * (score * gradient + c * gradient + c * score + mixed)
    assert least <= second <= 3 * least


def test_a_line_that_is_not_one_has_a_low_r_squared():
    x = np.linspace(0, 1, 50)
    slope, r_squared = fig1.line_through_origin(x, 3 * x)
    assert slope == pytest.approx(3)
    assert r_squared == pytest.approx(1)
    assert fig1.line_through_origin(x, x**2)[1] < 0.99
    assert fig1.line_through_origin(x, 1 + x)[1] < 0.99


@pytest.mark.parametrize(("constant", "holds"), [(2.0, True), (0.5, False), (np.inf, False), (np.nan, False)])
def test_a_bound_has_to_be_one(constant, holds):
    points = {"root": np.ones((2, 3)), "VaES": np.full((2, 3), 0.9)}
    assert fig1.bound_claim("a theorem", points, "VaES", constant).holds is holds


def test_fig1_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setenv("VAGES_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(fig1, "QUICK", fig1.Settings(h_dim=100, points=8, draws=8))
    for earlier in (None, tmp_path / "fig1.1"):
        result = reproduce("fig1", tmp_path, quick=True, seed=1)
        assert result.moved == earlier
    record = json.loads((tmp_path / "fig1" / "result.json").read_text())
    assert record["sound"]
    assert len(record["claims"]) == 7
    assert all(set(claim) == {"claim", "value", "bound", "holds"} for claim in record["claims"])
    assert all(claim["holds"] for claim in record["claims"][4:])  # the bounds are theorems
    assert "synthetic" in record["settings"]["v"]
    assert {"settings", "environment", "minutes"} <= set(record)
    assert (tmp_path / "fig1" / "fig1.png").stat().st_size > 10_000


def test_frey_face_is_read_and_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="^Frey face: .*frey_rawface.mat"):
        load_freyface()
    (tmp_path / "freyface").mkdir()
    path = tmp_path / "freyface" / "frey_rawface.mat"
    scipy.io.savemat(path, {"ff": np.zeros((560, 10), np.uint8)})
    with pytest.raises(ValueError, match=f"{path}: .*1100584 bytes"):
        load_freyface()
    pixels = (np.arange(560 * 1965) % 256).astype(np.uint8).reshape(560, 1965)
    scipy.io.savemat(path, {"ff": pixels})
    known = checksums.Known(path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(checksums.FILES, "freyface", {path.name: known})
    faces = load_freyface()
    assert [len(split) for split in faces] == [1400, 300, 265]
    np.testing.assert_allclose(faces.validation[0], pixels[:, 1400] / 255, rtol=1e-6)
    with jax.enable_x64(True):
        v, source = fig1.visible_example(jax.random.key(0))
    assert v.shape == (560,)
    assert source.startswith("Frey face, training image")
