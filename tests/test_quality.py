"""FID and KID against closed forms, the streams they are computed from, and reports that say what they measure."""

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import scipy.linalg
from PIL import Image

import plain_inception
import vages.app.cli.evaluation as cli
import vages.app.runs
import vages.evaluation
from errors import refused
from test_inception import thin_arrays
from vages.app.cli.exit_status import line_of
from vages.app.recipes import FIDSelection, as_recipe, train
from vages.app.recipes import samples as drawing
from vages.app.recipes.chains import chains_of
from vages.app.recipes.reference import statistics_of
from vages.app.recipes.samples import PROTOCOLS
from vages.app.recipes.sources import ImageSet, open_images, pieces
from vages.app.runs import config_of, image_quality, kept_blocks, load_run
from vages.app.runs.image_quality import evaluate_images, evaluate_run, image_statistics, sample_moments, samples_of
from vages.app.settings import DEEP_PRESETS
from vages.data import load_digits
from vages.evaluation import (
    Gray,
    Moments,
    Statistics,
    as_pixels,
    extrapolate,
    extrapolated_fid,
    feature_moments,
    fid,
    images_digest,
    kid,
    load_statistics,
    metric_name,
)
from vages.evaluation.inception import folded_inception
from vages.files import BadFile
from vages.posteriors import posterior_means
from vages.samplers import LangevinSamples
from vages.storage.directory import Directory
from vages.training import RunFolder

RNG = np.random.default_rng(0)
SIDE = 8


@pytest.fixture(scope="module")
def network():
    return folded_inception(thin_arrays())


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("VAGES_DATA", str(tmp_path / "data"))


def gaussian(mean, covariance, n=1000, features=None):
    features = np.zeros((0, len(mean)), np.float32) if features is None else features
    return Statistics(n, np.asarray(mean, float), np.asarray(covariance, float), features, "images", "weights")


def images(count, seed=0):
    """Colored noise around a color. Different seeds give clearly different sets."""
    rng = np.random.default_rng(seed)
    color = rng.uniform(60, 190, (1, 3, 1, 1))
    return np.clip(rng.normal(color, 40, (count, 3, SIDE, SIDE)), 0, 255).astype(np.uint8)


# The distances


def test_fid_of_independent_gaussians():
    a, b = RNG.uniform(0.1, 2, (2, 6))
    m = RNG.normal(size=6)
    expected = np.sum(m**2) + np.sum((np.sqrt(a) - np.sqrt(b)) ** 2)
    assert fid(gaussian(m, np.diag(a)), gaussian(0 * m, np.diag(b))) == pytest.approx(expected, rel=1e-12)


def test_fid_of_any_gaussians():
    x, y = RNG.normal(size=(2, 40, 7)) @ RNG.normal(size=(2, 7, 7))
    a, b = (gaussian(z.mean(0), np.cov(z.T)) for z in (x, y))
    root = scipy.linalg.sqrtm(a.covariance @ b.covariance)
    expected = np.sum((a.mean - b.mean) ** 2) + np.trace(a.covariance + b.covariance - 2 * np.real(root))
    assert fid(a, b) == pytest.approx(expected, rel=1e-10)
    assert fid(b, a) == pytest.approx(expected, rel=1e-10)
    assert abs(fid(a, a)) < 1e-12


def test_fid_of_fewer_images_than_features():
    x = RNG.normal(size=(5, 20))
    a = gaussian(x.mean(0), np.cov(x.T))
    shifted = replace(a, mean=a.mean + 1)
    assert fid(a, shifted) == pytest.approx(20, rel=1e-6)


def test_fid_of_two_networks_is_refused():
    a = gaussian([0.0], [[1.0]])
    with pytest.raises(ValueError, match="^fid: .*same network"):
        fid(a, replace(a, weights="others"))


def test_kid_is_the_unbiased_mmd():
    x, y = RNG.normal(size=(2, 6, 4)).astype(np.float32)
    kernel = lambda a, b: (float(a.astype(float) @ b) / 4 + 1) ** 3
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    expected = np.mean([kernel(x[i], x[j]) + kernel(y[i], y[j]) for i, j in pairs])
    expected -= 2 * np.mean([kernel(a, b) for a in x for b in y])
    got = kid(x, y, subsets=3, size=1000)
    assert got.mean == pytest.approx(expected, rel=1e-10)
    assert got.deviation < 1e-12
    assert got.size == 6


def test_kid_of_the_same_distribution_is_zero_on_average():
    # 400 independent unbiased values: their mean is within 5 standard errors, except for one false alarm in a million
    x, y = RNG.normal(size=(2, 4000, 3)).astype(np.float32)
    values = [kid(x[i : i + 10], y[i : i + 10], subsets=1).mean for i in range(0, 4000, 10)]
    assert abs(np.mean(values)) < 5 * np.std(values) / 20
    assert min(values) < 0
    with pytest.raises(ValueError, match="^kid: .*two features"):
        kid(x[:1], y)


def test_extrapolation_of_a_line():
    n = [1000, 2000, 4000, 5000]
    line = extrapolate(n, [7 + 3000 / m for m in n])
    assert line.value == pytest.approx(7, rel=1e-10)
    assert line.residual < 1e-10


def test_extrapolation_takes_the_bias_away():
    d, n = 10, 4000
    x = RNG.normal(size=(n, d))
    groups = [x[g::5] for g in range(5)]
    moments = Moments(
        n,
        np.stack([g.sum(0) for g in groups]),
        np.stack([g.T @ g for g in groups]),
        np.zeros((0, d), np.float32),
        "images",
        "weights",
    )
    exact = gaussian(np.zeros(d), np.eye(d))
    far = extrapolated_fid(moments, exact)
    assert far is not None
    assert far.n == [1600, 2400, 3200, 4000]
    assert far.fid[-1] == pytest.approx(fid(gaussian(x.mean(0), np.cov(x.T)), exact), rel=1e-9)
    # the bias for d-dimensional Gaussians is (d + d(d + 1) / 8) / n, 0.006 here; after correction it is much smaller
    assert far.fid[-1] > 0.003
    assert abs(far.value) < 0.002
    assert extrapolated_fid(moments._replace(n=4 * d - 1), exact) is None
    assert extrapolated_fid(moments._replace(n=4 * d), exact) is not None


def test_names_say_how_many():
    told = {50_000: "FID", 60_000: "FID", 49_999: "FID-49999", 10_000: "FID-10k", 1000: "FID-1k", 123: "FID-123"}
    assert {n: metric_name("FID", n) for n in told} == told


# Features in one pass


def test_moments_are_those_of_the_features(network):
    pixels = images(23)
    features = plain_inception.features(thin_arrays(), pixels)
    told = []

    def stream():
        for begin, end in ((0, 3), (3, 4), (4, 20), (20, 23)):
            assert jnp.zeros(1).dtype == np.float32  # images are drawn in their own precision
            yield pixels[begin:end]

    moments = feature_moments(
        network,
        stream(),
        30,
        batch=20,
        kept=12,
        progress=lambda *at: told.append(at),
    )
    found = moments.statistics()
    np.testing.assert_allclose(found.mean, features.mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.covariance, np.cov(features.T), rtol=1e-3, atol=1e-5 * features.var())
    assert found.n == 23
    assert found.mean.dtype == found.covariance.dtype == np.float64
    assert found.images == images_digest([pixels]) == images_digest([pixels[:7], pixels[7:]])
    assert images_digest([pixels.reshape(23, 3, 4, 16)]) != found.images
    rows = [int(np.argmin(np.abs(features - row).sum(1))) for row in found.features]
    assert rows == sorted(set(rows))  # a subset of the images, without repetition
    assert 5 <= len(rows) <= 12
    some = moments.statistics(2)
    chosen = np.concatenate([features[0::5], features[1::5]])
    assert some.n == len(chosen) == 10
    np.testing.assert_allclose(some.mean, chosen.mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(some.covariance, np.cov(chosen.T), rtol=1e-3, atol=1e-5 * features.var())
    assert told == [(20, 30), (23, 30)]
    assert jnp.zeros(1).dtype == np.float32  # double precision does not leak


def test_bad_streams(network):
    pixels = images(12)
    with pytest.raises(ValueError, match=r"^images: .*got \[3, 8, 8\] and \[3, 6, 8\]"):
        feature_moments(network, [pixels[:4], pixels[:4, :, :6]], 20)
    with pytest.raises(ValueError, match="^images: .*20, got more"):
        feature_moments(network, [pixels, pixels], 20)
    with refused("images", got=1):
        feature_moments(network, [pixels[:1]], 20).statistics()
    with refused("batch", got=12):
        feature_moments(network, [pixels], 12, batch=12)
    for most in (0, -1):
        with refused("most", got=most):
            feature_moments(network, [pixels], most)
    for bad, got in (
        (pixels / np.float32(255), "float32 of .12, 3, 8, 8."),
        (pixels[:, :1], "uint8 of .12, 1, 8, 8."),
        (pixels[:, 0], "uint8 of .12, 8, 8."),
        (pixels[..., :0], "uint8 of .12, 3, 8, 0."),
    ):
        with pytest.raises(ValueError, match=f"^images: .*, got {got}"):
            feature_moments(network, iter([bad]), 20)


# Images as input


def test_pixels():
    floats = RNG.uniform(0, 1, (2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(as_pixels(floats, "x"), np.rint(floats * 255).astype(np.uint8))
    whole = images(2)
    assert as_pixels(whole, "x") is whole
    np.testing.assert_array_equal(as_pixels(np.moveaxis(whole, 1, 3), "x"), whole)
    every = np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16) / 255
    gray = as_pixels(every, "x", "replicate")
    assert gray.shape == (1, 3, 16, 16)
    assert np.array_equal(gray[0, 1].reshape(-1), np.arange(256))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 1, 4, 4)), "got gray.*--gray replicate"),
        (np.full((2, 3, 4, 4), 1.5), "got 1.5 to 1.5"),
        (np.full((2, 3, 4, 4), -0.1), "got -0.1 to -0.1"),
        (np.stack([np.zeros((3, 4, 4)), np.full((3, 4, 4), np.nan)]), "finite .*image 1"),
        (np.zeros((2, 3, 4, 4), np.int64), "got int64"),
        (np.zeros((2, 5, 4, 4)), r"got \[2, 5, 4, 4\]"),
        (np.zeros((2, 3, 0, 4)), r"got \[2, 3, 0, 4\]"),
    ],
)
def test_bad_images(array, message):
    with pytest.raises(ValueError, match=f"^x: .*{message}"):
        as_pixels(array, "x")


def test_sources(tmp_path):
    pixels = images(7)
    folder = tmp_path / "folder"
    folder.mkdir()
    for i, image in enumerate(pixels):
        Image.fromarray(np.moveaxis(image, 0, -1)).save(folder / f"{i}.png")
    np.save(tmp_path / "array.npy", pixels)
    diverged = np.arange(8) == 3
    v = np.insert(pixels / np.float32(255), 3, np.nan, axis=0)
    v[0, 0, 0, 0] = -0.2  # clipped
    np.savez(tmp_path / "samples.npz", v=v, h=np.zeros(8), diverged=diverged)
    digest = images_digest([pixels])
    for name in ("folder", "array.npy"):
        assert images_digest(pieces(open_images(str(tmp_path / name)))) == digest
    samples = open_images(str(tmp_path / "samples.npz"))
    clipped = pixels.copy()
    clipped[0, 0, 0, 0] = 0
    assert images_digest(pieces(samples)) == images_digest([clipped])
    assert "without 1 diverged" in samples.name
    digits = open_images("digits:test", "replicate")
    assert digits.count == len(load_digits().splits.test)
    np.testing.assert_array_equal(
        next(pieces(digits))[:, :1], np.rint(load_digits().splits.test * 255).astype(np.uint8)
    )
    Image.fromarray(np.moveaxis(pixels[0], 0, -1)[:5]).save(folder / "9.png")
    with pytest.raises(BadFile, match="9.png: .*8 × 8 and 8 × 5"):
        list(pieces(open_images(str(folder))))
    Image.fromarray(pixels[0, 0]).save(folder / "9.png")
    with pytest.raises(ValueError, match="9.png: .*gray"):
        list(pieces(open_images(str(folder))))
    for text, message in {
        "digits:half": "got 'half'",
        "nothing": "got 'nothing'",
    }.items():
        with pytest.raises(ValueError, match=message):
            open_images(text)


def test_samples_are_clipped_only_where_they_overshoot(tmp_path):
    pixels, path = images(7), tmp_path / "samples.npz"
    floats = pixels / np.float32(255)

    def opened(v):
        np.savez(path, v=v, diverged=np.zeros(len(v), bool))
        return images_digest(pieces(open_images(str(path))))

    # uint8 images are not treated as floats, which would be clipped to [0, 1]
    assert opened(pixels) == opened(floats) == images_digest([pixels])
    overshoot = np.where(RNG.random(floats.shape) < 0.5, -0.05, 1.05)  # all pixels are slightly outside [0, 1]
    assert opened(overshoot) == images_digest([np.where(overshoot > 0, 255, 0).astype(np.uint8).reshape(pixels.shape)])
    infinite = floats.copy()
    infinite[0, 0, 0, 0] = np.inf
    for bad, got in (
        (np.float32(255) * floats, r"\d+ to 2\d\d"),
        (np.broadcast_to(np.linspace(-1, 1, SIDE), floats.shape), "-1 to 1"),
        (np.where(np.arange(SIDE) == 3, 255, 0) * np.ones_like(floats, np.float16), "0 to 255"),  # most are within
        (infinite, "0 to inf"),
    ):
        with pytest.raises(BadFile, match=f"samples.npz: .*got {got}"):
            opened(bad)
    floats[2, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="samples.npz: .*image 2"):
        opened(floats)
    with pytest.raises(ValueError, match="samples.npz: .*got int64"):
        opened(pixels.astype(np.int64))


# Statistics on disk


def test_statistics_come_back(tmp_path):
    features = RNG.normal(size=(3, 4)).astype(np.float32)
    path, saved = tmp_path / "a.safetensors", gaussian(np.arange(4.0), np.eye(4), 9, features)
    saved.save(path)
    found = load_statistics(path, "weights")
    assert (found.n, found.images, found.name) == (9, "images", "images")
    for name in ("mean", "covariance", "features"):
        np.testing.assert_array_equal(getattr(found, name), getattr(saved, name))
    with pytest.raises(BadFile, match="'others', got 'weights'"):
        load_statistics(path, "others")
    bad = {
        "finite statistics": replace(saved, mean=np.array([0, 1, np.nan, 0])),
        "of two images": replace(saved, n=1),
    }
    for message, statistics in bad.items():
        statistics.save(path)
        with pytest.raises(BadFile, match=message):
            load_statistics(path, "weights")
    for content in (b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}", path.read_bytes()[:-9]):
        path.write_bytes(content)
        with pytest.raises(BadFile, match=str(path)):
            load_statistics(path, "weights")


def test_statistics_are_computed_once(network, tmp_path, monkeypatch):
    pixels = images(20)
    source = ImageSet("ours", 20, lambda rows: pixels[rows])
    first = statistics_of(source, network)
    (cached,) = (tmp_path / "data" / "inception" / "statistics").iterdir()
    calls = []
    monkeypatch.setattr(
        "vages.app.recipes.reference.feature_moments", lambda *a, **k: calls.append(a) or feature_moments(*a, **k)
    )
    again = statistics_of(ImageSet("theirs", 20, lambda rows: pixels[rows]), network)
    assert not calls
    assert again.name == "theirs"
    np.testing.assert_array_equal(again.covariance, first.covariance)
    other = pixels.copy()
    other[0, 0, 0, 0] += 1
    statistics_of(ImageSet("ours", 20, lambda rows: other[rows]), network)
    assert len(calls) == 1
    cached.write_bytes(cached.read_bytes()[:100])  # a damaged file is recomputed
    np.testing.assert_array_equal(statistics_of(source, network).covariance, first.covariance)
    assert len(calls) == 2


# Reports


def test_quality_of_images(network):
    near, far, reference = (
        ImageSet(name, 20, lambda rows, seed=seed: images(20, seed)[rows])
        for name, seed in (("near", 1), ("far", 2), ("reference", 1))
    )
    same, statistics = evaluate_images(near, reference, network=network)
    assert same.fid == pytest.approx(0, abs=1e-6)
    assert same.real is None  # the reference is compared with itself
    other, _ = evaluate_images(far, reference, network=network)
    against = statistics_of(reference, network)
    assert other.fid == pytest.approx(fid(statistics_of(far, network), against), rel=1e-12)
    assert other.metric == "FID-20"
    assert other.kid.mean > 0
    some, drawn = evaluate_images(far, reference, count=18, network=network)
    for count, expected in ((None, statistics_of(far, network)), (18, drawn)):
        alone = image_statistics(far, count=count, network=network)
        assert (alone.n, alone.images, alone.name) == (expected.n, expected.images, "far")
        np.testing.assert_array_equal(alone.covariance, expected.covariance)
    assert some.metric == "FID-18"
    assert some.real is not None
    assert (some.real.images, some.real.n) == ("reference, a part of the reference", 18)
    assert 0 < some.real.fid < some.fid / 2
    assert other.reference == {"name": "reference", "n": 20, "sha256": images_digest([images(20, 1)])}
    assert other.extrapolated is None
    assert other.sampling is None
    saved, _ = evaluate_images(statistics, against, network=network)
    assert saved.fid == pytest.approx(0, abs=1e-6)
    assert saved.real is None
    text = json.dumps(other.as_json(), allow_nan=False)
    assert json.loads(text)["kid"]["subsets"] == 100
    assert other.rows()[0] == ("FID-20", f"{other.fid:.3f}")
    for n, message in ((1, "count: .*got 1"), (21, "count: .*20.*got 21")):
        with pytest.raises(ValueError, match=message):
            evaluate_images(far, reference, count=n, network=network)
    with refused("seed", got=-1):
        evaluate_images(far, reference, seed=-1, network=network)
    for n, seed, name in ((1, 0, "count"), (21, 0, "count"), (20, -1, "seed")):
        with pytest.raises(ValueError, match=f"^{name}: "):
            image_statistics(far, count=n, seed=seed, network=network)
    for n in (19, 21, 1):
        with refused("count", got=n):
            evaluate_images(statistics_of(far, network), reference, count=n, network=network)


def test_sets_of_too_few_images_are_named(network, tmp_path):
    fine = ImageSet("fine", 20, lambda rows: images(20)[rows])
    np.save(tmp_path / "empty.npy", images(0))
    np.save(tmp_path / "one.npy", images(1))
    np.savez(tmp_path / "samples.npz", v=np.full((8, 3, SIDE, SIDE), np.nan), diverged=np.ones(8, bool))
    for name, told in (
        ("empty.npy", "empty.npy: .*got 0"),
        ("one.npy", "one.npy: .*got 1"),
        ("samples.npz", "samples.npz .*8 diverged .*got 0"),
    ):
        opened = open_images(str(tmp_path / name))
        for asked in ((opened, fine), (fine, opened)):
            with pytest.raises(ValueError, match=told):
                evaluate_images(*asked, network=network)


RECIPE = replace(
    DEEP_PRESETS["digits-paper"],
    width=8,
    depth=1,
    latents=3,
    head_width=4,
    steps=6,
    batch=10,
    corrector_steps=0,
    posterior_steps=1,
    sigma_base=0.2,
    sampling=0.01,
    fid_every=2,
)


@pytest.fixture(scope="module")
def trained(network, tmp_path_factory):
    """A run that keeps the model with the lowest FID-20, and how this is reported."""
    path = tmp_path_factory.mktemp("runs")

    class OfTwenty(FIDSelection):
        def __init__(self, chains, **how):
            super().__init__(chains, count=20, network=network, **how)

        def __call__(self, key, settings, model, posterior, data):
            few = data.splits._replace(train=data.splits.train[:20])
            return super().__call__(key, settings, model, posterior, replace(data, splits=few))

    folder = RunFolder(path / "deep", config_of(as_recipe(RECIPE)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAGES_DATA", str(path))
        patch.setattr("vages.app.recipes.deep.FIDSelection", OfTwenty)
        trained = train(as_recipe(RECIPE), folder=folder)
    folder.close()
    return folder.path, trained


@pytest.fixture(scope="module")
def run(trained):
    return load_run(trained[0])


@pytest.fixture(scope="module")
def reference(network):
    """A small reference: statistics of all digits would take the network too long."""
    return feature_moments(
        network, [as_pixels(load_digits().splits.train[:20], "digits", "replicate")], 20
    ).statistics()


def test_quality_of_a_run(run, reference, network, tmp_path):
    told = []
    how = {"count": 20, "gray": "replicate", "network": network, "progress": lambda *at: told.append(at)}
    paper, statistics = evaluate_run(run, reference, **how)
    joint, _ = evaluate_run(run, reference, protocol="unconditional", **how)
    again, _ = evaluate_run(run, reference, **how)
    assert paper.fid == again.fid == fid(statistics, reference)
    assert paper.fid != joint.fid
    assert paper.sampling is not None
    assert joint.sampling is not None
    assert paper.sampling.protocol == PROTOCOLS["paper"]
    assert joint.sampling.protocol == PROTOCOLS["unconditional"]
    assert (paper.sampling.checkpoint, paper.sampling.weights) == (6, "selected")
    assert paper.sampling.evaluations == 28
    assert (paper.sampling.diverged, paper.sampling.of) == (0, 20)
    assert ("samples", 20, 20) in told
    rows = dict(paper.rows())
    assert rows["protocol"] == PROTOCOLS["paper"]
    assert rows["KID-20"].endswith("(mean of 100 subsets, all 20 images in each)")  # no ±: all are the same
    assert "±" in dict(replace(paper, n=5000).rows())["KID-5k"]
    assert rows["diverged chains"] == "0 of 20, left out"
    assert "gray replicated" in rows["input"]
    json.dumps(paper.as_json(), allow_nan=False)
    assert rows["data"] == "evaluated on the run's own data, digits"
    np.save(tmp_path / "other.npy", load_digits().splits.test)
    other, _ = evaluate_run(run.on(str(tmp_path / "other.npy")), reference, **how)
    assert other.as_json()["sampling"]["data"]["own"] is False
    assert dict(other.rows())["data"] == f"evaluated on {tmp_path / 'other.npy'}, not on the run's own data"
    assert other.fid != paper.fid  # h come from other images
    with refused("samples", got="gray"):
        evaluate_run(run, network=network)


def test_protocols(run, network, monkeypatch):
    """One chain in twenty diverges, another ends above 1. The brightness shows which protocol drew the samples."""
    seen = []

    def ends(h, level):
        v = jnp.full((20, 1, SIDE, SIDE), level).at[3].set(jnp.nan).at[4].set(1.3)
        return LangevinSamples(v, h, None, jnp.arange(20) == 3)

    def given_h(key, model, h, schedule, batch):
        seen.append(np.asarray(h))
        return ends(h, 0.2)

    monkeypatch.setattr(drawing, "sample_v", given_h)
    monkeypatch.setattr(drawing, "sample_joint", lambda *_, batch: ends(jnp.zeros((20, 3)), 0.6))
    train = run.data.splits.train
    samples = drawing.chain_samples(
        chains_of(as_recipe(RECIPE), run.model), run.model, run.posterior, train, seed=5, gray="replicate"
    )
    pixels = np.concatenate(list(samples.draw(20)))
    assert pixels[:, 1, 0, 0].tolist() == [51] * 3 + [255] + [51] * 15
    assert samples.diverged == 1
    rows = np.random.default_rng([5, 0]).integers(len(train), size=20)
    np.testing.assert_allclose(seen[0], posterior_means(run.model, run.posterior, train[rows]), rtol=1e-6)
    how = {"network": network, "count": 20, "gray": "replicate"}
    paper, told = sample_moments(run, **how, protocol="paper")
    assert (paper.n, told.diverged, told.of) == (19, 1, 20)
    assert paper.images == images_digest([pixels])
    joint, _ = sample_moments(run, **how, protocol="unconditional")
    assert joint.images == images_digest([np.where(pixels == 51, np.uint8(153), pixels)])


def test_a_run_is_asked_rightly_before_anything_is_computed(run, network, monkeypatch):
    monkeypatch.setattr(
        "vages.app.runs.image_quality.statistics_of", lambda *a, **k: pytest.fail("the reference is computed")
    )
    monkeypatch.setattr("vages.app.runs.image_quality.load_inception", lambda: pytest.fail("the network is read"))
    for wrong, message in (
        ({"count": -5}, "count: .*got -5"),
        ({"count": 1}, "count: .*got 1"),
        ({"sampling": -1.0}, "sampling: .*got -1.0"),
        ({"sampling": float("nan")}, "sampling: .*got nan"),
        ({"seed": -1}, "seed: .*got -1"),
        ({"seed": 2**32}, "seed: .*got 4294967296"),
        ({"gray": "refuse"}, "samples: .*gray"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_run(run, **{"gray": "replicate", **wrong})
    with refused("protocol", got="'papers'"):
        inspect.unwrap(samples_of)(run, 20, "papers", None, 0, "replicate")


def test_diverged_chains_are_left_out(run, reference, network):
    broken = replace(run, model=jax.tree.map(lambda x: x * 1e6 if x.ndim else x, run.model))
    with pytest.raises(ValueError, match="^count: .*got 0: 20 chains"):
        evaluate_run(broken, reference, count=20, gray="replicate", network=network)


class Stopped(Exception):
    """Raised instead of a signal."""


@pytest.fixture
def blocks(run, reference, network, monkeypatch):
    """`judge(stop_at)` evaluates 20 samples in blocks of 8, and stops before a block; `drawn` lists the blocks."""
    for other in kept_folders(run):
        shutil.rmtree(other)
    monkeypatch.setattr(drawing, "_BLOCK", 8)
    drawn, draw = [], drawing.Samples._drawn

    def judge(stop_at=None, run=run, count=20, **how):
        def counted(self, begin, size):
            if begin == stop_at:
                raise Stopped
            drawn.append(begin)
            return draw(self, begin, size)

        drawn.clear()
        monkeypatch.setattr(drawing.Samples, "_drawn", counted)
        return evaluate_run(run, reference, count=count, gray="replicate", network=network, **how)[0]

    return judge, drawn


def kept_folders(run):
    return sorted(run.path.glob("drawn-*"))


def test_an_evaluation_that_was_stopped_goes_on(run, blocks):
    judge, drawn = blocks
    whole = judge()
    assert drawn == [0, 8, 16]
    assert not kept_folders(run)
    with pytest.raises(Stopped):
        judge(stop_at=16)
    (folder,) = kept_folders(run)
    with pytest.raises(Stopped):  # another seed, sampler or model has other samples
        judge(stop_at=8, seed=1)
    with pytest.raises(Stopped):
        judge(stop_at=8, sampling=0.02)
    with pytest.raises(Stopped):
        judge(stop_at=8, protocol="unconditional")
    with pytest.raises(Stopped):
        judge(stop_at=8, run=replace(run, model=jax.tree.map(lambda x: x * 0.9 if x.ndim else x, run.model)))
    assert drawn == [0]
    assert len(kept_folders(run)) == 5
    again = judge()
    assert drawn == [16]
    assert (again.fid, again.kid, again.source) == (whole.fid, whole.kid, whole.source)
    assert again.sampling == whole.sampling
    assert not folder.exists()


def test_the_minutes_before_a_stop_count(run, blocks, monkeypatch):
    """By a clock on which a block takes a minute, and everything else no time."""
    judge, _ = blocks
    clock, sample_v = SimpleNamespace(perf_counter=lambda: 60.0 * clock.blocks, blocks=0), drawing.sample_v

    def in_a_minute(*arguments, **how):
        clock.blocks += 1
        return sample_v(*arguments, **how)

    monkeypatch.setattr(drawing, "sample_v", in_a_minute)
    for module in (image_quality, kept_blocks):
        monkeypatch.setattr(module, "time", clock)
    assert judge().minutes == 3
    with pytest.raises(Stopped):
        judge(stop_at=16)
    assert judge().minutes == 3


def test_more_samples_begin_with_those_that_are_there(run, blocks):
    """Blocks have equal length, so 12 samples are the first of 20."""
    judge, drawn = blocks
    with pytest.raises(Stopped):
        judge(stop_at=8, count=12)
    more = judge(count=20)
    assert drawn == [8, 16]
    assert more.source["sha256"] == judge(count=20).source["sha256"]


def test_another_evaluation_leaves_the_kept_samples_alone(run, blocks):
    """An evaluation of fewer samples, in smaller or equal blocks, between the stop and the resume of a longer one."""
    judge, drawn = blocks
    with pytest.raises(Stopped):
        judge(stop_at=16)
    judge(count=5)
    assert drawn == [0]
    judge(count=8)
    assert drawn == []
    judge()
    assert drawn == [0, 16]
    assert not kept_folders(run)


def test_a_folder_that_was_removed_is_made_again(run, blocks, monkeypatch):
    judge, _ = blocks
    write = Directory.write_bytes

    def written(self, name, content):
        write(self, name, content)
        if name == "00000000.safetensors":
            shutil.rmtree(self.path)

    monkeypatch.setattr(Directory, "write_bytes", written)
    with pytest.raises(Stopped):
        judge(stop_at=16)
    (folder,) = kept_folders(run)
    assert [file.name for file in folder.iterdir()] == ["00000008.safetensors"]


def test_lost_chains_are_counted_again(run, blocks, monkeypatch):
    judge, drawn = blocks
    v = jnp.full((8, 1, SIDE, SIDE), 0.5).at[1].set(jnp.nan)
    ends = LangevinSamples(v, jnp.zeros((8, 3)), None, jnp.arange(8) == 1)
    monkeypatch.setattr(drawing, "sample_v", lambda *_, batch: ends)
    with pytest.raises(Stopped):
        judge(stop_at=16)
    quality = judge()
    assert drawn == [16]
    assert (quality.n, quality.sampling.diverged, quality.sampling.of) == (17, 3, 20)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, "another", "changed", "time"], ids=["empty", "zeros", "another", "changed", "time"]
)
def test_a_damaged_block_is_drawn_anew(run, blocks, content):
    judge, drawn = blocks
    with pytest.raises(Stopped):
        judge(stop_at=8)
    (folder,) = kept_folders(run)
    (file,) = folder.iterdir()
    if content == "another":  # of another image size
        arrays = {"pixels": np.zeros((8, 3, 4, 4), np.uint8), "lost": np.zeros(8, bool)}
        content = safetensors.numpy.save(arrays)
    if content == "changed":
        arrays = safetensors.numpy.load_file(file)
        content = safetensors.numpy.save(arrays | {"pixels": arrays["pixels"] // 2})
    if content == "time":
        arrays = safetensors.numpy.load_file(file) | {"seconds": np.array(np.nan)}
        del arrays["sha256"]
        content = safetensors.numpy.save(arrays | {"sha256": kept_blocks._sha256(arrays)})
    file.write_bytes(content)
    damaged = judge()
    assert drawn == [0, 8, 16]
    assert damaged.fid == judge().fid


def test_where_nothing_can_be_kept_samples_are_judged_all_the_same(run, blocks):
    judge, drawn = blocks
    with pytest.raises(Stopped):
        judge(stop_at=8)
    (folder,) = kept_folders(run)
    shutil.rmtree(folder)
    folder.symlink_to(run.path)  # the target of the link is not changed
    before = sorted(run.path.iterdir())
    assert judge().n == 20
    assert drawn == [0, 8, 16]
    folder.unlink(missing_ok=True)
    assert sorted({*run.path.iterdir(), folder}) == before


def test_selection_by_fid(trained, run):
    _, result = trained
    fitted = result.fitted
    steps, values = fitted.curve("fid_20")
    assert steps.tolist() == [2, 4, 6]
    assert fitted.best is not None
    chosen = result.recipe.evaluate(jax.random.key(0), RECIPE, *fitted.best, result.data)
    assert chosen["fid_20"] == pytest.approx(values.min(), rel=1e-6)
    for kept in (run, result):
        assert jax.tree.all(jax.tree.map(np.array_equal, (kept.model, kept.posterior), tuple(fitted.best)))
    with refused("fid_every", got=4):
        replace(RECIPE, fid_every=4)


def test_command(run, reference, network, tmp_path, monkeypatch, capsys):
    assert get_args(cli.Gray) == get_args(Gray)
    assert get_args(cli.Protocol) == get_args(drawing.Protocol)
    monkeypatch.setattr(vages.evaluation, "load_inception", lambda: network)
    saved, own = tmp_path / "digits.safetensors", tmp_path / "own.safetensors"
    replace(reference, name="twenty digits").save(saved)
    common = {"count": 20, "gray": "replicate"}
    assert cli.evaluate(str(run.path), measure="images", against=str(saved), **common, save=own, json=True) == 0
    told = json.loads(capsys.readouterr().out)["images"]
    assert told["metric"] == "FID-20"
    assert told["reference"]["name"] == "twenty digits"
    fid_of_run = told["fid"]
    kept = max(run.path.glob("quality-*"), key=lambda path: path.stat().st_mtime_ns)
    assert json.loads((kept / "result.json").read_text())["fid"] == fid_of_run
    with pytest.raises(ValueError, match="^save: .*own.safetensors"):
        cli.evaluate(str(run.path), measure="images", against=str(saved), **common, save=own)
    assert cli.evaluate(str(own), against=str(saved)) == 0
    out = capsys.readouterr().out
    assert f"{told['fid']:.3f}" in out
    assert "twenty digits" in out
    np.save(tmp_path / "a.npy", images(20))
    for count, n in ((None, 20), (12, 12)):
        alone = tmp_path / f"a-{n}.safetensors"
        assert cli.evaluate(str(tmp_path / "a.npy"), count=count, save=alone, json=True) == 0
        kept = load_statistics(alone, network.sha256)
        told = {"name": kept.name, "n": n, "sha256": kept.images, "weights": network.sha256}
        assert json.loads(capsys.readouterr().out) == {"images": told}
    assert cli.evaluate(str(tmp_path / "a.npy"), against=str(tmp_path / "a-20.safetensors"), json=True) == 0
    assert json.loads(capsys.readouterr().out)["images"]["fid"] == pytest.approx(0, abs=1e-6)
    assert cli.evaluate(str(tmp_path / "a.npy"), against=str(own)) == 0
    capsys.readouterr()
    drawn = {"count": 20, "gray": "replicate", "seed": 2**32 - 1, "json": True}  # the next seed is 0
    assert cli.evaluate(str(tmp_path / "a.npy"), against=str(run.path), **drawn) == 0
    told = json.loads(capsys.readouterr().out)["images"]
    assert told["reference"]["name"] == f"samples of {run.path}, {PROTOCOLS['paper']}, seed 0"
    monkeypatch.setattr(cli, "_assessed", lambda *_, json: cli.Section({"assessed": True}, [("model", "assessed")]))
    monkeypatch.setattr(vages.evaluation, "inception_file", lambda: saved)
    assert cli.evaluate(str(run.path), against=str(saved), **common, json=True) == 0
    both = json.loads(capsys.readouterr().out)
    assert both["model"] == {"assessed": True}
    assert both["images"]["fid"] == fid_of_run
    for arguments, message in {
        (str(own), None): "against: ",
        (str(tmp_path / "a.npy"), "nothing"): "images: ",
        ("nothing", str(own)): "source: ",
    }.items():
        with pytest.raises(ValueError, match=message):
            cli.evaluate(arguments[0], against=arguments[1])


@pytest.fixture
def at_hand(run, reference, network, tmp_path, monkeypatch):
    """The network exists, and a run, images and statistics to name; any computation or writing is an error."""
    there = tmp_path / "weights"
    there.touch()
    monkeypatch.setattr(vages.evaluation, "load_inception", lambda: network)
    monkeypatch.setattr(vages.evaluation, "inception_file", lambda: there)
    for name in ("assess", "evaluate_run", "evaluate_images", "image_statistics"):
        monkeypatch.setattr(vages.app.runs, name, lambda *a, name=name, **k: pytest.fail(f"{name} is called"))
    monkeypatch.setattr("vages.app.runs.image_quality.sample_moments", lambda *a, **k: pytest.fail("samples are drawn"))
    np.save(tmp_path / "a.npy", images(20))
    np.save(tmp_path / "nan.npy", np.where(np.arange(400)[:, None, None, None] == 399, np.nan, images(400) / 255))
    reference.save(tmp_path / "st.safetensors")
    return {"RUN": str(run.path), **{path.name: str(path) for path in tmp_path.iterdir()}, "TMP": f"{tmp_path}/"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": "nosuch"}, "images: .*got 'nosuch'"),
        ({"against": "TMPno.npy"}, "no.npy"),
        ({"against": "TMPno.safetensors"}, "no.safetensors"),
        ({"against": "weights"}, "images: "),
        ({"against": "nan.npy"}, "nan.npy: .*finite"),
        ({"against": "a.npy", "count": -5}, "count: .*got -5"),
        ({"count": 1}, "count: .*got 1"),
        ({"seed": -1}, "seed: .*got -1"),
        ({"sampling": -4.0}, "sampling: .*got -4.0"),
        ({"save": "a.npy"}, "save: .*got 'a.npy'"),
        ({"save": "st.safetensors"}, "save: .*st.safetensors"),
        ({"save": "TMPa.npy/x/y.safetensors"}, "save: .*got .*a.npy"),
        ({"source": "a.npy", "against": "RUN", "count": 21}, "count: .*got 21"),
        ({"source": "a.npy", "save": "TMPb.safetensors", "count": 21}, "count: .*got 21"),
        ({"source": "a.npy", "save": "TMPb.safetensors", "seed": -1}, "seed: .*got -1"),
        ({"source": "st.safetensors", "save": "TMPb.safetensors"}, "source: .*saved statistics"),
        ({"source": "nan.npy", "against": "RUN"}, "nan.npy: .*finite"),
        ({"source": "nosuch", "against": "RUN"}, "source: "),
        ({"source": "a.npy", "against": "a.npy", "seed": -1}, "seed: .*got -1"),
        ({"source": "st.safetensors", "against": "a.npy", "count": 2}, "count: .*20.*got 2"),
    ],
)
def test_the_command_finds_what_is_wrong_first(at_hand, options, message):
    given = {"source": "RUN", "gray": "replicate", **options}
    given |= {name: at_hand.get(x, x.replace("TMP", at_hand["TMP"])) for name, x in given.items() if type(x) is str}
    if "save" in given:
        given["save"] = Path(given["save"])
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        cli.evaluate(given.pop("source"), **given)
    assert not (Path(at_hand["RUN"]) / "evaluation-1").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"save": Path("zz.safetensors")},
            "save: .*got zz.safetensors.*gray",
        ),
        ({"count": 20}, "count: .*got 20.*gray.*--gray replicate"),
        (
            {"measure": "model", "against": "nosuch", "count": -9, "sampling": -4.0},
            "against: .*got nosuch.*--measure model",
        ),
        ({"measure": "model", "count": 9}, "count: .*got 9.*--measure model"),
        ({"measure": "model", "sampling": 0.1}, "sampling: .*got 0.1.*--measure model"),
        ({"measure": "model", "protocol": "unconditional"}, "protocol: .*got unconditional"),
        ({"measure": "model", "gray": "replicate"}, "gray: .*got replicate"),
        ({"measure": "images", "gray": "replicate", "examples": 20}, "examples: .*got 20.*--measure images"),
        ({"source": "a.npy", "against": "a.npy", "noise": 0.1}, "noise: .*got 0.1.*a.npy"),
        ({"source": "a.npy", "against": "a.npy", "measure": "model"}, "measure: .*got model.*a.npy"),
        ({"source": "a.npy", "against": "a.npy", "sampling": 0.1}, "sampling: .*got 0.1.*drawn"),
        ({"source": "a.npy", "against": "a.npy", "raw": True}, "raw: .*got True.*drawn"),
        ({"source": "a.npy", "save": Path("b.safetensors"), "raw": True}, "raw: .*got True.*drawn"),
    ],
)
def test_options_without_effect_are_refused(at_hand, options, message):
    given = {"source": "RUN", **options}
    with pytest.raises(ValueError, match=f"^{message}"):
        cli.evaluate(at_hand.get(given["source"], given["source"]), **{k: v for k, v in given.items() if k != "source"})


def test_a_stop_after_the_model_s_part_says_how_to_go_on_without_it(at_hand, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_assessed", lambda *_, json: cli.Section({}, [("model", "assessed")]))
    monkeypatch.setattr(vages.app.runs, "evaluate_run", stopped)
    saved = f"; the evaluation of the model is saved in {at_hand['RUN']}; continue with its images: add "
    measures: dict[cli.Measure, str] = {"both": f"{saved}--measure images", "images": ""}
    for measure, said in measures.items():
        with pytest.raises(KeyboardInterrupt) as stop:
            cli.evaluate(at_hand["RUN"], measure=measure, gray="replicate")
        assert line_of(stop.value) == f"stopped by Ctrl-C{said}"


def test_images_are_judged_where_they_can_be(at_hand, monkeypatch, capsys):
    """For gray images only the model is evaluated, and the reason is printed."""
    monkeypatch.setattr(cli, "_assessed", lambda *_, json: cli.Section({"assessed": True}, [("model", "assessed")]))
    assert cli.evaluate(at_hand["RUN"], json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == {"assessed": True}
    assert told["images"]["not measured"].startswith("the images are gray")
