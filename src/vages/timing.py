"""Times that can be compared on a noisy machine: taken side by side, in turns."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float


def side_by_side(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Float[np.ndarray, "rounds"]]:
    """Seconds of each function in each of `rounds` turns, after one call that is not counted."""
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
    """The median over turns of one time over another taken in the same turn: slow stretches cancel."""
    return float(np.median(above / below))
