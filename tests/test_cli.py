"""The command line, as a user meets it."""

import json
import re
import subprocess
import sys
from typing import get_args

import pytest

from vages import cli
from vages.bench import BENCHES, estimators
from vages.cli import options
from vages.experiments import EXPERIMENTS, fig1


def run(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["vages", *args])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def test_help_comes_without_jax():
    code = """
import sys, vages.cli
sys.argv = ["vages", "--help"]
try:
    vages.cli.main()
except SystemExit:
    print("jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout
    assert done.stdout.endswith("False\n")


def test_the_choices_are_the_catalogue():
    assert set(get_args(options.Experiment)) == {*EXPERIMENTS, "all"}
    assert set(get_args(options.Bench)) == set(BENCHES)


def test_list_says_what_each_shows(monkeypatch, capsys):
    status, out, _ = run(monkeypatch, capsys, "reproduce", "--list")
    assert status == 0
    for name, entry in EXPERIMENTS.items():
        assert name in out
        assert entry.shows in out


def test_reproduce_prints_a_line_a_claim(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(fig1, "QUICK", fig1.Settings(h_dim=100, points=8, draws=8))
    status, out, _ = run(monkeypatch, capsys, "reproduce", "fig1", "--quick", "--out", str(tmp_path), "--seed", "3")
    assert status == 0
    claims = json.loads((tmp_path / "fig1" / "result.json").read_text())["claims"]
    assert out.count("fig1: holds") + out.count("fig1: does not hold") == len(claims)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["reproduce"], "vages: name: expected one of .* got nothing"),
        (["reproduce", "fig1", "--out", "{file}"], "vages: .*file"),
    ],
)
def test_errors_are_one_line(monkeypatch, capsys, tmp_path, args, says):
    (tmp_path / "file").write_text("")
    args = [arg.format(file=tmp_path / "file") for arg in args]
    status, _, err = run(monkeypatch, capsys, *args)
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    assert re.match(says, err)


def test_bench_prints_json(monkeypatch, capsys):
    monkeypatch.setattr(estimators, "V_DIM", 8)
    monkeypatch.setattr(estimators, "WIDTH", 8)
    status, out, _ = run(monkeypatch, capsys, "bench", "estimators", "--json", "--rounds", "2")
    assert status == 0
    result = json.loads(out)
    assert result["ratio L = 2"] > 0
    assert {"ratio L = 10", "milliseconds", "environment"} <= set(result)
