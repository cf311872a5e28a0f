"""`vages new`, which writes a template of a recipe."""

from pathlib import Path
from typing import Annotated

import tyro

from vages.app.output.console import say

File = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.py", help_behavior_hint="")]

TEMPLATE = '''"""A recipe for vages: your own energy, its data and its training.

    vages train {name}                          train it; vages train {name} --help lists its settings
    vages sample RUN --recipe {name}            evaluate, embed, inpaint, interpolate work in the same way
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

import vages


@dataclass(frozen=True)
class Settings(vages.Training):  # has steps, batch, seed, seeds, evaluate_every, standardize
    """Plain values. They are options of `vages train`; the comments are their help texts."""

    sigma: float = 0.1  # noise level of denoising score matching
    rate: float = 3e-3  # initial learning rate


def data(settings):
    """Return the examples, one per row. An array is divided into 80, 10 and 10 % for training, validation and test.

    For data in a file next to this one, write data="points.npy" in the recipe.
    """
    rng = np.random.default_rng(settings.seed)
    across = rng.uniform(-2, 2, 5000)
    points = np.stack([across, across**2 / 2 - 1], axis=1) + 0.2 * rng.normal(size=(5000, 2))
    return points.astype(np.float32)


def energy(params, v, h):
    """E(v, h) of one example: v (2,) and h (1,). p(v, h) is proportional to exp(-E)."""
    hidden = jnp.tanh(params["in"] * h + params["bias"])
    error = v - params["out"] @ hidden - params["center"]
    return jnp.sum(error**2) * jnp.exp(-2 * params["log_std"]) / 2 + jnp.sum(h**2) / 2


def build(key, settings, data):
    """Return the model and its posterior before training; data.splits.train are the training examples."""
    for_in, for_out, for_posterior = jax.random.split(key, 3)
    params = {{
        "in": jax.random.normal(for_in, (32,)),
        "bias": jnp.zeros(32),
        "out": jax.random.normal(for_out, (2, 32)) / 8,
        "center": jnp.zeros(2),
        "log_std": jnp.zeros(()),
    }}
    model = vages.EnergyModel(energy, params, v=vages.Real(2), h=vages.Real(1))
    return model, vages.GaussianPosterior.mlp(for_posterior, 2, 1, width=64, depth=2)


def learner(settings):
    """Return the objective with an optimizer, which may be any of Optax."""
    schedule = optax.cosine_decay_schedule(settings.rate, settings.steps)
    return vages.Learner(vages.DSM(settings.sigma), optax.adam(schedule))


recipe = vages.Recipe(
    data=data,
    build=build,
    learner=learner,
    settings=Settings(steps=4000),
    noise=lambda settings: settings.sigma,  # noise level of the learned density, for vages evaluate
)
'''


def new(file: File, /) -> int:
    """Write a template of a recipe: an energy, its data and its training, with comments.

    It can be trained unchanged: vages train FILE.py.

    Args:
        file: the file to write, which must not exist yet.
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ValueError(f"file: expected a name such as my_energy.py, got {file}; choose another")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(TEMPLATE.format(name=file.name))
    except FileExistsError:
        raise ValueError(f"file: expected a new file, got {file}, which exists already; choose another") from None
    say(f"{file} was written; train it with 'vages train {file}'")
    return 0
