"""Invalid numbers and texts give one line and exit status 2, before anything is allocated or written."""

import inspect
import math
import os
import resource
import sys
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, get_args, get_origin, get_type_hints

import jax
import numpy as np
import pytest

from command_options import options_of
from errors import refused
from small_recipes import parts_of
from test_resume import server  # noqa: F401
from vages import GRBM, load, memory, save
from vages.app import bench, cli, experiments, runs
from vages.app.cli.commands import COMMANDS
from vages.app.cli.exit_status import Status, line_of, status_of
from vages.app.cli.parsing import parse
from vages.app.cli.training import _check_start
from vages.app.recipes import Examples, as_recipe, example_of, sizes
from vages.app.recipes.reference import check_count
from vages.app.recipes.sizes import Sizes, check_training_memory, training_sizes
from vages.app.runs import Run, config_of
from vages.app.runs.assessment_rows import Sizes as Assessed
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS
from vages.bounds import ITERATIONS, Bounds, check_bounds, check_number
from vages.data import Splits
from vages.memory import check_memory, memory_limit
from vages.training import RunFolder
from vages.training.checkpoint import read_checkpoint, write_checkpoint
from vages.training.digests import fingerprint

DIGITS = replace(DEEP_PRESETS["digits-paper"], width=4, depth=1, latents=2, head_width=3, sampling=0.1)
WHOLE = (-(10**30), -1, 0, 1, 10**9, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**30, 10**400)
REAL = (-math.inf, -1e308, -1.0, 0.0, 1e-320, 1e-30, 1.0, 1e30, 1e308, math.inf, math.nan)
TEXTS = ("x" * 5000, "a/" * 3000, "\x1b]0;title\x07\x1b[2J", "no\nsuch\rfile", "[red]name", "\udcff", "/dev/null")


pytestmark = pytest.mark.usefixtures("as_users_have_it")  # the type checks would raise first


class Began(Exception):
    """Raised when the command has accepted its options."""


def begin(*_, **__):
    raise Began


def options(kind):
    """(command, option) for every option of this type, of every command."""
    found = []
    for name in COMMANDS:
        for option, hint in options_of(name).items():
            if kind in (get_args(hint) or (hint,)):
                found.append((name, option))
    return found


@pytest.fixture(scope="module")
def deep_run(tmp_path_factory):
    """A run of an untrained deep model."""
    path = tmp_path_factory.mktemp("bounds") / "run"
    RunFolder(path, config_of(as_recipe(DIGITS))).close()
    recipe = as_recipe(DIGITS)
    model, posterior = parts_of(DIGITS, (1, 8, 8))(jax.random.key(0))
    return Run(path, recipe, model, posterior, 1, "raw", fingerprint=fingerprint(recipe.load().source()))


@pytest.fixture
def stubbed(monkeypatch, tmp_path, deep_run):
    """Commands that stop where they would start to compute or write, and the arguments that each needs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VAGES_DATA", str(tmp_path))
    monkeypatch.setattr(sys.modules["vages.app.runs.train"], "by_writer", begin)
    monkeypatch.setattr(sizes, "training_sizes", lambda *_: Sizes({}, {}, {"noise": 0}))
    for name in ("load_run", "assess"):
        monkeypatch.setattr(runs, name, begin if name == "assess" else lambda path, recipe=None, **how: deep_run)
    for name in ("new_folder", "sample_v", "sample_joint"):
        monkeypatch.setattr(sys.modules["vages.app.runs.gallery"], name, begin)
    monkeypatch.setattr(sys.modules["vages.app.runs.embedding"], "new_folder", begin)
    monkeypatch.setattr("vages.app.runs.playground.playground", begin)
    monkeypatch.setattr(experiments, "reproduce", begin)
    monkeypatch.setattr("vages.data.fetch", begin)
    for module in bench.BENCHES.values():
        __import__(module)
        monkeypatch.setattr(sys.modules[module], "run", begin)
    monkeypatch.setattr("vages.app.runs.comparison.write_comparison", begin)
    other = tmp_path / "other"
    RunFolder(other, config_of(as_recipe(DIGITS))).close()
    return {
        "compare": ([deep_run.path, other],),
        "bench": ("estimators",),
        "reproduce": ("fig1",),
        "completion": ("bash",),
        "data": (),
        "train": None,
    }


def refusals(stubbed, run, name, option, values):
    """The error lines for rejected values of an option; all other values are accepted."""
    starts = [("checkerboard",), ("digits",)] if name == "train" else [stubbed.get(name, (run.path,))]
    parameter = inspect.signature(COMMANDS[name].run).parameters.get(option)
    positional = parameter is not None and parameter.kind == parameter.POSITIONAL_ONLY
    several = get_origin(options_of(name)[option]) is list
    lines = []
    for start, value in product(starts, ([value] * 2 for value in values) if several else values):
        words, named = ((value,), {}) if positional else (start, {option: value})
        with pytest.raises(Exception, match="(?s)") as raised:  # the refusal, or Began
            COMMANDS[name].run(*words, **named)
        if raised.type is not Began:
            assert status_of(raised.value) is Status.REFUSED, raised.value
            lines.append(line_of(raised.value))
    assert all(line.isprintable() and len(line) < 1100 for line in lines)
    return lines


@pytest.mark.parametrize(("name", "option"), options(int))
def test_every_whole_number(stubbed, deep_run, name, option):
    lines = refusals(stubbed, deep_run, name, option, WHOLE)
    assert any(line.startswith(f"{option}: ") for line in lines)


@pytest.mark.parametrize(("name", "option"), options(float))
def test_every_real_number(stubbed, deep_run, name, option):
    lines = refusals(stubbed, deep_run, name, option, REAL)
    named = [line for line in lines if line.startswith(f"{option}: ")]
    assert len(named) >= 3  # nan and both infinities, at least


@pytest.mark.parametrize(("name", "option"), [*options(str), *options(Path)])
def test_every_text(stubbed, deep_run, capsys, name, option):
    kind = Path if (name, option) in options(Path) else str
    refusals(stubbed, deep_run, name, option, map(kind, TEXTS))
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err


@pytest.mark.parametrize("words", [["--out", ""], ["--out="], ["--steps", "9" * 5000], ["--sigma", "x" * 5000], [""]])
def test_words_that_are_empty_or_long(words):
    with pytest.raises(ValueError, match="empty|INT|FLOAT|preset|invalid") as raised:
        parse("train", words)
    assert len(line_of(raised.value)) < 1100


@pytest.mark.parametrize("recipe", [CHECKERBOARD, DIGITS], ids=["grbm", "deep"])
def test_every_number_of_a_recipe_has_bounds_whose_ends_have_sizes(recipe):
    hints = get_type_hints(type(recipe), include_extras=True)
    for field in fields(recipe):
        inner = get_args(hints[field.name])[0] if get_origin(hints[field.name]) is Annotated else hints[field.name]
        if not {int, float} & set(get_args(inner) or (inner,)) or field.name == "sampling":
            continue
        bounds = next(one for one in get_args(hints[field.name]) if isinstance(one, Bounds))
        if field.name in ("width", "depth", "latents", "samples", "head_width", "corrector_steps"):
            shape = (1, 8, 8) if recipe is DIGITS else (2,)
            largest = replace(recipe, posterior_steps=1, **{field.name: bounds.high})  # each one is traced
            assert training_sizes(as_recipe(largest), example_of(shape), None).bytes["state"] > 0
        for value in (bounds.high + 1, math.inf, "1", None if inner in (int, float) else "x", True, [1]):
            with pytest.raises(ValueError, match=f"^{field.name}: expected "):
                replace(recipe, **{field.name: value})


def test_what_an_int32_could_not_count():
    with refused("steps", got=2147483648):
        replace(CHECKERBOARD, steps=2**31)
    replace(CHECKERBOARD, steps=2**31 - 1)
    replace(CHECKERBOARD, steps=2**31 - 1, decay="cosine", posterior_steps=5)  # schedules count iterations
    assert ITERATIONS.high == np.iinfo(np.int32).max
    with refused("seed", got=4294967295):
        replace(CHECKERBOARD, seed=2**32 - 1, seeds=2)


def test_bounds():
    check_bounds(count=(1, Bounds(1, 2)), more=(np.int64(2), Bounds(1, 2)))
    for value, says in (
        (0, "got 0"),
        (3, "got 3"),
        (1.5, "got 1.5"),
        (True, "got True"),
        (10**100, r"got 10{39}… \(101 characters\)"),
    ):
        with pytest.raises(ValueError, match=f"^count: .*{says}"):
            check_bounds(count=(value, Bounds(1, 2)))
    for value, says in (
        (0.0, "got 0.0; take 1"),
        (math.nan, "got nan"),
        (math.inf, "got inf"),
        (1e-9, "got 1e-09"),
        (3.5, "got 3.5"),
    ):
        with pytest.raises(ValueError, match=f"^x: .*{says}"):
            check_number("x", value, Bounds(1e-3, 2, "take 1"))
    for count in (1, 10**6 + 1, 10**30):
        with refused("count"):
            check_count(count)
    with pytest.raises(ValueError, match="^examples: .*1,000,000"):
        Assessed(examples=10**9)


def test_memory_is_compared_with_what_there_is(monkeypatch):
    limit, image = memory_limit(), example_of((1, 8, 8))
    assert 2**28 < limit < 2**50
    check_memory({"data": limit}, "take less")
    says = r"^memory: .*got .*\bdata; take less$"
    with pytest.raises(ValueError, match=says):
        check_memory({"data": limit, "state": 1}, "take less")
    with pytest.raises(ValueError, match=r"^memory: .*got .*\bstate; .*width"):
        check_training_memory(training_sizes(as_recipe(replace(DIGITS, width=2**16, depth=64)), image, 100))
    with pytest.raises(ValueError, match=r"^memory: .*\b(activations|noise)\b"):
        check_training_memory(training_sizes(as_recipe(replace(DIGITS, batch=2**24, width=2**16)), image, None))


def test_the_memory_of_an_iteration_is_shared_by_the_devices():
    recipe, image = as_recipe(DIGITS), example_of((1, 8, 8))
    whole, parts = (training_sizes(recipe, image, 100, devices) for devices in (1, 4))
    assert parts.working == {name: size // 4 for name, size in whole.working.items()}
    assert parts.bytes == whole.bytes  # each device has all of it
    count = lambda cluster: _check_start(1, cluster, 60, 64, tensorboard=False)
    assert count(None) == 1
    assert count("host:1,4,0") == 4 * jax.local_device_count()
    assert count("auto") == 64  # at most one for each example


@pytest.mark.parametrize(("dtype", "size"), [(np.float16, 2), (np.float32, 4), (np.float64, 4)])
def test_data_have_the_size_of_their_numbers(dtype, size):
    data = Examples(Splits(*(np.zeros((30, 1, 8, 8), dtype) for _ in range(3))))
    assert training_sizes(as_recipe(replace(DIGITS, batch=10)), data, 30).bytes["data"] == size * 30 * 64


@pytest.mark.parametrize(
    ("group", "folder", "name"),
    [
        ("0::/", ".", "memory.max"),
        ("0::/slice/job", "slice/job", "memory.max"),
        ("0::/slice/job", "slice", "memory.max"),
        ("5:cpu:/\n4:cpuset,memory:/slice/job\n0::/", "memory/slice", "memory.limit_in_bytes"),
        ("4:memory:/of/the/host", "memory", "memory.limit_in_bytes"),
    ],
)
def test_the_limits_of_a_container_and_of_groups_around_it_count(monkeypatch, tmp_path, group, folder, name):
    (tmp_path / "own").write_text(group + "\n")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    free = memory_limit()
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for text, limit in (("max\n", free), (f"{2**63 - 4096}\n", free), (f"{2**27}\n", 2**27)):
        (tmp_path / folder / name).write_text(text)
        assert memory_limit() == limit
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "none")
    assert memory_limit() == free


def test_what_is_read_into_the_memory_of_the_machine_may_be_larger_than_that_of_the_device(monkeypatch, tmp_path):
    model = GRBM.init(jax.random.key(0), 3, 2)
    path = write_checkpoint(tmp_path, 1, {"a": np.zeros(100)}, {})
    save(tmp_path / "model.safetensors", model)
    device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 100})
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert memory_limit() == 100
    assert read_checkpoint(path).step == 1
    assert load(tmp_path / "model.safetensors")[1] is None
    monkeypatch.setattr(memory, "host_memory_limit", lambda: 99)
    with pytest.raises(ValueError, match="^memory: .*the checkpoint"):
        read_checkpoint(path)


def in_little_memory(words, out):
    """A child process with an address space of 6 GiB: its output and exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT), 2)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.argv = ["vages", *words]
    cli.main()


@pytest.mark.parametrize(
    "words",
    [
        ("train", "digits-paper", "--width", "20000", "--depth", "6"),
        ("train", "checkerboard", "--latents", "1000000", "--seeds", "60"),
        ("train", "checkerboard", "--seeds", "20000"),
    ],
    ids=" ".join,
)
def test_a_real_process_refuses_what_does_not_fit(server, tmp_path, words):  # noqa: F811
    process = server.Process(target=in_little_memory, args=((*words, "--out", str(tmp_path / "run")), tmp_path / "err"))
    process.start()
    process.join(120)
    err = (tmp_path / "err").read_text()
    assert process.exitcode == 2, err
    assert err.startswith("vages: memory: expected ")
    assert " 6.0 GiB " in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
