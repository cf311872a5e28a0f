"""The command line, as users call it."""

import ast
import inspect
import json
import math
import re
import shlex
import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest

import vages
from command_options import options_of
from errors import without_progress
from small_recipes import parts_of, start_of
from vages.app import cli, runs
from vages.app.bench import BENCHES, estimators
from vages.app.cli import options
from vages.app.cli.commands import COMMANDS
from vages.app.cli.exit_status import Status, line_of, status_of
from vages.app.cli.parsing import parse
from vages.app.experiments import EXPERIMENTS, fig1
from vages.app.experiments.claims import Claim, Outcome
from vages.app.output import console
from vages.app.output.tensorboard import EventLog
from vages.app.recipes import as_recipe
from vages.app.settings import DIGITS, DeepSettings
from vages.training import Diverged
from vages.training.learner import LearnerState


def run(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["vages", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def doc(name):
    return inspect.getdoc(COMMANDS[name].run) or ""


def test_help_comes_without_jax():
    code = """
import sys, vages.app.cli
sys.argv = ["vages", "--help"]
try:
    vages.app.cli.main()
except SystemExit:
    print(sorted({"jax", "numpy", "matplotlib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_the_overview_has_a_line_a_command_and_the_statuses(monkeypatch, capsys):
    status, out, err = run(monkeypatch, capsys, "--help")
    assert (status, err) == (0, "")
    for name, command in COMMANDS.items():
        (line,) = [line for line in out.splitlines() if line.startswith(f"  {name} ")]
        assert line.endswith(command.line)
        assert len(line) < 80
        assert f"\n{command.wish}:\n" in out
    for status in Status:
        assert re.search(rf"^  {status.value} +{re.escape(status.said)}$", out, re.M)
    assert run(monkeypatch, capsys)[::2] == (2, out)


def test_every_command_of_the_room_is_listed():
    assert {command.run for command in COMMANDS.values()} == {getattr(cli, name) for name in cli.__all__} - {cli.main}
    assert all(command.run.__name__ == name for name, command in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_teaches(monkeypatch, capsys, name):
    status, out, err = run(monkeypatch, capsys, name, "--help")
    assert (status, err) == (0, "")
    assert doc(name).splitlines()[0] in out
    assert f"Example: {COMMANDS[name].example}" in out
    program, command, *words = shlex.split(COMMANDS[name].example)
    assert (program, command) == ("vages", name)
    inspect.signature(COMMANDS[name].run).bind(*parse(name, words)[0], **parse(name, words)[1])


OWN = """
import numpy as np, vages

build = lambda key, settings, data: (vages.GRBM.init(key, 2, 3), vages.ExactPosterior())
learner = vages.Learner(vages.DSM(0.1, vages.Enumerated()), learning_rate=1e-3)
recipe = vages.Recipe(np.zeros((50, 2), np.float32), build, learner)
"""


def test_every_option_is_explained_and_the_same_thing_has_one_name(monkeypatch, capsys, tmp_path):
    kinds = {}
    for name in COMMANDS:
        told = doc(name).partition("Args:")[2]
        for option, hint in options_of(name).items():
            assert name == "train" or re.search(rf"^ +{option}: \S", told, re.M), f"{name} {option}"
            kinds.setdefault(option, set()).add(str(hint))
    (tmp_path / "own.py").write_text(OWN)
    explained = {"start"}  # in the text above the options
    for start in ("checkerboard", "digits", "digits-paper", tmp_path / "own.py"):
        words = " ".join(run(monkeypatch, capsys, "train", start, "--help")[1].replace("│", " ").split())
        for option, after in re.findall(r"--([a-z][a-z-]*) (?:\S*[A-Z{]\S* )?(?!\(default)(\S+)", words):
            explained |= {option.removeprefix("no-").replace("-", "_")} if after else set()
    assert {option.rstrip("_") for option in options_of("train")} - explained == set()
    assert kinds["json"] == kinds["quick"] == kinds["dry_run"] == kinds["raw"] == {str(bool)}
    assert all("Path" in kind for kind in kinds["out"])
    assert all("int" in kind for kind in kinds["seed"])
    makes_results = {"train", "sample", "interpolate", "inpaint", "embed", "reproduce", "report", "compare"}
    assert {name for name in COMMANDS if "out" in options_of(name)} == makes_results
    assert all("json" in options_of(name) for name in (*makes_results, "data", "bench"))


def test_the_choices_are_the_catalogue():
    assert set(get_args(options.Experiment)) == {*EXPERIMENTS, "all"}
    assert set(get_args(options.Bench)) == set(BENCHES)


def test_messages_name_options_that_exist():
    """Every --word in a text of the sources is an option of a command, or of pip or tyro if these are called."""
    known = {"--help", "--version", "--debug", "--no-deps", "--tyro-print-completion"}
    known |= {"--no-"}  # the prefix that turns a flag off
    for command in COMMANDS:
        known |= {f"--{name.rstrip('_').replace('_', '-')}" for name in options_of(command)}
    named = {}
    for path in Path(vages.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]*", node.value), path.name)
    assert len(named) > 20
    assert {word: place for word, place in named.items() if word not in known} == {}


def test_the_version(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version") == (0, f"vages {vages.__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["tran"], "vages: .*'tran'; .*train"),
        (["-x"], "vages: .*'-x'; .*vages --help"),
        (["train", "--bogus", "3"], "vages: .*--bogus.*; .*vages train --help"),
        (["train", "--steps", "x"], "vages: .*--steps.*INT.*'x'.*; .*vages train --help"),
        (["train", "checkerboard", "--method", "x"], "vages: .*'x'.*--method.* bidsm, .*vnce; .*vages train --help"),
        (["sample"], "vages: .*RUN.*; .*vages sample --help"),
        (["sample", "{file}"], "vages: run: .*got .*file"),
        (["train", "--out", "{file}"], "vages: out: .*got .*file"),
        (["train", "--resume", "{file}", "--out", "x"], "vages: out: .*--resume"),
        (["train", "digits-paper", "--resume", "{file}"], "vages: preset: .*--resume.*got digits-paper"),
        (["train", "digits-paper", "--bandwidth", "1"], "vages: bandwidth: .*deep"),
        (["reproduce"], "vages: name: .*got nothing"),
        (["train", "checkerboard", "--seed", "99999999999"], "vages: seed: .*got 99999999999 .*; choose"),
        (["train", "digits-paper", "--seed", "99999999999"], "vages: seed: .*got 99999999999; choose"),
        (["evaluate", "nosuch"], "vages: source: .*got 'nosuch'.*; check"),
        (["evaluate", "{file}"], "vages: against: .*{file}.*got none; .*--against"),
        (["reproduce", "fig1", "--out", "{file}"], "vages: .*file"),
    ],
)
def test_errors_are_one_line(monkeypatch, capsys, tmp_path, args, says):
    (tmp_path / "file").write_text("")
    args = [arg.format(file=tmp_path / "file") for arg in args]
    status, out, err = run(monkeypatch, capsys, *args)
    assert (status, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert re.match(says.format(file=tmp_path / "file"), err)


ERRORS = [
    (ValueError("latents: expected 1, got 0"), 2, "latents: expected 1, got 0"),
    (FileNotFoundError(2, "No such file", "x"), 2, "[Errno 2] No such file: 'x'"),
    (ValueError("one\ntwo"), 2, "one … (--debug shows all)"),
    (Diverged("training diverged: loss"), 1, "training diverged: loss"),
    (MemoryError(), 1, "out of memory; "),
    (RuntimeError("RESOURCE_EXHAUSTED: 9 GiB\nat"), 1, "out of memory; "),
    (RuntimeError("INTERNAL: CUDA error: CUDA_ERROR_LAUNCH_FAILED: unspecified"), 1, "the GPU failed; "),
    (RuntimeError("UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED"), 1, "the GPU failed; "),
    (RuntimeError("other\nmore"), 70, "RuntimeError: other; "),
    (ZeroDivisionError("x"), 70, "ZeroDivisionError: x; "),
    (KeyError("x"), 70, "KeyError: 'x'; "),
    (AssertionError(), 70, "AssertionError: AssertionError; "),
    (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
]


def broken(monkeypatch, error):
    def data(get: str | None = None, json: bool = False) -> int:
        """List.

        Args:
            get: get.
            json: json.
        """
        raise error

    monkeypatch.setitem(COMMANDS, "data", COMMANDS["data"]._replace(run=data))


@pytest.mark.parametrize(("error", "status", "line"), ERRORS, ids=lambda x: type(x).__name__)
def test_errors_have_statuses_and_with_debug_a_traceback(monkeypatch, capsys, error, status, line):
    assert status_of(error) == status
    assert line_of(error).startswith(line)
    broken(monkeypatch, error)
    got, out, err = run(monkeypatch, capsys, "data")
    assert (got, out) == (status, "")
    assert err == f"vages: {line_of(error)}\n"
    for words in (("--debug", "data"), ("data", "--debug"), ("data", "--json", "--debug", "--get", "x")):
        got, out, err = run(monkeypatch, capsys, *words)
        assert (got, out) == (status, "")
        assert "Traceback (most recent call last)" in err
        assert type(error).__name__ in err


def test_a_reader_that_has_gone_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # monkeypatch restores it
    broken(monkeypatch, BrokenPipeError())
    status, _, err = run(monkeypatch, capsys, "data")
    assert (status, err) == (141, "")


def test_numbers_for_programs_are_json(capsys):
    console.print_json({"a": [1.5, math.nan, {"b": -math.inf}], "p": Path("x"), "c": (True, None, 3, "σ")})
    assert capsys.readouterr().out == '{"a": [1.5, null, {"b": null}], "p": "x", "c": [true, null, 3, "σ"]}\n'


def test_bars_are_on_standard_error_and_only_on_a_terminal(monkeypatch, capsys):
    def shown():
        with console.bar(then="linear classifiers") as progress:
            progress(1, 2)
            before = capsys.readouterr().err
            progress(2, 2)
        with console.waiting("measuring [it]") as say:
            say("half done")
        out, err = capsys.readouterr()
        assert out == ""
        return before, err

    assert shown() == ("", "half done\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    before, after = shown()
    assert "linear classifiers" not in before
    assert "linear classifiers" in after
    assert "measuring [it]" in after


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(monkeypatch, capsys, tmp_path, shell):
    status, out, _ = run(monkeypatch, capsys, "completion", shell)
    assert status == 0
    assert all(name in out for name in COMMANDS)
    assert "vages-mdsm" in out
    assert "posterior-steps" in out
    if shell == "bash":
        (tmp_path / "script").write_text(out)
        subprocess.run(["bash", "-n", tmp_path / "script"], check=True)


def test_what_a_shell_needs_is_said(monkeypatch, capsys):
    monkeypatch.setattr("vages.app.cli.completing.find_spec", lambda name: None)
    status, _, err = run(monkeypatch, capsys, "completion", "tcsh")
    assert status == 2
    assert "pip install shtab" in err


def test_list_says_what_each_shows(monkeypatch, capsys):
    status, out, _ = run(monkeypatch, capsys, "reproduce", "--list")
    assert status == 0
    for name, entry in EXPERIMENTS.items():
        assert name in out
        assert entry.shows in out
    listed = json.loads(run(monkeypatch, capsys, "reproduce", "--list", "--json")[1])["experiments"]
    assert {row["experiment"]: row["shows"] for row in listed} == {k: e.shows for k, e in EXPERIMENTS.items()}


def test_reproduce_prints_a_line_a_claim(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(fig1, "QUICK", fig1.Settings(h_dim=100, points=8, draws=8))
    status, out, _ = run(monkeypatch, capsys, "reproduce", "fig1", "--quick", "--out", tmp_path, "--seed", "3")
    assert status == 0
    claims = json.loads((tmp_path / "fig1" / "result.json").read_text())["claims"]
    assert out.count("fig1: holds") + out.count("fig1: does not hold") == len(claims)


def test_a_claim_keeps_its_brackets(monkeypatch, capsys, tmp_path):
    claim = Claim.at_most("a critic of [h] and E[h | v]", 0.0, 1.0)
    monkeypatch.setattr(fig1, "run", lambda **_: Outcome({}, [claim], {}))
    _, out, _ = run(monkeypatch, capsys, "reproduce", "fig1", "--quick", "--out", tmp_path)
    assert claim.claim in out


def test_reproduce_for_a_program(monkeypatch, capsys, tmp_path):
    claims = [Claim.at_least("a [h | v] is large", 2.0, 1.0)]

    def found(quick, seed, say):
        say("on the way")
        return Outcome({}, list(claims), {})

    monkeypatch.setattr(fig1, "run", found)
    words = ("reproduce", "fig1", "--out", tmp_path, "--json")
    status, out, err = run(monkeypatch, capsys, *words, "--strict")
    (record,) = json.loads(out)["experiments"]
    assert (status, err) == (0, "on the way\n")
    assert record["claims"] == [{"claim": "a [h | v] is large", "value": 2.0, "bound": 1.0, "holds": True}]
    assert record["earlier results"] is None
    assert Path(record["folder"], "result.json").is_file()
    told = run(monkeypatch, capsys, *words[:-1])[1]
    assert "fig1: holds  a [h | v] is large: 2, bound 1" in told
    claims.append(Claim.at_least("b is large", 0.0, 1.0))
    status, out, _ = run(monkeypatch, capsys, *words)
    (record,) = json.loads(out)["experiments"]
    assert status == 0
    assert len(json.loads(Path(record["earlier results"], "result.json").read_text())["claims"]) == 1
    assert run(monkeypatch, capsys, *words, "--strict")[0] == 1
    claims[:] = [Claim.at_least("c is large", math.nan, 1.0)]
    status, out, err = run(monkeypatch, capsys, *words)
    assert status == 1
    assert "the result is invalid" in err
    assert json.loads(out)["experiments"][0]["claims"][0]["value"] is None


def test_without_a_gpu_all_leaves_out_what_needs_one(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("vages.environment.has_gpu", lambda: False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    status, out, _ = run(monkeypatch, capsys, "reproduce", "all", "--dry-run", "--json")
    told = json.loads(out)
    assert status == 0
    assert set(told["left out"]) == {name for name, entry in EXPERIMENTS.items() if entry.needs_gpu}
    assert [plan["experiment"] for plan in told["experiments"]] == [e for e in EXPERIMENTS if e not in told["left out"]]
    assert {plan["experiment"]: plan["data"] for plan in told["experiments"]}["fig4"] == {"freyface": "missing"}
    quick = json.loads(run(monkeypatch, capsys, "reproduce", "all", "--quick", "--dry-run", "--json")[1])
    plans = {plan["experiment"]: plan for plan in quick["experiments"]}
    assert set(plans) == set(EXPERIMENTS)
    assert plans["fig-samples"]["data"] == {"digits": "built in"}
    assert plans["table-time-memory"]["data"] == {}
    assert plans["fig2"]["settings"]["steps"] == 8000
    assert "fig2: 8000" not in run(monkeypatch, capsys, "reproduce", "fig2", "--dry-run")[1]
    assert list(tmp_path.iterdir()) == []


def leaves(tree):
    return [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]


def test_a_dry_run_says_what_training_would_be(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    small = ("digits-paper", "--width", "8", "--depth", "1", "--latents", "3", "--head-width", "5", "--batch", "10")
    once = ("--posterior-steps", "1")  # each step is traced
    status, out, _ = run(monkeypatch, capsys, "train", *small, *once, "--dry-run", "--json")
    plan = json.loads(out)
    assert (status, plan["problem"], plan["folder"]) == (0, None, "runs/digits-paper-vages-mdsm-1")
    recipe = DeepSettings(**plan["settings"])
    assert (recipe.width, recipe.batch, recipe.steps) == (8, 10, 20_000)
    _, state = start_of(recipe, (1, 8, 8))
    assert isinstance(state, LearnerState)
    assert plan["parameters"]["model"] == sum(x.size for x in leaves(state.model))
    assert plan["parameters"]["posterior"] == sum(x.size for x in leaves(state.posterior))
    assert plan["bytes"] == {"state": sum(x.nbytes for x in leaves(state)), "data": 4 * 64 * 1437}

    plan = json.loads(run(monkeypatch, capsys, "train", "checkerboard", "--seeds", "3", "--dry-run", "--json")[1])
    one = json.loads(run(monkeypatch, capsys, "train", "checkerboard", "--dry-run", "--json")[1])
    assert plan["parameters"]["model"] == sum(x.size for x in leaves(vages.GRBM.init(jax.random.key(0), 2, 4)))
    assert plan["bytes"] == {name: 3 * size for name, size in one["bytes"].items()}
    assert one["bytes"]["data"] == 4 * 2 * 60_000

    for preset in ((), ("digits", "--labels", "--batch", "10", "--depth", "1")):  # the data determine some settings
        status, out, _ = run(monkeypatch, capsys, "train", *preset, "--dry-run", "--json")
        assert (status, json.loads(out)["problem"]) == (0, None)

    status, out, _ = run(monkeypatch, capsys, "train", "mnist-paper", *once, "--dry-run")
    assert status == 2
    assert "state: missing" in out
    assert "vages data --get mnist" in out
    assert re.search(r"parameters:\n  model: \d,\d{3},\d{3}\n", out)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_sees_what_would_stop_training(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    np.save("own.npy", np.zeros((40, 3)))
    for words, says in (
        (("--data", "none.npy"), "none.npy"),
        (("checkerboard", "--data", "own.npy", "--batch", "100"), "batch"),
        (("checkerboard", "--out", "."), "out: "),
        (("checkerboard", "--devices", "999"), "devices: "),
        (("checkerboard", "--cluster", "x"), "cluster: "),
        (("checkerboard", "--cluster", "localhost:80,2,2"), "cluster: "),
        (("digits-paper", "--fid-every", "1", "--steps", "1", "--posterior-steps", "1"), "Inception: "),
    ):
        status, out, _ = run(monkeypatch, capsys, "train", *words, "--dry-run", "--json")
        assert status == 2
        assert says in json.loads(out)["problem"]
    (tmp_path / "text.npy").write_text("text")
    for name, state in (("none.npy", "missing"), ("text.npy", "unusable")):
        status, out, _ = run(monkeypatch, capsys, "train", "--data", name, "--dry-run", "--json")
        assert (status, json.loads(out)["data"]["state"]) == (2, state)
    (tmp_path / "text.npy").unlink()
    own = ("checkerboard", "--data", "own.npy", "--batch", "10")
    status, out, _ = run(monkeypatch, capsys, "train", *own, "--dry-run", "--json")
    assert (status, json.loads(out)["data"]["state"]) == (0, "present")
    assert [path.name for path in tmp_path.iterdir()] == ["own.npy"]


def scalars(folder):
    """Scalars by (name, step), and restarts, of all event files, read from the format: framed protocol buffers."""
    event_of = import_module("tensorboardX.proto.event_pb2").Event.FromString
    found, restarts = {}, []
    for path in sorted(folder.iterdir()):
        content, position = path.read_bytes(), 0
        while position < len(content):
            (length,) = struct.unpack_from("<Q", content, position)
            event = event_of(content[position + 12 : position + 12 + length])
            position += 12 + length + 4
            if event.HasField("session_log"):
                restarts.append(event.step)
                found = {key: value for key, value in found.items() if key[1] < event.step}
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    return found, restarts


def test_events_for_tensorboard(tmp_path):
    with EventLog(tmp_path / "events") as log:
        assert not (tmp_path / "events").exists()
        log({"step": 10, "loss": 0.5, "likelihood": [1.0, 2.0]})
        log({"step": 20, "loss": 0.25, "likelihood": [1.5, math.nan]})
        log({"step": 20, "loss": 0.125})  # a repeated step
    with EventLog(tmp_path / "events") as log:
        log({"step": 30, "loss": 0.0625})  # in another process
    found, restarts = scalars(tmp_path / "events")
    assert restarts == [10, 20, 30]
    likelihood = {("likelihood/seed_0", 10): 1.0, ("likelihood/seed_1", 10): 2.0}
    assert found == {("loss", 10): 0.5, ("loss", 20): 0.125, ("loss", 30): 0.0625, **likelihood}


def test_training_for_a_program_and_for_tensorboard(monkeypatch, capsys, tmp_path, short_chains):
    folder = tmp_path / "run"
    words = ("--steps", "20", "--posterior-steps", "1", "--seeds", "2", "--json", "--tensorboard")
    status, out, err = run(monkeypatch, capsys, "train", "checkerboard", *words, "--out", folder)
    assert (status, without_progress(err)) == (0, "")
    assert json.loads(out) == {"folder": str(folder), **json.loads((folder / "result.json").read_text())}
    (row,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    found, _ = scalars(folder / "tensorboard")
    assert found["test_log_likelihood/seed_1", 20] == pytest.approx(row["test_log_likelihood"][1])
    assert found["loss/seed_0", 20] == pytest.approx(row["loss"][0])
    status, out, _ = run(monkeypatch, capsys, "train", "--resume", folder, "--steps", "30", "--dry-run", "--json")
    plan = json.loads(out)
    assert (status, plan["from step"], plan["changed settings"]) == (0, 20, {"steps": [20, 30]})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run(monkeypatch, capsys, "train", "--out", folder)[0] == 2
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_without_the_library_tensorboard_is_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    status, _, err = run(monkeypatch, capsys, "train", "--tensorboard", "--out", tmp_path / "run")
    assert status == 2
    assert "pip install 'vages[tensorboard]'" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "does"),
    [("sample", "sample_images"), ("interpolate", "interpolate"), *[(x, x) for x in ("inpaint", "embed")]],
)
def test_pictures_for_a_program(monkeypatch, capsys, tmp_path, name, does):
    def made(loaded, out, *, progress, **how):
        progress(5, 5)
        return runs.Kept(out, {"protocol": "v", "weights": "raw", "checkpoint": 4, "seconds": 0.5})

    deep = runs.Run(Path("run"), as_recipe(DIGITS), *parts_of(DIGITS, (1, 8, 8))(jax.random.key(0)), 4, "raw")
    monkeypatch.setattr(runs, "load_run", lambda path, recipe, **how: deep)
    monkeypatch.setattr(runs, does, made)
    status, out, err = run(monkeypatch, capsys, name, "run", "--out", tmp_path, "--json")
    assert (status, err) == (0, "")
    told = {"folder": str(tmp_path), "protocol": "v", "weights": "raw", "checkpoint": 4, "seconds": 0.5}
    assert json.loads(out) == told


def test_bench_prints_json(monkeypatch, capsys):
    monkeypatch.setattr(estimators, "V_DIM", 8)
    monkeypatch.setattr(estimators, "WIDTH", 8)
    status, out, _ = run(monkeypatch, capsys, "bench", "estimators", "--json", "--rounds", "2")
    assert status == 0
    result = json.loads(out)
    assert result["ratio L = 2"] > 0
    assert {"ratio L = 10", "milliseconds", "environment"} <= set(result)


@pytest.mark.parametrize("words", [[], ["--json"], ["digits"], ["--resume="], ["--out", "x"]])
def test_train_takes_any_number_of_words(words):
    """`vages train` alone is the README's first command."""
    if words == ["--resume="]:
        with pytest.raises(ValueError, match="empty"):
            parse("train", words)
        return
    (start,), named = parse("train", words)
    assert start == ("digits" if words == ["digits"] else None)
    assert named["json"] == (words == ["--json"])
