"""Processes of a cluster: what is compared, where the first one listens, and how a process ends when its partner died.

Processes that differ during training are in test_devices.py, which has a cluster.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent

import pytest

from compiling import environment
from errors import refused, without_progress
from vages.app.cli.devices import parse_cluster
from vages.app.cli.supervision import ClusterFailed, membership
from vages.training.cluster import first_difference, join_cluster


def test_the_first_difference_is_named_with_both_values():
    same = {"versions": {"jax": "1"}, "settings": {"a": 1, "b": None}, "steps": 3}
    assert first_difference([same, same, same]) is None
    other = {**same, "settings": {"a": 1, "b": 2}, "steps": 4}
    said = str(first_difference([same, same, other]))
    assert said.startswith("cluster: expected ")
    assert " settings, got b null in process 0 and 2 in process 2; " in said
    assert "steps, got 3 in process 0 and 4 in process 1" in str(first_difference([same, {**same, "steps": 4}]))
    assert "got a 1 in process 0 and null" in str(first_difference([same, {**same, "settings": {"b": None}}]))
    assert "settings, got b null in" in str(first_difference([same, {**same, "settings": {"a": 1}}]))
    assert "steps, got null in process 0 and 3" in str(first_difference([{}, {"steps": 3}]))
    long = first_difference([same, {**same, "steps": "\n" * 1000}])
    assert long is not None
    assert len(long) < 300
    assert "\n" not in long


PLACES = ["here", "h:1,2", "h:1,2,3,4", "h,2,0", ":1,2,0", "h:,2,0", "h:0,2,0", "h:65536,2,0", "h:1,2,-1", "h:1,²,0"]


@pytest.mark.parametrize("cluster", PLACES)
def test_what_is_no_place_in_a_cluster_is_refused(cluster):
    with pytest.raises(ValueError, match="^cluster: .*HOST:PORT,PROCESSES,INDEX, got "):
        parse_cluster(cluster, 60)


def test_a_place_in_a_cluster():
    assert parse_cluster("auto", 60) == (None, None, None)
    assert parse_cluster("[::1]:1234,2,1", 60) == ("[::1]:1234", 2, 1)
    with refused("cluster", got="2 of 2"):
        parse_cluster("h:1,2,2", 60)
    with refused("cluster", got=1000000):
        parse_cluster("h:1,1000000,0", 60)
    with refused("cluster_timeout", got=0):
        parse_cluster("h:1,2,0", 0)


def test_the_first_process_needs_an_address_of_its_own_and_a_free_port():
    for address in ("192.0.2.1:1234", "no.such.host.invalid:1234"):
        with refused("cluster", got=f"{address}:"):
            join_cluster(address, 2, 0, timeout=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with refused("cluster", got=f"{address}: Address already in use"):
            join_cluster(address, 2, 0, timeout=1)


def test_the_timeout_is_that_of_joining_and_of_answering(monkeypatch):
    given = {}
    monkeypatch.setattr("jax.distributed.initialize", lambda *_, **how: given.update(how))
    monkeypatch.setattr("vages.training.cluster._compare", lambda about: None)
    join_cluster("127.0.0.1:1", 2, 1, timeout=7)
    assert given["initialization_timeout"] == given["heartbeat_timeout_seconds"] == 7


@pytest.fixture
def start():
    """Start a Python process; it is killed after the test in any case."""
    processes = []

    def one(*arguments, **how):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, "-c", *map(str, arguments)], **pipes, **how))
        return processes[-1]

    yield one
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


# The parent, with a child that does not use JAX

PARENT = """
import sys
import vages.app.cli
from vages.app.cli import supervision
supervision._START = {child!r}
sys.argv = ["vages", "train", "--cluster", "127.0.0.1:1,2,0", "--cluster-timeout", "7", *sys.argv[1:]]
vages.app.cli.main()
"""
CHILD = """
import os, signal, sys, time
import vages.app.cli
from vages.app.cli import supervision
def main(after_error):
{body}
vages.app.cli.main = main
supervision.run_member()
"""
ABORT = "os.write(2, b'F1 client.h: the JAX distributed service detected fatal errors'); os.abort()"


def start_parent(start, body, *more):
    """`vages train --cluster …` with something else instead of training."""
    return start(PARENT.format(child=CHILD.format(body=indent(body, "    "))), *more, start_new_session=True)


def ended(process, seconds=60):
    """The exit status, standard output and standard error."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("supervision._tell(supervision._JOINED); " + ABORT, 1, "got no answer"),
        (ABORT, 1, "7 s, got fewer"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 1, "got SIGKILL"),
        ("print('vages: own', file=sys.stderr); supervision._tell(201, 2); " + ABORT, 2, "vages: own"),
        ("print('vages: own', file=sys.stderr); after_error(70)", 70, "vages: own"),
    ],
    ids=["gone", "never came", "killed", "aborted while leaving", "error"],
)
def test_an_end_of_a_process_is_one_line_and_its_status(start, body, status, said):
    code, out, err = ended(start_parent(start, body))
    assert (code, out, err.count("\n")) == (status, "", 1)
    assert err.startswith("vages: ")
    assert said in err


def test_what_the_command_prints_is_passed_on_and_what_libraries_print_is_not(start):
    body = "print('result'); os.write(1, b'[Gloo] noise'); os.write(2, b'noise'); sys.exit(130)"
    assert ended(start_parent(start, body)) == (130, "result\n", "")
    assert "noise" in ended(start_parent(start, body, "--debug"))[2]


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["parent", "both"])
def test_a_signal_reaches_the_child_once(start, kill):
    body = """
signal.signal(signal.SIGTERM, lambda *_: os.write(sys.stdout.fileno(), b"seen\\n"))
print("ready")
time.sleep(3)
sys.exit(0)
"""
    parent = start_parent(start, body)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    for _ in range(2):
        kill(parent.pid, signal.SIGTERM)
        assert parent.stdout.readline() == "seen\n"
        time.sleep(0.5)
    assert ended(parent) == (0, "", "")


def test_ctrl_c_ends_a_process_that_waits_for_the_others(start):
    parent = start_parent(start, "signal.signal(signal.SIGINT, signal.SIG_IGN); print('waits'); time.sleep(100)")
    assert parent.stdout is not None
    assert parent.stdout.readline() == "waits\n"
    parent.send_signal(signal.SIGINT)
    assert ended(parent) == (130, "", "vages: stopped by Ctrl-C\n")


def test_a_child_ends_with_its_parent(start):
    parent = start_parent(start, "print(os.getpid()); time.sleep(100)")
    assert parent.stdout is not None
    child = Path("/proc", parent.stdout.readline().strip())
    parent.kill()
    deadline = time.monotonic() + 20
    while child.exists() and (child / "cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_errors_of_collectives_mean_that_a_process_is_gone():
    gloo = "UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [127.0.0.1]:29911"
    service = "UNAVAILABLE: Failed to send RPC to coordination service."
    for error in (ValueError(gloo), RuntimeError(gloo), RuntimeError(service)):
        with pytest.raises(ClusterFailed, match="^cluster: .*got no answer"), membership(5):
            raise error
    for other in ("data: expected a connection, got none", "RESOURCE_EXHAUSTED: Out of memory", "gloo"):
        with pytest.raises(ValueError, match=other), membership(5):
            raise ValueError(other)


# Real processes


def start_members(start, folder, *options):
    """`vages train` in a cluster, with one process for each list of options; and the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = ["train", "checkerboard", "--out", folder, "--batch", 20, "--latents", 2, "--steps", 1000000]
    variables = {**environment(), "JAX_PLATFORMS": "cpu"}
    command = ["from vages.app.cli import main; main()", *base]
    return [
        start(*command, "--cluster", f"127.0.0.1:{port},2,{index}", *more, env=variables)
        for index, more in enumerate(options)
    ], port


def listening(port):
    """The addresses at which this computer listens on a port, as the kernel prints them."""
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    found = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    return {address for address, _, at in (each.partition(":") for each in found) if int(at, 16) == port}


def test_the_first_process_listens_on_its_address_alone_and_not_for_ever(start, tmp_path):
    (alone,), port = start_members(start, tmp_path / "run", ["--cluster-timeout", "1"])
    where, deadline = set(), time.monotonic() + 60
    while alone.poll() is None and time.monotonic() < deadline:
        where |= listening(port)
        time.sleep(0.05)
    mapped = "0000000000000000FFFF00000100007F"  # the same address, as IPv6
    assert where
    assert where <= {"0100007F", mapped}
    code, out, err = ended(alone)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("vages: cluster: expected ")
    assert " 1 s, got fewer; " in err
    assert not (tmp_path / "run").exists()


def test_commands_that_differ_are_refused_before_there_is_a_folder(start, tmp_path):
    members, _ = start_members(start, tmp_path / "run", [], ["--learning-rate", "0.5"])
    for member in members:
        code, out, err = ended(member)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("vages: cluster: expected ")
        assert " settings, got learning_rate 0.001 in process 0 and " in err
    assert not (tmp_path / "run").exists()


def test_a_process_that_is_killed_ends_the_others(start, tmp_path):
    (first, second), _ = start_members(start, tmp_path / "run", *[["--cluster-timeout", "5"]] * 2)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "events.jsonl").exists():
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second.kill()
    code, out, err = ended(first)
    err = without_progress(err)  # it may have started
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("vages: cluster: expected ")
    assert ", got no answer " in err
