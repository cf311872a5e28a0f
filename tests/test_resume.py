"""A run that is killed and resumed is bit-identical to an uninterrupted one, for all methods and several seeds."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass, fields, replace
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import compile_in_haste
from errors import refused
from fitting import fit_state
from small_recipes import parts_of
from vages.app import cli
from vages.app.cli.parsing import parse
from vages.app.output.progress import ProgressBar
from vages.app.recipes import Drawn, as_recipe, grbm
from vages.app.runs import config_of, run_recipe
from vages.app.runs import train as training
from vages.app.runs.config import reopened
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS, DeepSettings
from vages.data import Batches
from vages.files import BadFile
from vages.models import DeepEBLVM
from vages.objectives import DSM, MDSM, NoiseRange, Variational
from vages.optimizers import adam, learning_rate
from vages.posteriors import Corrector, GaussianPosterior, fisher
from vages.storage.directory import Directory
from vages.training import Checkpoints, Guard, RunFolder, init_seeds
from vages.training.checkpoint import ARRAYS, checkpoints, prune, step_of, write_checkpoint
from vages.training.learner import Learner
from vages.training.learner_record import LearnerWarning, learner_changes, learner_record
from vages.training.policy import read_policies

CHUNK, BATCH = 5, 20
METHODS = ("vages-dsm", "pcd", "nce", "deep")  # covers a posterior, chains, a trained constant, and images
ONE_SEED = ("vages-dsm", "is-ksd", "cd", "nce")  # these methods are killed with one seed, the others with two


@cache
def learner(method):
    """A small learner of each kind, and the function that makes its model and posterior."""
    if method == "deep":
        levels = NoiseRange(0.1, 1.0)
        parts = lambda key: (
            DeepEBLVM.vectors(key, 2, width=4, depth=1, latents=2, head_width=4),
            GaussianPosterior.linear(key, 2, 2),
        )
        return Learner(
            MDSM(levels, Variational(2, Corrector(2, 0.01, 1e-4))),
            adam(learning_rate(1e-3, decay="cosine", steps=10_000, warmup=10), clip=1.0),
            posterior_steps=1,
            divergence=fisher,
            ema=0.9,
            compute_dtype=jnp.bfloat16,
        ), parts
    recipe = replace(CHECKERBOARD, method=method, latents=2, posterior_steps=1, unrolled=1, batch=BATCH)
    return grbm.learner(recipe), parts_of(recipe, 2)


DATA = np.random.default_rng(0).uniform(size=(70, 2)).astype(np.float32)


def data():
    return jnp.asarray(DATA)


def trained(method, many, path, steps, resume=False):
    one, parts = learner(method)
    seeds = (3, 4) if many else (3,)
    state = init_seeds(one, seeds, parts, BATCH)
    if not many:
        state = jax.tree.map(lambda x: x[0] if hasattr(x, "shape") else x, state)
    folder = RunFolder.reopen(path) if resume else RunFolder(path, {"method": method})
    try:
        return fit_state(
            one,
            state,
            data(),
            steps=steps,
            batch=BATCH,
            seed=seeds if many else 3,
            chunk=CHUNK,
            evaluate=lambda state: {"quality": jnp.ravel(state.step).astype(jnp.float32)},
            evaluate_every=2 * CHUNK,
            maximize="quality",
            folder=folder,
            checkpoints=Checkpoints(every=CHUNK),
            resume=resume,
        )
    finally:
        folder.close()


def until_killed(method, many, path):
    compile_in_haste()  # as in this process, because bits are compared
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
    """A server process that has imported the library but not started JAX, so its child processes start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_resume"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # otherwise the server cannot import the tests
        forkserver.ensure_running()
    return context


@pytest.mark.parametrize(
    ("method", "many"), [*((method, method not in ONE_SEED) for method in METHODS), ("deep", False)]
)
def test_killed_and_resumed_is_never_killed(server, tmp_path, method, many):
    """A process is killed at a random moment after its first checkpoint; 12 processes in all."""
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
    trained("dsm", True, tmp_path / "a", 13)
    same(trained("dsm", True, tmp_path / "a", 40, resume=True), trained("dsm", True, tmp_path / "b", 40))
    assert [event["event"] for event in events(tmp_path / "a")] == ["started", "finished", "resumed", "finished"]


def test_a_run_in_pieces_whose_folder_is_carried_along_is_one_run(tmp_path):
    """Each piece starts in another place with the last one's checksum. Bits and log are those of one run."""
    straight = trained("deep", False, tmp_path / "straight", 30)
    last = trained("deep", False, tmp_path / "0", 10)
    for piece, steps in enumerate((20, 30), start=1):
        shutil.copytree(tmp_path / str(piece - 1), tmp_path / str(piece))
        shutil.rmtree(tmp_path / str(piece - 1))
        last = trained("deep", False, tmp_path / str(piece), steps, resume=True)
    same(last, straight)
    assert rows(tmp_path / "2") == rows(tmp_path / "straight")
    told = [event for event in events(tmp_path / "2") if event["event"] != "started"]
    assert [event["event"] for event in told] == ["finished", "resumed"] * 2 + ["finished"]
    assert [event["step"] for event in told] == [10, 10, 20, 20, 30]
    sums = [event["sha256"] for event in told]
    assert sums[0] == sums[1] != sums[2] == sums[3] != sums[4]
    assert sums[4] == events(tmp_path / "straight")[-1]["sha256"]


def test_a_finished_run_that_is_resumed_stays_as_it_is(tmp_path):
    first = trained("dsm", True, tmp_path / "a", 13)
    same(first, trained("dsm", True, tmp_path / "a", 13, resume=True))


def test_a_damaged_newest_checkpoint_costs_only_its_iterations(tmp_path):
    straight = trained("dsm", True, tmp_path / "b", 40)
    trained("dsm", True, tmp_path / "a", 30)
    newest = checkpoints(tmp_path / "a" / "checkpoints")[-1] / ARRAYS
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    same(trained("dsm", True, tmp_path / "a", 40, resume=True), straight)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    told = [event for event in events(tmp_path / "a") if event["event"] == "checkpoint refused"]
    assert len(told) == 1
    assert "SHA-256" in told[0]["why"]


def test_a_refused_checkpoint_is_moved_aside_and_takes_no_place_of_a_good_one(tmp_path):
    """It would count as one of the newest once the run has passed its step."""
    where = tmp_path / "a" / "checkpoints"
    trained("dsm", True, tmp_path / "a", 30)
    (where / "step-000000000030" / ARRAYS).write_bytes(b"damaged")
    trained("dsm", True, tmp_path / "a", 28, resume=True)
    assert [step_of(path) for path in checkpoints(where)] == [25, 28]
    assert (where / "unreadable-step-000000000030-1" / ARRAYS).read_bytes() == b"damaged"
    write_checkpoint(where, 33, {"a": np.zeros(1)}, {})
    prune(where, 33, 2, lambda step: False)
    assert [step_of(path) for path in checkpoints(where)] == [28, 33]


def test_damaged_checkpoints_push_out_no_good_one(tmp_path):
    trained("dsm", True, tmp_path / "a", 30)
    for path in checkpoints(tmp_path / "a" / "checkpoints"):
        path.joinpath(ARRAYS).write_bytes(b"damaged")
    with pytest.raises(BadFile, match="got none"):
        trained("dsm", True, tmp_path / "a", 40, resume=True)
    assert len(rows(tmp_path / "a")) == 6  # the log has not changed
    write_checkpoint(tmp_path / "a" / "checkpoints", 0, {"a": np.zeros(1)}, {})
    prune(tmp_path / "a" / "checkpoints", 0, 1, lambda step: False)
    assert [step_of(path) for path in checkpoints(tmp_path / "a" / "checkpoints")] == [0, 25, 30]


def test_an_unreadable_line_of_the_log_costs_itself_alone(tmp_path):
    trained("dsm", True, tmp_path / "a", 30)
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "a" / "metrics.jsonl").write_text("".join([lines[0], "#" + lines[1], *lines[2:]]))
    trained("dsm", True, tmp_path / "a", 35, resume=True)
    assert [row["step"] for row in rows(tmp_path / "a")] == [5, 15, 20, 25, 30, 35]
    assert [event["unreadable"] for event in events(tmp_path / "a") if event["event"] == "log incomplete"] == [1]


def test_a_run_stopped_before_its_first_look_is_looked_at_in_the_end():
    one, parts = learner("dsm")
    state = init_seeds(one, (3,), parts, BATCH)

    def quality(state):
        return {"quality": jnp.ravel(state.step).astype(jnp.float32)}

    def stop(batches, step, steps):
        if step == 5:
            signal.raise_signal(signal.SIGINT)
        return np.zeros((steps, BATCH), np.int32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vages.data.batches.Batches.indices", stop)
        how = {"steps": 100, "batch": BATCH, "seed": (3,), "chunk": CHUNK, "evaluate": quality, "maximize": "quality"}
        fitted = fit_state(one, state, data(), evaluate_every=50, **how)
    assert fitted.interrupted
    assert fitted.step == 10
    assert fitted.best is not None
    np.testing.assert_array_equal(fitted.best.model.weight, fitted.state.model.weight)


def test_a_slow_chunk_is_run_in_parts_and_stopped_between_them(tmp_path, monkeypatch):
    """Bits and log are those of whole chunks. A run that was stopped within a chunk has one more row."""
    whole = trained("dsm", False, tmp_path / "whole", 25)
    indices, made = Batches.indices, []

    def noted(batches, step, steps):
        made.append((step, steps))
        if stop == step:
            signal.raise_signal(signal.SIGTERM)
        return indices(batches, step, steps)

    monkeypatch.setattr(Batches, "indices", noted)
    stop = None
    trained("dsm", False, tmp_path / "fast", 15)
    assert made == [(0, 5), (5, 5), (10, 5)]
    monkeypatch.setattr("vages.training.loop._LONG", -1.0)
    made.clear()
    same(trained("dsm", False, tmp_path / "slow", 25), whole)
    assert rows(tmp_path / "slow") == rows(tmp_path / "whole")
    # the first chunk is a whole one, as it compiles; parts have two iterations or more
    assert made == [(0, 5), (5, 5), (10, 2), (12, 3), (15, 2), (17, 3), (20, 2), (22, 3)]
    stop = 10
    stopped = trained("dsm", False, tmp_path / "stopped", 25)
    assert (stopped.step, stopped.signal) == (12, "SIGTERM")
    same(trained("dsm", False, tmp_path / "stopped", 25, resume=True), whole)
    assert [row["step"] for row in rows(tmp_path / "stopped")] == [5, 10, 12, 15, 20, 25]


def test_without_a_rhythm_a_run_is_evaluated_at_its_end():
    one, parts = learner("dsm")
    state = init_seeds(one, (3,), parts, BATCH)
    fitted = fit_state(
        one, state, data(), steps=10, batch=BATCH, seed=(3,), chunk=5, evaluate=lambda state: {"q": jnp.ones(1)}
    )
    assert fitted.curve("q")[0].tolist() == [10]


def test_kept_iterations_are_checkpointed_whatever_the_clock_says(tmp_path):
    one, parts = learner("dsm")
    state, folder = init_seeds(one, (3,), parts, BATCH), RunFolder(tmp_path / "run", {})
    how = {"steps": 14, "batch": BATCH, "seed": (3,), "chunk": 4}
    fit_state(one, state, data(), **how, folder=folder, checkpoints=Checkpoints(keep_every=6, keep_last=1))
    assert [step_of(path) for path in checkpoints(folder.checkpoints)] == [6, 12, 14]
    with pytest.raises(ValueError, match="^folder: .*resume"):
        fit_state(one, state, data(), **how, folder=folder)
    folder.close()


def policed(path, steps, checkpoints=None, *, resume=False, by=None):
    """Train in chunks of 4 iterations, and return the steps of the checkpoints that are left."""
    own, parts = learner("dsm")
    one = own if by is None else by
    state = init_seeds(one, (3,), parts, BATCH)
    folder = RunFolder.reopen(path) if resume else RunFolder(path, {})
    how = {"batch": BATCH, "seed": (3,), "chunk": 4, "resume": resume}
    try:
        fit_state(one, state, data(), steps=steps, **how, folder=folder, checkpoints=checkpoints)
    finally:
        folder.close()
    return [step_of(path) for path in checkpoints_in(path)]


def checkpoints_in(path):
    return checkpoints(path / "checkpoints")


SIXTH = Checkpoints(keep_every=6, keep_last=1)


def test_a_resumed_run_has_the_checkpoints_and_the_log_of_one_that_was_not_interrupted(tmp_path):
    assert policed(tmp_path / "a", 12, SIXTH) == [6, 12]
    assert policed(tmp_path / "a", 20, resume=True) == [6, 12, 18, 20]
    assert policed(tmp_path / "b", 20, SIXTH) == [6, 12, 18, 20]
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert [row["step"] for row in rows(tmp_path / "a")] == [4, 6, 10, 12, 16, 18, 20]


def test_a_resume_with_another_policy_keeps_earlier_milestones(tmp_path):
    policed(tmp_path, 14, SIXTH)
    assert policed(tmp_path, 20, Checkpoints(every=5, keep_last=1), resume=True) == [6, 12, 20]
    assert policed(tmp_path, 30, resume=True) == [6, 12, 30]  # 24 is no milestone of the policy since 14
    assert policed(tmp_path, 41, Checkpoints(keep_every=8, keep_last=1), resume=True) == [6, 12, 32, 40, 41]
    (tmp_path / "checkpoints" / "step-000000000041" / ARRAYS).write_bytes(b"damaged")
    assert policed(tmp_path, 48, SIXTH, resume=True) == [6, 12, 32, 40, 42, 48]  # resumed from 40


def test_a_resume_of_a_run_without_a_recorded_policy_removes_none_of_its_checkpoints(tmp_path):
    policed(tmp_path, 14, SIXTH)
    (tmp_path / "checkpoints.json").unlink()  # as in a run of an older version
    assert policed(tmp_path, 18, Checkpoints(every=2, keep_last=1), resume=True) == [6, 12, 14, 18]
    assert policed(tmp_path, 22, resume=True) == [6, 12, 14, 22]


def test_a_run_killed_before_its_first_checkpoint_keeps_its_policy(tmp_path):
    policed(tmp_path, 4, SIXTH)
    shutil.rmtree(tmp_path / "checkpoints")
    assert policed(tmp_path, 14, resume=True) == [6, 12, 14]


def test_a_record_is_read_back_and_refused_if_it_was_edited(tmp_path):
    numbers = Checkpoints(3, float("inf"), 2, None)
    policed(tmp_path, 4, numbers)
    assert read_policies(tmp_path).latest == numbers
    record = tmp_path / "checkpoints.json"
    text = record.read_text()
    for edited in ('{"policies": []}', text.replace("3", "-3"), text.replace('"keep_last"', '"keep_first"'), "{"):
        record.write_text(edited)
        with pytest.raises(BadFile, match="checkpoints.json: expected .*, got .*"):
            policed(tmp_path, 8, resume=True)
    record.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(BadFile, match="expected format 1, got 2; use the newest vages"):
        policed(tmp_path, 8, resume=True)


@pytest.mark.usefixtures("short_chains")
def test_the_command_resumes_with_the_run_s_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: Drawn({}))
    left = lambda: [step_of(path) for path in checkpoints_in(Path("run"))]
    first = {"posterior_steps": 1, "out": Path("run")}
    cli.train("checkerboard", steps=10, checkpoint_every=2, keep_every=4, keep_last=1, **first)
    assert left() == [4, 8, 10]
    cli.train(resume=Path("run"), steps=14)
    assert left() == [4, 8, 12, 14]
    cli.train(resume=Path("run"), steps=18, keep_last=3)  # the other two are still the run's
    assert left() == [4, 8, 12, 14, 16, 18]
    assert read_policies(Path("run")).latest == Checkpoints(2, keep_last=3, keep_every=4)


def told_learners(path):
    return [event["changed"] for event in RunFolder.events(path) if event["event"] == "other learner"]


def plain_loss(key, model, posterior, batch):
    return jnp.mean(jax.vmap(model.free_energy)(batch.v)), {}


def other_loss(key, model, posterior, batch):
    return jnp.mean(jax.vmap(model.free_energy)(batch.v)), {}


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        (
            Learner(DSM(0.3, Variational(2)), learning_rate=1e-3),
            Learner(DSM(0.9, Variational(3)), learning_rate=1e-3),
            {"objective.sigma": [0.3, 0.9], "objective.latents.samples": [2, 3]},
        ),
        (
            Learner(DSM(0.3), learning_rate=1e-3, posterior_steps=1),
            Learner(DSM(0.3), learning_rate=2e-3, posterior_steps=1),
            {"learning_rate": [1e-3, 2e-3]},
        ),
        (
            Learner(plain_loss, adam(1e-3), posterior_steps=0),
            Learner(other_loss, adam(1e-3), posterior_steps=0),
            {"objective": ["plain_loss", "other_loss"]},
        ),
    ],
    ids=["objective", "rate", "function"],
)
def test_a_resume_with_another_learner_is_told_once(tmp_path, before, now, changed):
    policed(tmp_path, 4, by=before)
    policed(tmp_path, 8, by=before, resume=True)
    assert told_learners(tmp_path) == []
    says = "; ".join(f"{name} {new} in place of {old}" for name, (old, new) in changed.items())
    with pytest.warns(LearnerWarning, match=f"^learner: expected that of the run, got another {says}; "):
        policed(tmp_path, 12, by=now, resume=True)
    assert told_learners(tmp_path) == [changed]
    policed(tmp_path, 16, by=now, resume=True)
    assert told_learners(tmp_path) == [changed]


def test_what_is_recorded_of_a_learner():
    """It is the same in every process: no addresses, and no functions within other parts."""
    objective = MDSM(NoiseRange(0.1, 1.0), Variational(2, Corrector(2, 0.01, 1e-4)))
    rate = learning_rate(1e-3, decay="cosine", steps=10)
    how = {"ema": (0.9, 0.99), "compute_dtype": jnp.bfloat16, "divergence": fisher}
    record = learner_record(Learner(objective, adam(rate), **how))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["learner.objective.sigma.begin"] == 0.1
    assert record["learner.compute_dtype"] == "bfloat16"
    assert record["learner.ema"] == [0.9, 0.99]
    assert record["learner.divergence.name"] == "fisher"
    assert "learner.optimizer" not in record
    assert not any("0x" in str(value) or "function" in str(value) for value in record.values())
    assert not learner_changes(record, learner_record(Learner(objective, adam(lambda step: 3.0), **how)))


@dataclass(frozen=True)
class Odd(DSM):
    text: str = "\ud800\n"
    number: float = float("inf")
    large: int = 10**5000
    rounded: float = 0.1
    where: Any = object()  # noqa: RUF009


def test_records_of_learners_are_compared_by_what_both_have():
    now = learner_record(Learner(Odd(0.3), learning_rate=1e-3))
    assert json.loads(json.dumps(now, allow_nan=False)) == now
    assert str(now).isascii()
    path = "learner.objective."
    assert not learner_changes(None, now)
    assert not learner_changes({name: value for name, value in now.items() if name != f"{path}text"}, now)
    assert not learner_changes(now | {f"{path}renamed": 3, f"{path}rounded": 0.1 * (1 + 1e-7)}, now)
    assert learner_changes(now | {f"{path}rounded": 0.1001}, now) == {"objective.rounded": [0.1001, 0.1]}
    assert learner_changes(now | {f"{path}number": 3.0}, now) == {"objective.number": [3.0, "inf"]}
    assert learner_changes(now | {f"{path}control_variate": 0}, now) == {"objective.control_variate": [0, False]}


def test_a_torn_last_line_of_the_log_is_written_again(tmp_path):
    trained("dsm", True, tmp_path / "a", 30)
    with open(tmp_path / "a" / "metrics.jsonl", "a") as file:
        file.write('{"loss": [1.0, 2')
    trained("dsm", True, tmp_path / "a", 40, resume=True)
    trained("dsm", True, tmp_path / "b", 40)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_a_full_disk_stops_the_run_with_its_last_good_checkpoint(tmp_path, monkeypatch):
    write = Directory.create_file

    def full(folder, name, content):
        if "000000000020" in str(folder) and name == ARRAYS:
            write(folder, name, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        write(folder, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "create_file", full)
        says = "step 20 .*No space left.*step-000000000015"
        with pytest.raises(OSError, match=says):
            trained("dsm", True, tmp_path / "a", 40)
    resumed = trained("dsm", True, tmp_path / "a", 40, resume=True)
    same(resumed, trained("dsm", True, tmp_path / "b", 40))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": (3, 5)}, r"keys \[\[0, 3\], \[0, 5\]\] .*\[\[0, 3\], \[0, 4\]\]"),
        ({"batch": 10}, "batch 10 .*20"),
        ({"data": 1 + DATA}, "another .*; data "),
    ],
)
def test_another_run_is_refused(tmp_path, change, says):
    trained("dsm", True, tmp_path / "a", 10)
    one, parts = learner("dsm")
    state = init_seeds(one, (3, 4), parts, BATCH)
    how = {"data": data(), "steps": 20, "batch": BATCH, "seed": (3, 4), **change}
    folder = RunFolder.reopen(tmp_path / "a")
    with pytest.raises(ValueError, match=says):
        fit_state(one, state, jnp.asarray(how.pop("data")), **how, folder=folder, resume=True)
    folder.close()


def test_fewer_steps_than_were_made_are_refused(tmp_path):
    trained("dsm", True, tmp_path / "a", 10)
    with refused("steps", got=5):
        trained("dsm", True, tmp_path / "a", 5, resume=True)


def test_a_folder_has_one_writer(tmp_path):
    folder = RunFolder(tmp_path / "a", {})
    with pytest.raises(ValueError, match="in use"):
        RunFolder.reopen(tmp_path / "a")
    folder.close()
    RunFolder.reopen(tmp_path / "a").close()


def test_resuming_without_a_folder_is_refused():
    one, parts = learner("dsm")
    state = init_seeds(one, (3,), parts, BATCH)
    with refused("folder"):
        fit_state(one, state, data(), steps=5, batch=BATCH, seed=(3,), resume=True)
    with refused("folder"):
        fit_state(one, state, data(), steps=5, batch=BATCH, seed=(3,), guard=Guard("recover"))


SMALL = replace(CHECKERBOARD, steps=20, evaluate_every=10, posterior_steps=1)


def started(recipe, path):
    """The folder of a run of this recipe, before training."""
    RunFolder(path, config_of(as_recipe(recipe))).close()


@pytest.mark.parametrize(
    ("before", "change", "says"),
    [
        (
            {},
            {"learning_rate": 0.5, "method": "dsm", "steps": 30},
            r"method \(vages-dsm before, dsm now\), learning_rate \(0.001 before, 0.5 now\)",
        ),
        ({}, {"decay": "cosine"}, r"decay \(constant before, cosine now\)"),
        (
            {"decay": "cosine"},
            {"decay": "cosine", "steps": 40},
            r"steps \(20 before, 40 now\), where the learning rate's decay is planned over all iterations;",
        ),
    ],
)
def test_settings_that_make_another_run_are_refused_by_name(tmp_path, before, change, says):
    started(replace(SMALL, **before), tmp_path / "run")
    with pytest.raises(ValueError, match=says):
        run_recipe(as_recipe(replace(SMALL, **change)), tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"^run: .*\bfolder"):
        run_recipe(as_recipe(SMALL), tmp_path / "nothing", resume=True)


@pytest.mark.usefixtures("short_chains")
def test_a_trapezoid_is_prolonged_to_the_bit_until_it_falls(tmp_path):
    short = as_recipe(replace(SMALL, decay="trapezoid"))
    long = as_recipe(replace(SMALL, decay="trapezoid", steps=40))
    run_recipe(short, tmp_path / "run", checkpoints=Checkpoints(every=8, keep_last=3), chunk=4)
    for step in (20, 16):  # the learning rate decreases from iteration 16 on
        with pytest.raises(ValueError, match=r"steps \(20 before, 40 now\), .* and began at iteration 16"):
            run_recipe(long, tmp_path / "run", resume=True)
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step:012d}")
    prolonged = run_recipe(long, tmp_path / "run", resume=True, chunk=4)
    whole = run_recipe(long, tmp_path / "whole", chunk=4)
    same(prolonged.fitted, whole.fitted)
    assert rows(tmp_path / "run")[-1]["step"] == 40


def test_more_steps_are_refused_where_they_would_have_made_the_warm_up_longer(tmp_path):
    """It is at most a tenth of a deep run: 2 of 20 iterations, and all 5 of 50 or more."""
    recipe = replace(DEEP_PRESETS["digits-paper"], decay="constant", warmup=5)
    for number, (before, now) in enumerate([(20, 100), (20, 30), (100, 20)]):
        started(replace(recipe, steps=before), tmp_path / str(number))
        with pytest.raises(ValueError, match=rf"steps \({before} before, {now} now\)"):
            reopened(as_recipe(replace(recipe, steps=now)), tmp_path / str(number))
    started(replace(recipe, steps=50), tmp_path / "run")
    reopened(as_recipe(replace(recipe, steps=100)), tmp_path / "run").close()


def test_fewer_steps_are_refused_before_anything_is_written(tmp_path):
    started(SMALL, tmp_path / "run")
    write_checkpoint(tmp_path / "run" / "checkpoints", 15, {}, {})
    with refused("steps", got=10):
        run_recipe(as_recipe(replace(SMALL, steps=10)), tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["steps"] == 20


def test_zero_is_a_setting():
    _, named = parse("train", ["digits-paper", "--warmup", "0", "--ema", "0.0"])
    settings = {field.name for field in fields(DeepSettings)}
    assert {name: value for name, value in named.items() if name in settings} == {"warmup": 0, "ema": 0.0}


def test_settings_that_no_file_can_keep_are_refused():
    for recipe in (CHECKERBOARD, DEEP_PRESETS["digits-paper"]):
        with refused("clip", got="inf"):
            replace(recipe, clip=float("inf"))


@pytest.mark.usefixtures("short_chains")
def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path, monkeypatch):
    """Its step is traced once in total, for its size, for the check before a folder is written, and for its program."""
    step, traced = Learner.step, []
    monkeypatch.setattr(Learner, "step", lambda *args: traced.append(args) or step(*args))
    started(SMALL, tmp_path / "run")
    trained = run_recipe(as_recipe(SMALL), tmp_path / "run", resume=True)
    assert trained.fitted.step == 20
    assert len(traced) == 1


@pytest.mark.usefixtures("short_chains")
def test_the_command_resumes_and_extends(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bars = []
    monkeypatch.setattr(
        training, "ProgressBar", lambda *steps, **how: bars.append((*steps, how)) or ProgressBar(*steps)
    )
    cli.train("checkerboard", steps=20, posterior_steps=1, out=Path("run"))
    cli.train(resume=Path("run"), steps=40)
    cli.train("checkerboard", steps=40, posterior_steps=1, out=Path("straight"))
    how = {"visible": True, "lines": True}
    assert bars == [(steps, how | {"done": done}) for steps, done in ((20, 0), (40, 20), (40, 0))]
    results = [json.loads(Path(name, "result.json").read_text()) for name in ("run", "straight")]
    assert results[0]["test_log_likelihood"] == results[1]["test_log_likelihood"]
    assert json.loads(Path("run", "config.json").read_text())["settings"]["steps"] == 40
    with pytest.raises(ValueError, match="^out: .*--resume"):
        cli.train(resume=Path("run"), out=Path("other"))
    with pytest.raises(ValueError, match=r"latents \(4 before, 5 now\)"):
        cli.train(resume=Path("run"), latents=5)
