"""Training speed of GRBMs: one and ten seeds on the checkerboard, VaGES-DSM and BiDSM on Frey face."""

from dataclasses import replace

import numpy as np

from vages.app.recipes import job_of
from vages.app.settings import CHECKERBOARD, FREYFACE
from vages.timing import ratio
from vages.training import seconds_per_iteration, step_bytes


def run(rounds: int = 15) -> dict:
    """Measure milliseconds per iteration (and seed): medians and minima over rounds, and ratios round by round."""
    board = seconds_per_iteration(
        {"one seed": job_of(CHECKERBOARD), "ten seeds": job_of(CHECKERBOARD, seeds=10)}, iterations=1000, rounds=rounds
    )
    jobs = {
        "vages-dsm": job_of(FREYFACE),
        **{f"bidsm N = {n}": job_of(replace(FREYFACE, method="bidsm", samples=2, unrolled=n)) for n in (0, 2, 5)},
    }
    faces = seconds_per_iteration(jobs, iterations=50, rounds=rounds)
    memory = {name: step_bytes(job) for name, job in jobs.items()}
    return {
        "checkerboard vages-dsm, ms an iteration and seed": _milliseconds(board),
        "frey face, ms an iteration": _milliseconds(faces),
        "frey face, MiB of a step": {name: size / 2**20 for name, size in memory.items()},
        "frey face time, vages-dsm / bidsm N = 5": ratio(faces["vages-dsm"], faces["bidsm N = 5"]),
        "frey face memory, vages-dsm / bidsm N = 5": memory["vages-dsm"] / memory["bidsm N = 5"],
    }


def _milliseconds(times: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    return {
        name: {"median": 1e3 * float(np.median(seconds)), "min": 1e3 * float(seconds.min())}
        for name, seconds in times.items()
    }
