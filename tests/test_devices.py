"""Many devices and many processes give what one device gives, up to the order of summation."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import cluster_member
from compiling import environment
from errors import refused
from vages.app.cli.devices import make_mesh
from vages.training import data_mesh
from vages.training.checkpoint import checkpoints

# what differs in process 1, and the error; all other settings of the processes are the same
DIFFERENCES = {
    "steps": "steps, got 20 in process 0 and 21 in process 1",
    "seed": "settings, got keys [[0, 5]] in process 0 and [[0, 6]] in process 1",
    "data": "data, got shape [110, 3] in process 0 and [109, 3] in process 1",
    "state": "first state, got sha256 ",
    "learner": "program, got sha256 ",
    "versions": 'versions, got optax "',
    "collectives": "steps, got 20 in process 0 and 21 in process 1",
}


def start_cluster(*jobs):
    """Two processes with two devices each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("cluster_member.py")
    variables = {**environment("--xla_force_host_platform_device_count=2"), "JAX_PLATFORMS": "cpu"}
    return [
        subprocess.Popen(
            [sys.executable, script, str(port), "2", str(index), *jobs],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A folder with a cluster's jobs, what each process printed for each of them, and the errors.

    The cluster trains, refuses settings that differ between processes, resumes a run of one device, is stopped by
    Ctrl-C in one process, and finds nothing to resume.
    """
    folder = tmp_path_factory.mktemp("cluster")
    cluster_member.train(folder / "begun", 20, False, None)
    differing = (f"{what} 20 other:{what}" for what in DIFFERENCES)
    jobs = ("four 40", *differing, "begun 40 resume", "endless 1000000", "nothing 10 resume")
    members = start_cluster(*(f"{folder}/{job}" for job in jobs))
    deadline = time.monotonic() + 240
    while not (folder / "endless" / "metrics.jsonl").exists():
        assert all(member.poll() is None for member in members), [member.communicate() for member in members]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(members[1].pid, signal.SIGINT)
    printed, errors = zip(*(member.communicate(timeout=240) for member in members), strict=True)
    assert all(member.returncode for member in members)  # the last job failed
    lines = [[line.split() for line in out.splitlines() if line[:1].isdigit()] for out in printed]  # not Gloo
    assert [len(each) for each in lines] == [3, 3], errors
    why = [[line for line in out.splitlines() if line.startswith("refused")] for out in printed]
    return folder, list(zip(*lines, strict=True)), errors, why


def leaves(fitted):
    return [np.asarray(x) for x in jax.tree.leaves((fitted.state, fitted.best))]


def close(a, b):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_two_processes_of_two_devices_are_one_device_and_can_be_resumed_by_it(cluster, tmp_path):
    folder, ((first, second), _, _), *_ = cluster
    assert [first[:2], second[:2]] == [["0", "40"], ["1", "40"]]
    assert first[2] == second[2]
    one = cluster_member.train(tmp_path / "one", 40, False, None)
    resumed = cluster_member.train(folder / "four", 40, True, None)  # reads the results of four, adds nothing
    close(resumed, one)
    assert len(checkpoints(folder / "four" / "checkpoints")) == 2

    further = cluster_member.train(folder / "four", 60, True, None)  # a run of four devices is resumed on one device
    close(further, cluster_member.train(tmp_path / "one", 60, True, None))


def test_a_cluster_resumes_a_run_of_one_device(cluster, tmp_path):
    folder, (_, resumed, _), *_ = cluster
    assert [line[1] for line in resumed] == ["40", "40"]
    straight = cluster_member.train(tmp_path / "straight", 40, False, None)
    close(cluster_member.train(folder / "begun", 40, True, None), straight)


def test_ctrl_c_in_one_process_ends_all_at_the_same_step(cluster):
    _, (_, _, (first, second)), *_ = cluster
    assert first[1:] == second[1:]
    assert int(first[1]) < 10**6


def test_where_the_writer_fails_all_fail(cluster):
    _, _, errors, _ = cluster
    assert "run: expected " in errors[0]
    assert "cluster: expected " in errors[1]
    assert "first process" in errors[1]


def test_processes_that_differ_are_all_stopped_before_they_train(cluster):
    folder, _, _, (first, second) = cluster
    assert first == second
    for (what, said), line in zip(DIFFERENCES.items(), first, strict=True):
        assert line.startswith("refused cluster: expected "), line
        assert f" {said}" in line, line
        assert not (folder / what / "metrics.jsonl").exists()


@pytest.mark.optimized
def test_a_mesh_of_one_device_is_the_same_to_the_bit(tmp_path):
    plain = cluster_member.train(tmp_path / "plain", 20, False, None)
    meshed = cluster_member.train(tmp_path / "meshed", 20, False, data_mesh())
    for x, y in zip(leaves(plain), leaves(meshed), strict=True):
        assert x.tobytes() == y.tobytes()


def test_devices_that_are_not_there_are_refused():
    with refused("devices", got=100):
        make_mesh(100, None)
    with refused("cluster", got="'here'"):
        make_mesh(1, "here")
    assert make_mesh(1, None) is None
