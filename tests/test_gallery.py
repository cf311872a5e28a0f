"""Results made from a deep run: samples, interpolations, completed images, embeddings; and `vages data`."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from PIL import Image
from scipy.optimize import root_scalar
from scipy.special import expit, softmax

import vages.data
from audited import opened_by_path
from compiling import environment
from errors import refused
from small_recipes import parts_of
from vages.app import cli
from vages.app.recipes import Examples, as_recipe, train
from vages.app.report import tile
from vages.app.runs import (
    Run,
    completions,
    config_of,
    embed,
    gallery,
    hidden_pixels,
    inpaint,
    interpolate,
    load_run,
    run_recipe,
    sample_images,
)
from vages.app.settings import DEEP_PRESETS, GRBMSettings
from vages.data import Dataset, Splits, load_digits
from vages.evaluation import linear_probe, logistic_regression, majority_rate
from vages.files import parse_json, read_npz
from vages.posteriors import posterior_means
from vages.samplers import Schedule
from vages.storage.directory import Directory
from vages.training import RunFolder
from vages.training.checkpoint import newest_checkpoint, write_checkpoint

SMALL = replace(
    DEEP_PRESETS["digits-paper"],
    width=8,
    depth=1,
    latents=3,
    head_width=4,
    steps=4,
    batch=10,
    corrector_steps=0,
    posterior_steps=1,
    sigma_base=0.2,
    sampling=0.01,
)
PLAIN = replace(SMALL, method="mdsm", ema=None)
STEPS = 27
COUNT = 6  # for all chains, so few programs are compiled


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "deep"
    return path, run_recipe(as_recipe(SMALL), path)


@pytest.fixture(scope="module")
def run(trained):
    return load_run(trained[0])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "plain"
    folder = RunFolder(path, config_of(as_recipe(PLAIN)))
    train(as_recipe(PLAIN), folder=folder)
    folder.close()
    return load_run(path)


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the run's folder that tests may damage."""
    return shutil.copytree(trained[0], tmp_path / "copy")


def arrays_of(kept):
    (path,) = kept.folder.glob("*.npz")
    return read_npz(path, 2**20)


def result_of(kept):
    return json.loads((kept.folder / "result.json").read_text())


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def with_images(run, images):
    """The run with these images as its data."""
    other = replace(run)
    other.__dict__["data"] = images
    return other


def encoded(run, images):
    """The posterior's means, computed without the library's batching."""
    return np.asarray(eqx.filter_jit(jax.vmap(lambda v: run.posterior.network(v)[0]))(images))


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["vages", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def test_a_run_comes_back(trained, run, plain):
    path, there = trained
    assert (run.path, run.settings, run.step, run.weights) == (path, SMALL, 4, "averages")
    raw = load_run(path, raw=True)
    assert raw.weights == "raw"
    state = there.fitted.state
    for loaded, kept in ((run, (there.model, there.posterior)), (raw, (state.model, state.posterior))):
        assert eqx.tree_equal((loaded.model, loaded.posterior), kept)
    assert not eqx.tree_equal(raw.model, run.model)
    assert plain.weights == "raw"  # without averages
    assert not plain.has_latents
    np.testing.assert_array_equal(run.data.splits.train, load_digits().splits.train)


def test_a_finished_run_without_its_log_is_drawn_without_a_curve(copied):
    for name in ("metrics.jsonl", "curve.png", "samples.png", "result.json"):
        (copied / name).unlink()
    again = run_recipe(as_recipe(SMALL), copied, resume=True)
    assert (again.fitted.step, again.fitted.history) == (4, [])
    assert {"samples.png", "result.json"} <= {path.name for path in copied.iterdir()}
    assert not (copied / "curve.png").exists()


def test_damaged_checkpoints_are_named(copied, capsys):
    good = copied / "checkpoints" / "step-000000000004"
    bad = shutil.copytree(good, good.with_name("step-000000000005"))
    (bad / "state.safetensors").write_bytes(b"x" + (bad / "state.safetensors").read_bytes()[1:])
    assert load_run(copied).step == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vages: checkpoint refused: ")
    assert str(bad) in line
    shutil.rmtree(good)
    with pytest.raises(ValueError, match="^run: .*got none; .*damaged; start a new run"):
        load_run(copied)
    shutil.rmtree(bad)
    with pytest.raises(ValueError, match="^run: .*got none; resume it with: vages train"):
        load_run(copied)


def with_settings(run, recipe):
    """The run as if it had been trained by another recipe: config and checkpoint are changed."""
    config = config_of(as_recipe(recipe))
    (run / "config.json").write_text(json.dumps(config))
    found = newest_checkpoint(run / "checkpoints", pytest.fail)
    assert found is not None
    write_checkpoint(run / "checkpoints", found.step, found.arrays, found.about | {"config": config})


def test_what_is_no_deep_run_is_refused(trained, copied, tmp_path):
    with pytest.raises(ValueError, match=r"^run: .*\bfolder"):
        load_run(tmp_path)
    model, posterior = parts_of(GRBMSettings(), 2)(jax.random.key(0))
    grbm = Run(tmp_path, as_recipe(GRBMSettings()), model, posterior, 1, "raw")
    for drawn in (sample_images, interpolate, inpaint):
        with pytest.raises(ValueError, match="^run: .*deep.*GRBM; .*vages sample"):
            drawn(grbm)
    assert not any(tmp_path.glob("*-1"))
    (copied / "config.json").write_text(json.dumps(config_of(as_recipe(replace(SMALL, width=9)))))
    with pytest.raises(ValueError, match="config.json: .*got width 9"):
        load_run(copied)
    with_settings(copied, replace(SMALL, width=9))
    with pytest.raises(ValueError, match="^state: .*checkpoint"):
        load_run(copied)


def test_other_images_are_refused(copied, tmp_path):
    for name, message in (
        ("nowhere", "nowhere: .*copy .*got nothing"),
        ("other.npy", "other.npy: .*copy"),
    ):
        with_settings(copied, replace(SMALL, data=str(tmp_path / name)))
        run = load_run(copied)
        rows = len(load_digits().splits.train) * 10 // 8
        np.save(tmp_path / "other.npy", np.zeros((rows, 8, 8), np.uint8))
        with pytest.raises(ValueError, match=message) as error:
            sample_images(run)
        assert "\n" not in str(error.value)
        assert not list(copied.glob("samples-*"))
    assert sample_images(run, latents="joint", count=COUNT).folder.is_dir()  # it needs no images


def test_samples_given_posterior_means(run, tmp_path):
    told = []
    kept = sample_images(run, tmp_path / "a", count=COUNT, progress=lambda *now: told.append(now))
    arrays, result = arrays_of(kept), result_of(kept)
    rows = arrays["training_rows"]
    assert len(set(rows.tolist())) > 1
    np.testing.assert_allclose(arrays["h"], encoded(run, run.data.splits.train[rows]), rtol=1e-5, atol=1e-6)
    assert arrays["v"].shape == (COUNT, 1, 8, 8)
    assert not arrays["diverged"].any()
    np.testing.assert_array_equal(
        pixels(kept.folder / "samples.png")[4::8, 4::8],
        np.rint(255 * np.clip(tile(arrays["v"], columns=3), 0, 1)).astype(np.uint8),
    )
    assert result == kept.result
    assert result["protocol"] == "v given h, the posterior means of random training images"
    assert result["run"] == str(run.path)
    assert (result["checkpoint"], result["weights"], result["seed"]) == (4, "averages", 0)
    assert (result["schedule"]["steps"], result["schedule"]["denoise"]) == (STEPS, 0.2)
    assert result["diverged chains"] == {"count": 0, "of": COUNT}
    assert result["seconds"] > 0
    assert result["environment"]["jax"] == jax.__version__
    assert told[-1] == (STEPS, STEPS)
    again, other = (sample_images(run, tmp_path / name, count=COUNT, seed=seed) for name, seed in (("b", 0), ("c", 1)))
    for name, array in arrays_of(again).items():
        np.testing.assert_array_equal(array, arrays[name])
    assert (arrays_of(other)["training_rows"] != rows).any()
    assert (arrays_of(other)["v"] != arrays["v"]).all()


def test_joint_samples_need_no_images(run, plain, tmp_path):
    blind = with_images(run, None)
    kept = sample_images(blind, tmp_path / "deep", count=COUNT, latents="joint")
    assert set(arrays_of(kept)) == {"v", "h", "diverged"}
    assert arrays_of(kept)["h"].shape == (COUNT, 3)
    assert kept.result["protocol"] == "v and h jointly"
    other = sample_images(blind, tmp_path / "other", count=COUNT, latents="joint", seed=1)
    assert (arrays_of(other)["v"] != arrays_of(kept)["v"]).all()
    kept = sample_images(with_images(plain, None), tmp_path / "plain", count=COUNT)
    assert arrays_of(kept)["h"].shape == (COUNT, 0)
    assert kept.result["protocol"] == "v alone, the model has no latents"
    assert kept.result["weights"] == "raw"


def test_diverged_chains_are_counted_and_cry_out(run, tmp_path, monkeypatch):
    monkeypatch.setattr("vages.app.recipes.deep.Schedule", lambda: Schedule(box=2.0))
    kept = sample_images(run, tmp_path / "a", count=COUNT, latents="joint")
    arrays = arrays_of(kept)
    count = kept.result["diverged chains"]["count"]
    assert count == arrays["diverged"].sum() == np.isnan(arrays["v"]).any(axis=(1, 2, 3)).sum() > 0
    assert (pixels(kept.folder / "samples.png") == [255, 0, 255]).all(axis=-1).any()


def test_a_picture_shows_the_first_of_many(run, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "SHOWN", 4)
    kept = sample_images(run, tmp_path / "a", count=COUNT, latents="joint")
    assert pixels(kept.folder / "samples.png").shape == (8 * 17, 8 * 17, 3)
    assert len(arrays_of(kept)["v"]) == COUNT
    monkeypatch.setattr(completions, "SHOWN", 11)
    kept = inpaint(run, tmp_path / "b", count=3, tries=2)
    assert pixels(kept.folder / "inpainting.png").shape == (8 * 35, 8 * 17, 3)
    monkeypatch.setattr(completions, "SHOWN", 3)
    kept = inpaint(run, tmp_path / "c", count=3, tries=2)
    assert pixels(kept.folder / "inpainting.png").shape == (8 * 26, 8 * 8, 3)  # one image, with its first try
    assert arrays_of(kept)["v"].shape[:2] == (2, 3)


def test_results_are_never_overwritten(copied):
    run = load_run(copied)
    first = sample_images(run, count=COUNT)
    before = (first.folder / "samples.npz").read_bytes()
    second = sample_images(run, count=COUNT, seed=1)
    assert (first.folder.name, second.folder.name) == ("samples-1", "samples-2")
    assert (first.folder / "samples.npz").read_bytes() == before
    with pytest.raises(ValueError, match="^out: .*got .*samples-1"):
        sample_images(run, first.folder, count=COUNT)
    with pytest.raises(RuntimeError, match="stop"):
        embed(run, progress=stopped)
    assert not list(copied.glob("embedding-*"))  # nothing was written to the folder
    assert load_run(copied).step == 4


def stopped(*_):
    raise RuntimeError("stop")


def test_a_run_whose_name_is_no_text_can_be_told_of(run, tmp_path):
    kept = gallery.keep(Directory(tmp_path), "samples", replace(run, path=tmp_path / "a\udcff"), {}, {})
    assert parse_json((tmp_path / "result.json").read_bytes(), "result") == kept.result
    assert kept.result["run"].endswith("a\\udcff")


def test_interpolation(run, tmp_path, monkeypatch):
    kept = interpolate(run, tmp_path / "a", rows=COUNT, columns=4)
    arrays, result = arrays_of(kept), result_of(kept)
    row = result["training_row"]
    assert 0 <= row < len(run.data.splits.train)
    mean = encoded(run, run.data.splits.train[row : row + 1])
    factors = np.linspace(1, -1, COUNT)[:, None]
    np.testing.assert_allclose(arrays["h"], factors * mean, rtol=1e-5, atol=1e-6)
    assert arrays["trajectory"].shape == (4, COUNT, 1, 8, 8)
    np.testing.assert_array_equal(arrays["trajectory"][-1], arrays["v"])
    assert (arrays["v"][0] != arrays["v"][1]).any()
    assert result["snapshots"] == [6, 12, 18, STEPS]
    assert pixels(kept.folder / "interpolation.png").size

    monkeypatch.setitem(gallery.RATIOS, "digits", 5.0)
    far = interpolate(run, tmp_path / "b", image=3, rows=COUNT, columns=4)
    mean = encoded(run, run.data.splits.train[3:4])
    np.testing.assert_allclose(arrays_of(far)["h"], 5 * factors * mean, rtol=1e-5, atol=1e-6)
    still = arrays_of(interpolate(run, tmp_path / "c", image=3, rows=COUNT, columns=4, ratio=0.0))
    for chain in still["v"]:  # the same start and noise, and here the same h
        np.testing.assert_array_equal(chain, still["v"][0])


def test_how_far_the_paper_walks():
    assert gallery.RATIOS == {"cifar10": 5.0, "celeba": 3.0}


@pytest.mark.parametrize("kind", ["deep", "plain"])
def test_inpainting_holds_the_known_and_sees_nothing_of_the_hidden(run, plain, tmp_path, kind):
    run = run if kind == "deep" else plain
    kept = inpaint(run, tmp_path / "a", count=3, tries=2, mask="left")
    arrays, result = arrays_of(kept), result_of(kept)
    rows, hidden, v = arrays["test_rows"], arrays["hidden"], arrays["v"]
    splits = run.data.splits
    np.testing.assert_array_equal(arrays["originals"], splits.test[rows])
    assert v.shape == (2, 3, 1, 8, 8)
    known = ~hidden
    np.testing.assert_array_equal(v[..., known[0]], np.stack([splits.test[rows]] * 2)[..., known[0]])
    assert (v[..., hidden[0]] != np.stack([splits.test[rows]] * 2)[..., hidden[0]]).all()
    assert (v[0][..., hidden[0]] != v[1][..., hidden[0]]).all()  # tries differ
    assert (result["images"], result["mask"], result["tries"]) == ("test", "left", 2)
    assert "given the known" in result["protocol"]
    sheet = tile(
        np.concatenate([arrays["originals"], np.where(hidden, np.float32(0.5), splits.test[rows]), v[0], v[1]]), 3
    )
    np.testing.assert_array_equal(
        pixels(kept.folder / "inpainting.png")[4::8, 4::8], np.rint(255 * np.clip(sheet, 0, 1)).astype(np.uint8)
    )

    inverted = np.where(hidden, 1 - splits.test, splits.test)
    other = with_images(run, Examples(splits._replace(test=inverted)))
    again = arrays_of(inpaint(other, tmp_path / "b", count=3, tries=2, mask="left"))
    np.testing.assert_array_equal(again["v"], v)
    np.testing.assert_array_equal(again["h"], arrays["h"])


def test_training_images_are_completed_where_there_are_no_others(run, tmp_path):
    splits = run.data.splits
    kept = inpaint(with_images(run, Examples(splits._replace(test=splits.test[:0]))), tmp_path / "a", count=3, tries=2)
    assert kept.result["images"] == "train"
    np.testing.assert_array_equal(arrays_of(kept)["originals"], splits.train[arrays_of(kept)["train_rows"]])


def test_masks(tmp_path):
    shape = (3, 8, 6)
    lower, left, center = (hidden_pixels(name, shape) for name in ("half", "left", "center"))
    for mask, rows, columns in (
        (lower, range(4, 8), range(6)),
        (left, range(8), range(3)),
        (center, range(2, 6), range(1, 5)),
    ):
        expected = np.zeros(shape, bool)
        expected[np.ix_(range(3), rows, columns)] = True
        np.testing.assert_array_equal(mask, expected)
    Image.fromarray(np.where(left[0], 255, 0).astype(np.uint8)).save(tmp_path / "mask.png")
    np.save(tmp_path / "flat.npy", left[0].astype(np.int32))
    one_channel = left & np.asarray([True, False, False])[:, None, None]
    np.save(tmp_path / "full.npy", one_channel)
    for name, expected in (("mask.png", left), ("flat.npy", left), ("full.npy", one_channel)):
        np.testing.assert_array_equal(hidden_pixels(str(tmp_path / name), shape), expected)


def test_masks_that_are_none(tmp_path):
    path = tmp_path / "a.npy"
    for array, message in (
        (np.ones((8, 6)), "got no known"),
        (np.zeros((8, 6), bool), "got no hidden"),
        (np.full((8, 6), 0.5), "a.npy: .*hidden"),
        (np.eye(8), r"a.npy: .*got .*\(8, 8\)"),
    ):
        np.save(path, array)
        with pytest.raises(ValueError, match=message):
            hidden_pixels(str(path), (1, 8, 6))
    with refused("mask", got="'upper'"):
        hidden_pixels("upper", (1, 8, 6))
    with pytest.raises(FileNotFoundError, match="got none"):
        hidden_pixels(str(tmp_path / "b.png"), (1, 8, 6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: sample_images(run, count=0), "count: .*got 0"),
        (lambda run: sample_images(run, seed=-1), "seed: .*got -1"),
        (lambda run: sample_images(run, sampling=0.0), "sampling: .*got 0.0"),
        (lambda run: interpolate(run, image=1437), "image: .*1436, got 1437"),
        (lambda run: interpolate(run, rows=0), "rows: .*got 0"),
        (
            lambda run: interpolate(run, columns=STEPS),
            f"columns: .*got {STEPS}",
        ),
        *(
            (lambda run, ratio=ratio: interpolate(run, ratio=ratio), f"ratio: .*got {told}")
            for ratio, told in ((np.inf, "inf"), (-np.inf, "-inf"), (np.nan, "nan"), (1e20, r"1e\+20"), (-2e3, "-2"))
        ),
        (lambda run: inpaint(run, count=181), "count: .*got 181"),
        (lambda run: inpaint(run, tries=0), "tries: .*got 0"),
    ],
)
def test_wrong_numbers(run, call, message):
    before = sorted(run.path.iterdir())
    with pytest.raises(ValueError, match=f"^{message}"):
        call(run)
    assert sorted(run.path.iterdir()) == before


def test_a_model_without_latents_has_none_to_show(monkeypatch, capsys, plain):
    for name in ("interpolate", "embed"):
        status, _, err = command(monkeypatch, capsys, name, plain.path)
        assert status == 2
        (line,) = err.splitlines()
        assert line.startswith("vages: run: expected ")
        assert f", got {plain.path}, " in line


def test_embedding(run, tmp_path):
    kept = embed(run, tmp_path / "a")
    arrays, result = arrays_of(kept), result_of(kept)
    images, labels = run.data.splits, run.data.labels
    assert labels is not None
    for name in Splits._fields:
        means, own = encoded(run, getattr(images, name)), getattr(labels, name)
        np.testing.assert_allclose(arrays[name], means, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(arrays[f"{name}_labels"], own)
    probe = result["linear probe"]
    assert (probe["trained on"], probe["tested on"]) == (1437, 180)
    assert probe["means"]["converged"]
    assert probe["pixels"]["converged"]
    assert probe["pixels"]["accuracy"] > 0.9 > probe["means"]["accuracy"]
    assert probe["most frequent class"] < 0.15
    unlabeled = with_images(run, replace(run.data, labels=None))
    kept = embed(unlabeled, tmp_path / "b")
    assert "linear probe" not in kept.result
    assert set(arrays_of(kept)) == set(Splits._fields)


def test_means_of_no_images(run):
    assert posterior_means(run.model, run.posterior, run.data.splits.train[:0]).shape == (0, 3)


def test_logistic_regression_against_an_equation():
    """Two classes at ±1: the weights are ∓a, where 2a/n = 2 expit(−2a)."""
    features, labels = np.asarray([[1.0], [1.0], [-1.0], [-1.0]]), np.asarray([1, 1, 0, 0])
    weights, converged = logistic_regression(features, labels)
    a = root_scalar(lambda a: a / 4 - expit(-2 * a), bracket=(0, 10)).root
    assert converged
    np.testing.assert_allclose(weights, [[-a, a], [0, 0]], atol=2e-3)


def test_logistic_regression_comes_to_its_end():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    features = rng.normal(size=(200, 4)) + 0.8 * np.eye(3, 4)[labels] * [1, 1, 1, 0]
    features[:, 3] = features[:, 0] + 1e-3 * features[:, 3]  # almost the same direction twice
    weights, converged = logistic_regression(features, labels)
    assert converged
    miss = softmax(features @ weights[:-1] + weights[-1], axis=1) - np.eye(3)[labels]
    np.testing.assert_allclose((features.T @ miss + weights[:-1]) / 200, 0, atol=1e-4)
    np.testing.assert_allclose(miss.mean(axis=0), 0, atol=1e-4)


def test_a_probe_learns_from_training_examples_alone():
    rng = np.random.default_rng(0)
    draw = lambda n, shift: (labels := rng.integers(3, size=n), rng.normal(size=(n, 5)) + np.eye(3, 5)[labels] + shift)
    (train_labels, train), (test_labels, test) = draw(300, 0.0), draw(200, 1.0)
    train[:, 4] = test[:, 4] = 7.0  # a constant feature
    probe = linear_probe(train, train_labels, test, test_labels)
    halves = [linear_probe(train, train_labels, test[rows], test_labels[rows]) for rows in np.split(np.arange(200), 2)]
    assert probe.accuracy == pytest.approx(np.mean([half.accuracy for half in halves]), abs=1e-12)
    ones = [linear_probe(train, train_labels, test[i : i + 1], test_labels[i : i + 1]).accuracy for i in range(20)]
    first = linear_probe(train, train_labels, test[:20], test_labels[:20])
    assert first.accuracy == pytest.approx(np.mean(ones), abs=1e-12)
    assert first.standard_error == pytest.approx(np.sqrt(first.accuracy * (1 - first.accuracy) / 20))
    scaled = linear_probe(1000 * train + 5, train_labels, 1000 * test + 5, test_labels)
    assert scaled.accuracy == probe.accuracy  # units do not matter
    assert 0.4 < probe.accuracy < 0.9


def test_the_most_frequent_class_is_that_of_the_training_examples():
    assert majority_rate(np.asarray([0, 1, 1, 2]), np.asarray([1, 2, 2, 2])) == 0.25


def test_the_commands(monkeypatch, capsys, run, tmp_path):
    for args, name, words in (
        (("sample", "--count", COUNT, "--raw"), "samples", "raw, checkpoint of step 4"),
        (("interpolate", "--rows", COUNT, "--columns", 4), "interpolation", "the same noise for all"),
        (("inpaint", "--count", 3, "--tries", 2, "--mask", "center"), "inpainting", "given the known pixels"),
        (("embed",), "embedding", "linear probe on means: 0."),
    ):
        out = tmp_path / name
        status, told, err = command(monkeypatch, capsys, args[0], run.path, *args[1:], "--out", out)
        assert (status, err) == (0, "")
        assert words in told
        assert ("chains diverged" in told) == (name != "embedding")
        assert told.rstrip().endswith(f"s; results in {out}")
        assert {path.name for path in out.iterdir()} >= {f"{name}.npz", "result.json"}
        assert (out / f"{name}.png").exists() == (name != "embedding")


def test_one_module_opens_the_files_of_a_run(monkeypatch, copied):
    """With all results that are made from a run, in the run's own folder."""
    with opened_by_path(copied) as seen:
        run = load_run(copied)
        sample_images(run, count=COUNT, latents="joint")
        interpolate(run, rows=COUNT, columns=4)
        inpaint(run, count=3, tries=2)
        embed(run)
        run_recipe(as_recipe(SMALL), copied, resume=True)
    assert {(path, where) for _, path, where in seen} == {(str(copied), "storage/directory.py")}


def test_the_command_itself(copied):
    code = "from vages.app.cli import main; main()"
    args = ["sample", str(copied), "--count", "4", "--latents", "joint"]
    words = [sys.executable, "-c", code, *args]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    first, second, third = done.stdout.splitlines()
    assert first == "v and h jointly; averages, checkpoint of step 4"
    assert second == "0 of 4 chains diverged"
    assert third.endswith(f"s; results in {copied / 'samples-1'}")


def test_data_is_listed_without_jax(monkeypatch, tmp_path):
    code = """
import sys, vages.app.cli
sys.argv = ["vages", "data", *sys.argv[1:]]
try:
    vages.app.cli.main()
except SystemExit:
    print("jax" in sys.modules)
"""
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    told = [
        subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True).stdout
        for args in ((), ("--json",))
    ]
    assert all(text.endswith("False\n") for text in told)
    rows = {row["name"]: row for row in json.loads(told[1].splitlines()[0])["datasets"]}
    assert set(rows) == {row.name for row in vages.data.datasets()}
    for name, row in rows.items():
        (line,) = [line for line in told[0].splitlines() if line.startswith(f"{name} ")]
        assert row["state"] in line
        assert row["counts"] is None or all(f"{count:,}" in line for count in row["counts"])
    assert rows["mnist"]["state"] == "missing"
    assert rows["mnist"]["where"] == str(tmp_path / "mnist")
    assert "vages data --get NAME" in told[0]


def test_data_is_got(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    row = Dataset("mnist", "digits", (1, 32, 32), (5, 0, 1), Path("there"), "damaged", "there/[bold]: expected, got")
    got = []

    def fetch(name, progress):
        got.append(name)
        progress(1, None)
        progress(2, 2)
        return Path("there")

    with monkeypatch.context() as patch:
        patch.setattr(vages.data, "fetch", fetch)
        patch.setattr(vages.data, "datasets", lambda: [row, row._replace(name="digits", state="built in")])
        assert command(monkeypatch, capsys, "data", "--get", "mnist") == (0, "mnist: damaged in there\n", "")
        status, out, _ = command(monkeypatch, capsys, "data", "--get", "mnist", "--json")
        assert [row["name"] for row in json.loads(out)["datasets"]] == ["mnist"]
        assert (status, got) == (0, ["mnist", "mnist"])
        assert "mnist: there/[bold]: expected, got\n" in command(monkeypatch, capsys, "data")[1]
    for name, message in (
        ("celeba", "vages: celeba: expected "),
        ("digits", "vages: name: expected "),
    ):
        status, _, err = command(monkeypatch, capsys, "data", "--get", name)
        assert status == 2
        assert err.startswith(message)
        assert len(err.splitlines()) == 1
        assert ", got " in err
