"""Data of any scale: a warning if float32 is too coarse, and standardized training with results in the data's units."""

import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vages
from vages.app import cli
from vages.app.recipes import Drawn, as_recipe
from vages.app.recipes.units import Units
from vages.app.runs import load_run, run_recipe
from vages.app.runs.assessment import Row, _in_units
from vages.app.runs.config import recipe_in
from vages.app.runs.draws import draw
from vages.app.runs.out_of_distribution import assess_ood, load_others
from vages.app.runs.own_examples import own_examples
from vages.app.settings import CHECKERBOARD
from vages.checks import check_finite
from vages.data import Splits, split
from vages.data.splits import split_rows
from vages.samplers import Samples
from vages.training.scale import ScaleWarning, scale_problem

SCALE, MEAN = np.array([4.0, 0.5]), np.array([80.0, -16.0])
ROWS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32) * [1.0, 2.0] + [0.5, 0.0]
SETTINGS = replace(
    CHECKERBOARD, method="dsm", latents=2, steps=4, batch=10, evaluate_every=4, standardize=True, sigma=0.3
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on rows, and a run on the same rows in other units, which was resumed half way."""
    place = tmp_path_factory.mktemp("units")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
        np.save("plain.npy", ROWS)
        np.save("affine.npy", MEAN + SCALE * ROWS)
        run_recipe(as_recipe(replace(SETTINGS, data="plain.npy")), Path("plain"))
        affine = as_recipe(replace(SETTINGS, data="affine.npy"))
        run_recipe(affine.with_(steps=2), Path("affine"))
        run_recipe(affine, Path("affine"), resume=True)
    return place


def test_the_same_model_is_learnt_in_any_units(runs):
    plain, affine = (load_run(runs / name) for name in ("plain", "affine"))
    assert affine.step == 4
    for ours, theirs in zip(jax.tree.leaves(affine.model), jax.tree.leaves(plain.model), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)
    train = (MEAN + SCALE * ROWS)[split_rows(len(ROWS), 0)[0]]
    assert affine.units is not None
    np.testing.assert_allclose(affine.units.mean, train.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(affine.units.scale, train.std(axis=0), rtol=1e-13)
    np.testing.assert_allclose(affine.data.splits.train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(affine.data.splits.train.std(axis=0), 1, atol=1e-5)
    config = json.loads((runs / "affine" / "config.json").read_text())
    assert config["units"] == affine.units.plain()


def test_likelihoods_are_those_of_the_data(runs):
    """Likelihoods are shifted by log |scale|, and the density in the data's units integrates to 1."""
    found = [json.loads((runs / name / "result.json").read_text()) for name in ("plain", "affine")]
    plain, affine = (result["test_log_likelihood"]["mean"] for result in found)
    assert affine == pytest.approx(plain - np.log(SCALE).sum(), abs=2e-3)
    run = load_run(runs / "affine")
    units, model = run.units, run.model
    assert units is not None
    assert isinstance(model, vages.GRBM)
    low, high = run.in_units(np.full((2, 2), [[-9.0], [9.0]]))
    axes = [np.linspace(low[i], high[i], 400) for i in (0, 1)]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    seen = jnp.asarray(units.standardized(points))
    log = -jax.vmap(model.free_energy)(seen) - model.log_partition() - units.log_volume
    area = np.prod([axis[1] - axis[0] for axis in axes])
    assert np.exp(np.asarray(log, np.float64)).sum() * area == pytest.approx(1, abs=2e-3)
    test = jnp.asarray(run.data.splits.test)
    mean = float(jnp.mean(-jax.vmap(model.free_energy)(test)) - model.log_partition()) - units.log_volume
    assert affine == pytest.approx(mean, abs=1e-4)


def test_what_goes_in_and_out_is_in_the_data_s_units(runs, tmp_path, monkeypatch):
    def sample(key, model, n, **how):
        return Samples(jnp.full((n, 2), 7.0), jnp.zeros((n, 2)), 1.0, {}, {}, 0, 0, draws=n)

    monkeypatch.setattr("vages.app.runs.draws.sample", sample)
    run = load_run(runs / "affine")
    assert run.units is not None
    kept = draw(run, tmp_path / "drawn", count=3)
    with np.load(kept.folder / "samples.npz") as drawn:
        np.testing.assert_allclose(drawn["v"], np.tile(run.units.mean + 7 * run.units.scale, (3, 1)), rtol=1e-6)
    (tmp_path / "rows.csv").write_text("\n".join(f"{x},{y}" for x, y in MEAN + SCALE * ROWS))
    own = own_examples(run, tmp_path / "rows.csv").v
    np.testing.assert_allclose(run.in_units(own), MEAN + SCALE * ROWS, rtol=1e-5)
    np.testing.assert_allclose(own.mean(axis=0), 0, atol=0.5)
    other = run.on(str(runs / "plain.npy")).data.splits.train  # standardized with the run's own units
    np.testing.assert_allclose(run.in_units(other), split(ROWS.astype(np.float32), 0).train, atol=1e-4)
    row = _in_units(Row("log-likelihood", -1.0, 0.1, "high"), run.units.log_volume)
    assert row.value == pytest.approx(-1.0 - run.units.log_volume)


def test_other_data_are_compared_in_the_data_s_units(runs, tmp_path):
    """A sample of the same distribution has an AUROC of 0.5 within 5.5 errors (a false alarm in 2e7).

    The same rows in other units have an AUROC of 1.
    """
    rows = np.random.default_rng(1).normal(size=(1300, 2)) * [1.0, 2.0] + [0.5, 0.0]
    fresh, same, foreign = rows[1000:], tmp_path / "same.npy", tmp_path / "foreign.csv"
    np.save(tmp_path / "own.npy", MEAN + SCALE * rows[:1000])
    run = load_run(runs / "affine").on(str(tmp_path / "own.npy"))
    assert run.units is not None
    np.save(same, MEAN + SCALE * fresh)
    foreign.write_text("\n".join(f"{x},{y}" for x, y in fresh))
    others = load_others(run, (str(same), str(foreign), "noise"), 300)
    assert {rows.dtype.name for rows in others.values()} == {"float32"}
    np.testing.assert_array_equal(others[str(same)], run.units.standardized(MEAN + SCALE * fresh))
    train = run.data.splits.train
    assert np.all((others["noise"] >= train.min(axis=0) - 1e-5) & (others["noise"] <= train.max(axis=0) + 1e-5))
    test, row, area, _, _, far, *_ = assess_ood(run, others, examples=300, noise=0.0).rows
    assert (area.name, far.name) == (f"AUROC of log p̃, {same}", f"AUROC of log p̃, {foreign}")
    assert area.value is not None
    assert area.standard_error is not None
    assert abs(area.value - 0.5) < 5.5 * area.standard_error < 0.25
    assert far.value == 1
    assert isinstance(run.model, vages.GRBM)
    energies = jax.vmap(run.model.free_energy)
    for one, u in ((test, run.data.splits.test), (row, others[str(same)])):
        expected = -float(energies(jnp.asarray(u)).mean()) - run.units.log_volume
        assert one.value == pytest.approx(expected, abs=1e-4)
        assert "; in the data's units, " in one.means


def test_the_guide_s_log_p_is_in_the_data_s_units(runs):
    """The guide's code is executed with this run."""
    text = (Path(__file__).parent.parent / "docs" / "saving.md").read_text()
    (code,) = re.findall(r"```py\n(.*?)```", text, re.S)
    x = MEAN + SCALE * ROWS
    names = {"vages": vages, "jnp": jnp, "x": x, "key": jax.random.key(0)}
    exec(code.replace("runs/mine", str(runs / "affine")), names)
    run = load_run(runs / "affine")
    mean, scale = (np.asarray(part) for part in run.recipe.units.plain().values())  # pyright: ignore[reportOptionalMemberAccess]
    assert isinstance(run.model, vages.GRBM)
    expected = -jax.vmap(run.model.free_energy)(jnp.asarray((x - mean) / scale, jnp.float32)) - np.log(scale).sum()
    np.testing.assert_allclose(names["log_p"], np.asarray(expected), atol=1e-5)


def test_edited_units_are_refused(runs):
    config = json.loads((runs / "affine" / "config.json").read_text())
    for units in ({"mean": [0, 0]}, {"mean": [0, 0], "scale": [1, 0]}, {"mean": [0], "scale": [1, 1]}, 3):
        with pytest.raises(ValueError, match="^config.json: expected units, .*got others"):
            recipe_in(config | {"units": units})


def states(path):
    run = load_run(path)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((run.model, run.posterior))]


def test_a_run_that_starts_from_another_has_its_units(runs, tmp_path, monkeypatch):
    """Also after a resume by a recipe that does not know them, and if it is resumed before its first checkpoint."""
    monkeypatch.chdir(runs)
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    np.save("shifted.npy", 5 + 3 * ROWS)
    recipe, first = as_recipe(replace(SETTINGS, data="shifted.npy")), load_run("affine")
    for steps, name in ((2, "a"), (4, "b")):
        run_recipe(recipe.with_(steps=steps), tmp_path / name, begin=first)
    run_recipe(recipe, tmp_path / "a", resume=True)
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    for left in ("checkpoints", "metrics.jsonl"):
        shutil.rmtree(tmp_path / "c" / left) if left == "checkpoints" else (tmp_path / "c" / left).unlink()
    run_recipe(recipe, tmp_path / "c", resume=True)
    assert states(tmp_path / "a") == states(tmp_path / "b") == states(tmp_path / "c")
    run = load_run(tmp_path / "a")
    assert run.units is not None
    assert first.units is not None
    assert run.units.plain() == first.units.plain()
    train = (5 + 3 * ROWS)[split_rows(len(ROWS), 0)[0]]
    np.testing.assert_array_equal(run.data.splits.train, first.units.standardized(train))
    trained = vages.train(recipe, begin=first)
    assert trained.data.units is first.units


def test_a_run_and_the_one_it_starts_from_are_both_standardized_or_neither(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    raw = as_recipe(replace(SETTINGS, data="plain.npy", standardize=False))
    run_recipe(raw, tmp_path / "raw")
    for recipe, first, says in (
        (raw, "affine", "^standardize: expected standardized data, as the model of affine .*; give --standardize"),
        (raw.with_(standardize=True), tmp_path / "raw", "^standardize: expected data in their own units.*leave it out"),
    ):
        for path in (tmp_path / "no", None):
            with pytest.raises(ValueError, match=says):
                vages.train(recipe, path, begin=load_run(first))
    assert not (tmp_path / "no").exists()


def test_a_dry_run_checks_the_run_that_it_starts_from(runs, tmp_path, monkeypatch, capsys):
    """It finds what training would refuse, and writes nothing."""
    monkeypatch.chdir(runs)
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    small = {"data": "plain.npy", "method": "dsm", "latents": 2, "steps": 4, "batch": 10, "out": tmp_path / "no"}
    first, missing = {"from_": Path("affine")}, {"from_": Path("missing"), "standardize": True}
    fits = first | {"standardize": True}
    for options, says in (
        (first, "^standardize: "),
        (fits | {"latents": 3}, r"^from: expected \(2, 3\) for model/weight, as in this recipe, got \(2, 2\) "),
        (missing, "^from: expected "),
    ):
        with pytest.raises(ValueError, match=says) as refused:
            cli.train("checkerboard", **small | options)
        capsys.readouterr()
        assert cli.train("checkerboard", **small | options, dry_run=True, json=True) == 2
        assert json.loads(capsys.readouterr().out)["problem"] == str(refused.value)
    assert cli.train("checkerboard", **small | fits, dry_run=True, json=True) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["problem"], plan["from"]["step"]) == (None, 4)
    for dry_run in (False, True):
        with pytest.raises(ValueError, match=r"^from: expected none with --resume"):
            cli.train(resume=Path("plain"), **first, dry_run=dry_run)
    assert list(tmp_path.iterdir()) == []
    assert before == {path: path.stat().st_mtime_ns for path in runs.rglob("*")}


def test_units_of_a_constant():
    units = Units.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    np.testing.assert_array_equal(units.standardized(np.array([[1.0, 5.0]])), [[-1, 0]])
    tenths = np.full((3, 1), 0.1)
    assert tenths.std(axis=0) > 0  # because the mean is rounded
    assert (Units.of(tenths).mean, Units.of(tenths).scale) == (0.1, 1.0)


STAMPS = np.column_stack([1.7e9 + 10 * np.random.default_rng(2).normal(size=100), np.arange(100.0)])


def test_numbers_are_standardized_before_they_are_rounded(tmp_path, runs):
    """Seconds around 1.7e9, where float32 has a resolution of 128: from files, arrays and splits."""
    np.save(tmp_path / "stamps.npy", STAMPS)
    (tmp_path / "stamps.csv").write_text("\n".join(f"{x!r},{y!r}" for x, y in STAMPS.tolist()))
    order = split_rows(100, 0)
    train = STAMPS[order[0]]
    mean, scale = train.mean(axis=0), train.std(axis=0)
    expected = [((STAMPS[rows] - mean) / scale).astype(np.float32) for rows in order]
    own = vages.Recipe(
        data=STAMPS,
        build=lambda *_: pytest.fail("not built"),
        learner=vages.Learner(vages.DSM(0.1), learning_rate=1.0),
        settings=vages.Training(standardize=True),
    )
    as_splits = replace(own, data=Splits(*(STAMPS[rows] for rows in order)))
    as_file = replace(own, data=tmp_path / "stamps.csv")
    presets = [as_recipe(replace(SETTINGS, data=str(tmp_path / name))) for name in ("stamps.npy", "stamps.csv")]
    for recipe in (own, as_splits, as_file, *presets):
        data = recipe.load()
        assert data.units is not None
        np.testing.assert_array_equal(data.units.scale, scale)
        for part, u in zip(data.splits, expected, strict=True):
            assert part.dtype == np.float32
            np.testing.assert_array_equal(part, u)
        np.testing.assert_allclose(data.in_units(data.splits.train), train, rtol=0, atol=1e-5)
        plain = recipe.with_(standardize=False).load().splits.train
        np.testing.assert_array_equal(plain, train.astype(np.float32))
    run = load_run(runs / "affine")
    run = replace(run, recipe=replace(run.recipe, units=Units(mean, scale)))
    run.__dict__["data"] = presets[0].load()
    for name in ("stamps.npy", "stamps.csv"):
        u = own_examples(run, tmp_path / name).v
        np.testing.assert_array_equal(u, ((STAMPS - mean) / scale).astype(np.float32))


def test_standardizing_a_stream_is_refused():
    recipe = vages.Recipe(
        data=lambda settings: lambda step: np.ones((5, 2), np.float32),
        build=lambda *_: pytest.fail("not built"),
        learner=vages.Learner(vages.DSM(0.1), learning_rate=1.0),
        settings=vages.Training(standardize=True),
    )
    with pytest.raises(ValueError, match="^standardize: .*got a stream"):
        recipe.load()


def test_data_that_float32_cannot_hold_are_told():
    rows = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    assert scale_problem(vages.DSM(0.01), rows) is None
    assert scale_problem(vages.KSD(0.1), 1e3 + rows) is not None
    conditional = vages.NoiseConditionalDSM(0.5)  # its lowest level is 0.004
    assert scale_problem(conditional, rows) is None
    assert "1e+03, whose rounding" in (scale_problem(conditional, 1e3 + rows) or "")
    narrow = np.stack([rows[:, 0], 1e-3 * rows[:, 1]], axis=1)
    assert "standard deviation of 0.00" in (scale_problem(conditional, narrow) or "")
    assert "column 1" in (scale_problem(conditional, narrow) or "")
    assert scale_problem(conditional, narrow * [1, 0]) is None  # a constant column
    assert "column 1" in (scale_problem(conditional, np.insert(narrow, 2, 3.0, axis=1)) or "")  # and next to one
    assert scale_problem(conditional, np.repeat(narrow, 11, axis=1)) is None  # like pixels at an edge: too many columns
    exact = (rows / rows.astype(np.float64).std(axis=0)).astype(np.float64)  # standard deviations of 1
    told = lambda *widths: scale_problem(vages.DSM(0.3), exact * widths)
    assert "0.0999 in column 1" in (told(1, 0.0999) or "")  # a third of the noise
    assert told(1, 0.1001) is None
    assert told(0.31, 0.09) is not None
    assert told(0.29, 0.09) is None  # about as wide as the widest column: the user chose the level
    assert told(0.1001, 0.09) is None
    assert "0.08 in column 1" in (told(0.0999, 0.08) or "")  # all columns are narrow
    times = scale_problem(vages.NoiseConditionalDSM(8.5e8), exact * [1e5, 5] + [1.7e9, 20])
    assert "noise, 6.8e+06, got a standard deviation of 5 in column 1" in (times or "")
    assert scale_problem(conditional, np.where(rows > 2, np.inf, narrow)) is None  # refused by other checks
    assert "column 19" in (scale_problem(conditional, np.tile(rows, 10) * np.where(np.arange(20) < 19, 1, 1e-3)) or "")
    assert scale_problem(vages.KSD(1.0), 1e3 + rows) is None
    told = scale_problem(vages.DSM(0.01), 1e3 + rows)
    assert told is not None
    assert told.startswith("v: expected numbers of at most 84 in float32 for noise of 0.01, got 1e+03, ")
    assert "standardize the data" in told
    assert "\n" not in told
    assert "in float32" in (scale_problem(vages.DSM(0.01), 1e3 + rows.astype(np.float64)) or "")  # as JAX converts them
    with jax.enable_x64(True):
        assert scale_problem(vages.DSM(0.01), 1e3 + rows.astype(np.float64)) is None
    assert "column 1" in (scale_problem(conditional, narrow[:2]) or "")  # these are all the rows
    assert scale_problem(conditional, narrow[:20], whole=False) is not None
    assert scale_problem(conditional, narrow[:19], whole=False) is None  # too few rows of a stream
    beside = np.insert(narrow.astype(np.float64), 1, 0.1, axis=1)  # a constant whose mean is rounded
    assert beside.std(axis=0)[1] > 0
    assert "column 2" in (scale_problem(conditional, beside) or "")
    assert scale_problem(conditional, beside[:, :2]) is None
    assert scale_problem(conditional, beside[:, 1:2]) is None
    assert scale_problem(vages.DSM(0.1), rows.astype(np.float16)) is None  # widened to float32
    model = vages.GRBM.init(jax.random.key(0), 2, 2)
    learner = vages.Learner(vages.DSM(0.01, vages.Enumerated()), learning_rate=1e-3)
    few = itertools.repeat(narrow[:19].astype(np.float32))
    vages.fit(jax.random.key(0), model, vages.ExactPosterior(), few, learner, steps=1)  # no warning
    large = 1e3 + rows
    for data in (large, large.astype(np.float64), {"v": large}, lambda step: large[:10], itertools.repeat(large[:10])):
        batch = 10 if isinstance(data, np.ndarray | dict) else None
        with pytest.warns(ScaleWarning, match="^v: expected .*standardize"):
            vages.fit(jax.random.key(0), model, vages.ExactPosterior(), data, learner, steps=1, batch=batch)


def test_rows_all_over_an_array_are_looked_at():
    many = np.random.default_rng(1).normal(size=(24_000, 2)).astype(np.float32)
    for wide in (np.arange(24_000) / 24_000, np.arange(24_000) % 24):  # sorted; hours, the same in every 24th row
        table = np.stack([many[:, 0], wide + 1e-3 * many[:, 1]], axis=1)
        assert scale_problem(vages.DSM(0.1), table) is None
        assert scale_problem(vages.DSM(0.1), jnp.asarray(table, jnp.float32)) is None
    assert "got 2e+03" in (scale_problem(vages.DSM(0.01), many + 2e3 * (np.arange(24_000) > 12_000)[:, None]) or "")


@pytest.mark.filterwarnings("ignore::vages.training.ScaleWarning")
def test_numbers_that_overflow_float32_are_refused(tmp_path):
    """In one line, before training starts, for data from any source; but not if float64 is enabled in JAX."""
    model = vages.EnergyModel(lambda p, v, h: jnp.sum((v - p) ** 2) / 2, jnp.zeros(2), v=vages.Real(2))
    learner = vages.Learner(vages.DSM(0.5, vages.Enumerated()), optax.sgd(0.0))
    rows = np.sign(np.random.default_rng(0).normal(size=(100, 2)))
    large = np.where(np.arange(200).reshape(100, 2) == 7, -1e39, rows)
    np.save(tmp_path / "rows.npy", large)
    fit = lambda data: vages.fit(jax.random.key(0), model, vages.ExactPosterior(), data, learner, steps=20)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    advice = "; standardize the data, or divide them by a constant"
    of_array = "numbers of at most 3.4e+38, as float32 has no larger ones, got -1e+39 at (3, 1) (1 of 200 entries)"
    too_large = "finite numbers, got numbers too large for float32 in"
    for data, name, told in (
        (large, "data", of_array),
        ({"v": np.float32(rows), "of": large}, "context['of']", of_array),
        (mapped, "data", f"{too_large} row 3"),
        (lambda step: large, "data", f"{too_large} example 3 of the batch at step 0"),
        (iter([rows, large]), "data", f"{too_large} example 3 of the batch at step 1"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(f'{name}: expected {told}{advice}')}$"):
            fit(data)
    with pytest.raises(ValueError, match=r"^data: expected finite numbers, got nan at \(3, 1\) .*; clean the data"):
        fit(np.where(large < -2, np.nan, rows))
    check_finite("v", np.full(3, -3.4e38))
    check_finite("v", np.float32(1.0) * np.ones(()))
    with jax.enable_x64(True):
        check_finite("v", large)
