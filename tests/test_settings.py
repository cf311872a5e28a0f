"""An edited config.json is refused by every command. Options change settings when a run is resumed."""

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from errors import refused
from small_recipes import edit_config, first_config
from vages.app import cli
from vages.app.cli.training import parse_train
from vages.app.recipes import Drawn, as_recipe, preset
from vages.app.runs import build_report, config_of, load_run, recipe_of, run_recipe
from vages.app.runs.config import reopened
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS, check_choices, check_place
from vages.training import RunFolder
from vages.training.checkpoint import newest_about, write_checkpoint
from vages.training.digests import settings_digest

SMALL = replace(CHECKERBOARD, steps=20, evaluate_every=10, posterior_steps=1)
DIGITS = DEEP_PRESETS["digits-paper"]
pytestmark = pytest.mark.usefixtures("short_chains")


def folder_of(recipe, path, *, first_edition=False, step=10):
    """The folder of a run with a checkpoint without arrays. Version 0.1 wrote another config and no digest."""
    folder = RunFolder(path, first_config(recipe) if first_edition else config_of(as_recipe(recipe)))
    about = {"config": folder.config, **({} if first_edition else {"settings_sha256": settings_digest(folder.config)})}
    write_checkpoint(folder.checkpoints, step, {"a": np.zeros(1)}, about)
    folder.close()
    return path


def resumed(recipe, path):
    """The folder of a resumed run that ended before its first new checkpoint."""
    folder = reopened(as_recipe(recipe), path)
    folder.begin()
    folder.close()


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("first", [False, True], ids=["this edition", "the first"])
@pytest.mark.parametrize(
    ("recipe", "changes", "says"),
    [
        (SMALL, {"batch": 50}, "batch 50 in place of 100"),
        (SMALL, {"steps": 40}, "steps 40 .*20"),
        (SMALL, {"control_variate": True}, "control_variate True .*False"),
        (SMALL, {"data": "rings", "seed": 3}, "data rings .*checkerboard, seed 3 .*0"),
        (SMALL, {"decay": "cosine", "steps": 40}, "steps 40 .*20, decay cosine .*constant"),
        (DIGITS, {"sampling": 0.5}, "sampling 0.5 .*1.0"),
        (DIGITS, {"flips": True}, "flips True .*False"),
    ],
)
def test_an_edited_config_is_refused(tmp_path, recipe, changes, says, first):
    path = folder_of(recipe, tmp_path / "run", first_edition=first)
    assert recipe_of(path).settings == recipe
    edit_config(path, **changes)
    before = files(path)
    says = f"^{path}/config.json: .*got {says}; "
    for command in (
        lambda: cli.train(resume=path),
        lambda: cli.train(resume=path, dry_run=True),
        lambda: cli.evaluate(str(path), measure="model"),
        lambda: reopened(as_recipe(recipe), path),
        lambda: load_run(path),
    ):
        with pytest.raises(ValueError, match=says) as error:
            command()
        assert "\n" not in str(error.value)
    assert files(path) == before
    if recipe is DIGITS:
        for command in (cli.sample, cli.interpolate, cli.inpaint, cli.embed):
            with pytest.raises(ValueError, match=says):
                command(path)


def test_a_control_character_in_a_forged_config_is_escaped(tmp_path):
    path = folder_of(SMALL, tmp_path / "run")
    edit_config(path, data="a\0b")
    with refused(f"{path}/config.json: data", got="'a\\x00b'") as error:
        recipe_of(path)
    assert str(error.value).isprintable()
    assert "\0" not in build_report(path)


def test_what_an_edit_leaves_as_it_was_is_no_edit(tmp_path):
    path = folder_of(SMALL, tmp_path / "run")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(dict(reversed(config.items())), indent=7))
    assert recipe_of(path).settings == SMALL
    del config["settings"]["clip"]  # like a run from before this setting existed
    (path / "config.json").write_text(json.dumps(config))
    assert recipe_of(path).settings == SMALL


@pytest.mark.parametrize(
    ("recipe", "first"),
    [(SMALL, False), (SMALL, True), (replace(SMALL, decay="trapezoid"), False)],
    ids=["this edition", "the first", "a trapezoid"],
)
def test_a_resume_with_more_steps_that_was_killed_before_its_first_checkpoint_goes_on(tmp_path, recipe, first):
    path = folder_of(recipe, tmp_path / "run", first_edition=first)
    for steps in (40, 30):
        resumed(replace(recipe, steps=steps), path)
        assert recipe_of(path).settings.steps == steps
    edit_config(path, steps=40)  # announced once, but not by the last resume
    with pytest.raises(ValueError, match="steps 40 .*20"):
        recipe_of(path)
    edit_config(path, steps=30)
    resumed(replace(recipe, steps=50), path)
    assert recipe_of(path).settings.steps == 50


@pytest.mark.parametrize(("decay", "made"), [("cosine", 10), ("trapezoid", 16)])
def test_announced_steps_are_refused_where_the_rate_has_begun_to_decay(tmp_path, decay, made):
    path = folder_of(replace(SMALL, decay=decay), tmp_path / "run", step=made)
    with (path / "events.jsonl").open("a") as events:
        events.write('{"event": "other settings", "steps": [20, 40]}\n')
    edit_config(path, steps=40)
    with pytest.raises(ValueError, match="steps 40 .*20"):
        recipe_of(path)


def test_settings_are_announced_before_they_are_taken(tmp_path, monkeypatch):
    """A resume can be killed at any moment, and the run can still be resumed."""
    path = folder_of(SMALL, tmp_path / "run")

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            resumed(replace(SMALL, steps=40), path)
    assert recipe_of(path).settings == SMALL
    assert [event["steps"] for event in RunFolder.events(path) if event["event"] == "other settings"] == [[20, 40]]


def test_events_that_cannot_be_read_announce_nothing(tmp_path):
    path = folder_of(SMALL, tmp_path / "run")
    edit_config(path, steps=40)
    odd = ['{"event": "other settings", "steps": [20, [40]]}', '{"event": "other settings", "steps": 40}', "[40]", "{"]
    odd += ['{"event": "other settings", "steps": [20, NaN]}', "[" * 5000]
    (path / "events.jsonl").write_text("\n".join(odd))
    with pytest.raises(ValueError, match="steps 40 .*20"):
        recipe_of(path)


def test_the_page_of_a_run_names_the_edit(tmp_path):
    path = folder_of(SMALL, tmp_path / "run")
    assert "config.json: expected " not in build_report(path)
    edit_config(path, batch=50)
    assert re.search("config.json: expected .*, got batch 50 .*100", build_report(path))


def test_checkpoints_repeat_the_digest_of_the_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    recipe = replace(SMALL, method="dsm", latents=2)
    run_recipe(as_recipe(replace(recipe, steps=2)), Path("run"))
    run_recipe(as_recipe(replace(recipe, steps=4)), Path("run"), resume=True)
    about = newest_about(Path("run/checkpoints"))
    assert about is not None
    config = json.loads(Path("run/config.json").read_text())
    assert (config["settings"]["steps"], about["config"]) == (4, config)
    assert about["settings_sha256"] == settings_digest(config)
    edit_config(Path("run"), learning_rate=0.5)
    before = files(tmp_path)
    with pytest.raises(ValueError, match="learning_rate 0.5 .*0.001"):
        cli.train(resume=Path("run"))
    assert files(tmp_path) == before
    assert os.listdir() == ["run"]


def test_digests_of_settings():
    one = settings_digest({"a": 1, "b": [1.5, None]})
    assert one == settings_digest({"b": (1.5, None), "a": 1})
    assert settings_digest({"a": {2: 0, 10: 1}}) == settings_digest({"a": {"10": 1, "2": 0}})
    assert len({one, *(settings_digest({"a": x, "b": [1.5, None]}) for x in (1.0, True, "1"))}) == 4


@dataclass
class Forged:
    """Settings without the types that are checked automatically."""

    flips: bool = False


@pytest.mark.parametrize("data", [None, 5, 1.5, [], "", "a\0b"])
def test_data_of_a_forged_config_have_a_name(data):
    check_place("digits")
    with refused("data"):
        check_place(data)


def test_flags_of_a_forged_config_are_flags():
    check_choices(Forged())
    with refused("flips", got="x"):
        check_choices(Forged(flips="x"))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("words", [["board", "--normalized"], ["--data", "points.npy", "--no-normalized"]])
def test_a_preset_that_is_always_normalized_says_so(words):
    with refused("normalized") as caught:
        parse_train(words)
    assert "always normalized" in str(caught.value)


@pytest.mark.parametrize("preset_name", ["images", "board"])
def test_data_that_are_not_there_are_told(tmp_path, monkeypatch, preset_name):
    monkeypatch.chdir(tmp_path)
    with refused("data", got="no file or folder 'nofolder'"):
        preset(preset_name).with_(data="nofolder").load()
    with refused("data", got="none"):
        preset("images").load()


def test_a_setting_of_other_presets_names_them():
    with refused("labels", got="one") as caught:
        parse_train(["--labels"])
    told = "as a normalized model of points has none, got one; leave it out, or choose a preset that has it: "
    assert told + "cifar10, mnist, celeba, digits, images" in str(caught.value)


def test_a_run_without_a_checkpoint_is_resumed_unless_it_diverged(tmp_path):
    folder = RunFolder(tmp_path / "run", config_of(as_recipe(SMALL)))
    with pytest.raises(ValueError, match="got none; resume it with: vages train --resume"):
        load_run(tmp_path / "run")
    folder.tell("diverged", step=0, problem="x")
    folder.close()
    with refused("run", got="none") as caught:
        load_run(tmp_path / "run")
    assert "training diverged" in str(caught.value)
    assert "--resume" not in str(caught.value)


def test_a_preset_beside_resume_is_refused(tmp_path):
    with refused("preset", got="digits"):
        cli.train("digits-paper", resume=tmp_path)
