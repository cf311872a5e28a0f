"""A lower bound on the memory that training needs, from shapes alone. Nothing is allocated."""

from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vages.app.recipes.examples import Examples
from vages.app.recipes.recipe import Recipe
from vages.checks import struct_of
from vages.data import Batches
from vages.memory import check_memory, shape_bytes
from vages.objectives import Batch
from vages.training.program import split_step


class Sizes(NamedTuple):
    """Number of parameters by part, bytes of the state and of the data, and `working`, a lower bound on all others."""

    parameters: dict[str, int]
    bytes: dict[str, int]
    working: dict[str, int]


def training_sizes(recipe: Recipe, data: Examples, rows: int | None, devices: int = 1) -> Sizes:
    """Return the sizes on each device for data like these, with `rows` rows if known. The devices share each batch.

    Raise ValueError for an invalid recipe.
    """
    recipe = recipe.settled(data)
    settings, seeds = recipe.settings, len(recipe.seeds)
    if rows is not None and data.stream is None:
        Batches(rows, settings.batch, settings.seed)
    learner, key = recipe.make_learner(), jax.random.key(0)
    model, posterior = parts = eqx.filter_eval_shape(lambda key: recipe.make(key, data), key)
    one = _batch(data, settings.batch)
    init = lambda key, parts, context: learner.init(key, *parts, batch=len(one.v), context=context)
    state = eqx.filter_eval_shape(init, key, parts, one.context)
    draw, _ = split_step(learner, state, one, key)
    working = {"noise of an iteration": seeds * shape_bytes(jax.eval_shape(draw, key))}
    if recipe.parts is not None:
        working["activations"] = recipe.parts.activations(data.shape)
    copies = 1 if recipe.parts is None else recipe.parts.copies
    on_device = rows is not None and data.stream is None and not isinstance(data.splits.train, np.memmap)
    item = struct_of(data.splits.train).dtype.itemsize
    held = {"data": item * copies * rows * prod(data.shape)} if on_device and rows is not None else {}
    working = {name: size // devices for name, size in working.items()}
    return Sizes(
        {"model": _count(model), "posterior": _count(posterior)}, {"state": seeds * shape_bytes(state), **held}, working
    )


def _batch(data: Examples, size: int) -> Batch:
    """Return the shapes of a batch. A stream determines the size of its batches."""
    if data.stream_batch is not None:
        return data.stream_batch
    v: Any = jax.ShapeDtypeStruct((size, *data.shape), jnp.float32)
    like = lambda parts: struct_of(parts.train, size, drop=1)
    return Batch(v, data.context and {name: like(parts) for name, parts in data.context.items()})


def check_training_memory(sizes: Sizes) -> None:
    """Raise ValueError if training cannot fit. The state is in memory twice: the initial and the current one."""
    twice = {f"the {name}": (2 if name == "state" else 1) * size for name, size in sizes.bytes.items()}
    advice = "choose a smaller batch, width, depth or number of latents, samples or seeds"
    check_memory(twice | sizes.working, advice)


def check_recipe(recipe: Recipe, data: Examples, devices: int = 1) -> None:
    """Raise the errors that the start of training would raise, before its folder is created."""
    check_training_memory(training_sizes(recipe, data, data.rows, devices))
    recipe.check()


def _count(tree: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(tree) if isinstance(x, jax.ShapeDtypeStruct))
