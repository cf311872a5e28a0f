"""Classes of own images: their numbers, their counts of training images, and classes without training images."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from errors import refused
from vages.app import cli
from vages.app.cli.parsing import parse
from vages.app.recipes import Examples
from vages.app.recipes import images as images_recipe
from vages.app.runs import load_run
from vages.app.runs.classes import class_record, classes_of, label_of, recorded_classes, told_classes, untrained_problem
from vages.data import Labels, Splits, load_images, load_labels
from vages.data.splits import split_rows
from vages.training import RunFolder

TINY = ("--width", "8", "--depth", "1", "--latents", "0", "--steps", "2", "--batch", "8", "--sampling-steps", "3")
TINY += ("--network", "mlp")  # the one that compiles most quickly


def command(*words):
    name, *rest = map(str, words)
    args, options = parse(name, rest)
    return getattr(cli, name)(*args, **options)


def save(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), value, np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path):
    """40 images. Class 0 is apple, 1 is lonely, whose only image is in the test set, and 2 is pear."""
    parts = split_rows(40, 0)
    alone = int(parts[2][0])
    names = ["apple"] * alone + ["lonely"] + ["pear"] * (39 - alone)
    for i, name in enumerate(names):
        save(tmp_path / "own" / name / f"{i:02}.png", 6 * i)
    counts = [sum(names[row] == name for row in parts[0]) for name in ("apple", "lonely", "pear")]
    assert counts[1] == 0
    return tmp_path / "own", counts


def test_a_run_says_and_records_which_number_is_which_class(folder, tmp_path, capsys):
    own, (apples, _, pears) = folder
    run = tmp_path / "run"
    line = f"training images of 3 classes: 0 (apple): {apples}, 1 (lonely): 0, 2 (pear): {pears}"
    problem = "1 of 3 classes have no training image: 1 (lonely); "
    assert command("train", "--data", own, *TINY, "--labels", "--dry-run") == 0
    planned = capsys.readouterr().out
    assert f"  classes: {line}\n" in planned
    assert problem in planned
    assert command("train", "--data", own, *TINY, "--labels", "--out", run) == 0
    said = capsys.readouterr()
    assert f"{line}\n" in said.err
    assert f"vages: warning: {problem}" in said.err
    assert f"warning: {problem}" in said.out
    events = RunFolder.events(run)
    assert any(event["event"] == "warning" and problem in event["problem"] for event in events)
    expected = [
        {"label": 0, "name": "apple", "images": apples},
        {"label": 1, "name": "lonely", "images": 0},
        {"label": 2, "name": "pear", "images": pears},
    ]
    assert events[0]["dataset"]["classes"] == expected
    assert recorded_classes(load_run(run).dataset) == expected
    assert command("train", "--resume", run, "--steps", "2") == 0
    capsys.readouterr()

    result = lambda number: json.loads((run / f"samples-{number}" / "result.json").read_text())
    assert command("sample", run, "--count", 1, "--label", "pear") == 0
    assert (result(1)["label"], result(1)["warnings"]) == (2, [])
    assert ", given the label 2 (pear)" in capsys.readouterr().out
    assert command("sample", run, "--count", 1, "--label", 1) == 0
    assert "warning: no training image had the label 1 (lonely)" in capsys.readouterr().out
    with refused("label", "'plum'; choose one of 0 (apple), 1 (lonely), 2 (pear)"):
        command("sample", run, "--label", "plum")

    (own / "apple").rename(own / "zebra")  # now its images come last
    renamed = "got others without the class 'apple' and with the class 'zebra', "
    with pytest.raises(ValueError, match=f"{renamed}.*; restore them, or give their new path with "):
        command("train", "--resume", run, "--data", own)


def test_advice_names_a_label_that_was_learnt(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.integers(0, 256, (40, 4, 4), np.uint8), labels=np.arange(40) % 2 + 1)
    run = tmp_path / "run"
    assert command("train", "--data", tmp_path / "x.npz", *TINY, "--labels", "--out", run) == 0
    for without, got in (((), "none"), (("--label", -1), "-1, which means no label")):
        with refused("guidance", f"{got}; give --label 1, for example"):  # as no training image has label 0
            command("sample", run, "--guidance", 2, *without)


def test_many_classes_are_told_in_one_line():
    classes = [{"label": i, "images": i + 1} for i in range(12)]
    assert told_classes(classes).endswith(": 0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9, 9: 10 and 2 more")


def test_a_strange_record_has_no_classes():
    for strange in (None, {}, {"classes": 3}, {"classes": [3]}, {"classes": [{"label": "0", "images": 1}]}):
        assert recorded_classes(strange) == []


@pytest.mark.parametrize("sets", [("train", "val"), ("Train", "test", "valid"), ("training", "validation")])
@pytest.mark.parametrize("outer", ["", "all/"])
def test_folders_that_are_sets_are_no_classes(tmp_path, sets, outer):
    for i in range(12):
        save(tmp_path / "own" / f"{outer}{sets[i % len(sets)]}" / "ab"[i // 6] / f"{i}.png")
    told = f"expected a folder for each class, got the sets {', '.join(sorted(sets))}; "
    for labels in ((), ("--labels",)):  # training without labels would use all sets, too
        with pytest.raises(ValueError, match=told):
            command("train", "--data", tmp_path / "own", *TINY, *labels, "--out", tmp_path / "run")
        assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=told):
        load_images(tmp_path / "own")
    assert load_images(tmp_path / "own", check=False).labels is not None


def test_a_class_may_have_the_name_of_a_set(tmp_path):
    for i in range(12):
        save(tmp_path / "own" / ("train", "plane")[i % 2] / f"{i}.png")
    labels = load_images(tmp_path / "own").labels
    assert labels is not None
    assert labels.names == ("plane", "train")
    assert isinstance(labels, Labels)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.arange(19), "19; save one label for each example"),
        (np.arange(20)[:, None], "the shape (20, 1); save labels.ravel()"),
        (np.eye(20, dtype=int), "the shape (20, 20); save one number for each example"),
        (np.int64(3), "the shape (); save one number for each example"),
        (np.arange(20.0), "float64; save them as integers, labels.astype(int) say"),
        (
            np.arange(20) + 2**31 * (np.arange(20) == 3),
            "2147483651 in row 3; number the classes from 0 without gaps",
        ),
        (np.arange(20) - 5 * (np.arange(20) == 3), "-2 in row 3; number the classes from 0, and leave out what has no"),
    ],
)
def test_each_fault_of_labels_has_its_own_advice(tmp_path, labels, says):
    np.savez(tmp_path / "x.npz", images=np.zeros((20, 4, 4), np.uint8), labels=labels)
    with pytest.raises(ValueError, match=re.escape(f"array 'labels': expected 20 whole numbers from 0, got {says}")):
        load_images(tmp_path / "x.npz")


def recorded(folder):
    """The record of the classes of a folder in a run, read back from a file."""
    images = load_images(folder)
    record = class_record(Examples(images.splits, images.labels))
    return recorded_classes(json.loads(json.dumps(record, ensure_ascii=False).encode()))


def test_folders_with_numbers_as_names_are_named_first(tmp_path):
    for i in range(40):
        save(tmp_path / "own" / ("1", "2", "10", "03")[i % 4] / f"{i}.png", i)
    classes = recorded(tmp_path / "own")
    assert [one["name"] for one in classes] == ["03", "1", "10", "2"]
    assert [label_of(name, classes) for name in ("03", "1", "10", "2")] == [0, 1, 2, 3]
    assert [label_of(text, classes) for text in ("0", "3", 2, "-1", None)] == [0, 3, 2, -1, None]
    with refused("label", "'03.0'; choose one of 0 (03), 1 (1), 2 (10), 3 (2)"):
        label_of("03.0", classes)
    assert parse("sample", ["run", "--label", "2"])[1]["label"] == "2"


def test_names_that_are_no_text_are_escaped(tmp_path):
    for i in range(40):
        save(tmp_path / "own" / (os.fsdecode(b"caf\xe9"), "a\nb")[i % 2] / f"{i}.png", i)
    classes = recorded(tmp_path / "own")
    assert [one["name"] for one in classes] == [r"a\nb", r"caf\udce9"]
    assert label_of(os.fsdecode(b"caf\xe9"), classes) == 1


def test_mirrored_images_with_labels_are_resumed(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 4, 4), np.uint8)
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(40) % 2)
    run = tmp_path / "run"
    train = ("train", "--data", tmp_path / "x.npz", *TINY, "--labels", "--flips")
    assert command(*train, "--out", run) == 0
    assert command("train", "--resume", run) == 0
    assert load_run(run).data.context is not None
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(40) // 20)
    with pytest.raises(ValueError, match="got the same with other labels"):
        command("train", "--resume", run)


def test_labels_may_be_plain_splits_and_far_apart():
    rows = Splits(*(np.zeros((3, 1, 4, 4), np.float32) for _ in range(3)))
    labels = Splits(*(np.array([0, 5, 10**9]) for _ in range(3)))
    examples = Examples(rows, labels, {"label": labels})
    assert [one["label"] for one in classes_of(examples)] == [0, 5, 10**9]
    problem = untrained_problem(examples, None)
    assert problem is not None
    assert problem.startswith("999999998 of 1000000001 classes have no training image: 1, 2, 3, 4, 6, 7, 8, 9, 10, 11 ")


def test_runs_go_on_with_data_that_a_new_run_would_be_refused(tmp_path, monkeypatch):
    """They were started before the check existed."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (20, 12, 4), np.uint8))
    run = tmp_path / "run"
    start = ("train", "--data", tmp_path / "x.npy", *TINY, "--out", run)
    with pytest.raises(ValueError, match="stack images"):
        command(*start)
    with monkeypatch.context() as patch:
        patch.setattr(images_recipe, "load_images", lambda *args, check, **how: load_images(*args, check=False, **how))
        assert command(*start) == 0
    assert command("train", "--resume", run) == 0
    assert load_run(run).data.shape == (1, 12, 4)


def test_labels_of_a_folder_are_those_of_its_images(tmp_path):
    with refused(str(tmp_path), f"a folder; load_images({str(tmp_path)!r}).labels has its classes"):
        load_labels(tmp_path, seed=0)


def test_images_outside_of_the_folders_of_classes_are_named(tmp_path):
    own, array = tmp_path / "own", tmp_path / "x.npy"
    for i in range(20):
        save(own / "ab"[i % 2] / f"{i}.png", i)

    def advised(path, advice):
        with refused("labels", f"none in {path}; {advice}, or leave --labels out"):
            command("train", "--data", path, *TINY, "--labels", "--out", tmp_path / "run")

    save(own / "stray.png")
    advised(own, "move stray.png into the folder of a class")
    save(own / "astray.png")
    advised(own, "move astray.png and 1 more into the folder of a class")
    advised(own / "a", "put the images of each class into a folder of their own")
    np.save(array, np.random.default_rng(0).integers(0, 256, (20, 4, 4), np.uint8))
    advised(array, "save a .npz file with an array 'labels' beside the images")


@pytest.mark.parametrize("ending", ["", ".zip", ".tar", ".tar.gz"])
def test_images_beside_the_folders_of_classes_are_named_in_one_outer_folder(tmp_path, ending):
    """An archive of a folder often has that folder as its only one. What lies directly in it has no class."""
    folder = tmp_path / "own"
    for i in range(20):
        save(folder / "top" / "ab"[i % 2] / f"{i}.png", i)

    def trained(name):
        if ending:
            shutil.make_archive(str(folder), {".zip": "zip", ".tar": "tar", ".tar.gz": "gztar"}[ending], folder)
        return command("train", "--data", f"{folder}{ending}", *TINY, "--labels", "--out", tmp_path / name)

    assert trained("run") == 0
    save(folder / "top" / "stray.png")
    advice = "move top/stray.png into the folder of a class"
    with refused("labels", f"some beside the folders of {folder}{ending}; {advice}"):
        trained("other")
