"""A run folder contains only data: links out of it are refused, refusals change nothing, unreadable files are kept."""

import ast
import hashlib
import json
import os
import shutil
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from audited import opened_by_path
from errors import refused
from fake_runs import deep_run, grbm_run
from small_recipes import with_settings
from vages.app import cli
from vages.app.recipes import Drawn, as_recipe
from vages.app.recipes import grbm_pictures as recipe_pictures
from vages.app.runs import load_run, run_recipe, write_report
from vages.app.runs.assessment import Assessment, Row, Sizes, keep_assessment
from vages.app.settings import CHECKERBOARD
from vages.files import BadFile
from vages.samplers import gibbs_sample
from vages.storage import directory as directories
from vages.storage.directory import Directory, UnsafeFile
from vages.training import Checkpoints, RunFolder
from vages.training.checkpoint import (
    ARRAYS,
    MANIFEST,
    Checkpoint,
    checkpoints,
    newest_checkpoint,
    prune,
    read_checkpoint,
    step_of,
    write_checkpoint,
)
from vages.training.keeping import has_selected

SMALL = replace(CHECKERBOARD, steps=20, evaluate_every=10, posterior_steps=1)
LAST = "checkpoints/step-000000000020"
SECRET = b"what is outside\n"
ASSESSED = Assessment("run", 20, [Row("a number", 1.0, 0.1, "nothing")], 20, 0.1, Sizes(), 0, 0.1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_pictures, "gibbs_sample", lambda *args: gibbs_sample(*args, steps=10))
        with opened_by_path(path) as seen:
            run_recipe(as_recipe(SMALL), path, checkpoints=Checkpoints(every=10))
    return path, seen


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained[0], tmp_path / "run")


@pytest.fixture(autouse=True)
def in_time():
    """Fail if a call blocks: opening a pipe without a writer would wait forever."""

    def too_late(number, frame):
        raise TimeoutError("blocked")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def resume(run, **change):
    return run_recipe(
        as_recipe(replace(SMALL, **{"steps": 30, **change})), run, resume=True, checkpoints=Checkpoints(every=10)
    )


def contents(folder):
    """Modes, times, inodes and contents of all files."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[path] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return found


def events(run):
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def in_place_of(path, kind, outside):
    """Replace a file or folder by a link, a pipe or a socket, and move its content outside."""
    if kind == "link" and path.is_dir():
        shutil.copytree(path, outside)
        shutil.rmtree(path)
        path.symlink_to(outside)
        return
    content = path.read_bytes() if path.exists() else SECRET
    path.unlink(missing_ok=True)
    if kind in ("link", "hard link"):
        outside.write_bytes(content)
        path.symlink_to(outside) if kind == "link" else path.hardlink_to(outside)
    elif kind == "dangling link":
        path.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[(name, "link") for name in ("events.jsonl", "metrics.jsonl", "config.json", "environment.json", ".lock")],
        *[(name, "link") for name in ("result.json", "curve.png", "samples.png", "report.html", "checkpoints", LAST)],
        *[(name, "link") for name in (f"{LAST}/{ARRAYS}", f"{LAST}/{MANIFEST}", "tensorboard")],
        *[(name, "dangling link") for name in ("events.jsonl", ".lock", "curve.png", "report.html", "tensorboard")],
        *[(name, "pipe") for name in ("events.jsonl", "metrics.jsonl", ".lock", "config.json", "curve.png")],
        *[(name, "pipe") for name in ("checkpoints/step-000000000015", f"{LAST}/{ARRAYS}", f"{LAST}/{MANIFEST}")],
        *[(name, "hard link") for name in ("events.jsonl", "metrics.jsonl", ".lock")],
        *[(name, "socket") for name in ("events.jsonl", ".lock")],
    ],
)
def test_what_leads_out_of_a_run_is_refused_before_anything_is_written(run, tmp_path, monkeypatch, name, kind):
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside"
    if name == "tensorboard" and kind == "link":
        (run / name).mkdir()
    in_place_of(run / name, kind, outside)
    before = contents(tmp_path)
    with pytest.raises(UnsafeFile, match=f"{run / name}: expected .*, got .*; ") as error:
        resume(run)
    assert "\n" not in str(error.value)
    assert contents(tmp_path) == before


def test_a_hard_link_is_read_and_replaced(run, tmp_path):
    """Backup tools make hard links. Appending would change the other file as well."""
    for name in ("config.json", "metrics.jsonl"):
        (tmp_path / name).hardlink_to(run / name)
    before = {name: (tmp_path / name).read_bytes() for name in ("config.json", "metrics.jsonl")}
    directory = Directory(run)
    assert directory.read_bytes("config.json", 2**20) == before["config.json"]
    directory.write_bytes("config.json", b"{}")
    with pytest.raises(UnsafeFile, match="got a hard link"):
        directory.append("metrics.jsonl", b"more")
    assert before == {name: (tmp_path / name).read_bytes() for name in before}


def test_the_path_of_a_run_may_be_a_link(run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    assert load_run(tmp_path / "latest").step == 20
    RunFolder.reopen(tmp_path / "latest").close()


def test_a_page_leaves_out_what_leads_elsewhere(tmp_path):
    run, outside = deep_run(tmp_path / "run"), tmp_path / "outside.png"
    shutil.copy(run / "samples.png", outside)
    page = write_report(run).read_text()
    for name in ("secret.png", "samples.png"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside)
    in_place_of(run / "environment.json", "link", tmp_path / "outside.json")
    in_place_of(run / "metrics.jsonl", "pipe", outside)
    in_place_of(run / "samples-11", "link", tmp_path / "elsewhere")
    in_place_of(run / "interpolation-1" / "interpolation.npz", "link", tmp_path / "outside.npz")
    after = write_report(run).read_text()
    assert after.count("data:image/png") < page.count("data:image/png")
    assert "protocol of 11" not in after
    for name, kind in (
        *[(name, "a symbolic link") for name in ("secret.png", "samples.png", "environment.json", "samples-11")],
        ("interpolation.npz", "a symbolic link"),
        ("metrics.jsonl", "a pipe"),
    ):
        assert f"{name}: expected " in after, name
        assert f"got {kind}" in after


@pytest.mark.parametrize("name", ["report.html", "config.json"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_page_is_written_through_a_link(tmp_path, name, kind):
    run, outside = grbm_run(tmp_path / "run"), tmp_path / "outside"
    in_place_of(run / name, kind, outside)
    before = contents(tmp_path)
    with pytest.raises(UnsafeFile, match="regular file, got"):
        write_report(run)
    assert contents(tmp_path) == before


def test_a_name_that_is_no_text_is_refused(tmp_path):
    """Bytes that are not UTF-8 are lone surrogates in Python, which are not valid in our JSON files."""
    with pytest.raises(ValueError, match="^config.json: .*udcff"):
        Directory(tmp_path).write_json("config.json", {"data": "a\udcff.npz"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("handles", [True, False])
def test_names_are_names(tmp_path, monkeypatch, handles):
    monkeypatch.setattr(directories, "HANDLES", handles)
    (tmp_path / "outside").write_bytes(SECRET)
    folder = Directory(tmp_path / "run")
    assert not folder.exists()
    assert folder.names() == []
    assert folder.create()
    assert not folder.create()
    for name in ("../outside", "..", ".", "", "a/b", str(tmp_path / "outside"), "a\0b"):
        for action in (
            lambda name: folder.read_bytes(name, 100),
            lambda name: folder.write_bytes(name, b"x"),
            lambda name: folder.append(name, b"x"),
            lambda name: folder.remove(name),
            lambda name: folder.rename("a", name),
            lambda name: folder / name,
        ):
            with refused("name"):
                action(name)
    assert (tmp_path / "outside").read_bytes() == SECRET
    inner = folder / "inner"
    inner.create()
    inner.write_bytes("a", b"1")
    inner.append("a", b"2")
    assert inner.read_bytes("a", 2) == b"12"
    with pytest.raises(BadFile, match="1 bytes, got 2"):
        inner.read_bytes("a", 1)
    with pytest.raises(FileExistsError):
        inner.create_file("a", b"")
    (tmp_path / "run" / "way out").symlink_to(tmp_path)
    (tmp_path / "run" / "inner" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeFile, match="folder.*symbolic link"):
        (folder / "way out").read_bytes("outside", 100)
    with pytest.raises(UnsafeFile, match="regular file.*symbolic link"):
        inner.read_bytes("link", 100)
    with pytest.raises(UnsafeFile, match="regular file.*symbolic link"):
        inner.append("link", b"x")
    folder.remove("inner")
    folder.remove("way out")
    assert folder.names() == []
    assert (tmp_path / "outside").read_bytes() == SECRET


def test_a_file_that_becomes_a_link_or_a_pipe_after_it_was_looked_at(tmp_path, monkeypatch):
    """The link is not followed, and opening the pipe does not wait for a writer."""
    (tmp_path / "outside").write_bytes(SECRET)
    folder = Directory(tmp_path / "run")
    folder.create()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "run" / "pipe")
    monkeypatch.setattr(Directory, "check_file", lambda self, name, appended=False: True)
    with pytest.raises(OSError, match="symbolic links"):
        folder.read_bytes("link", 100)
    writer = threading.Timer(5, lambda: os.close(os.open(tmp_path / "run" / "pipe", os.O_RDWR)))  # ends a wait
    writer.start()
    began = time.monotonic()
    with pytest.raises(UnsafeFile):
        folder.read_bytes("pipe", 100)
    assert time.monotonic() - began < 5
    writer.cancel()


def test_a_forged_best_value_is_refused(tmp_path):
    forged = lambda values: Checkpoint(tmp_path, 1, {"best_value": np.asarray(values, np.float32)}, {})
    assert has_selected(forged([-np.inf, 1.0]), 1)
    assert not has_selected(forged([-np.inf, 1.0]), 0)
    assert not has_selected(Checkpoint(tmp_path, 1, {}, {}))
    for values, got in ((1.0, "[]"), ([[1.0]], "[1, 1]"), ([], "[0]")):
        with refused(str(tmp_path), got=got, kind=BadFile):
            has_selected(forged(values))


def test_a_folder_that_becomes_a_link_is_not_followed(tmp_path):
    """The handle refers to the folder itself, wherever its name points now."""
    folder = Directory(tmp_path) / "run"
    folder.create()
    folder.write_bytes("a", b"own")
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "outside")
    folder.write_bytes("b", b"own")
    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == ["a", "b"]
    assert not list((tmp_path / "outside").iterdir())


# checkpoints that this version did not write


def newer(path, version=2):
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["manifest"]["format"] = version
    (path / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize("step", [10, 20, 25])
def test_a_checkpoint_of_a_newer_format_is_refused(run, monkeypatch, capsys, step):
    path = run / "checkpoints" / f"step-{step:012d}"
    if step == 25:
        shutil.copytree(run / LAST, path)
    newer(path)
    before = contents(run)
    for action in (resume, load_run, write_report):
        with pytest.raises(ValueError, match=f"{path}.*got format 2"):
            action(run)
        assert contents(run) == before
    prune(run / "checkpoints", 30, 1, lambda step: False)
    assert path in checkpoints(run / "checkpoints")


def test_empty_and_foreign_folders_do_not_block_a_resume(run, monkeypatch):
    """They are not removed either, whether they are old or in the place of a new checkpoint."""
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    where = run / "checkpoints"
    for step in (5, 30, 999_999_999_999):
        (where / f"step-{step:012d}").mkdir()
    (where / "step-000000000030" / "thesis.txt").write_text("mine")
    (where / "step-000000000006").write_text("a file")
    assert resume(run).fitted.step == 30
    assert read_checkpoint(where / "step-000000000030").step == 30
    assert (where / "unreadable-step-000000000030-1" / "thesis.txt").read_text() == "mine"
    assert {5, 6, 999_999_999_999} <= set(map(step_of, checkpoints(where)))
    why = [event["why"] for event in events(run) if event["event"] == "checkpoint refused"]
    assert sorted(line.partition("/checkpoints/")[2][:17] for line in why) == [
        f"step-{step:012d}" for step in (5, 6, 30, 999_999_999_999)
    ]


def test_a_run_with_none_but_foreign_folders_begins_again(run, monkeypatch):
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints" / "step-000000000020").mkdir(parents=True)
    assert resume(run).fitted.step == 30


def test_retention_removes_only_what_it_can_read(tmp_path):
    for step in range(1, 6):
        write_checkpoint(tmp_path, step, {"a": np.zeros(1)}, {})
    (tmp_path / "step-000000000001" / MANIFEST).write_bytes(b"{")
    newer(tmp_path / "step-000000000002")
    shutil.rmtree(tmp_path / "step-000000000004")
    (tmp_path / "step-000000000004").mkdir()
    prune(tmp_path, 5, 1, lambda step: False)
    assert [step_of(path) for path in checkpoints(tmp_path)] == [1, 2, 4, 5]


def test_what_stands_in_the_place_of_a_checkpoint_is_moved_aside(tmp_path):
    for number in (1, 2):
        (tmp_path / "step-000000000007").mkdir()
        (tmp_path / "step-000000000007" / "mine").write_text(str(number))
        write_checkpoint(tmp_path, 7, {"a": np.zeros(1)}, {})
        assert (tmp_path / f"unreadable-step-000000000007-{number}" / "mine").read_text() == str(number)
        shutil.rmtree(tmp_path / "step-000000000007")
    (tmp_path / "step-000000000007").symlink_to(tmp_path / "elsewhere")
    write_checkpoint(tmp_path, 7, {"a": np.zeros(1)}, {})
    write_checkpoint(tmp_path, 7, {"a": np.ones(1)}, {})
    found = newest_checkpoint(tmp_path, pytest.fail)
    assert found is not None
    assert found.arrays["a"] == 1
    assert (tmp_path / "unreadable-step-000000000007-3").is_symlink()


# a refused resume


def damage(run):
    for path in checkpoints(run / "checkpoints"):
        (path / ARRAYS).write_bytes(b"damaged")


def forge(run, **about):
    """Change the checkpoints' records, with correct checksums."""
    for path in checkpoints(run / "checkpoints"):
        found = read_checkpoint(path)
        write_checkpoint(run / "checkpoints", found.step, found.arrays, found.about | about)


def other_data(run):
    """Make the checkpoints' records refer to other data, with correct checksums."""
    for path in checkpoints(run / "checkpoints"):
        found = read_checkpoint(path)
        found.about["data"]["sha256"] = "0" * 64
        write_checkpoint(run / "checkpoints", found.step, found.arrays, found.about)


@pytest.mark.parametrize(
    ("prepare", "change", "says"),
    [
        (lambda run: None, {"learning_rate": 0.5}, "resume: .*settings"),
        (lambda run: None, {"steps": 15}, "steps: .*20"),
        (other_data, {}, "checkerboard: .*trained"),
        (damage, {}, "checkpoints: .*got none; .*SHA-256"),
        (lambda run: newer(run / LAST, 7), {}, "got format 7"),
        (lambda run: (run / "metrics.jsonl").unlink() or (run / "metrics.jsonl").mkdir(), {}, "got a folder"),
        (lambda run: shutil.rmtree(run / LAST), {"latents": 5}, "resume: .*settings"),
        (lambda run: forge(run, retries=2**40), {}, "retries and seconds"),
        (lambda run: forge(run, seconds=-5.0), {}, "retries and seconds"),
        (lambda run: forge(run, retries=True), {}, "retries and seconds"),
        (lambda run: forge(run, retries=-1), {}, "retries and seconds"),
    ],
)
@pytest.mark.parametrize("lock", [True, False])
def test_a_resume_that_fails_changes_nothing(run, prepare, change, says, lock):
    prepare(run)
    if not lock:  # as in a copy without hidden files
        (run / ".lock").unlink()
    half = run / "checkpoints" / ".step-000000000030.123"
    half.mkdir()
    before = contents(run)
    with pytest.raises(ValueError, match=says) as error:
        resume(run, **change)
    assert "\n" not in str(error.value)
    assert contents(run) == before


def test_a_resume_of_a_run_in_use_changes_nothing(run):
    other = RunFolder.reopen(run)
    before = contents(run)
    with pytest.raises(ValueError, match="in use"):
        resume(run)
    assert contents(run) == before
    other.close()


def test_a_look_at_the_lock_of_a_run_keeps_nobody_out(run, monkeypatch):
    """`in_use` has the lock for a moment. A process that is starting waits for it."""
    handle = Directory(run).lock(".lock", create=False)
    assert handle is not None
    monkeypatch.setattr(time, "sleep", lambda seconds: os.close(handle))
    RunFolder.reopen(run).close()


@pytest.mark.usefixtures("short_chains")
def test_rows_of_a_log_that_are_no_numbers_are_left_out(run):
    good = (run / "metrics.jsonl").read_text().splitlines()
    values = ('"x"', '{"a": 1}', "[1.0, 2.0]")
    rows = [*(f'{{"step": 20, "loss": {value}}}' for value in values), '{"step": NaN}', "[20]"]
    (run / "metrics.jsonl").write_text("\n".join([*good, *rows, *rows]) + "\n")
    resume(run)
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == [10, 20, 30]
    assert [event["unreadable"] for event in events(run) if event["event"] == "log incomplete"] == [10]


@pytest.mark.usefixtures("short_chains")
def test_a_torn_last_event_costs_itself_alone(run):
    before = events(run)
    with (run / "events.jsonl").open("a") as file:
        file.write('{"time": "2026-')
    resume(run)
    found = RunFolder.events(run)
    assert found[: len(before)] == before
    assert [found[len(before)]["event"], found[-1]["event"]] == ["other settings", "finished"]


@pytest.mark.parametrize("name", ["environment.json", "events.jsonl", "config.json"])
def test_a_start_removes_nothing_that_it_did_not_make(tmp_path, name):
    path = tmp_path / "odd"
    (path / name).mkdir(parents=True)
    (path / name / "precious").write_text("mine")
    (path / "environment.json").mkdir(exist_ok=True)
    (path / ".lock").touch()
    before = contents(path)
    with pytest.raises(ValueError, match="got a folder"):
        RunFolder(path, {})
    assert contents(path) == before


def test_a_checkpoint_with_more_bytes_than_its_arrays_is_not_read(tmp_path):
    path = write_checkpoint(tmp_path, 1, {"a": np.zeros(3)}, {})
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["manifest"]["files"][ARRAYS]["bytes"] = 2**32
    body = json.dumps(manifest["manifest"], sort_keys=True, separators=(",", ":"))
    manifest["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    (path / MANIFEST).write_text(json.dumps(manifest))
    os.truncate(path / ARRAYS, 2**32)  # a sparse file
    with pytest.raises(ValueError, match="got 4294967296"):
        read_checkpoint(path)


def test_other_settings_are_written_when_the_run_goes_on(run):
    folder = RunFolder.reopen(run)
    before = contents(run)
    folder.tell("a note")
    folder.configure(with_settings(folder.config, steps=30))
    assert contents(run) == before
    folder.begin()
    folder.close()
    assert json.loads((run / "config.json").read_text())["settings"]["steps"] == 30
    assert [event["event"] for event in events(run)[-2:]] == ["a note", "other settings"]


# nothing else opens files of a run


@pytest.mark.usefixtures("short_chains")
def test_one_module_opens_the_files_of_a_run(trained, run, capsys):
    with opened_by_path(run) as seen:
        cli.train(resume=run, steps=30, tensorboard=True, json=True)
        loaded = load_run(run)
        keep_assessment(loaded, ASSESSED)
        write_report(run)
    for path, opened in ((trained[0], trained[1]), (run, seen)):
        assert {(name, where) for _, name, where in opened} == {(str(path), "storage/directory.py")}


def test_no_room_above_has_another_way_to_files():
    """Calls that open, list or change files by path, in all packages that handle runs."""
    package = Path(directories.__file__).parent.parent
    banned = {"open", "read_text", "write_text", "mkdir", "unlink", "rmdir", "touch", "iterdir", "glob", "rglob"}
    banned |= {
        "rmtree",
        "copytree",
        "listdir",
        "scandir",
        "savez",
        "savefig",
        "replace_durably",
        "read_json",
        "read_npz",
    }
    found = set()
    for room in ("training", "app"):
        for path in (package / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called.rpartition(".")[2] in banned:
                    found.add((path.relative_to(package).as_posix(), called))
    assert found == {
        ("app/cli/starting.py", "file.open"),  # a new recipe file of the user
        ("app/cli/supervision.py", "open"),  # a stream of the process
        ("app/explore/access.py", "file.write_text"),  # the address, in a temporary folder
        ("app/experiments/reproduce.py", "out.mkdir"),  # the parent folder of the results
        ("app/report/images.py", "figure.savefig"),  # into memory
        ("app/report/page/document.py", "files('vages.app.report.page').joinpath(name).read_text"),  # library file
        ("app/runs/kept.py", "np.savez"),  # into an open file
        ("training/fit.py", "keeper.open"),
    }


def test_a_folder_may_be_named_by_a_text(tmp_path):
    name = str(tmp_path / "run")
    folder = RunFolder(name, {"steps": 3})
    folder.close()
    assert folder.path == tmp_path / "run"
    RunFolder.reopen(name).close()
    assert RunFolder.peek(name) == {"steps": 3}
    assert [event["event"] for event in RunFolder.events(name)] == ["started"]
    assert RunFolder.metrics(name) == []
