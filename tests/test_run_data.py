"""A run is evaluated and resumed on its training data, wherever they are. Other data are refused."""

import html
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import vages.app.runs
from errors import refused
from small_recipes import first_config
from vages.app import cli
from vages.app.recipes import Drawn, as_recipe, train
from vages.app.runs import Assessment, Sizes, config_of, load_run, run_recipe
from vages.app.runs.assessment import Row
from vages.app.runs.dataset import read
from vages.app.runs.image_quality import samples_of
from vages.app.runs.kept import keep, new_folder
from vages.app.runs.training_data import data_to_train_on
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS
from vages.data import TOYS, split
from vages.training import RunFolder
from vages.training.checkpoint import checkpoints, newest_checkpoint, write_checkpoint
from vages.training.digests import fingerprint

SMALL = replace(
    CHECKERBOARD,
    data="mine.npy",
    method="dsm",
    latents=2,
    steps=4,
    batch=10,
    evaluate_every=4,
)
DEEP = replace(
    DEEP_PRESETS["digits-paper"],
    data="images.npy",
    width=4,
    depth=1,
    latents=2,
    head_width=4,
    steps=2,
    batch=10,
    corrector_steps=0,
    posterior_steps=1,
    sampling=0.01,
    flips=True,
)

pytestmark = pytest.mark.usefixtures("short_chains")


def rows(seed):
    return np.random.default_rng(seed).uniform(size=(50, 2)).astype(np.float32)


def pictures(seed):
    return np.random.default_rng(seed).integers(256, size=(50, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project with a GRBM run and a deep run, trained from its folder on files in it."""
    project = tmp_path_factory.mktemp("data") / "project"
    project.mkdir()
    np.save(project / "mine.npy", rows(0))
    np.save(project / "images.npy", pictures(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
        run_recipe(as_recipe(SMALL), Path("runs/grbm"))
        images, dataset = data_to_train_on(as_recipe(DEEP), Path("runs/deep"), resume=False)
        folder = RunFolder(Path("runs/deep"), config_of(as_recipe(DEEP)), dataset)
        train(as_recipe(DEEP), images, folder=folder)
        folder.close()
    return project


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    """A copy of the project, used from a folder with other files of the same names. The original is moved away."""
    aside = trained.rename(trained.with_name("aside"))
    copy = shutil.copytree(aside, tmp_path / "copy")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    np.save("mine.npy", rows(1))
    np.save("images.npy", pictures(1))
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    yield copy
    aside.rename(trained)


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_reads_its_own_data_from_any_folder(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", rows(1))
    np.save("images.npy", pictures(1))
    run = load_run(trained / "runs" / "grbm")
    np.testing.assert_array_equal(run.data.splits.test, split(rows(0), SMALL.seed).test)
    assert run.about_data is not None
    assert run.about_data["own"]
    own = split(pictures(0)[:, None].astype(np.float32) / 255, DEEP.seed)
    np.testing.assert_allclose(load_run(trained / "runs" / "deep").data.splits.test, own.test, rtol=1e-6)


def test_a_moved_project_reads_its_own_data(project):
    run = load_run(project / "runs" / "grbm")
    np.testing.assert_array_equal(run.data.splits.test, split(rows(0), SMALL.seed).test)
    assert load_run(Path(os.path.relpath(project / "runs" / "deep"))).data.splits.train.shape == (40, 1, 8, 8)


def test_other_data_of_the_same_name_are_refused(project):
    (project / "mine.npy").unlink()
    (project / "images.npy").unlink()
    run = project / "runs" / "grbm"
    sums = r"float32\[40, 2\] with SHA-256 \w+"
    told = rf"^{Path.cwd()}/mine.npy: .*{run} .*{sums} .*\btrain, got .*{sums}; .*'vages evaluate {run} --data FILE'"
    before = files(project)
    with pytest.raises(ValueError, match=told):
        cli.evaluate(str(run), measure="model")
    for command in (cli.sample, cli.interpolate, cli.inpaint, cli.embed):
        with pytest.raises(ValueError, match=r"images.npy: .*deep .*\[80, 1,"):
            command(project / "runs" / "deep")
    with pytest.raises(ValueError, match="images.npy: .*trained"):
        samples_of(load_run(project / "runs" / "deep"), 20, "paper", None, 0, "replicate")
    assert files(project) == before
    Path("mine.npy").unlink()
    with pytest.raises(ValueError, match="project/mine.npy: .*grbm .*got nothing"):
        load_run(run).data  # noqa: B018


def test_moved_data_are_named_by_an_option(project, monkeypatch, capsys):
    """The data of both runs were renamed, and files with the old names hold other data."""
    grbm, deep = project / "runs" / "grbm", project / "runs" / "deep"
    (project / "mine.npy").rename("moved.npy")
    (project / "images.npy").rename("moved_images.npy")
    before = files(project)
    seen = []
    for verb, does in (("sample", "sample_images"), ("interpolate",) * 2, ("inpaint",) * 2, ("embed",) * 2):
        monkeypatch.setattr(vages.app.runs, does, lambda run, *_, **__: seen.append(run.about_data["name"]))
        monkeypatch.setattr("vages.app.cli.images._told", lambda kept, json: 0)
        command = getattr(cli, verb)
        command(deep, data="moved_images.npy", **({"json": True} if verb == "embed" else {}))
        with refused("images.npy", kind=ValueError) as error:
            command(deep, data="images.npy")
        assert "--data" in str(error.value)
        with refused("none.npy", got="nothing"):
            command(deep, data="none.npy")
    assert seen == 4 * ["moved_images.npy"]
    for status, name in ((2, "mine.npy"), (2, "none.npy"), (0, "moved.npy")):
        assert cli.train(resume=grbm, steps=8, data=name, dry_run=True) == status
    with refused("mine.npy"):
        cli.train(resume=grbm, steps=8, data="mine.npy")
    assert files(project) == before
    assert cli.train(resume=grbm, steps=8, data="moved.npy") == 0
    assert json.loads((grbm / "config.json").read_text())["settings"]["data"] == "mine.npy"
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(load_run(grbm).data.splits.test, split(rows(0), SMALL.seed).test)  # as recorded
    capsys.readouterr()


def test_a_place_that_is_no_text_can_be_recorded_in_a_result(project, monkeypatch):
    """Its bytes are lone surrogates in Python, which JSON cannot represent. The error used to come after sampling."""
    place = os.fsdecode(b"\xff.npy")
    (project / "images.npy").rename(place)
    run = load_run(project / "runs" / "deep", data=place)
    with new_folder(run, "samples", None) as folder:
        kept = keep(folder, "samples", run, {"v": np.zeros(1)}, {})
    assert json.loads((kept.folder / "result.json").read_text())["data"]["name"] == r"\udcff.npy"


def test_data_of_a_run_without_a_fingerprint_cannot_be_named(project, monkeypatch):
    monkeypatch.setattr("vages.app.runs.training_data.newest_about", lambda folder: {"config": {}})
    with pytest.raises(ValueError, match="grbm: .*fingerprint"):
        run_recipe(as_recipe(SMALL), project / "runs" / "grbm", resume=True, where=str(project / "mine.npy"))


def test_every_split_is_checked(project):
    """Only the test rows of the file differ."""
    parts = split(rows(0), SMALL.seed)
    np.savez("three.npz", **parts._asdict())
    recipe = replace(SMALL, data="three.npz", steps=1, evaluate_every=1)
    run_recipe(as_recipe(recipe), Path("run"))
    assert load_run(Path("run")).data.splits.test.shape == (5, 2)
    np.savez("three.npz", **parts._replace(test=1 + parts.test)._asdict())
    with pytest.raises(ValueError, match=r"three.npz: .*\btest, got"):
        load_run(Path("run")).data  # noqa: B018


def test_a_toy_that_is_drawn_otherwise_is_refused(project, monkeypatch):
    run_recipe(as_recipe(replace(SMALL, data="rings", seeds=2, steps=1, evaluate_every=1)), Path("run"))
    first, second = (load_run(Path("run"), seed=seed).data.splits.test for seed in (0, 1))
    assert not np.array_equal(first, second)
    monkeypatch.setitem(TOYS, "rings", TOYS["pinwheel"])
    with pytest.raises(ValueError, match=r"^rings: .*float32\[2, 60000, 2\]"):
        load_run(Path("run"), seed=1).data  # noqa: B018


def test_a_run_goes_on_with_its_own_data(project):
    run = project / "runs" / "grbm"
    run_recipe(as_recipe(replace(SMALL, steps=8)), run, resume=True)  # from a folder with a different mine.npy
    found = newest_checkpoint(run / "checkpoints", pytest.fail)
    assert found is not None
    assert (found.step, found.about["data"]["sha256"]) == (8, fingerprint(split(rows(0), 0).train)["sha256"])
    assert load_run(run).dataset == found.about["dataset"]
    np.save(project / "mine.npy", rows(2))
    before = files(project)
    with pytest.raises(ValueError, match="mine.npy: .*grbm .*trained"):
        run_recipe(as_recipe(replace(SMALL, steps=12)), run, resume=True)
    with pytest.raises(ValueError, match=r"data \(mine.npy before, other.npy now\)"):
        run_recipe(as_recipe(replace(SMALL, data="other.npy")), run, resume=True)
    assert cli.train(resume=run, dry_run=True) == 2
    assert files(project) == before


def test_a_run_killed_before_its_first_checkpoint_goes_on_with_its_own_data(project):
    run = project / "runs" / "grbm"
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").unlink()
    run_recipe(as_recipe(SMALL), run, resume=True)
    np.testing.assert_array_equal(load_run(run).data.splits.test, split(rows(0), SMALL.seed).test)
    shutil.rmtree(run / "checkpoints")
    (project / "mine.npy").unlink()
    with pytest.raises(ValueError, match="mine.npy: .*grbm .*trained"):
        run_recipe(as_recipe(SMALL), run, resume=True)


def first_edition(run, seed=SMALL.seed):
    """Make the run look like one of version 0.1: plain settings without a digest, seeds, no record of the data."""
    config = first_config(SMALL)
    (run / "config.json").write_text(json.dumps(config))
    for path in checkpoints(run / "checkpoints"):
        found = newest_checkpoint(run / "checkpoints", pytest.fail)
        assert found is not None
        about = {name: x for name, x in found.about.items() if name not in ("settings_sha256", "dataset", "keys")}
        arrays = {name.replace("optimizer/", "optimiser/"): array for name, array in found.arrays.items()}
        shutil.rmtree(path)
        write_checkpoint(run / "checkpoints", found.step, arrays, about | {"config": config, "seeds": [seed]})


def test_runs_of_the_first_edition_are_checked_by_their_training_data_and_go_on(project, monkeypatch):
    run = project / "runs" / "grbm"
    first_edition(run)
    with pytest.raises(ValueError, match="mine.npy: .*grbm .*trained"):
        load_run(run).data  # noqa: B018
    monkeypatch.chdir(project)
    assert load_run(run).data.splits.test.shape == (5, 2)
    config = run / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"batch": 10', '"batch": 20'))
    with pytest.raises(ValueError, match="config.json: .*got batch 20"):
        load_run(run)
    config.write_text(text)
    first_edition(run, seed=3)
    with pytest.raises(ValueError, match=r"resume: .*keys \[\[0, 0\]\] in place of \[\[0, 3\]\]"):
        run_recipe(as_recipe(replace(SMALL, steps=8)), run, resume=True)
    first_edition(run)
    assert "other noise" not in (run / "events.jsonl").read_text()
    run_recipe(as_recipe(replace(SMALL, steps=8)), run, resume=True)
    assert "other noise" in (run / "events.jsonl").read_text()
    monkeypatch.chdir("/")
    assert load_run(run).data.splits.test.shape == (5, 2)  # now the run has a record of its data


def test_a_run_without_a_fingerprint_is_refused_unless_the_data_are_named(project):
    run = replace(load_run(project / "runs" / "grbm"), fingerprint=None, dataset=None)
    with pytest.raises(ValueError, match="grbm: .*fingerprint"):
        run.data  # noqa: B018
    other = run.on("mine.npy")
    np.testing.assert_array_equal(other.data.splits.test, split(rows(1), SMALL.seed).test)
    assert other.about_data is not None
    assert not other.about_data["own"]


def made_up(run, *, sizes, noise, seed, progress, stage):
    run.data  # noqa: B018
    rows = [Row("log-likelihood", -0.5, 0.25, "higher is better")]
    return Assessment(str(run.path), run.step, rows, sizes.examples, 0.0, Sizes(), seed, 0.1, run.about_data)


def test_evaluating_on_other_data_says_so(project, monkeypatch, capsys):
    monkeypatch.setattr(vages.app.runs, "assess", made_up)
    monkeypatch.setenv("COLUMNS", "400")
    run = project / "runs" / "grbm"
    assert cli.evaluate(str(run), measure="model", data="mine.npy", json=True) == 0
    told = json.loads(capsys.readouterr().out)["model"]["data"]
    assert (told["name"], told["own"]) == ("mine.npy", False)
    assert told["test"] == fingerprint(split(rows(1), 0).test)
    assert json.loads((run / "evaluation-1" / "result.json").read_text())["data"] == told
    cli.evaluate(str(run), measure="model", data="mine.npy")
    assert "evaluated on mine.npy, not on the run's own data" in capsys.readouterr().out
    cli.evaluate(str(run), measure="model", data=str(project / "mine.npy"), json=True)  # its own, renamed
    assert json.loads(capsys.readouterr().out)["model"]["data"]["own"]
    cli.evaluate(str(run), measure="model")
    assert f"evaluated on the run's own data, {project / 'mine.npy'}" in capsys.readouterr().out
    shutil.rmtree(run / "evaluation-4")
    shutil.rmtree(run / "evaluation-3")
    assert "on mine.npy, not on the run's own data" in html.unescape(vages.app.runs.build_report(run))
    np.save("wide.npy", np.zeros((50, 3)))
    with pytest.raises(ValueError, match=r"^data: .*\(2,\) .*got \(3,\) in wide.npy"):
        cli.evaluate(str(run), measure="model", data="wide.npy")
    with refused("data", got="no file or folder 'nothing'"):
        cli.evaluate(str(run), measure="model", data="nothing")
    with pytest.raises(ValueError, match=r"^data: .*got mine.npy, .*\brun"):
        cli.evaluate("mine.npy", against="mine.npy", data="mine.npy")


def test_images_of_another_set(project):
    run = load_run(project / "runs" / "deep")
    assert run.about_data is None
    np.save("few.npy", pictures(2)[:10])  # less than one batch
    other = run.on("few.npy")
    assert other.data.splits.train.shape == (8, 1, 8, 8)
    assert other.about_data is not None
    assert (other.data_name, other.about_data["own"], other.about_data["train"]["shape"][0]) == ("few.npy", False, 16)
    assert samples_of(other, 20, "paper", None, 0, "replicate").given is other.data.splits.train
    np.save("wide.npy", np.zeros((50, 8, 9), np.uint8))
    with pytest.raises(ValueError, match=r"^data: .*\(1, 8, 8\) .*got \(1, 8, 9\)"):
        run.on("wide.npy").data  # noqa: B018


def test_fingerprints_of_parts_are_those_of_the_whole(monkeypatch):
    x = np.random.default_rng(0).normal(size=(10, 3, 4)).astype(np.float32)
    whole = fingerprint(np.concatenate([x, x[..., ::-1]]))
    assert fingerprint(x, x[..., ::-1]) == whole
    monkeypatch.setattr("vages.training.digests._PIECE", 100)
    assert fingerprint(x, x[..., ::-1]) == whole
    assert fingerprint(jnp.asarray(x)) == fingerprint(x)
    assert fingerprint(x[:0])["shape"] == [0, 3, 4]


def test_what_is_trained_on_is_what_is_fingerprinted(project, monkeypatch):
    monkeypatch.chdir(project)
    images, fingerprints = read(as_recipe(DEEP))
    assert fingerprints["train"] == fingerprint(images.source())
    found = newest_checkpoint(project / "runs" / "deep" / "checkpoints", pytest.fail)
    assert found is not None
    assert found.about["data"] == {**fingerprints["train"], "position": 20}
    assert {name: found.about["dataset"][name] for name in fingerprints} == fingerprints
