"""The preset of normalized models: trained, sampled, loaded and evaluated, at a size that takes seconds."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vages
from errors import refused
from vages.app.recipes import as_recipe, check_recipe, points, points_pictures
from vages.app.recipes.examples import Examples
from vages.app.recipes.trained import Trained
from vages.app.recipes.training import _dividing, train
from vages.app.recipes.units import Units
from vages.app.report import density_png, figure_png
from vages.app.runs import likelihoods, load_run, recipe_of, run_recipe, sketches
from vages.app.runs.assessment import subject_of
from vages.app.runs.assessment_rows import Sizes
from vages.app.runs.beginning import starting_from
from vages.app.runs.draws import draw, walk
from vages.app.runs.likelihoods import likelihood_rows
from vages.app.runs.own_examples import needs_context
from vages.app.settings import CHECKERBOARD, PointSettings
from vages.data import TOYS, Splits, load_toy
from vages.domains import Real
from vages.evaluation import Density, normalization
from vages.storage.errors import BadFile

SMALL = PointSettings(steps=20, width=8, depth=1, latents=2, batch=16)


@pytest.fixture
def small_pictures(monkeypatch):
    with_small_pictures(monkeypatch)


def with_small_pictures(patch):
    patch.setattr(points_pictures, "GRBM_STEPS", 20)
    patch.setattr(points_pictures, "DRAWN", 20)
    patch.setattr(points_pictures, "SAMPLES", 4)
    patch.setattr(points, "SAMPLES", 4)
    patch.setattr(sketches, "_SHORT", np.inf)  # no sketches, however slow the machine is


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("points") / "run"
    with pytest.MonkeyPatch.context() as patch:
        with_small_pictures(patch)
        run_recipe(as_recipe(SMALL), folder)
    return folder


def test_the_run_says_its_likelihood_beside_the_data_s_own_and_a_grbm_s(run):
    result = json.loads((run / "result.json").read_text())
    assert result["data_log_likelihood"] == pytest.approx(-np.log(2))
    assert -4 < result["test_log_likelihood"] < -np.log(2) + 0.1
    assert 0.5 < result["effective share of q's samples"] <= 1
    assert np.isfinite(result["test log-likelihood of the paper's GRBM"])
    assert result["lost samples"] == {"count": 0, "of": 20}
    assert {path.stem for path in run.glob("*.png")} == {"curve", "density", "samples"}


def test_the_last_lines_say_the_unit_of_a_likelihood():
    """In nats for an example, not for a dimension; a result has one unit, also with an error."""
    tested = {"test_log_likelihood": np.array(-0.75449), "data_log_likelihood": np.array(-np.log(2))}
    nothing: Any = None
    said = lambda settings, tested: Trained(as_recipe(settings), nothing, nothing, nothing, tested, nothing).summary
    expected = "(one pass): -0.7545 nats; of the true distribution, the best possible: -0.6931"
    assert said(SMALL, tested) == f"test log-likelihood {expected}"
    for seeds, told in ((1, "-1.0000 nats"), (2, "-1.0000 ± 1.4142 nats (standard deviation of 2 seeds)")):
        values = np.array([-1.0] if seeds == 1 else [-2.0, 0.0])
        found = said(replace(CHECKERBOARD, seeds=seeds), {"test_log_likelihood": values})
        assert found == f"test log-likelihood (exact): {told}"


@pytest.mark.parametrize(("rows", "batch", "expected"), [(50, 256, 40), (1000, 256, 256), (50, 16, 16), (50, 41, 41)])
def test_the_default_batch_takes_all_rows_at_most(tmp_path, rows, batch, expected):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(rows, 3)))
    recipe = as_recipe(PointSettings(data=str(tmp_path / "x.npy"), batch=batch))
    data = recipe.load()
    settled = recipe.settled(data)
    assert settled.settings.batch == settled.settled(data).settings.batch == expected
    if expected == 41:
        with refused("batch", got=41):
            check_recipe(recipe, data)
    else:
        check_recipe(recipe, data)


@pytest.mark.usefixtures("small_pictures")
def test_a_small_table_is_trained_on_and_gone_on_with(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    small = replace(SMALL, data=str(tmp_path / "x.npy"), batch=PointSettings.batch, steps=2, decay="constant", warmup=0)
    run_recipe(as_recipe(small), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["batch"] == 40
    assert run_recipe(recipe_of(tmp_path / "run").with_(steps=4), tmp_path / "run", resume=True).fitted.step == 4


def test_a_label_is_refused_as_points_have_none(run, tmp_path):
    with refused("label", "1; leave it out"):
        draw(load_run(run), tmp_path / "out", label=1)


def test_a_noise_conditional_model_does_without_a_label_but_not_without_another_context(run):
    loaded = load_run(run)
    parts = Splits(*(np.zeros(len(part), np.int32) for part in loaded.data.splits))
    for names, needed in (((), False), (("label",), False), (("time",), True), (("label", "time"), True)):
        loaded.__dict__["data"] = replace(loaded.data, context=dict.fromkeys(names, parts) or None)
        assert needs_context(loaded) == needed
    loaded.__dict__["model"] = SimpleNamespace()
    loaded.__dict__["data"] = replace(loaded.data, context={"label": parts})
    assert needs_context(loaded)


def test_a_run_with_damaged_checkpoints_alone_is_not_said_to_be_resumable(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    for arrays in (tmp_path / "run" / "checkpoints").glob("*/state.safetensors"):
        os.truncate(arrays, 1000)
    with refused("run", "none; all that are there are damaged; start a new run, or copy them from a backup"):
        load_run(tmp_path / "run")
    with pytest.raises(BadFile, match="got none; start a new run, or copy one from a backup"):
        run_recipe(recipe_of(tmp_path / "run"), tmp_path / "run", resume=True)


@pytest.mark.usefixtures("small_pictures")
def test_a_run_that_starts_from_another_has_its_center_and_scale(run, tmp_path):
    """Otherwise the weights would be those of another function. Settings that are given are left."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(5, 3, size=(50, 2)))
    begin, other = (
        load_run(run),
        replace(SMALL, data=str(tmp_path / "x.npy"), steps=1, batch=8, center=None, decay="constant", warmup=0),
    )
    found = starting_from(as_recipe(other), begin)
    model, _ = found.make(jax.random.key(0), found.load())
    assert isinstance(model, vages.NoiseConditionalEBLVM)
    assert isinstance(begin.model, vages.NoiseConditionalEBLVM)
    assert (model.center, model.sigma_data) == (begin.model.center, begin.model.sigma_data)
    assert starting_from(as_recipe(replace(other, center=5.0)), begin).settings.center == 5
    run_recipe(as_recipe(other), tmp_path / "next", begin=begin)
    run_recipe(as_recipe(replace(other, steps=2)), tmp_path / "next", resume=True)
    assert load_run(tmp_path / "next").recipe.settings.center == begin.model.center


@pytest.mark.parametrize("shape", [(30, 8, 8, 4), (3, 8, 8, 30)])
def test_four_axes_that_are_no_images_are_no_rows(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    with refused(str(tmp_path / "x.npy"), got=list(shape)):
        as_recipe(PointSettings(data=str(tmp_path / "x.npy"))).load()


@pytest.mark.parametrize("steps", [300, 3000, 4500])
def test_training_is_compiled_for_one_length_of_chunks(steps, monkeypatch):
    monkeypatch.setattr("vages.app.recipes.training.fit", lambda *_, **how: pytest.fail(str(how["chunk"])))
    recipe = as_recipe(PointSettings(steps=steps))
    with pytest.raises(pytest.fail.Exception) as chosen:
        train(recipe)
    chunk = min(int(str(chosen.value)), recipe.evaluate_every)
    assert 25 < chunk <= 100
    assert recipe.evaluate_every % chunk == steps % chunk == 0


def test_chunks_divide_the_evaluations_where_they_can():
    assert [_dividing(every, 100) for every in (1000, 450, 250, 60, 101, 10)] == [100, 90, 50, 60, 100, 100]


def test_the_mass_of_the_picture_is_that_of_the_density_on_the_plane(run):
    told = json.loads((run / "result.json").read_text())[points_pictures.LOG_Z]
    trained = load_run(run)
    left, right, bottom, top = points_pictures.plane_of(trained.settings, trained.data)
    (x, wx), (y, wy) = (np.polynomial.legendre.leggauss(24) for _ in range(2))
    x, y = (left + right + (right - left) * x) / 2, (bottom + top + (top - bottom) * y) / 2
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.float32)
    found = points_pictures.one_pass(jax.random.key(1), trained.model, trained.posterior, grid)
    weights = np.outer(wx, wy).reshape(-1) * (right - left) * (top - bottom) / 4
    mass = np.sum(weights * np.exp(np.asarray(found.value, np.float64)))
    assert told == pytest.approx(np.log(mass), abs=0.05)  # only four samples of q


@pytest.mark.parametrize(("shift", "told"), [(0, 0), (-800, -800), (800, 800), (3e18, 3e18), (-np.inf, None)])
def test_the_log_mass_of_a_picture_is_told_in_any_units_and_of_any_size(monkeypatch, shift, told):
    """A normal density times e^shift, in units where it is 1e-47 or 1e400; and of times, 1.7e9 ± 30."""
    test = np.asarray([[-5, -5], [5, 5]], np.float32)
    keys: dict[str, Any] = {}

    def normal(key, model, posterior, v):
        keys["density"] = key
        return Density(shift - np.sum(v**2, 1) / 2 - np.log(2 * np.pi), v, v, True)

    def samples(key, *_, **__):
        keys["samples"] = key
        return SimpleNamespace(v=test, diverged=0)

    monkeypatch.setattr(points_pictures, "one_pass", normal)
    monkeypatch.setattr(points_pictures, "sample", samples)
    for units in (
        Units(np.asarray([2e30, 1e17]), np.asarray([6e29, 3e16])),
        Units(np.full(2, 1.7e9), np.full(2, 30.0)),
    ):
        data = Examples(Splits(test, test, test), units=units)
        model: Any = SimpleNamespace(v=Real(2))
        fitted: Any = SimpleNamespace(curve=lambda name: ((), ()))
        recipe: Any = SimpleNamespace(settings=replace(SMALL, data="own.npy"), make_sampler=lambda posterior: None)
        drawn = points_pictures.draw(Trained(recipe, data, model, None, {"test_log_likelihood": 0.0}, fitted))
        got = drawn.result[points_pictures.LOG_Z]
        assert got == (None if told is None else pytest.approx(told, rel=1e-6, abs=1e-4))
        assert bool(drawn.findings) == bool(shift)
        assert not np.any(keys["density"] == jax.random.split(keys["samples"], 10))  # those of the blocks of samples
        json.dumps(drawn.result, allow_nan=False)
        for picture in drawn.pictures.values():
            figure_png(picture)


def test_a_constant_coordinate_has_a_window():
    constant = np.asarray([[0, 1.7e9], [1, 1.7e9]], np.float32)
    data = Examples(Splits(constant, constant, constant))
    left, right, bottom, top = points_pictures.plane_of(replace(SMALL, data="own.npy"), data)
    assert (left, right) == pytest.approx((-0.2, 1.2))
    assert bottom < float(constant[0, 1]) < top


def test_a_sketch_has_its_own_brightness():
    x = np.linspace(-3, 3, 20)
    density = np.exp(-(x**2) - x[:, None] ** 2)
    assert density_png(1e-47 * density) == density_png(density) != density_png(0 * density)


def test_an_evaluation_checks_the_normalization(run, monkeypatch):
    monkeypatch.setattr(likelihoods, "_SAMPLES", 16)
    monkeypatch.setattr(normalization, "_SIDE", 30)
    subject = subject_of(load_run(run), None)
    v = jnp.asarray(subject.splits.test[:12])
    stages = list[str]()
    given = jax.random.key(0), subject.model, subject.posterior, v, Sizes()
    units = Units(np.zeros(2), np.array([np.e, 1.0]))  # a log-volume of 1
    rows = {row.name: row for row in likelihood_rows(*given, stage=stages.append, units=units)}
    levels = [row for name, row in rows.items() if name.startswith("log Z at noise of")]
    assert len(levels) == 6
    assert abs(levels[-1].value or 0.0) < 0.01  # a Gaussian by construction
    assert "one pass" in rows["log-likelihood"].means
    assert {row.means.partition(":")[0].partition(",")[0] for row in levels} == {"on a grid"}
    assert all(row.standard_error is None or row.standard_error > 0 for row in levels)  # if q is sampled, never 0
    assert stages == ["likelihood in one pass", "likelihood by the ODE", "log Z at 6 levels"]
    by_ode, less = rows["log-likelihood by the ODE"], rows["one pass less ODE, nats"]
    assert by_ode.standard_error is not None
    assert less.standard_error is not None
    assert rows["log-likelihood"].value == pytest.approx((by_ode.value or 0.0) + (less.value or 0.0), abs=1e-4)
    assert by_ode.means.endswith(f"in one pass {(rows['log-likelihood'].value or 0.0) - 1:.4g} nats")
    assert list(rows).index("log-likelihood by the ODE") + 1 == list(rows).index("one pass less ODE, nats")


def test_a_walk_goes_from_one_example_to_another(run, tmp_path):
    kept = walk(load_run(run), tmp_path / "walk", between=(3, 7), rows=4)
    with np.load(kept.folder / "interpolation.npz") as arrays:
        np.testing.assert_allclose(arrays["v"][[0, -1]], arrays["ends"], atol=0.05)
        assert arrays["h"].shape == (4, 2)
    assert "noise" in kept.result["protocol"]


def test_data_decide_what_is_left_open(tmp_path):
    rows = np.random.default_rng(0).normal(3, 2, (50, 5)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    recipe = as_recipe(PointSettings(data=str(tmp_path / "rows.npy"), width=4, depth=1, latents=0))
    settled = recipe.settled(recipe.load()).settings
    assert settled.center == pytest.approx(3, abs=0.5)
    assert settled.sigma_data == pytest.approx(2, abs=0.4)
    assert settled.detail == 0
    on_a_plane = as_recipe(PointSettings())
    assert on_a_plane.settled(on_a_plane.load()).settings.detail == 8


def test_the_board_is_a_board():
    points = load_toy("board", 0, 4000, 0, 0).train
    log_density = TOYS["board"].log_density
    assert log_density is not None
    np.testing.assert_allclose(log_density(points), -np.log(2))
    assert np.isneginf(log_density(points + np.asarray([0.5, 0], np.float32))).all()
