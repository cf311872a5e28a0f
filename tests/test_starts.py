"""Simultaneous starts each have their own folder, and failed starts leave none."""

import json
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from errors import refused
from vages.app import cli
from vages.app.runs import Run
from vages.app.runs.assessment import Assessment, Row, Sizes, keep_assessment
from vages.app.runs.kept import new_folder
from vages.storage.directory import Directory
from vages.training import RunFolder, numbered_folder


def at_once(count, action):
    """Run the action in `count` threads that start together."""
    barrier = threading.Barrier(count)

    def one(number):
        barrier.wait()
        return action()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@contextmanager
def files_of_at_most(size):
    """The kernel refuses to write beyond a file size limit, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_starts_at_once_have_a_folder_each(tmp_path):
    barrier = threading.Barrier(8)

    def start():
        with numbered_folder(tmp_path / "runs", "digits-dsm") as path:
            barrier.wait()  # all have chosen a folder, none has started
            RunFolder(path, {}).close()
        return path

    paths = at_once(8, start)
    assert {path.name for path in paths} == {f"digits-dsm-{number}" for number in range(1, 9)}
    assert all((path / "config.json").exists() for path in paths)


def test_the_command_chooses_and_makes_its_folder_in_one(tmp_path, monkeypatch, capsys):
    """Four commands start training together. Three of them used to choose the folder of the first."""
    monkeypatch.chdir(tmp_path)
    barrier, chosen = threading.Barrier(4), []

    def run(recipe, path, **how):
        barrier.wait()
        chosen.append(path)
        RunFolder(path, {}).close()
        raise ValueError("enough")

    monkeypatch.setattr("vages.app.runs.run_recipe", run)

    def one():
        with pytest.raises(ValueError, match="enough"):
            cli.train(steps=5)

    at_once(4, one)
    assert sorted(chosen) == [Path("runs") / f"board-{number}" for number in range(1, 5)]


def test_a_command_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="steps"):
        cli.train(steps=0)
    assert not list(tmp_path.iterdir())


def test_results_made_at_once_have_a_folder_each(tmp_path, monkeypatch):
    run = object.__new__(Run)  # only its path is used
    object.__setattr__(run, "path", tmp_path)
    assessment = Assessment("run", 20, [Row("a number", 1.0, 0.1, "nothing")], 20, 0.1, Sizes(), 0, 0.1)
    monkeypatch.setattr("vages.app.runs.assessment.figure_png", lambda figure: b"")  # matplotlib is not thread-safe
    folders = at_once(4, lambda: keep_assessment(run, assessment))
    assert sorted(folder.name for folder in folders) == [f"evaluation-{number}" for number in range(1, 5)]
    assert all((folder / "result.json").exists() for folder in folders)

    def sample():
        with new_folder(run, "samples", None) as folder:
            folder.write_bytes("result.json", b"{}")
            return folder.path

    assert sorted(path.name for path in at_once(4, sample)) == [f"samples-{number}" for number in range(1, 5)]


@pytest.mark.parametrize("room", [0, 1, 200, 600])
@pytest.mark.parametrize("there", [True, False])
def test_a_start_that_failed_for_lack_of_space_can_be_made_again(tmp_path, room, there):
    path, config = tmp_path / "run", {"a": "x" * 400}
    if there:
        path.mkdir()
    with files_of_at_most(room), pytest.raises(OSError, match=f"File too large: .*{path}/.*json"):
        RunFolder(path, config | {"b": "x" * room})
    assert path.exists() == there
    assert not there or not list(path.iterdir())
    RunFolder(path, config).close()


@pytest.mark.parametrize("left", [(), ("environment.json",), ("environment.json", "config.json", "events.jsonl")])
def test_what_a_killed_start_left_can_be_started_again(tmp_path, left):
    for name in (".lock", *left):
        (tmp_path / name).write_bytes(b"")
    RunFolder(tmp_path, {"a": 1}).close()
    assert json.loads((tmp_path / "config.json").read_text()) == {"a": 1}
    with pytest.raises(ValueError, match=f"--resume {tmp_path}"):
        RunFolder(tmp_path, {"a": 2})


@pytest.mark.parametrize(
    "names", [("config.json",), (".lock", "config.json"), (".lock", "mine"), ("environment.json",)]
)
def test_what_is_not_left_by_a_start_is_not_overwritten(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with refused("out"):
        RunFolder(tmp_path, {})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_line_is_appended_whole_or_not_at_all(tmp_path):
    folder = Directory(tmp_path)
    folder.append("log", b"first\n")
    with files_of_at_most(9), pytest.raises(OSError, match="File too large"):
        folder.append("log", b"second\n")
    assert (tmp_path / "log").read_bytes() == b"first\n"
