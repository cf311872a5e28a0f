"""Two parts of a computation in two threads: results, errors, and stopping."""

import _thread
import signal
import subprocess
import sys
import threading
import time

import pytest

from vages.app.output.console import StageBar
from vages.threads import are_computing, in_threads

LONG = 60  # seconds, longer than any correct run waits


def test_both_run_at_the_same_time():
    first, second = threading.Event(), threading.Event()

    def one(check):
        first.set()
        return second.wait(LONG), "one"

    def another(check):
        second.set()
        check()
        return first.wait(LONG), "another"

    assert in_threads(one, another) == ((True, "one"), (True, "another"))


@pytest.mark.parametrize("turn", [1, -1])
def test_one_that_fails_ends_the_other(turn):
    started, ended, error = threading.Event(), threading.Event(), ValueError("its error")

    def fails(check):
        assert started.wait(LONG)
        raise error

    def goes_on(check):
        started.set()
        try:
            for _ in range(100 * LONG):  # ends only because `check` raises
                check()
                time.sleep(0.01)
        except KeyboardInterrupt:
            ended.set()

    with pytest.raises(ValueError, match="^its error$") as caught:
        in_threads(*(fails, goes_on)[::turn])
    assert caught.value is error
    assert ended.wait(LONG)


def test_an_error_does_not_wait_for_the_other():
    go_on = threading.Event()

    def fails(check):
        raise ValueError("its error")

    with pytest.raises(ValueError, match="^its error$"):
        in_threads(fails, lambda check: go_on.wait(LONG))
    assert are_computing()
    go_on.set()
    for _ in range(100 * LONG):
        if not are_computing():
            return
        time.sleep(0.01)
    raise AssertionError("never ended")


def test_a_signal_is_heard_while_both_compute():
    go_on = threading.Event()

    def stops(check):
        _thread.interrupt_main()
        return go_on.wait(LONG)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_threads(stops, lambda check: go_on.wait(LONG))
    assert time.monotonic() - began < LONG / 2
    go_on.set()


def test_a_stopped_program_ends_in_the_middle_of_a_computation():
    """The exit status is that of its signal, and it does not wait for the computation."""
    code = """
import os, signal, jax, jax.numpy as jnp
from vages.app import cli
from vages.threads import in_threads
@jax.jit
def long(x):
    return jax.lax.fori_loop(0, 10**9, lambda i, x: jnp.cos(x @ x), x)
def run(*_, **__):
    part = lambda check: (os.write(1, b"computing\\n"), long(jnp.ones((50, 50))).block_until_ready())
    return in_threads(part, part)
cli._run = run
signal.signal(signal.SIGHUP, signal.SIG_DFL)
cli.main()
"""
    for number in (signal.SIGINT, signal.SIGHUP):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None
        try:
            assert [child.stdout.readline() for _ in range(2)] == [b"computing\n"] * 2
            time.sleep(0.5)
            child.send_signal(number)
            _, said = child.communicate(timeout=LONG)
        finally:
            child.kill()
        assert (child.returncode, said.count(b"\n")) == (128 + number, 1)
        assert said.startswith(b"vages: stopped by ")


def test_a_stopped_program_ends_in_the_middle_of_compiling():
    """JAX gives up the program while XLA continues. The interpreter must not wait for it, or crash."""
    code = """
import jax, jax.numpy as jnp
from vages.app import cli
def long(x):
    for i in range(1000):
        x = jnp.cos(x @ x + i)
    return x
def run(*_, **__):
    print("compiling", flush=True)
    return jax.jit(jax.grad(lambda x: long(x).sum())).lower(jnp.ones((7, 7))).compile()
cli._run = run
cli.main()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"compiling\n"
        time.sleep(4)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=LONG)
    finally:
        child.kill()
    assert (child.returncode, said) == (130, b"vages: stopped by Ctrl-C\n")


def test_a_bar_for_each_thread():
    """Progress in one thread does not change the other's bar. A new part replaces only the bar of its own thread."""

    class Progress:
        disable = False

        def __init__(self):
            self.names, self.done = {}, {}

        def add_task(self, name, total):
            self.names[(task := len(self.done))] = name
            self.done[task] = None
            return task

        def remove_task(self, task):
            del self.names[task]

        def update(self, task, completed, total):
            self.done[task] = (completed, total)

    progress = Progress()
    bar = StageBar(progress)

    def another(check):
        bar.stage("another")
        bar(1, 2)

    def one(check):
        bar.stage("one, first")
        in_threads(another, lambda check: None)
        bar.stage("one, second")

    in_threads(one, lambda check: None)
    assert sorted(progress.names.values()) == ["another", "one, second"]
    assert progress.done == {0: None, 1: (1, 2), 2: None}
