"""Cost of the log and checkpoints: runs with a folder compared with the same runs without one."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vages.app.recipes import as_recipe, start, train
from vages.app.settings import CHECKERBOARD, DIGITS
from vages.timing import ratio, side_by_side
from vages.training import Checkpoints, Fitted, RunFolder, fit

OFTEN = Checkpoints(seconds=5.0)  # a dozen times as often as by default


def run(rounds: int = 5) -> dict:
    """Return the share of a run's time for its log and checkpoints, and its time over that of a run without them."""
    digits = replace(DIGITS, steps=4000)
    recipe = as_recipe(digits)
    images = jnp.asarray(recipe.load().splits.train)
    learner, state = start(recipe, images.shape[1:])
    run = (jax.random.key(0), state.model, state.posterior, images, learner)

    def checkerboard(**how: Any) -> Fitted:
        return train(as_recipe(replace(CHECKERBOARD, steps=50_000)), **how).fitted.uninterrupted()

    def deep(**how: Any) -> Fitted:
        return fit(*run, steps=digits.steps, batch=digits.batch, chunk=100, **how).uninterrupted()

    return {"checkerboard": _measured(checkerboard, rounds), "digits, a deep model": _measured(deep, rounds)}


def _measured(train: Any, rounds: int) -> dict[str, float]:
    shares = []

    def kept():
        with tempfile.TemporaryDirectory() as place:
            folder = RunFolder(Path(place) / "run", {})
            fitted = train(folder=folder, checkpoints=OFTEN)
            folder.close()
        shares.append(fitted.keeping_seconds / fitted.seconds)
        return fitted.state.step

    times = side_by_side({"kept": kept, "bare": lambda: train().state.step}, rounds)
    return {
        "share of the time, median": float(np.median(shares[1:])),
        "share of the time, largest": float(np.max(shares[1:])),
        "time with / time without, median": ratio(times["kept"], times["bare"]),
        "seconds, median": float(np.median(times["kept"])),
    }
