"""The least memory that training needs, from shapes alone: parameters and bytes. Nothing is allocated."""

from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.app.recipes.deep import learner_of_deep, parts_of_deep
from vages.app.recipes.grbm import learner_of, load_data, parts_of
from vages.app.settings import DeepSettings, GRBMSettings
from vages.data import TOYS, Batches, Splits
from vages.memory import check_memory, shape_bytes
from vages.nets.network import check_image_shape
from vages.objectives import Batch
from vages.training.program import split_step


class Sizes(NamedTuple):
    """Parameters by part, and bytes of the state and of the data; of `working`, a lower bound on all else."""

    parameters: dict[str, int]
    bytes: dict[str, int]
    working: dict[str, int]


def training_sizes(recipe: GRBMSettings | DeepSettings, shape: tuple[int, ...], examples: int | None) -> Sizes:
    """The sizes for examples of this shape, of which there may be a number. ValueError where the recipe cannot be."""
    if isinstance(recipe, DeepSettings):
        channels, height, width = shape
        if recipe.network == "resnet":
            check_image_shape(shape)
        make, learner = parts_of_deep(recipe, (channels, height, width)), learner_of_deep(recipe)
        seeds, copies = 1, 2 if recipe.flips else 1
        layer = recipe.width * (height * width if recipe.network == "resnet" else 1)
        activations = recipe.batch * recipe.depth * layer * (4 if recipe.precision == "float32" else 2)
    else:
        make, learner, seeds = parts_of(recipe, *shape), learner_of(recipe), recipe.seeds
        copies = seeds if recipe.data in TOYS else 1
        activations = 4 * seeds * recipe.batch * recipe.latents
    if examples is not None:
        Batches(examples, recipe.batch, recipe.seed)
    key = jax.random.key(0)
    model, posterior = parts = eqx.filter_eval_shape(make, key)
    state = eqx.filter_eval_shape(lambda key, parts: learner.init(key, *parts, batch=recipe.batch), key, parts)
    v: Any = jax.ShapeDtypeStruct((recipe.batch, *shape), jnp.float32)
    draw, _ = split_step(learner, state, Batch(v), key)
    noise = jax.eval_shape(draw, key)
    data = {} if examples is None else {"data": 4 * copies * examples * prod(shape)}
    return Sizes(
        {"model": _count(model), "posterior": _count(posterior)},
        {"state": seeds * shape_bytes(state), **data},
        {"noise of an iteration": seeds * shape_bytes(noise), "activations": activations},
    )


def check_training_memory(sizes: Sizes) -> None:
    """Raise ValueError where training cannot fit; the state is there twice, as it was at the start and as it is."""
    twice = {f"the {name}": (2 if name == "state" else 1) * size for name, size in sizes.bytes.items()}
    advice = "choose a smaller batch, width, depth or number of latents, samples or seeds"
    check_memory(twice | sizes.working, advice)


def check_recipe(recipe: GRBMSettings, data: Splits | None = None) -> None:
    """Raise whatever would be raised at the start of training, before a folder is made for it.

    `data` are those of the first seed or of all, where they have been read already.
    """
    *_, rows, size = (load_data(recipe, recipe.seed) if data is None else data).train.shape
    check_training_memory(training_sizes(recipe, (size,), rows))


def _count(tree: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(tree) if isinstance(x, jax.ShapeDtypeStruct))
