"""A run that is killed and resumed is the run that was never killed, to the bit: for every method and many seeds."""

import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vages import cli
from vages.learners import make_learner
from vages.models import DeepEBLVM
from vages.objectives import MDSM, NoiseRange
from vages.optimisers import learning_rate
from vages.posteriors import Corrector, GaussianPosterior, Variational, fisher
from vages.recipes import CHECKERBOARD, Method, run_recipe
from vages.recipes.recipe import learner_of, parts_of
from vages.training import Checkpoints, Guard, RunFolder, fit, init_seeds
from vages.training.checkpoint import ARRAYS, checkpoints, step_of

CHUNK, BATCH = 5, 20
METHODS = (*get_args(Method), "deep")


@cache
def learner(method):
    """A small learner of each kind, and how its parts are made."""
    if method == "deep":
        levels = NoiseRange(0.1, 1.0)
        parts = lambda key: (
            DeepEBLVM.vectors(key, 2, width=4, depth=1, latents=2, head_width=4),
            GaussianPosterior.linear(key, 2, 2),
        )
        return make_learner(
            MDSM(levels, Variational(2, Corrector(2, 0.01, 1e-4))),
            learning_rate=learning_rate(1e-3, decay="cosine", steps=10_000, warmup=10),
            posterior_steps=1,
            divergence=fisher,
            clip=1.0,
            ema=0.9,
            compute_dtype=jnp.bfloat16,
        ), parts
    recipe = replace(CHECKERBOARD, method=method, latents=2, posterior_steps=1, unrolled=1, batch=BATCH)
    return learner_of(recipe), parts_of(recipe, 2)


def data():
    return jnp.asarray(np.random.default_rng(0).uniform(size=(70, 2)), jnp.float32)


def trained(method, many, path, steps, resume=False):
    one, parts = learner(method)
    seeds = (3, 4) if many else (3,)
    state = init_seeds(one, seeds, parts, BATCH)
    if not many:
        state = jax.tree.map(lambda x: x[0] if hasattr(x, "shape") else x, state)
    folder = RunFolder.reopen(path) if resume else RunFolder(path, {"method": method})
    fitted = fit(
        one,
        state,
        data(),
        steps=steps,
        batch=BATCH,
        seed=seeds if many else 3,
        chunk=CHUNK,
        evaluate=lambda state: {"quality": jnp.ravel(state.step).astype(jnp.float32)},
        evaluate_every=2 * CHUNK,
        select="quality",
        folder=folder,
        checkpoints=Checkpoints(every=CHUNK),
        resume=resume,
    )
    folder.close()
    return fitted


def until_killed(method, many, path):
    trained(method, many, path, 10**6)


def rows(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def same(a, b):
    leaves = [jax.tree.leaves((x.state, x.best)) for x in (a, b)]
    assert len(leaves[0]) == len(leaves[1])
    for x, y in zip(*leaves, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def kill_when(process, ready, wait):
    deadline = time.monotonic() + 180
    while not ready():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(wait)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.fixture(scope="module")
def server():
    """Processes that have imported the library, and not yet started JAX: a child of theirs starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_resume"])
    return context


@pytest.mark.parametrize("many", [False, True], ids=["one seed", "two seeds"])
@pytest.mark.parametrize("method", METHODS)
def test_killed_and_resumed_is_never_killed(server, tmp_path, method, many):
    """22 processes are killed, each at a random moment after its first checkpoint."""
    path, wait = tmp_path / "killed", random.Random(f"{method} {many}").uniform(0, 0.1)
    process = server.Process(target=until_killed, args=(method, many, path))
    process.start()
    kill_when(process, lambda: checkpoints(path / "checkpoints"), wait)
    reached = step_of(checkpoints(path / "checkpoints")[-1])
    steps = reached + 3 * CHUNK
    resumed = trained(method, many, path, steps, resume=True)
    straight = trained(method, many, tmp_path / "straight", steps)
    same(resumed, straight)
    assert rows(path) == rows(tmp_path / "straight")
    last = f"step-{steps:012d}/{ARRAYS}"
    names = [folder / "checkpoints" / last for folder in (path, tmp_path / "straight")]
    assert names[0].read_bytes() == names[1].read_bytes()
    assert not list((path / "checkpoints").glob(".step-*"))


def events(path):
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


def test_a_finished_run_is_extended(tmp_path):
    trained("vages-dsm", True, tmp_path / "a", 13)
    same(trained("vages-dsm", True, tmp_path / "a", 40, resume=True), trained("vages-dsm", True, tmp_path / "b", 40))
    assert [event["event"] for event in events(tmp_path / "a")] == ["started", "finished", "resumed", "finished"]


def test_a_finished_run_that_is_resumed_stays_as_it_is(tmp_path):
    first = trained("pcd", True, tmp_path / "a", 13)
    same(first, trained("pcd", True, tmp_path / "a", 13, resume=True))


def test_a_damaged_newest_checkpoint_costs_only_its_iterations(tmp_path):
    straight = trained("vages-dsm", True, tmp_path / "b", 40)
    trained("vages-dsm", True, tmp_path / "a", 30)
    newest = checkpoints(tmp_path / "a" / "checkpoints")[-1] / ARRAYS
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    same(trained("vages-dsm", True, tmp_path / "a", 40, resume=True), straight)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    told = [event for event in events(tmp_path / "a") if event["event"] == "checkpoint refused"]
    assert len(told) == 1
    assert "SHA-256" in told[0]["why"]


def test_a_torn_last_line_of_the_log_is_written_again(tmp_path):
    trained("vages-dsm", True, tmp_path / "a", 30)
    with open(tmp_path / "a" / "metrics.jsonl", "a") as file:
        file.write('{"loss": [1.0, 2')
    trained("vages-dsm", True, tmp_path / "a", 40, resume=True)
    trained("vages-dsm", True, tmp_path / "b", 40)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_a_full_disk_stops_the_run_with_its_last_good_checkpoint(tmp_path, monkeypatch):
    from vages.training import checkpoint

    write = checkpoint.write_durably

    def full(path, content):
        if "000000000020" in str(path) and path.name == ARRAYS:
            write(path, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_durably", full)
        says = r"expected to write step 20 .*No space left.*The last good checkpoint is .*step-000000000015"
        with pytest.raises(OSError, match=says):
            trained("vages-dsm", True, tmp_path / "a", 40)
    same(_resumed_elsewhere(tmp_path / "a"), trained("vages-dsm", True, tmp_path / "b", 40))


def _resumed_elsewhere(path: Path):
    os.rename(path, path.with_name("moved"))  # the lock of the run that failed is this process's own
    return trained("vages-dsm", True, path.with_name("moved"), 40, resume=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": (3, 5)}, r"another seeds \[3, 5\] in place of \[3, 4\]"),
        ({"batch": 10}, "another batch 10 in place of 20"),
        ({"data": 1 + np.asarray(data())}, "another data .* in place of"),
        ({"steps": 5}, "steps: expected at least the 10 already made, got 5"),
    ],
)
def test_another_run_is_refused(tmp_path, change, says):
    trained("dsm", True, tmp_path / "a", 10)
    one, parts = learner("dsm")
    state = init_seeds(one, (3, 4), parts, BATCH)
    how = {"data": data(), "steps": 20, "batch": BATCH, "seed": (3, 4), **change}
    folder = RunFolder.reopen(tmp_path / "a")
    with pytest.raises(ValueError, match=says):
        fit(one, state, jnp.asarray(how.pop("data")), **how, folder=folder, resume=True)
    folder.close()


def test_a_folder_has_one_writer(tmp_path):
    folder = RunFolder(tmp_path / "a", {})
    with pytest.raises(ValueError, match="expected a run that is not being written, got one in use"):
        RunFolder.reopen(tmp_path / "a")
    folder.close()
    RunFolder.reopen(tmp_path / "a").close()


def test_resuming_without_a_folder_is_refused():
    one, parts = learner("dsm")
    state = init_seeds(one, (3,), parts, BATCH)
    with pytest.raises(ValueError, match="folder: expected a run folder"):
        fit(one, state, data(), steps=5, batch=BATCH, seed=(3,), resume=True)
    with pytest.raises(ValueError, match="folder: expected a run folder"):
        fit(one, state, data(), steps=5, batch=BATCH, seed=(3,), guard=Guard("recover"))


SMALL = replace(CHECKERBOARD, steps=20, evaluations=2, posterior_steps=1)


def test_settings_that_make_another_run_are_refused_by_name(tmp_path):
    run_recipe(SMALL, tmp_path / "run")
    other = replace(SMALL, learning_rate=0.5, method="dsm", steps=30)
    says = r"another method \(vages-dsm before, dsm now\), learning_rate \(0.001 before, 0.5 now\); start anew"
    with pytest.raises(ValueError, match=says):
        run_recipe(other, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"another .*decay \(constant before, cosine now\)"):
        run_recipe(replace(SMALL, decay="cosine"), tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="run: expected the folder of a run"):
        run_recipe(SMALL, tmp_path / "nothing", resume=True)


def test_more_steps_of_a_decaying_rate_are_another_run(tmp_path):
    run_recipe(replace(SMALL, decay="cosine"), tmp_path / "run")
    with pytest.raises(ValueError, match=r"another steps \(20 before, 40 now\)"):
        run_recipe(replace(SMALL, decay="cosine", steps=40), tmp_path / "run", resume=True)


def test_the_command_resumes_and_extends(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.train(steps=20, posterior_steps=1, out=Path("run"))
    cli.train(resume=Path("run"), steps=40)
    cli.train(steps=40, posterior_steps=1, out=Path("straight"))
    results = [json.loads(Path(name, "result.json").read_text()) for name in ("run", "straight")]
    assert results[0]["test_log_likelihood"] == results[1]["test_log_likelihood"]
    assert json.loads(Path("run", "config.json").read_text())["steps"] == 40
    with pytest.raises(ValueError, match="out: expected nothing beside --resume"):
        cli.train(resume=Path("run"), out=Path("other"))
    with pytest.raises(ValueError, match=r"another latents \(4 before, 5 now\)"):
        cli.train(resume=Path("run"), latents=5)
