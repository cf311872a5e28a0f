"""Writers of checkpoints, killed at random moments.

`killed_writers.py FOLDER TIMES` prints the newest step, and how often a kill left an unfinished write behind.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from vages.training.checkpoint import checkpoints, newest_checkpoint, prune, read_checkpoint, sweep, write_checkpoint


def save(folder, step):
    write_checkpoint(folder, step, {"a": np.full(5000, step, np.float32), "step": np.asarray(step)}, {"step": step})


def write_for_ever(folder):
    step = read_checkpoint(checkpoints(folder)[-1]).step
    while True:
        step += 1
        save(folder, step)
        prune(folder, step, 2, lambda step: False)


def time_of_a_child(folder, children=10):
    """Seconds from a fork to a written checkpoint: a mean over some, as it varies much on a busy machine."""
    start = time.perf_counter()
    for _ in range(children):
        child = os.fork()
        if child == 0:
            save(folder, read_checkpoint(checkpoints(folder)[-1]).step)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    return (time.perf_counter() - start) / children


def refuse(why):
    raise AssertionError(why)  # no file with the name of a checkpoint may be damaged


def main(folder, times):
    pause, torn, found = random.Random(1), 0, None
    save(folder, 1)
    writing = time_of_a_child(folder)
    for _ in range(times):
        child = os.fork()
        if child == 0:
            try:
                write_for_ever(folder)
            finally:
                os._exit(1)
        time.sleep(pause.uniform(0, 2 * writing))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        torn += any(folder.glob(".step-*"))
        found = newest_checkpoint(folder, refuse)
        assert found is not None
        assert (found.arrays["a"] == found.step).all()
        assert found.arrays["step"] == found.step == found.about["step"]
        sweep(folder)
    assert found is not None
    print(found.step, torn)


main(Path(sys.argv[1]), int(sys.argv[2]))
