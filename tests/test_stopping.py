"""Runs stopped by a signal or a full disk: what is saved, what is printed, and the exit status."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

import test_resume
import vages
from compiling import compile_in_haste
from errors import without_progress
from test_resume import server  # noqa: F401
from vages.app import cli
from vages.app.cli.exit_status import Status, line_of, status_of
from vages.app.cli.stopping import Stopped, raising_signals
from vages.app.experiments.comparison import train_all
from vages.app.recipes import Drawn, as_recipe
from vages.app.recipes.recipe import Origin
from vages.app.runs import config_of, load_run
from vages.app.runs.reports import build_report, reported
from vages.app.settings import CHECKERBOARD
from vages.storage.durable import NotWritten
from vages.training import Fitted, RunFolder
from vages.training.checkpoint import checkpoints, step_of, write_checkpoint
from vages.training.signals import STOPPING, StopSignals

STATUSES = {signal.SIGTERM: 143, signal.SIGHUP: 129}
pytestmark = pytest.mark.usefixtures("short_chains")
TINY = ("train", "checkerboard", "--posterior-steps", "1", "--latents", "2", "--batch", "10")


def fitted_until_stopped(path, number):
    """A child process that uses only the library. A signal must not kill it; exit status 0 if it reports the signal."""
    compile_in_haste()  # as in this process, because bits are compared
    fitted = test_resume.trained("vages-dsm", False, path, 10**6)
    os._exit(0 if fitted.interrupted and fitted.signal == signal.Signals(number).name else 1)


def command_until_stopped(words, stderr, ignored, terminal):
    """A child process that runs the command, with `terminal`, if given, as its controlling terminal."""
    compile_in_haste()
    for number in STATUSES:  # whatever the tests inherited
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    if terminal is not None:
        os.setsid()
        handle = os.open(terminal, os.O_RDWR)  # the session leader's first terminal becomes the controlling one
        for standard in range(3):
            os.dup2(handle, standard)
    else:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
    sys.stdout, sys.stderr = (os.fdopen(standard, "w", closefd=False) for standard in (1, 2))
    sys.argv = ["vages", *map(str, words)]
    cli.main()


def wait_until(ready, process):
    deadline = time.monotonic() + 180
    while not ready():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def logged(path, rows=2):
    """Whether the run has logged this many chunks."""
    log = path / "metrics.jsonl"
    return lambda: log.exists() and log.read_text().count("\n") >= rows


def test_a_signal_leaves_a_checkpoint_that_is_resumed_to_the_bit(server, tmp_path):  # noqa: F811
    path, number = tmp_path / "stopped", signal.SIGTERM
    process = server.Process(target=fitted_until_stopped, args=(path, number))
    process.start()
    wait_until(logged(path), process)
    os.kill(process.pid, number)
    process.join(120)
    assert process.exitcode == 0
    reached = step_of(checkpoints(path / "checkpoints")[-1])
    assert test_resume.events(path)[-1]["event"] == "interrupted"
    assert test_resume.rows(path)[-1]["step"] == reached
    steps = reached + 15
    resumed = test_resume.trained("vages-dsm", False, path, steps, resume=True)
    test_resume.same(resumed, test_resume.trained("vages-dsm", False, tmp_path / "straight", steps))


@pytest.mark.parametrize("number", STATUSES)
def test_the_command_says_which_signal_and_how_to_go_on(server, tmp_path, number):  # noqa: F811
    """SIGHUP is ignored if it was ignored at the start, as under nohup."""
    path, said = tmp_path / "a run", tmp_path / "stderr"
    ignored = (signal.SIGHUP,) if number == signal.SIGTERM else ()
    words = (*TINY, "--steps", 10**9, "--out", path)
    process = server.Process(target=command_until_stopped, args=(words, said, ignored, None))
    process.start()
    wait_until(logged(path), process)
    for ignores in ignored:
        os.kill(process.pid, ignores)
        wait_until(logged(path, 6), process)
    os.kill(process.pid, number)
    process.join(120)
    assert process.exitcode == STATUSES[number]
    newest = checkpoints(path / "checkpoints")[-1]
    step = step_of(newest)
    line = without_progress(said.read_text())
    assert line.startswith(f"vages: stopped by {signal.Signals(number).name}; ")
    assert line.count("\n") == 1
    for fact in (f" iteration {step} of 1000000000 (", f" {newest});", f" vages train --resume '{path}'\n"):
        assert fact in line
    assert test_resume.rows(path)[-1]["step"] == step
    assert not (path / "density.png").exists()  # no pictures, as the sender of these signals does not wait


STOPPED = """
import gc, os, signal, sys, time
from vages.app.cli.stopping import raising_signals
{}
try:
    with raising_signals():
        {}
        time.sleep(30)
        print("lost")
except KeyboardInterrupt as stop:
    print(type(stop).__name__)
"""

COLLECTING = """
def interrupt(phase, info):  # whatever is raised in here, Python throws away
    gc.callbacks.remove(interrupt)
    signal.raise_signal(signal.{})

gc.callbacks.append(interrupt)
"""

IMPORTING = """
class Finder:  # JAX's extension module imports NumPy, and reports any exception in it as an ImportError
    @staticmethod
    def find_spec(name, *_):
        if name == "numpy.exceptions":
            sys.meta_path.remove(Finder)
            signal.raise_signal(signal.{})

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(("name", "stop"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Stopped")])
@pytest.mark.parametrize(("setup", "where"), [(COLLECTING, "gc.collect()"), (IMPORTING, "import jax")])
def test_a_signal_is_not_lost_in_the_garbage_collector_or_an_import(setup, where, name, stop):
    program = STOPPED.format(setup.format(name), where)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == (f"{stop}\n", "")


BLOCKED = """
import jax, jax.numpy as jnp
from vages.training.signals import StopSignals

for_ever = jax.jit(lambda x: jax.lax.while_loop(lambda x: x >= 0, lambda x: 0.9 * x + 1.0, x)).lower(1.0).compile()
with StopSignals():
    print("computes", flush=True)
    for_ever(jnp.ones(())).block_until_ready()
"""


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT"), ("SIGINT", "SIGTERM")])
def test_a_second_signal_ends_a_chunk_that_does_not_end(first, second):
    """Python handles no signal, because its main thread waits for the compiled program. timeout(1) sends each twice."""
    with subprocess.Popen([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"computes\n"
        time.sleep(0.5)
        process.send_signal(signal.Signals[first])
        time.sleep(0.1)
        process.send_signal(signal.Signals[first])
        time.sleep(1.3)
        assert process.poll() is None
        process.send_signal(signal.Signals[second])
        try:
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, said.count(b"\n")) == (128 + signal.Signals[second], 1)


def test_a_terminal_that_is_closed_leaves_a_checkpoint(server, tmp_path):  # noqa: F811
    """The kernel sends SIGHUP, and the progress bar can no longer be written."""
    master, slave = os.openpty()
    path, words = tmp_path / "run", (*TINY, "--steps", 10**9, "--out", tmp_path / "run")
    process = server.Process(target=command_until_stopped, args=(words, None, (), os.ttyname(slave)))
    process.start()
    with reading(master) as shown:
        wait_until(logged(path), process)
        os.close(slave)
        wait_until(lambda: b"it/s" in b"".join(shown), process)
    process.join(120)
    assert process.exitcode == STATUSES[signal.SIGHUP]
    assert test_resume.rows(path)[-1]["step"] == step_of(checkpoints(path / "checkpoints")[-1])


@contextmanager
def reading(master):
    """What a terminal shows, read until the end of the block; the terminal is closed then."""
    shown, done = [], threading.Event()
    os.set_blocking(master, False)

    def read():
        last = False
        while True:
            try:
                shown.append(os.read(master, 4096))
            except BlockingIOError:
                if last:
                    return
                last = done.wait(0.02)  # one last read for output in the meantime
            except OSError:  # no process has it open any more
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield shown
    finally:
        done.set()
        reader.join()
        os.close(master)


def main(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["vages", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code, without_progress(capsys.readouterr().err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_training_says_that_it_is_complete(monkeypatch, capsys, tmp_path, number):
    path = tmp_path / "run"
    monkeypatch.setattr("vages.app.runs.train._drawn", lambda *_: signal.raise_signal(number))
    status, err = main(monkeypatch, capsys, *TINY, "--steps", 20, "--out", path)
    assert status == 128 + number
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    assert err.startswith(f"vages: stopped by {name}; ")
    assert err.count("\n") == 1
    for fact in (" complete ", f" {path}/checkpoints/step-000000000020);", f" vages train --resume {path}\n"):
        assert fact in err
    RunFolder.reopen(path).close()  # the lock was released


def test_a_signal_before_the_first_checkpoint_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("vages.app.runs.train.in_memory", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    status, err = main(monkeypatch, capsys, *TINY, "--out", tmp_path / "run")
    assert status == 143
    assert err.startswith("vages: stopped by SIGTERM; ")
    assert err.count("\n") == 1
    assert " no checkpoint " in err
    assert f" vages train --resume {tmp_path / 'run'}" in err


def test_any_command_ends_with_the_status_of_its_signal(monkeypatch, capsys):
    monkeypatch.setattr("vages.data.datasets", lambda: signal.raise_signal(signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        assert main(monkeypatch, capsys, "data") == (129, "vages: stopped by SIGHUP\n")
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert status_of(Stopped(signal.SIGTERM)) == Status.TERMINATED
    assert line_of(KeyboardInterrupt()) == "stopped by Ctrl-C"


@pytest.fixture
def handled():
    """The signals that the caller's own handler has received."""
    seen = []
    before = {number: signal.signal(number, lambda number, frame: seen.append(number)) for number in STATUSES}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STATUSES)
def test_a_signal_that_is_sent_twice_does_not_interrupt_its_own_line(monkeypatch, capsys, handled, number):
    """As timeout(1) does. Only a signal more than a second later is a second request."""
    monkeypatch.setattr("vages.data.datasets", lambda: signal.raise_signal(number))
    say = cli.say_error
    monkeypatch.setattr(cli, "say_error", lambda line: (signal.raise_signal(number), say(line)))
    said = f"vages: stopped by {number.name}\n"
    assert main(monkeypatch, capsys, "data") == (STATUSES[number], said)
    assert handled == []
    with raising_signals():
        with suppress(Stopped):  # as C code that ignores an exception
            signal.raise_signal(number)
        try:
            signal.raise_signal(number)
            pytest.fail("the first one was lost, and the second is ignored")
        except Stopped:
            signal.raise_signal(number)  # the same request, while that is handled
        monkeypatch.setattr("vages.app.cli.stopping._ONE_REQUEST", 0)
        try:
            raise OSError from Stopped(number)
        except OSError:
            with pytest.raises(Stopped):
                signal.raise_signal(number)


def test_a_signal_within_numpy_is_no_bug_of_vages(monkeypatch, capsys):
    """Its C code ignores an exception of a function that it calls, and Python raises a SystemError because of it."""

    def within():
        raise SystemError("returned a result with an exception set") from Stopped(signal.SIGTERM)

    monkeypatch.setattr("vages.data.datasets", within)
    assert main(monkeypatch, capsys, "data") == (143, "vages: stopped by SIGTERM\n")


EXITING = """
import atexit, signal, sys, time
from vages.app import cli

def clean_up():  # JAX has such functions
    signal.raise_signal(signal.SIGINT)
    print("cleaned up", flush=True)
    time.sleep(1.1)
    signal.raise_signal(signal.SIGINT)
    print("not ended")

atexit.register(clean_up)
sys.argv = ["vages", "--version"]
cli.main()
"""


def test_a_signal_does_not_interrupt_the_exit_but_one_a_second_later_does():
    done = subprocess.run([sys.executable, "-c", EXITING], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, f"vages {vages.__version__}\ncleaned up\n", "")


@pytest.mark.parametrize("number", STATUSES)
def test_a_callers_handler_is_called_once_the_run_is_saved_or_at_the_second_signal(monkeypatch, handled, number):
    with StopSignals() as stop:
        signal.raise_signal(number)
        assert stop.in_any_process() == number
        signal.raise_signal(number)  # within a second: the same request
        assert handled == []
        monkeypatch.setattr("vages.training.signals._ONE_REQUEST", 0)
        signal.raise_signal(number)  # passed on immediately
        assert handled == [number]
        signal.raise_signal(number)
        assert handled == [number, number]
    signal.raise_signal(number)
    assert len(handled) == 3  # the handler is restored
    stop.pass_on(number)
    assert len(handled) == 4
    stop.pass_on(None)
    assert len(handled) == 4


def test_a_second_signal_of_another_kind_does_not_wait_either(monkeypatch, handled):
    monkeypatch.setattr("vages.training.signals._ONE_REQUEST", 0)
    before = {number: signal.getsignal(number) for number in STOPPING}
    with StopSignals():
        assert not any(signal.getsignal(number) == before[number] for number in STOPPING)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert before == {number: signal.getsignal(number) for number in STOPPING}


def test_ignored_signals_stay_ignored_and_other_threads_are_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop, raising_signals():
            signal.raise_signal(signal.SIGHUP)
        assert stop.seen is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    found = []

    def elsewhere():
        with StopSignals(), raising_signals():
            found.append([signal.getsignal(number) for number in STATUSES])

    now = [signal.getsignal(number) for number in STATUSES]
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [now]


def test_an_experiment_does_not_go_on_with_half_a_run(monkeypatch):
    """Ctrl-C stops training normally, but the result is not that of the full settings."""
    fitted = SimpleNamespace(interrupted=True)
    fitted.uninterrupted = partial(Fitted.uninterrupted, fitted)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("vages.app.experiments.comparison.train", lambda recipe: SimpleNamespace(fitted=fitted))
    with pytest.raises(KeyboardInterrupt):
        train_all({"a": CHECKERBOARD}, lambda line: None)


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of half a MiB, and a function that fills all but some bytes of it."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk, and not in every container")

    def fill(but):
        free = os.statvfs(place)
        (place / "filler").write_bytes(bytes(max(free.f_bavail * free.f_bsize - but, 0)))

    try:
        yield place, fill
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_after_training(monkeypatch, capsys, small_disk):
    place, fill = small_disk
    path, train = place / "run", "vages.app.runs.train.in_memory"
    trained = sys.modules["vages.app.runs.train"].in_memory

    def then_full(*arguments, **named):
        result = trained(*arguments, **named)
        fill(16384)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(train, then_full)
        status, err = main(patch, capsys, *TINY, "--steps", 20, "--out", path)
    assert status == 1
    assert len(err.splitlines()) == 1
    assert err.startswith("vages: training is complete ")
    assert f" {path}/checkpoints/step-000000000020)," in err
    assert ": No space left on device (" in err
    assert err.endswith(f" vages train --resume {path}\n")
    (place / "filler").unlink()
    assert main(monkeypatch, capsys, "train", "--resume", path) == (0, "")
    assert (path / "samples.png").stat().st_size
    assert (path / "report.html").stat().st_size
    assert json.loads((path / "result.json").read_text())["steps"] == 20


def test_a_file_that_may_not_be_so_large_after_training(monkeypatch, capsys, tmp_path):
    """A resource limit of the process, which needs no right to mount a disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def drawn(*_):
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))
        return Drawn({"density": Figure()})

    monkeypatch.setattr("vages.app.runs.train._drawn", drawn)
    try:
        status, err = main(monkeypatch, capsys, *TINY, "--steps", 20, "--out", tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 1
    assert err.startswith("vages: training is complete ")
    assert "/checkpoints/step-000000000020)," in err
    assert ": File too large" in err
    assert err.count("\n") == 1


def test_a_disk_that_fills_while_a_checkpoint_or_the_log_is_written(small_disk):
    place, fill = small_disk
    recipe = as_recipe(CHECKERBOARD)
    folder = RunFolder(place / "run", config_of(recipe))
    write_checkpoint(folder.checkpoints, 500, {}, {})
    fill(0)
    says = r"iteration 500 of 100000 \(.*step-000000000500\), .*: No space left .*; .*vages train --resume"
    with pytest.raises(NotWritten, match=says), reported(folder, recipe):
        folder.log({"step": 501, "text": "x" * 10**5})
    with pytest.raises(NotWritten, match="^checkpoint: .*step 510") as raised:
        with reported(folder, recipe):
            raise OSError("checkpoint: expected to write step 510 …; make room and resume.")
    assert status_of(raised.value) == Status.FAILED
    assert status_of(PermissionError(errno.EACCES, "Permission denied", "x")) == Status.REFUSED


def test_what_is_said_of_a_full_disk_elsewhere():
    error = OSError(errno.ENOSPC, "No space left on device", "samples.npz")
    assert status_of(error) == Status.FAILED
    assert " samples.npz, got No space left on device; " in line_of(error)
    assert line_of(error).endswith("; make room and run it again")
    large = line_of(OSError(errno.EFBIG, "File too large"))
    assert large.endswith(", got File too large; raise the limit on the size of files and run it again")
    read_only = OSError(errno.EROFS, "Read-only file system", "samples.npz")
    assert line_of(read_only).endswith("system; make the file system writable and run it again")
    assert status_of(read_only) == Status.FAILED


@pytest.mark.parametrize(
    ("origin", "again"),
    [
        (Origin("mine.py:recipe", "", Path("place/mine.py")), "vages train place/mine.py --resume "),
        (Origin("mine.py:other", "", Path("place/mine.py")), "vages train place/mine.py:other --resume "),
        (None, "vages.train(recipe, '"),
    ],
)
def test_the_command_that_resumes_a_run_of_an_own_recipe(tmp_path, monkeypatch, origin, again):
    monkeypatch.chdir(tmp_path)
    learner = vages.Learner(vages.DSM(0.3, vages.Enumerated()), learning_rate=1e-3)
    build = lambda key, settings, data: (vages.GRBM.init(key, 2, 3), vages.ExactPosterior())
    recipe = vages.Recipe(np.zeros((20, 2), np.float32), build, learner, origin=origin)
    folder = RunFolder("run", config_of(recipe))
    with pytest.raises(NotWritten, match=f"; make room and run {re.escape(again)}"), reported(folder, recipe):
        raise OSError(errno.ENOSPC, "No space left on device")
    page = build_report(Path("run"))
    file = "FILE.py" if origin is None else origin.name.removesuffix(":recipe")
    assert f"vages train {file} --resume run" in page
    assert "own --" not in page
    with pytest.raises(ValueError, match=f"got none; resume it with: {re.escape(again)}"):
        load_run("run", recipe)
