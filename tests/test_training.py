"""`fit` and the run folder, as users call them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Literal, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vages
from compiling import environment
from errors import refused, without_progress
from fitting import fit_state, with_step
from small_recipes import parts_of
from vages.app import cli
from vages.app.cli.parsing import parse
from vages.app.cli.training import _NAMES
from vages.app.recipes import as_recipe, grbm, job_of, train
from vages.app.runs import run_recipe
from vages.app.settings import ALL, CHECKERBOARD, DIGITS, GRBMSettings
from vages.blocks import block_lengths, in_one, scan_in_blocks
from vages.data import Batches
from vages.training import Diverged, RunFolder, init_seeds, iteration_costs, numbered_folder, seed_keys
from vages.training.fit import _check_settings, _end_of_chunk

SMALL = replace(CHECKERBOARD, steps=60, evaluate_every=20, seeds=2, posterior_steps=1)


def start(recipe, seeds=(0,)):
    learner = grbm.learner(recipe)
    state = init_seeds(learner, seeds, parts_of(recipe, 2), recipe.batch)
    return learner, state


def test_fit_logs_every_chunk_and_evaluates_on_time(tmp_path):
    learner, state = start(SMALL, (0, 1))
    data = jnp.asarray(np.random.default_rng(0).uniform(size=(300, 2)), jnp.float32)
    folder = RunFolder(tmp_path / "run", {"anything": 1})
    seen = []
    fitted = fit_state(
        learner,
        state,
        data,
        steps=50,
        batch=100,
        seed=(0, 1),
        evaluate=lambda state: seen.append(1) or {"quality": jnp.ones(2)},
        evaluate_every=20,
        chunk=10,
        folder=folder,
    )
    assert [row["step"] for row in fitted.history] == [10, 20, 30, 40, 50]
    assert fitted.curve("quality")[0].tolist() == [20, 40, 50]
    assert fitted.curve("loss")[1].shape == (5, 2)
    assert len(seen) == 3
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert logged == fitted.history
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == {"anything": 1}
    assert "jax" in json.loads((tmp_path / "run" / "environment.json").read_text())
    assert not fitted.interrupted


def test_callbacks_are_called_with_every_record_in_order():
    learner, state = start(SMALL)
    data, seen = jnp.ones((300, 2)), []
    first = lambda record: seen.append(("first", dict(record))) or record.clear()
    second = lambda record: seen.append(("second", record))
    how = {"steps": 30, "batch": 100, "seed": (0,), "chunk": 10}
    fitted = fit_state(learner, state, data, **how, callbacks=[first, second])
    assert [record["step"] for record in fitted.history] == [10, 20, 30]
    assert {"step", "seconds", "loss"} <= set(fitted.history[0])
    assert seen == [(name, record) for record in fitted.history for name in ("first", "second")]


@pytest.mark.parametrize("wrong", [print, [print, 3], None])
def test_callbacks_that_are_no_functions_are_refused(wrong):
    with pytest.raises(ValueError, match="^callbacks: "):
        _check_settings(10, 5, None, wrong)


def test_divergence_is_an_error_that_says_what_when_and_what_to_try():
    learner, state = start(SMALL, (4, 5))

    def step(key, state, batch):
        after, metrics = learner.step(key, state, batch)
        return after, metrics | {"loss": jnp.where(after.optimizer[0].count == 8, jnp.nan, metrics["loss"])}

    broken = with_step(learner, step)
    says = "got nan at iteration 8 of seed 4"
    with pytest.raises(Diverged, match=says):
        fit_state(broken, state, jnp.ones((300, 2)), steps=20, batch=100, seed=(4, 5), chunk=5)


def test_interrupting_keeps_what_was_learnt():
    learner, state = start(SMALL)

    def evaluate(state):
        signal.raise_signal(signal.SIGINT)
        return {}

    data = jnp.ones((300, 2))
    fitted = fit_state(
        learner, state, data, steps=60, batch=100, seed=(0,), evaluate=evaluate, evaluate_every=40, chunk=20
    )
    assert fitted.interrupted
    assert fitted.step == 40
    assert np.isfinite(fitted.state.model.weight).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": 0}, "steps: .*got 0"),
        ({"batch": 500}, "batch: .*300.*got 500"),
        ({"data": jnp.ones((300, 2)).at[3, 1].set(jnp.inf)}, "data: .*got inf at "),
        ({"data": jnp.ones((3, 300, 2))}, "data: .*got 3"),
        ({"data": jnp.ones((300, 5))}, r"data: .*\(2,\), got \(5,\)"),
    ],
)
def test_bad_input_is_refused_before_training(change, says):
    learner, state = start(SMALL)
    arguments = {"data": jnp.ones((300, 2)), "steps": 10, "batch": 100, "seed": (0,), **change}
    with pytest.raises(ValueError, match=f"^{says}"):
        fit_state(learner, state, **arguments)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"latents": 0}, "latents: .*got 0"),
        ({"learning_rate": -1.0}, "learning_rate: .*got -1.0"),
        ({"posterior_steps": -1}, "posterior_steps: .*got -1"),
        ({"samples": 0}, "samples: .*got 0"),
        ({"chain_steps": 0}, "chain_steps: .*got 0"),
        ({"seed": -1}, "seed: .*got -1"),
        ({"seed": 2**32}, "seed: .*got 4294967296"),
        (
            {"method": "cd", "control_variate": True},
            "control_variate: .*vages-dsm",
        ),
        ({"method": "ksd", "latents": 30}, "latents: .*ksd.*vages-ksd"),
    ],
)
def test_a_recipe_checks_itself(change, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        replace(CHECKERBOARD, **change)


def test_odd_batches_cannot_be_paired():
    with refused("batch", got=99):
        start(replace(CHECKERBOARD, method="vages-ksd", batch=99))


@pytest.mark.usefixtures("short_chains")
def test_a_run_interrupted_in_its_first_chunk_still_leaves_pictures(tmp_path, monkeypatch):
    indices = Batches.indices

    def interrupt(batches, step, steps):
        if batches.seed == 0:
            signal.raise_signal(signal.SIGINT)
        return indices(batches, step, steps)

    monkeypatch.setattr("vages.data.batches.Batches.indices", interrupt)
    trained = run_recipe(as_recipe(SMALL), tmp_path / "run")
    assert trained.fitted.interrupted
    assert trained.fitted.step == 20
    assert (tmp_path / "run" / "density.png").exists()


def test_a_second_ctrl_c_does_not_wait(monkeypatch):
    learner, state = start(SMALL)

    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("vages.data.batches.Batches.indices", interrupt)
    monkeypatch.setattr("vages.training.signals._ONE_REQUEST", 0)
    with pytest.raises(KeyboardInterrupt):
        fit_state(learner, state, jnp.ones((300, 2)), steps=60, batch=100, seed=(0,))


def test_one_sample_is_refused_for_vages():
    with refused("samples"):
        grbm.learner(replace(CHECKERBOARD, samples=1))


@pytest.mark.parametrize(("backend", "blocks"), [("cpu", [4, 4]), ("gpu", [8])])
def test_a_gpu_draws_the_noise_of_more_iterations_at_once(backend, blocks, monkeypatch):
    """Two MiB per iteration. Other tests check that bits do not depend on the blocks."""
    lengths = []

    def noted(iterations, fitting):
        found = block_lengths(iterations, fitting)
        lengths.extend(length for count, length in found for _ in range(count))
        return found

    monkeypatch.setattr("vages.blocks.block_lengths", noted)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    draw = lambda key: jax.random.bits(key, (2**19,), jnp.uint32)
    update = lambda noise, carry, row: (carry + row, noise[0])
    scan = lambda rows: scan_in_blocks(draw, update, 0, rows, jax.random.key(0), jnp.zeros((), jnp.uint32))
    jax.eval_shape(scan, jnp.arange(8))
    assert lengths == blocks


@pytest.mark.parametrize(("chunk", "cuts"), [(100, [450]), (100, [997]), (30, [1000, 4000]), (7, []), (100, [20])])
def test_chunks_have_few_lengths(chunk, cuts):
    """Each length is compiled. Evaluations and checkpoints are at ends of chunks, wherever a run starts."""
    ends, steps = [0], 8000
    while ends[-1] < steps:
        ends.append(_end_of_chunk(ends[-1], chunk, cuts))
    lengths = set(np.diff(ends))
    assert max(lengths) == min(chunk, *cuts, steps)
    assert len(lengths) <= 2
    assert all(step in ends for cut in cuts for step in range(cut, steps, cut))
    assert all(_end_of_chunk(step, chunk, cuts) == min(e for e in ends if e > step) for step in range(0, steps, 13))


def test_noise_in_one_array_is_the_same_noise():
    """Arrays of several shapes and dtypes, a scalar and a key. A GPU's loop then copies three arrays, not six."""

    def draw(key):
        a, b = jax.random.split(key)
        return [
            jax.random.normal(a, (3, 2)),
            jax.random.bernoulli(b, 0.5, (4,)),
            jax.random.uniform(b, (2,)),
            b,
            jnp.float32(7),
            jax.random.normal(b, (0, 5)),
        ]

    update = lambda noise, carry, row: (carry + noise[0].sum() * row + noise[5].sum(), noise[:5])
    begin, rows, start = jnp.zeros(()), jnp.arange(6.0), jnp.zeros((), jnp.uint32)
    together = in_one(draw, update, jax.random.key(0))
    plain, packed = (
        scan_in_blocks(*both, begin, rows, jax.random.key(0), start) for both in ((draw, update), together)
    )
    assert jax.tree.structure(plain) == jax.tree.structure(packed)
    for one, two in zip(jax.tree.leaves(plain), jax.tree.leaves(packed), strict=True):
        assert one.dtype == two.dtype
        is_key = jnp.issubdtype(one.dtype, jax.dtypes.prng_key)
        one, two = (jax.random.key_data(x) if is_key else x for x in (one, two))
        np.testing.assert_array_equal(one, two)
    assert len(together[0](jax.random.key(0))) == 3
    much = lambda key: jax.random.normal(key, (2**16 + 1,))
    assert in_one(much, update, jax.random.key(0)) == (much, update)


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with refused("out"):
        RunFolder(tmp_path, {})
    (tmp_path / "run-1").mkdir()
    with numbered_folder(tmp_path, "run") as path:
        assert path == tmp_path / "run-2"
        assert path.is_dir()
    assert not path.exists()  # nothing was written to it


def test_blocks_of_noise_add_up_and_none_is_of_one():
    for fitting in (0, 1, 2, 3, 7, 100, 1000):
        for iterations in range(2, 300):
            blocks = block_lengths(iterations, fitting)
            assert sum(count * length for count, length in blocks) == iterations
            assert all(count >= 1 and length <= max(fitting + 1, 1) for count, length in blocks)
            assert all(length == 1 for _, length in blocks) if fitting < 2 else all(length > 1 for _, length in blocks)


@pytest.mark.optimized
def test_the_same_recipe_gives_the_same_bits():
    recipe = as_recipe(replace(SMALL, method="nce"))  # the method with the least compilation for its noise
    first, second = (train(recipe) for _ in range(2))
    np.testing.assert_array_equal(first.model.weight, second.model.weight)
    assert first.tested["test_log_likelihood"].tolist() == second.tested["test_log_likelihood"].tolist()
    assert first.fitted.curve("test_log_likelihood")[1].shape == (3, 2)


@pytest.mark.usefixtures("short_chains")
def test_a_run_folder_describes_itself(tmp_path):
    trained = run_recipe(as_recipe(SMALL), tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        *(".lock", "checkpoints", "checkpoints.json", "config.json", "environment.json", "events.jsonl"),
        *("metrics.jsonl", "result.json", "curve.png", "density.png", "samples.png", "report.html"),
    }
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["format"], config["recipe"]) == (2, "checkerboard")
    assert GRBMSettings(**config["settings"]) == SMALL
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test_log_likelihood"]["each seed"] == trained.tested["test_log_likelihood"].tolist()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"data": "nosuch"}, "data: .*got no file or folder 'nosuch'"),
        ({"batch": 10**6}, "batch: .*got 1000000"),
    ],
)
def test_nothing_is_written_for_a_recipe_that_cannot_run(tmp_path, change, error):
    with pytest.raises(ValueError, match=error):
        run_recipe(as_recipe(replace(SMALL, **change)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("short_chains")
def test_more_latents_than_can_be_enumerated_still_leave_pictures(tmp_path):
    run_recipe(as_recipe(replace(SMALL, latents=25, steps=4, seeds=1, annealing=20)), tmp_path / "run")
    assert {"curve.png", "samples.png"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_what_starts_a_run_shares_no_key_with_what_trains_it():
    start_keys, training_keys = (seed_keys((0, 1), use) for use in ("start", "training"))
    starts = [jax.random.key_data(jax.random.split(key)).tolist() for key in start_keys]
    noise = [[jax.random.key_data(jax.random.fold_in(key, i)).tolist() for i in range(3)] for key in training_keys]
    flat = [tuple(key) for keys in (*starts, *noise) for key in keys]
    assert len(set(flat)) == len(flat)


def test_users_own_arrays_train_and_large_models_are_validated(tmp_path):
    path = tmp_path / "mine.npy"
    np.save(path, np.random.default_rng(0).normal(size=(400, 3)))
    trained = train(
        as_recipe(replace(SMALL, data=str(path), latents=25, steps=20, evaluate_every=10, batch=50, annealing=20))
    )
    assert trained.model.weight.shape == (2, 3, 25)
    assert trained.fitted.curve("validation_log_likelihood")[1].shape == (2, 2)
    assert np.isfinite(trained.tested["test_log_likelihood"]).all()


def test_numbers_of_weak_types_are_compiled_once():
    """`jnp.array(0.0)` has a weak type, the state after an iteration does not."""
    traced, after = [], []

    def energy(params, v, h):
        traced.append(None)
        return jnp.sum(h**2) / 2 + jnp.sum((v - params["mean"]) ** 2) / 2

    model = vages.EnergyModel(energy, {"mean": jnp.array(0.0)}, v=vages.Real(1), h=vages.Real(1))
    posterior = vages.GaussianPosterior.linear(jax.random.key(0), 1, 1)
    learner = vages.Learner(vages.DSM(sigma=0.1, latents=vages.Variational(2)), learning_rate=0.1)
    look = lambda record: after.append((record["step"], len(traced)))
    vages.fit(
        jax.random.key(1), model, posterior, jnp.ones((4, 1)), learner, steps=3, batch=4, chunk=1, callbacks=[look]
    )
    assert after == [(step, after[0][1]) for step in (1, 2, 3)]


TINY = ("train", "checkerboard", "--posterior-steps", "1", "--latents", "2", "--batch", "10")


def command(*args):
    return [sys.executable, "-c", "from vages.app.cli import main; main()", *args]


def test_ctrl_c_ends_cleanly_and_says_where_the_results_are(tmp_path):
    run = subprocess.Popen(
        command(*TINY, "--steps", "10000000", "--out", str(tmp_path / "run")),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        assert run.poll() is None
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "stopped by Ctrl-C" in out
    assert str(tmp_path / "run") in out
    assert "Traceback" not in err
    assert json.loads((tmp_path / "run" / "result.json").read_text())["interrupted"]


def test_a_diverging_run_stops_with_one_line_and_a_status(tmp_path, monkeypatch, capsys):
    words = (*TINY, "--steps", "2000", "--learning-rate", "1e6", "--out", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "argv", ["vages", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    (line,) = without_progress(capsys.readouterr().err).splitlines()
    assert line.startswith("vages: training diverged: ")


def test_the_command_lines_choices_are_what_there_is():
    assert set(_NAMES) == set(ALL)
    for name, start in (("checkerboard", CHECKERBOARD), ("digits-paper", DIGITS)):
        words = {field: get_args(kind) for field, kind in get_type_hints(type(start)).items() if is_choice(kind)}
        assert {"method", "decay"} <= set(words)
        for field, choices in words.items():
            for choice in choices:
                positional, named = parse("train", [name, f"--{field}", choice])
                assert (*positional, named.get(field, getattr(start, field))) == (name, choice)
            with pytest.raises(ValueError, match="invalid choice 'nothing'"):
                parse("train", [name, f"--{field}", "nothing"])


def is_choice(kind):
    return get_origin(kind) is Literal


def test_what_an_iteration_costs():
    """Memory is that of a training program: more for a larger state, and the job keeps its own state as well."""
    jobs = {name: job_of(replace(SMALL, method="dsm", latents=n)) for name, n in (("small", 4), ("large", 9))}
    costs = iteration_costs(jobs, iterations=4, rounds=3)
    assert all(cost.seconds.shape == (3,) and (cost.seconds > 0).all() for cost in costs.values())
    assert not any(leaf.is_deleted() for job in jobs.values() for leaf in jax.tree.leaves(job.state))
    parameters = {name: sum(x.nbytes for x in jax.tree.leaves(job.state)) for name, job in jobs.items()}
    assert costs["small"].bytes > parameters["small"]
    assert costs["large"].bytes - costs["small"].bytes >= parameters["large"] - parameters["small"]
