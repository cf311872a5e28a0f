"""AUROC against brute force, SciPy and a closed form; typicality; conversion of other data for a run's model."""

import math
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from scipy.stats import mannwhitneyu, norm

import vages
from errors import refused
from small_nets import IMAGE, filled
from small_recipes import parts_of
from vages import auroc, out_of_distribution, typicality
from vages.app.recipes import Examples, as_recipe
from vages.app.runs import Run, load_others
from vages.app.runs import out_of_distribution as of_runs
from vages.app.runs.out_of_distribution import assess_ood, examples_for, ood_rows, ood_subject
from vages.app.settings import DIGITS
from vages.data import Splits, convert_images, load_converted_images
from vages.domains import Categorical


def brute_force(inside, outside):
    """P(outside > inside) + ½ P(=) over all pairs, and DeLong's error from the same matrix."""
    wins = (outside[:, None] > inside) + 0.5 * (outside[:, None] == inside)
    of_outside, of_inside = wins.mean(axis=1), wins.mean(axis=0)
    variance = of_outside.var(ddof=1) / len(outside) + of_inside.var(ddof=1) / len(inside)
    return wins.mean(), math.sqrt(variance)


@pytest.mark.parametrize("digits", [15, 0])  # without ties and with many ties
def test_auroc_by_brute_force_and_by_scipy(digits):
    generator = np.random.default_rng(0)
    inside, outside = generator.normal(0, 1, 70).round(digits), generator.normal(0.5, 2, 40).round(digits)
    got = auroc(inside, outside)
    assert got == pytest.approx(brute_force(inside, outside), rel=1e-12)
    assert got.mean == pytest.approx(mannwhitneyu(outside, inside).statistic / (70 * 40), rel=1e-12)
    other_way = auroc(outside, inside)
    assert other_way == pytest.approx((1 - got.mean, got.error), rel=1e-12)


def test_auroc_of_gaussians_in_closed_form():
    """Φ(δ / √(s² + t²)) within 5.5 errors. The error is that of 800 repetitions within 12.5 %, five of its errors."""
    generator = np.random.default_rng(1)
    shift, width = 1.0, 2.0
    truth = norm.cdf(shift / math.hypot(1, width))
    got = auroc(generator.normal(0, 1, 20_000), generator.normal(shift, width, 30_000))
    assert abs(got.mean - truth) < 5.5 * got.error < 0.02
    many = [auroc(generator.normal(0, 1, 60), generator.normal(shift, width, 40)) for _ in range(800)]
    spread = np.std([one.mean for one in many])
    assert np.mean([one.error for one in many]) == pytest.approx(spread, rel=0.125)


def test_ends_and_infinities():
    assert auroc([0.0, 1.0], [2.0, 3.0]) == (1.0, 0.0)
    assert auroc([2.0, 3.0], [0.0, 1.0]) == (0.0, 0.0)
    assert auroc([1.0, 1.0], [1.0, 1.0]).mean == 0.5
    assert auroc([0.0, -np.inf], [np.inf, np.inf]).mean == 1.0  # an impossible state is the most atypical
    with refused("inside", got="NaN 1 times"):
        auroc([np.nan, 1.0], [1.0, 2.0])
    with refused("outside", got="(1,)"):
        auroc([0.0, 1.0], [1.0])


def test_typicality_is_measured_from_the_training_mean():
    """Likely data are atypical as well, and the mean of the test set is not used."""
    train, test = np.array([0.0, 2.0]), np.array([3.0, 4.0, 5.0])
    np.testing.assert_array_equal(typicality(test, train), [2.0, 3.0, 4.0])
    found = out_of_distribution(train, test, np.array([-6.0, 9.0, 1.0]))
    assert found.density.mean == pytest.approx(2 / 3)  # -6 and 1 are less likely than all of test, 9 is not
    assert found.typicality.mean == pytest.approx(2 / 3)  # distances from 1: 7, 8 and 0, against 2, 3 and 4
    likely = out_of_distribution(train, train, np.array([50.0, 60.0]))
    assert (likely.density.mean, likely.typicality.mean) == (0.0, 1.0)
    with refused("train", got="-inf"):
        typicality(test, [-np.inf, 1.0])


def test_images_are_converted_by_pillow():
    gray = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8)).astype(np.float32) / 255
    assert convert_images(gray, (1, 8, 8)) is gray
    color = convert_images(gray, (3, 8, 8))
    np.testing.assert_allclose(color, np.repeat(gray, 3, axis=1), atol=1e-6)
    rgb = np.random.default_rng(1).integers(0, 256, (2, 3, 6, 6)).astype(np.float32) / 255
    luma = np.einsum("nchw,c->nhw", rgb, [0.299, 0.587, 0.114])
    np.testing.assert_allclose(convert_images(rgb, (1, 6, 6))[:, 0], luma, atol=1 / 255)
    wide = np.zeros((1, 1, 4, 12), np.float32)
    wide[..., 4:8] = 1  # the middle square
    np.testing.assert_array_equal(convert_images(wide, (1, 2, 2)), np.ones((1, 1, 2, 2)))
    flat = np.full((1, 3, 5, 9), 0.2, np.float32)
    np.testing.assert_allclose(convert_images(flat, (1, 28, 20)), np.full((1, 1, 28, 20), 0.2), atol=1 / 255)


def test_images_are_read_from_sets_folders_and_files(tmp_path):
    digits = load_converted_images("digits", (3, 16, 16), 7)
    assert (digits.shape, digits.dtype) == ((7, 3, 16, 16), np.float32)
    assert 0 <= digits.min() < digits.max() <= 1
    train = load_converted_images("digits:train", (1, 8, 8), 5000)
    assert len(train) == 1437
    folder = tmp_path / "images"
    folder.mkdir()
    for i, (mode, size) in enumerate([("L", (9, 9)), ("RGB", (20, 10)), ("L", (3, 30))]):
        Image.new(mode, size, 255 if mode == "L" else (255, 255, 255)).save(folder / f"{i}.png")
    found = load_converted_images(str(folder), IMAGE, 10)
    np.testing.assert_array_equal(found, np.ones((3, *IMAGE)))
    assert len(load_converted_images(str(folder), IMAGE, 2)) == 2
    np.savez(tmp_path / "a.npz", train=np.zeros((4, 5, 5)), validation=np.zeros((4, 5, 5)), test=np.ones((2, 5, 5)))
    np.testing.assert_array_equal(load_converted_images(str(tmp_path / "a.npz"), IMAGE, 9), np.ones((2, *IMAGE)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: expected images .*, got none"):
        load_converted_images(str(tmp_path / "empty"), IMAGE, 2)
    with pytest.raises(ValueError, match="nosuch: expected a set .*; check the path"):
        load_converted_images("nosuch", IMAGE, 2)
    with pytest.raises(ValueError, match="digits: expected a split.*'all'"):
        load_converted_images("digits:all", IMAGE, 2)


def run_of(model, posterior, train, test, recipe=DIGITS):
    run = Run(Path("a run"), as_recipe(recipe), model, posterior, 7, "raw")
    run.__dict__["data"] = Examples(Splits(train, train[:0], test))
    return run


def gaussian_run():
    """log p̃(v) = −½ ‖v‖² without latents. The training examples are wider than the test examples."""
    model = vages.EnergyModel(lambda params, v, h: 0.5 * (v**2).sum(), None, v=vages.Real(2), h=vages.Empty())
    rows = np.random.default_rng(0).normal(size=(8000, 2)).astype(np.float32)
    return run_of(model, vages.ExactPosterior(), 1.5 * rows[:4000], rows[4000:])


def test_rows_of_a_gaussian_in_closed_form(tmp_path):
    """‖v‖² is exponential: AUROC of log p̃ is w² / (1 + w²), that of typicality is an integral, within 5.5 errors."""
    run, wide = gaussian_run(), 2.0
    np.save(tmp_path / "wide.npy", wide * np.random.default_rng(1).normal(size=(4000, 2)))
    others = load_others(run, (str(tmp_path / "wide.npy"), "noise", "constant"), 4000)
    test, row, density, typical, *_ = ood_rows(jax.random.key(0), ood_subject(run, 0.0), others, 4000)
    assert (test.name, row.name) == ("log p̃, test examples", f"log p̃, {tmp_path / 'wide.npy'}")
    for one, truth in ((test, -1.0), (row, -(wide**2)), (density, wide**2 / (1 + wide**2)), (typical, _typical(wide))):
        assert one.value is not None
        assert one.standard_error is not None
        assert abs(one.value - truth) < 5.5 * one.standard_error < 0.5
    low, high = others["noise"].min(axis=0), others["noise"].max(axis=0)
    train = run.data.splits.train
    assert np.all((low >= train.min(axis=0)) & (high <= train.max(axis=0)) & (high - low > 5))
    place = (others["constant"] - train.min(axis=0)) / np.ptp(train, axis=0)
    np.testing.assert_allclose(place[:, 0], place[:, 1], atol=1e-5)


def _typical(wide):
    """log p̃ is −e with e ~ Exp(1), or w² Exp(1): how often the second is further from −1.5², by quantiles."""
    ours, theirs = (scale * -np.log1p(-(np.arange(1000) + 0.5) / 1000) for scale in (1.0, wide**2))
    return brute_force(np.abs(ours - 1.5**2), np.abs(theirs - 1.5**2))[0]


def test_noise_and_constants_of_images_and_choices():
    images = np.random.default_rng(0).uniform(0.2, 0.8, (30, 3, 4, 4)).astype(np.float32)
    model = vages.EnergyModel(lambda params, v, h: (v**2).sum(), None, v=vages.Real(3, 4, 4), h=vages.Empty())
    made = load_others(run_of(model, vages.ExactPosterior(), images, images), ("noise", "constant"), 200)
    assert 0 <= made["noise"].min() < 0.01 < 0.99 < made["noise"].max() <= 1  # the range of pixels, not of these images
    assert np.ptp(made["constant"], axis=(2, 3)).max() == 0
    assert np.ptp(made["constant"], axis=1).max() > 0.5  # a color
    for domain in (vages.Binary(5), Categorical(4, 3)):
        rows = np.zeros((30, *domain.shape), np.float32)
        model = vages.EnergyModel(lambda params, v, h: (v**2).sum(), None, v=domain, h=vages.Empty())
        made = load_others(run_of(model, vages.ExactPosterior(), rows, rows), ("noise", "constant"), 50)
        for values in made.values():
            assert values.shape == (50, *domain.shape)
            assert set(np.unique(values)) == {0.0, 1.0}
            if isinstance(domain, Categorical):
                assert np.all(values.sum(axis=-1) == 1)
        assert np.ptp(made["constant"], axis=1).max() == 0
        assert np.ptp(made["noise"], axis=1).max() == 1


@pytest.fixture(scope="module")
def deep_run():
    """The paper's model with h integrated out by importance sampling; images in [0, 1]."""
    model, posterior = filled(parts_of(replace(DIGITS, width=8, depth=1, latents=3, head_width=4), IMAGE))
    images = np.random.default_rng(0).uniform(size=(90, *IMAGE)).astype(np.float32)
    return run_of(model, posterior, images[:50], images[50:])


def test_a_deep_run_against_other_images(deep_run, monkeypatch):
    """Blocks do not change the result. The number of samples from q is reported."""
    monkeypatch.setattr(of_runs, "_SAMPLES", 16)
    others = load_others(deep_run, ("digits", "constant"), 30)
    got = assess_ood(deep_run, others, examples=30)
    names = ["log p̃, test examples"] + [
        f"{what}, {other}" for other in others for what in ("log p̃", "AUROC of log p̃", "AUROC of typicality")
    ]
    assert [row.name for row in got.rows] == names
    assert got.noise == DIGITS.sigma_base
    assert "16 samples of q" in got.rows[0].means
    assert got.rows[0].means.startswith("mean in nats of ")
    assert all(0 <= (row.value or 0) <= 1 for row in got.rows if row.name.startswith("AUROC"))
    assert examples_for(deep_run, None) == 1000
    done = []
    assess_ood(deep_run, others, examples=30, progress=lambda now, total: done.append((now, total)))
    assert done == [(120, 120)]


def test_energies_that_are_not_numbers_are_told():
    run = gaussian_run()
    others = {"near": np.ones((20, 2), np.float32), "far": np.full((20, 2), np.nan, np.float32)}
    rows = ood_rows(jax.random.key(0), ood_subject(run, 0.0), others, 20)
    assert (rows[1].value, rows[1].standard_error) == (-1.0, 0.0)  # only over its own examples
    assert [row.value for row in rows[-2:]] == [None, None]
    assert "energy of 20 examples is not a number" in rows[-1].means


def test_what_cannot_be_compared_is_refused(deep_run, tmp_path, monkeypatch):
    run = gaussian_run()
    np.save(tmp_path / "three.npy", np.zeros((20, 3)))
    for name, said in {
        str(tmp_path / "three.npy"): r"shape \(2,\).*got \(3,\)",
        "mnist": "not images in",
        "nosuch.npy": "does not exist; check",
        "a\nb": "does not exist; check",
    }.items():
        with pytest.raises(ValueError, match=f"^ood: .*{said}"):
            load_others(run, (name,), 20)
    np.save(tmp_path / "one.npy", np.zeros((1, 2)))
    for name, examples in ((str(tmp_path / "one.npy"), 20), ("noise", 1)):
        with pytest.raises(ValueError, match=f"^ood: expected 2 examples or more of {name}, got 1; "):
            load_others(run, (name,), examples)
    with refused("ood", got="'noise' twice"):
        load_others(run, ("noise", "noise"), 20)
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    for name in ("cifar10", "celeba"):
        with pytest.raises(FileNotFoundError, match=f"(?i)^{name}: expected .*, got none"):
            load_others(deep_run, (name,), 20)
