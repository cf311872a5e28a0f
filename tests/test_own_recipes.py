"""Recipes in a user's own file: trained, killed, resumed, and passed to every command, as by a user."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vages
from compiling import compile_in_haste
from test_resume import kill_when, server  # noqa: F401
from vages.app import cli
from vages.app.cli.parsing import parse
from vages.app.recipes.examples import as_examples
from vages.app.recipes.finding import BadRecipe, find_recipe
from vages.app.runs import embedding, load_run, recipe_of
from vages.app.runs.dataset import fingerprints
from vages.data.splits import split_rows
from vages.storage.directory import Directory
from vages.training.checkpoint import checkpoints, newest_checkpoint

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("own_binary_energy", "own_curve")
STEPS = 60
SHORT = """
from dataclasses import replace
recipe = replace(recipe, sampler=vages.MCMC("mala", warmup=60))
"""
ONCE = """
once = lambda settings: replace(learner(settings), posterior_steps=1)  # each is compiled
recipe = replace(recipe, learner=once)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example recipes with a learner and a sampler that compile quickly."""
    place = tmp_path_factory.mktemp("recipes")
    for name in NAMES:
        (place / f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text() + SHORT)
    with (place / "own_binary_energy.py").open("a") as file:
        file.write(ONCE)
    return place


def refused(kind, says, call):
    """The call raises `kind` with one line that matches `says`."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert text.splitlines() == [text]
    assert re.search(says, text), text


def command_until_killed(*words):
    """A child process that runs the command."""
    compile_in_haste()  # as in this process, because bits are compared
    run_command(*words)


def run_command(*words):
    """Run `vages …` in this process and return its exit status."""
    name, *rest = map(str, words)
    positional, named = parse(name, rest)
    return getattr(cli, name)(*positional, **named)


class Runs(dict):
    """A run of each recipe on an array, and one on a stream, trained on first use."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __missing__(self, asked):
        name, stream = asked
        self[asked] = path = self.folder / f"{name}-{stream}"
        assert run_command(*self.words(name, stream, path)) == 0
        return path

    def words(self, name, stream, path):
        """The command that trains the run."""
        options = ["--rows", 400, "--batch", 20, "--steps", STEPS, "--out", path, "--checkpoint-every", 20]
        return ["train", self.folder / f"{name}.py", *options, *(["--stream"] if stream else [])]


@pytest.fixture(scope="module")
def runs(folder):
    return Runs(folder)


def arrays(path):
    found = newest_checkpoint(Directory(path) / "checkpoints", pytest.fail)
    assert found is not None
    return found.step, found.arrays


def params_of(run):
    """The parameters of an own energy."""
    assert isinstance(run.model, vages.EnergyModel)
    return run.model.params


@pytest.mark.parametrize(("name", "stream"), [("own_binary_energy", True)])
def test_a_run_that_was_killed_goes_on_bit_for_bit(server, name, stream, folder, runs, tmp_path):  # noqa: F811
    path, whole = tmp_path / "killed", runs[name, stream]
    process = server.Process(target=command_until_killed, args=runs.words(name, stream, path))
    process.start()
    kill_when(process, lambda: any((path / "checkpoints").glob("step-*")), 0)
    assert arrays(path)[0] <= STEPS
    assert run_command("train", folder / f"{name}.py", "--resume", path) == 0
    (step, ours), (last, theirs) = arrays(path), arrays(whole)
    assert step == last == STEPS
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        np.testing.assert_array_equal(ours[key], array, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_its_run(name, folder, runs, capsys):
    run, recipe = runs[name, False], folder / f"{name}.py"
    size = {"own_binary_energy": 10, "own_curve": 2}[name]
    assert run_command("sample", run, "--count", 50, "--recipe", recipe) == 0
    drawn = np.load(run / "samples-1" / "samples.npz")
    assert drawn["v"].shape == (50, size)
    assert np.isfinite(drawn["v"]).all()
    assert run_command("embed", run, "--recipe", recipe) == 0
    assert np.load(run / "embedding-1" / "embedding.npz")["test"].shape[0] == 40
    assert run_command("inpaint", run, "--count", 2, "--tries", 2, "--mask", "1", "--recipe", recipe) == 0
    completed = np.load(run / "inpainting-1" / "inpainting.npz")
    known = np.delete(np.arange(size), 1)
    expected = np.broadcast_to(completed["originals"][None, :, known], (2, 2, size - 1))
    np.testing.assert_array_equal(completed["v"][..., known], expected)
    assert run_command("interpolate", run, "--rows", 3, "--between", 0, 1, "--recipe", recipe) == 0
    walked = np.load(run / "interpolation-1" / "interpolation.npz")
    assert walked["v"].shape == (3, size)
    if name == "own_binary_energy":
        assert set(np.unique(walked["h"])) <= {0.0, 1.0}
    assert run_command("report", run) == 0
    page = (run / "report.html").read_text()
    assert f"{name}.py" in page
    said = capsys.readouterr().out
    assert "R̂" in said
    assert "images" not in re.sub("<(style|script).*?</(style|script)>", "", page, flags=re.DOTALL)
    drawn, held = "v[1]", "v[0]" if size == 2 else "v[0], v[2], v[3], v[4], v[5], v[6], v[7], v[8] and 1 more"
    assert f"for which the drawn entries were hidden. Drawn: {drawn}. Held: {held}." in page
    assert "from training row 0 to training row 1; no coordinate of v is held" in page
    for made in ("samples-1/samples.png", "inpainting-1/inpainting.png", "interpolation-1/interpolation.png"):
        assert (run / made).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_evaluated(name, folder, runs, monkeypatch, capsys):
    import vages.app.runs as of_runs

    seen = []

    def assess(run, **how):
        seen.append(run)
        raise ValueError("this was asked for")

    monkeypatch.setattr(of_runs, "assess", assess)
    refused(
        ValueError,
        "this was asked for",
        lambda: run_command("evaluate", runs[name, False], "--recipe", folder / f"{name}.py"),
    )
    (run,) = seen
    assert run.recipe.noise_std == run.settings.sigma
    assert run.data.splits.test.shape[0] == 40


def test_a_run_is_loaded_in_python_and_saved(folder, runs, tmp_path):
    path = runs["own_curve", False]
    run = load_run(path, find_recipe(str(folder / "own_curve.py")))
    assert run.step == STEPS
    assert run.history[-1]["step"] == STEPS
    vages.save(tmp_path / "model.safetensors", run.model, run.posterior)
    code = (
        "import sys, vages, numpy as np; sys.path.insert(0, sys.argv[1]); from vages.app.recipes.finding import "
        "find_recipe; run = vages.load_run(sys.argv[2], find_recipe(sys.argv[1] + '/own_curve.py')); model, _ = "
        "vages.load(sys.argv[3], like=(run.model, run.posterior)); print(repr(float(model.params['bend'])))"
    )
    words = [sys.executable, "-c", code, folder, path, tmp_path / "model.safetensors"]
    fresh = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    assert float(fresh.stdout) == float(params_of(run)["bend"])


def test_a_run_alone_runs_no_code(runs, tmp_path, monkeypatch):
    path = runs["own_curve", False]
    monkeypatch.chdir(tmp_path)
    Path("own_curve.py").write_text("raise SystemExit('the file was run')")
    refused(ValueError, "recipe: .*own_curve.py:recipe, got none.*--recipe own_curve.py", lambda: load_run(path))
    assert run_command("report", path) == 0


def test_a_file_that_has_changed_is_refused_unless_accepted(folder, runs, tmp_path):
    changed = tmp_path / "own_curve.py"
    changed.write_text((folder / "own_curve.py").read_text() + "# another line\n")
    path = runs["own_curve", False]
    says = "has changed since .*--recipe-changed"
    refused(ValueError, says, lambda: run_command("embed", path, "--recipe", changed))
    assert run_command("embed", path, "--recipe", changed, "--recipe-changed") == 0


def test_another_file_is_called_another(folder, runs):
    says = r"expected that of the run, own_curve.py:recipe, got own_binary_energy.py:recipe"
    other = find_recipe(str(folder / "own_binary_energy.py"))
    refused(ValueError, says, lambda: load_run(runs["own_curve", False], other))


def test_an_accepted_change_is_the_run_s_from_then_on(folder, tmp_path, capsys):
    changed = tmp_path / "own_curve.py"
    text = (
        (folder / "own_curve.py")
        .read_text()
        .replace("optax.cosine_decay_schedule(settings.rate, settings.steps)", "1e-3")
    )
    changed.write_text(text)
    run, words = tmp_path / "run", ["--rows", 400, "--batch", 20]
    assert run_command("train", changed, *words, "--steps", 10, "--out", run) == 0
    changed.write_text(text + "# more\n")
    assert run_command("train", changed, "--resume", run, "--steps", 20, "--recipe-changed") == 0
    assert load_run(run, find_recipe(str(changed))).step == 20
    assert "warning: learner" not in capsys.readouterr().err
    changed.write_text(text.replace("Variational(10)", "Variational(4)"))
    assert run_command("train", changed, "--resume", run, "--steps", 30, "--recipe-changed") == 0
    warned = "learner: expected that of the run, got another objective.latents.samples 4 in place of 10; "
    assert f"vages: warning: {warned}" in capsys.readouterr().err
    assert warned in (run / "events.jsonl").read_text()
    changed.write_text(text)
    refused(ValueError, "has changed since", lambda: load_run(run, find_recipe(str(changed))))


def test_data_beside_the_recipe_and_data_that_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("inner").mkdir()
    rng = np.random.default_rng(0)
    for place, rows in (("inner/d.npy", 200), ("d.npy", 300)):
        np.save(place, rng.normal(size=(rows, 2)).astype(np.float32))
    text = HEAD + PARTS + "recipe = vages.Recipe(data='d.npy', build=build, learner=learner)"
    Path("inner/my_energy.py").write_text(text)
    words = ["train", "inner/my_energy.py", "--steps", 10, "--batch", 10]
    assert run_command(*words, "--out", "beside") == 0
    assert run_command(*words, "--data", "d.npy", "--out", "named") == 0
    for run, data in (("beside", "inner/d.npy"), ("named", "d.npy")):  # the page has the data that were used
        assert f"--data {tmp_path / data} --out NEW_FOLDER" in Path(run, "report.html").read_text()
    recipe = find_recipe("inner/my_energy.py")
    monkeypatch.chdir("/")
    assert load_run(tmp_path / "beside", recipe).data.rows == 160
    named = load_run(tmp_path / "named", recipe)
    assert named.fingerprint is not None
    assert (named.fingerprint["shape"], named.data.rows) == ([240, 2], 240)


def test_a_stream_keeps_its_context(tmp_path):
    def build(key, settings, data):
        energy = lambda p, v, h, context: jnp.sum((v - p) ** 2) + 0.0 * context["size"]
        return vages.EnergyModel(energy, jnp.zeros(2), v=vages.Real(2)), vages.ExactPosterior()

    batch = {"v": np.zeros((10, 2), np.float32), "size": np.zeros(10, np.float32)}
    recipe = vages.Recipe(
        data=lambda settings: lambda step: batch,
        build=build,
        learner=vages.Learner(vages.DSM(0.1, vages.Enumerated()), learning_rate=1e-2),
        settings=vages.Training(steps=10),
    )
    vages.train(recipe, tmp_path / "run")
    assert vages.load_run(tmp_path / "run", recipe).data_has_context


def test_settings_are_options_with_help(folder, capsys):
    with pytest.raises(SystemExit) as stop:
        parse("train", [str(folder / "own_curve.py"), "--help"])
    assert stop.value.code in (0, None)
    said = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "--sigma FLOAT noise level of score matching (default: 0.1)" in said
    assert "--stream, --no-stream train on new rows for each iteration" in said
    says = "--sgma.*did you mean --sigma"
    refused(ValueError, says, lambda: parse("train", [str(folder / "own_curve.py"), "--sgma", "1"]))


def test_a_run_begins_with_another(folder, runs, tmp_path):
    recipe, first = folder / "own_curve.py", runs["own_curve", False]
    words = ["--rows", 400, "--batch", 20, "--steps", 1, "--rate", 1e-6, "--out", tmp_path / "more", "--from", first]
    assert run_command("train", recipe, *words) == 0
    before, after = (params_of(load_run(path, find_recipe(str(recipe)))) for path in (first, tmp_path / "more"))
    np.testing.assert_allclose(after["bend"], before["bend"], atol=1e-5)
    assert abs(float(before["bend"])) > 1e-3
    assert json.loads((tmp_path / "more" / "config.json").read_text())["from"]["step"] == STEPS
    other = runs["own_binary_energy", False]
    says = "expected the data that .*own_binary_energy"
    refused(ValueError, says, lambda: run_command("train", recipe, "--out", tmp_path / "no", "--from", other))
    assert not (tmp_path / "no").exists()


def test_several_seeds_train_in_one_program(folder, tmp_path):
    words = ["--rows", 400, "--batch", 20, "--steps", 10, "--seeds", 2, "--out", tmp_path / "run"]
    assert run_command("train", folder / "own_binary_energy.py", *words) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["noise_level"]["each seed"]) == 2
    recipe = find_recipe(str(folder / "own_binary_energy.py"))
    first, second = (load_run(tmp_path / "run", recipe, seed=seed) for seed in (0, 1))
    assert params_of(first)["patterns"].shape == (10, 6)
    assert np.any(np.asarray(params_of(first)["patterns"] != params_of(second)["patterns"]))


def test_a_new_recipe_trains_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command("new", "my_energy.py") == 0
    assert run_command("train", "my_energy.py", "--steps", 10, "--out", "run") == 0
    assert recipe_of(Path("run"), find_recipe("my_energy.py")).settings.steps == 10
    refused(ValueError, "file: expected a new file", lambda: run_command("new", "my_energy.py"))
    refused(ValueError, "file: expected a name such as", lambda: run_command("new", "my-energy.py"))


def test_runs_are_compared(runs, tmp_path, capsys):
    one, other = runs["own_curve", False], runs["own_curve", True]
    capsys.readouterr()
    assert run_command("compare", one, other, "--out", tmp_path / "page.html", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert list(record["settings"]) == ["stream", "fingerprint of the data"]
    assert record["settings"]["stream"] == [False, True]
    assert record["results"]["steps"] == [STEPS, STEPS]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure") >= 1
    assert "own_curve-True" in page
    assert run_command("compare", one, other) == 0
    refused(ValueError, "runs: expected 2 to", lambda: run_command("compare", one))


HEAD = "import vages, jax.numpy as jnp, numpy as np\n"
PARTS = """
def energy(p, v, h):
    return jnp.sum((v - p) ** 2) / 2 + jnp.sum(h ** 2) / 2
def build(key, settings, data):
    model = vages.EnergyModel(energy, jnp.zeros(2), v=vages.Real(2), h=vages.Real(1))
    return model, vages.GaussianPosterior.linear(key, 2, 1)
data = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
learner = vages.Learner(vages.DSM(0.1), learning_rate=1e-3)
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", r"my_energy\.py, line 2: .*ZeroDivisionError.*fix it"),
        ("def f(:\n", r"my_energy\.py, line 2: .*SyntaxError"),
        ("recipes = 3", r"expected the name 'recipe' in .*my_energy\.py.*add"),
        (PARTS + "mine = vages.Recipe(data=data, build=build, learner=learner)", r"write .*my_energy\.py:mine"),
        ("recipe = 3", r"'recipe' in .* to be a vages\.Recipe.*got int"),
        ("def recipe():\n    return 3", r"'recipe' in .* to be a vages\.Recipe.*got int"),
        ("def recipe():\n    raise KeyError('x')", r"line 3: .*KeyError"),
        ("import sys\nsys.exit(0)", r"my_energy\.py: .*got SystemExit"),
        ("\0", r"my_energy\.py.*null bytes"),  # a SyntaxError, or a ValueError before Python 3.11.4
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass S(vages.Training):\n"
            "    rate: float = 'x'\nS()",
            r"line 6: rate: expected float, got x",
        ),
        (
            PARTS + "recipe = vages.Recipe(data=data, build=3, learner=learner)",
            r"line \d+: (build: expected a function|.*TypeCheckError)",
        ),
        (
            PARTS + "recipe = vages.Recipe(data=data, build=build, learner=3)",
            r"line \d+: (learner: expected a Learner|.*TypeCheckError)",
        ),
        (PARTS + "recipe = vages.Recipe(data=data, build=build, learner=learner, settings=3)", r"settings: expected"),
        (
            PARTS + "class S(vages.Training):\n    x: int = 1\n"
            "recipe = vages.Recipe(data=data, build=build, learner=learner, settings=S())",
            r"settings: expected a dataclass",
        ),
    ],
)
def test_a_bad_file_is_refused_in_a_line(text, says, tmp_path):
    (tmp_path / "my_energy.py").write_text(HEAD + text)
    refused(BadRecipe, says, lambda: run_command("train", tmp_path / "my_energy.py", "--out", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "def wrong(p, v, h):\n    return p['none'] + h\ndef build(key, settings, data):\n"
            "    model = vages.EnergyModel(wrong, {'a': jnp.zeros(2)}, v=vages.Real(2), h=vages.Real(1))\n"
            "    return model, vages.GaussianPosterior.linear(key, 2, 1)\n"
            "recipe = vages.Recipe(data=data, build=build, learner=learner)",
            r"my_energy\.py, line 11: .*none",
        ),
        (
            "recipe = vages.Recipe(data=data, build=build, learner=learner, test=lambda *_: 3.0)",
            "test: expected a dict of numbers",
        ),
        ("recipe = vages.Recipe(data=lambda s: iter([]), build=build, learner=learner)", "data: expected"),
        ("recipe = vages.Recipe(data=np.float32(3), build=build, learner=learner)", "data: expected an array"),
        ("recipe = vages.Recipe(data='none.npy', build=build, learner=learner)", "none.npy"),
        (
            "recipe = vages.Recipe(data=lambda s: s.nothing, build=build, learner=learner)",
            r"line \d+: .*AttributeError",
        ),
        (
            "recipe = vages.Recipe(data=data, build=lambda key, s, d: build(key, s, d)[0], learner=learner)",
            "build: expected .model, posterior., got EnergyModel",
        ),
        ("recipe = vages.Recipe(data=data, build=build, learner=lambda s: 3)", "learner: expected a Learner"),
        ("recipe = vages.Recipe(data=data[:, :1], build=build, learner=learner)", r"\(1,\)|\(.*, 1\)"),
        (
            "recipe = vages.Recipe(data=lambda s: iter([data[:10]] * 3), build=build, learner=learner)",
            "data: expected batches until step",
        ),
        (
            "recipe = vages.Recipe(data=lambda s: iter([data[:10], data[:9]] * 99), build=build, learner=learner)",
            "data: expected every batch to be like the first",
        ),
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass S(vages.Training):\n    x: float = 1.0\n"
            "recipe = vages.Recipe(data=data, build=build, learner=lambda s: vages.Learner(vages.DSM(0.1), s.x), "
            "settings=S())",
            "optimizer: expected",
        ),
    ],
)
def test_bad_parts_are_refused_in_a_line(text, says, tmp_path):
    (tmp_path / "my_energy.py").write_text(HEAD + PARTS + text)
    words = ["train", tmp_path / "my_energy.py", "--steps", 20, "--batch", 10, "--out", tmp_path / "run"]
    refused((ValueError, OSError), says, lambda: run_command(*words))
    if not any(late in says for late in ("until step", "every batch", "dict of numbers")):
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("evaluate", "says"),
    [
        (
            "lambda key, settings, model: {}",
            r"line 11: evaluate: expected a function of key, settings, model, posterior, data, got one of \(key, sett",
        ),
        ("lambda *_: 3.0", "evaluate: expected a dict of numbers"),
        ("lambda *_: {'a': np.zeros(2)}", "evaluate: expected a number for 'a'"),
        ("lambda *_: {'a': 'text'}", "evaluate: expected a number for 'a'"),
        ("lambda *_: {'b': 1.0}", "maximize: expected a number of `evaluate`, which returns b, got 'a'"),
        ("lambda *_: {}[0]", r"my_energy\.py, line 10: .*KeyError"),
    ],
)
def test_a_wrong_evaluation_costs_no_training(evaluate, says, tmp_path):
    text = HEAD + PARTS + f"evaluate = {evaluate}\n"
    text += "recipe = vages.Recipe(data=data, build=build, learner=learner, evaluate=evaluate, maximize='a')"
    (tmp_path / "my_energy.py").write_text(text)
    words = ["train", tmp_path / "my_energy.py", "--steps", 20, "--batch", 10, "--out", tmp_path / "run"]
    refused((ValueError, TypeError), says, lambda: run_command(*words))
    assert not (tmp_path / "run").exists()


def labeled(tmp_path, labels):
    """A recipe on a file of rows with labels that `build` does not use."""
    rows = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    np.savez(tmp_path / "d.npz", v=rows, labels=labels)

    def build(key, settings, data):
        model = vages.EnergyModel(lambda p, v, h: jnp.sum((v - p) ** 2), jnp.zeros(2), v=vages.Real(2))
        return model, vages.ExactPosterior()

    learner = vages.Learner(vages.DSM(0.1, vages.Enumerated()), learning_rate=1e-2)
    settings = vages.Training(steps=10, batch=10)
    return vages.Recipe(data=str(tmp_path / "d.npz"), build=build, learner=learner, settings=settings)


def test_labels_that_do_not_fit_their_rows_are_refused(tmp_path):
    recipe = labeled(tmp_path, np.zeros(99, np.int64))
    refused(ValueError, "expected 100 whole numbers from 0, got 99", recipe.load)


def test_other_labels_are_other_data(tmp_path):
    first = np.arange(100, dtype=np.int64) % 3
    vages.train(labeled(tmp_path, first), tmp_path / "run")
    longer = labeled(tmp_path, first).with_(steps=20)
    assert vages.train(longer, tmp_path / "run", resume=True).fitted.step == 20
    others = first.copy()
    others[split_rows(100, 0)[0][:1]] += 1  # the label of one training row
    other = labeled(tmp_path, others).with_(steps=30)
    says = "expected the data that .*got the same with other labels"
    refused(ValueError, says, lambda: vages.train(other, tmp_path / "run", resume=True))
    refused(ValueError, says, lambda: vages.load_run(tmp_path / "run", other))


def test_a_run_that_knows_no_labels_goes_on(tmp_path):
    """Older runs have no fingerprint of labels, and accept any labels."""
    recipe = labeled(tmp_path, np.arange(100) % 3)
    old = lambda data: {name: without(about) for name, about in fingerprints(data).items()}
    without = lambda about: {name: one for name, one in about.items() if name != "labels"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vages.app.runs.dataset.fingerprints", old)
        vages.train(recipe, tmp_path / "run")
    record = vages.load_run(tmp_path / "run", recipe).dataset
    assert record is not None
    assert "labels" not in record["train"]
    assert vages.train(recipe.with_(steps=20), tmp_path / "run", resume=True).fitted.step == 20
    record = vages.load_run(tmp_path / "run", recipe).dataset
    assert record is not None
    assert "labels" in record["train"]  # recorded from now on


def test_other_contexts_are_other_data(tmp_path):
    def build(key, settings, data):
        energy = lambda p, v, h, context: jnp.sum((v - p) ** 2) + 0.0 * context["label"]
        return vages.EnergyModel(energy, jnp.zeros(2), v=vages.Real(2)), vages.ExactPosterior()

    rows = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    recipe = lambda label, steps: vages.Recipe(
        data={"v": rows, "label": np.full(100, label, np.float32)},
        build=build,
        learner=vages.Learner(vages.DSM(0.1, vages.Enumerated()), learning_rate=1e-2),
        settings=vages.Training(steps=steps, batch=10),
    )
    vages.train(recipe(0.0, 10), tmp_path / "run")
    refused(ValueError, "other labels", lambda: vages.train(recipe(1.0, 20), tmp_path / "run", resume=True))


def test_steps_that_build_reads_cannot_change():
    model = lambda width: vages.EnergyModel(
        lambda p, v, h: jnp.sum((v - p) ** 2) * width, jnp.zeros(2), v=vages.Real(2)
    )
    looked = []

    def data(settings):
        looked.append(1)
        return np.zeros((50, 2), np.float32)

    def free(build):
        learner = vages.Learner(vages.DSM(0.1, vages.Enumerated()), learning_rate=1e-3)
        return vages.Recipe(data=data, build=build, learner=learner).free

    assert free(lambda key, s, d: (model(1.0), vages.ExactPosterior())) == {"steps"}
    assert free(lambda key, s, d: (model(1.0 / s.steps), vages.ExactPosterior())) == frozenset()
    assert not looked  # data that `build` does not use are not read
    assert free(lambda key, s, d: (model(1.0 * d.shape[0]), vages.ExactPosterior())) == {"steps"}
    assert looked
    narrow = lambda key, s, d: (model(s.steps if isinstance(d, vages.Examples) else s.nothing), vages.ExactPosterior())
    assert free(narrow) == frozenset()


def test_help_says_what_the_recipe_is(tmp_path, capsys):
    path = tmp_path / "my_energy.py"
    path.write_text(f'"""Two rings,\nand a bar.\n\nMore of it."""\n{HEAD}{PARTS}'
                    "recipe = vages.Recipe(data=data, build=build, learner=learner)\n"
                    "def other():\n    'Another one.'\n    return recipe\n")  # fmt: skip
    for word, says, not_this in (
        (path, "Two rings, and a bar.", "More of it"),
        (f"{path}:other", "Another one.", "ring"),
    ):
        with pytest.raises(SystemExit):
            parse("train", [str(word), "--help"])
        said = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
        assert says in said
        assert not_this not in said
        assert "--steps INT iterations" in said


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_explored(name, folder, runs, monkeypatch):
    pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")
    from vages.app.explore import app
    from vages.app.runs.vectors import Vectors

    served = []
    monkeypatch.setattr(app, "serve", lambda ready, port, **how: served.append(ready))
    assert run_command("explore", runs[name, False], "--recipe", folder / f"{name}.py", "--no-browser") == 0
    (ready,) = served
    assert isinstance(ready, Vectors)
    assert ready.rows.shape == (40, {"own_binary_energy": 10, "own_curve": 2}[name])


def test_means_of_a_mapped_array_are_made_part_by_part(tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32))
    text = "data = lambda settings: np.load(__file__.replace('my_energy.py', 'rows.npy'), mmap_mode='r')\n"
    text += "recipe = vages.Recipe(data=data, build=build, learner=learner)"
    (tmp_path / "my_energy.py").write_text(HEAD + PARTS + text)
    words = ["train", tmp_path / "my_energy.py", "--steps", 10, "--batch", 10, "--out", tmp_path / "run"]
    assert run_command(*words) == 0
    recipe = find_recipe(str(tmp_path / "my_energy.py"))
    run = load_run(tmp_path / "run", recipe)
    seen = []
    means = embedding.posterior_means
    monkeypatch.setattr(
        embedding, "posterior_means", lambda m, q, v, **how: seen.append(type(v)) or means(m, q, v, **how)
    )
    assert run_command("embed", tmp_path / "run", "--recipe", tmp_path / "my_energy.py") == 0
    assert seen == [np.memmap] * 3
    found = np.load(tmp_path / "run" / "embedding-1" / "embedding.npz")
    np.testing.assert_allclose(found["test"], means(run.model, run.posterior, np.asarray(run.data.splits.test)))


def test_settings_are_plain(tmp_path):
    @dataclass(frozen=True)
    class Settings(vages.Training):
        """With a list."""

        layers: tuple[int, ...] = (1, 2)

    refused(TypeError, "layers: expected a number, a text, true, false or None", Settings)


def test_steps_that_the_learner_reads_cannot_change():
    def build(key, settings, data):
        model = vages.EnergyModel(lambda p, v, h: jnp.sum((v - p) ** 2), jnp.zeros(2), v=vages.Real(2))
        return model, vages.ExactPosterior()

    objective = vages.DSM(0.1, vages.Enumerated())
    rows = np.zeros((50, 2), np.float32)
    constant = vages.Recipe(data=rows, build=build, learner=vages.Learner(objective, learning_rate=1e-3))
    decaying = vages.Recipe(
        data=rows,
        build=build,
        learner=lambda s: vages.Learner(objective, learning_rate=lambda step: 1e-3 * (1 - step / s.steps)),
    )
    assert constant.free == {"steps"}
    assert decaying.free == frozenset()

    @dataclass(frozen=True)
    class Settings(vages.Training):
        """With a property."""

        @property
        def whole(self):
            return self.steps

    by_property = vages.Recipe(
        data=rows,
        build=build,
        learner=lambda s: vages.Learner(objective, optax.adam(optax.cosine_decay_schedule(1e-3, s.whole))),
        settings=Settings(),
    )
    assert by_property.free == frozenset()
    copied = lambda s: vages.Learner(objective, learning_rate=1e-3 * replace(s, batch=3).batch)
    assert vages.Recipe(data=rows, build=build, learner=copied).free == frozenset()  # `replace` reads all settings


def test_a_recipe_without_a_file_trains_in_python(tmp_path):
    def build(key, settings, data):
        energy = lambda p, v, h, context: jnp.sum((v - p) ** 2) + 0.0 * context["label"]
        return vages.EnergyModel(energy, jnp.zeros(2), v=vages.Real(2)), vages.ExactPosterior()

    rows = np.random.default_rng(0).normal(1.0, 1.0, (200, 2)).astype(np.float32)
    recipe = vages.Recipe(
        data={"v": rows, "label": np.zeros(200, np.float32)},
        build=build,
        learner=vages.Learner(vages.DSM(0.1, vages.Enumerated()), learning_rate=1e-2),
        settings=vages.Training(steps=10, batch=10),
    )
    trained = vages.train(recipe, tmp_path / "run")
    assert trained.fitted.step == 10
    run = vages.load_run(tmp_path / "run", recipe)
    np.testing.assert_array_equal(params_of(run), trained.model.params)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["recipe"] == "own"
    assert run.data.context is not None
    assert run.data.context["label"].test.shape == (20,)
    assert jax.tree.leaves(run.model)[0].shape == (2,)
    assert os.path.isdir(tmp_path / "run")
    assert checkpoints(Directory(tmp_path / "run") / "checkpoints")


def test_numbers_that_are_not_finite_end_no_run(tmp_path):
    (tmp_path / "my_energy.py").write_text(
        HEAD + PARTS + "test = lambda *_: {'ratio': float('nan')}\n"
        "recipe = vages.Recipe(data=data, build=build, learner=learner, test=test)"
    )
    words = ["train", tmp_path / "my_energy.py", "--steps", 10, "--batch", 10, "--out", tmp_path / "run"]
    assert run_command(*words) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["ratio"] is None


def test_a_memory_mapped_array_is_divided_in_place(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(400, dtype=np.float32).reshape(200, 2))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    splits = as_examples({"v": rows, "label": rows[:, 0]}, 0)
    assert isinstance(splits.splits.train, np.memmap)
    assert [len(part) for part in splits.splits] == [160, 20, 20]
    np.testing.assert_array_equal(np.concatenate(splits.splits), rows)
    assert splits.context is not None
    np.testing.assert_array_equal(splits.context["label"].test, rows[180:, 0])
