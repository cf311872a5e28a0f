"""Comparable timings on a noisy machine, taken in turns."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float


def side_by_side(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Float[np.ndarray, "rounds"]]:
    """Return the seconds of each function in each of `rounds` turns, after one untimed call."""
    for function in functions.values():
        jax.block_until_ready(function())
    times = {name: np.zeros(rounds) for name in functions}
    for turn in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            times[name][turn] = time.perf_counter() - start
    return times


def ratio(above: np.ndarray, below: np.ndarray) -> float:
    """Return the median over turns of the ratio of two times. Slow periods of the machine cancel."""
    return float(np.median(above / below))
