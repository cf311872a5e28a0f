"""The examples run completely, at a reduced size, and write the files that they announce."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from vages.data import Splits, load_digits

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZES = {  # for each example: reduced sizes, the pictures it draws, and what it prints
    "density": ({"STEPS": 100, "SAMPLES": 50}, ["density.png", "samples.png"], r"test log-likelihood -?\d+\.\d{3} ±"),
    "own_discrete_model": ({"STEPS": 40}, ["bars.png"], r"found \d of 6"),
    "digits": ({"STEPS": 20, "SAMPLING": 0.005}, ["digits.png"], r"\d+ of 100 chains diverged"),
    "stein_test": ({"EXAMPLES": 200}, ["stein.png"], r"off by   5 %: p = 0\.\d{3} by the exact score"),
    "other_libraries": ({"STEPS": 100, "FLOW_EPOCHS": 1}, [], r"flowjax: log p̃ − log flow is \d"),
    "own_objective": ({"STEPS": 20}, [], r"clipped DSM: DSM loss by the exact score \d"),
    "mode_weights": (
        {"STEPS": 20, "CELLS": 20, "TEST": 400, "depth": 1, "posterior_steps": 1, "samples": 8},  # 20²: one program
        ["mode_weights.png"],
        r"level too: weights \[0\.\d+ ",
    ),
    "one_pass_likelihood": (
        {"STEPS": 20, "BATCH": 32, "WIDTH": 16, "TEST": 10, "PROBES": 1, "depth": 1, "posterior_steps": 1},
        [],
        r"one pass less ODE -?\d+\.\d+ ± \d",
    ),
    "own_loop": ({"STEPS": 200, "BLOCK": 100}, [], r"log-likelihood -\d+\.\d{3}; of the best Gaussian -\d+\.\d{3}"),
}

RECIPES = {"own_binary_energy", "own_curve"}  # recipes for `vages train`: see test_own_recipes.py
DATA = {"colored_shapes"}  # data to train on: see test_image_models.py


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SIZES) | RECIPES | DATA


@pytest.mark.parametrize("name", SIZES)
def test_an_example_runs(name, tmp_path, monkeypatch, capsys):
    smaller, pictures, printed = SIZES[name]
    if name == "other_libraries":
        pytest.importorskip("diffrax")
        pytest.importorskip("flowjax")
    if name == "one_pass_likelihood":  # digits of the package instead of MNIST
        images = load_digits()
        larger = images._replace(splits=Splits(*(np.kron(part, np.ones((4, 4))) for part in images.splits)))
        monkeypatch.setattr("vages.data.load_mnist", lambda: larger)
    source = (EXAMPLES / f"{name}.py").read_text()
    for constant, value in smaller.items():
        place = rf'(^{constant} = |\b{constant}=|"{constant}": )[\d_.]+'
        source, found = re.subn(place, rf"\g<1>{value}", source, flags=re.M)
        assert found == 1, constant
    monkeypatch.chdir(tmp_path)
    loose = name == "other_libraries"  # its libraries rely on NumPy's rules for ranks and dtypes
    with jax.numpy_rank_promotion("allow" if loose else "raise"):
        with jax.numpy_dtype_promotion("standard" if loose else "strict"):
            exec(compile(source, f"{name}.py", "exec"), {"__name__": name})
    assert re.search(printed, capsys.readouterr().out)
    assert sorted(path.name for path in tmp_path.iterdir()) == pictures


@pytest.mark.parametrize("name", SIZES)
def test_an_example_is_a_notebook(name):
    source = (EXAMPLES / f"{name}.py").read_text()
    assert source.startswith("# %% [markdown]\n# # ")
    assert source.count("\n# %%\n") >= 2
