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
from vages.cli.training import make_mesh
from vages.training import data_mesh
from vages.training.checkpoint import checkpoints

ENVIRONMENT = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}


def start_cluster(path, steps, *resume):
    """Two processes with two devices each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("cluster_member.py")
    return [
        subprocess.Popen(
            [sys.executable, script, str(port), "2", str(index), path, str(steps), *resume],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]


def end_of(members):
    """What the processes print, in good order."""
    outputs = [member.communicate(timeout=240) for member in members]
    assert [member.returncode for member in members] == [0, 0], outputs
    return [line.split() for out, _ in outputs for line in out.splitlines() if "Gloo" not in line]


def cluster(path, steps, *resume):
    return end_of(start_cluster(path, steps, *resume))


def leaves(fitted):
    return [np.asarray(x) for x in jax.tree.leaves((fitted.state, fitted.best))]


def close(a, b):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_two_processes_of_two_devices_are_one_device_and_can_be_resumed_by_it(tmp_path):
    printed = cluster(tmp_path / "four", 40)
    assert [line[:2] for line in printed] == [["0", "40"], ["1", "40"]]
    assert printed[0][2] == printed[1][2]
    one = cluster_member.train(tmp_path / "one", 40, False, None)
    resumed = cluster_member.train(tmp_path / "four", 40, True, None)  # reads what the four wrote, and adds nothing
    close(resumed, one)
    assert len(checkpoints(tmp_path / "four" / "checkpoints")) == 2

    further = cluster_member.train(tmp_path / "four", 60, True, None)  # a run of four devices goes on, on one
    close(further, cluster_member.train(tmp_path / "one", 60, True, None))


def test_a_cluster_resumes_a_run_of_one_device(tmp_path):
    cluster_member.train(tmp_path / "run", 20, False, None)
    assert [line[1] for line in cluster(tmp_path / "run", 40, "resume")] == ["40", "40"]
    straight = cluster_member.train(tmp_path / "straight", 40, False, None)
    close(cluster_member.train(tmp_path / "run", 40, True, None), straight)


def test_ctrl_c_in_one_process_ends_all_at_the_same_step(tmp_path):
    members = start_cluster(tmp_path / "run", 10**6)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert all(member.poll() is None for member in members), [member.communicate() for member in members]
        time.sleep(0.1)
    os.kill(members[1].pid, signal.SIGINT)
    first, second = end_of(members)
    assert first[1:] == second[1:]
    assert int(first[1]) < 10**6


def test_where_the_writer_fails_all_fail(tmp_path):
    members = start_cluster(tmp_path / "nothing", 10, "resume")
    errors = [member.communicate(timeout=120)[1] for member in members]
    assert all(member.returncode for member in members)
    assert "expected the folder of a run" in errors[0]
    assert "cluster: expected the first process to read and write the run, got an error there" in errors[1]


def test_a_mesh_of_one_device_is_the_same_to_the_bit(tmp_path):
    plain = cluster_member.train(tmp_path / "plain", 20, False, None)
    meshed = cluster_member.train(tmp_path / "meshed", 20, False, data_mesh())
    for x, y in zip(leaves(plain), leaves(meshed), strict=True):
        assert x.tobytes() == y.tobytes()


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"devices: expected 0 \(all\) to \d+, got 100"):
        make_mesh(100, None)
    with pytest.raises(ValueError, match="cluster: expected auto or HOST:PORT,PROCESSES,INDEX, got 'here'"):
        make_mesh(1, "here")
    assert make_mesh(1, None) is None
