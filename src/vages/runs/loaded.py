"""A deep run come back from its folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.data import Images
from vages.learners import Averages
from vages.memory import check_memory, shape_bytes
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.recipes.deep import DeepRecipe, load_deep, parts_of_deep, training_images
from vages.runs.config import recipe_of
from vages.terminal import printable
from vages.training.checkpoint import Checkpoint, newest_checkpoint
from vages.training.keeping import fingerprint, has_selected
from vages.training.trees import with_arrays

Weights = Literal["raw", "averages", "selected by FID"]


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """What a run had learnt at a step: the model and the posterior, as they were, averaged, or selected till then."""

    path: Path
    recipe: DeepRecipe
    model: EBLVM
    posterior: Posterior
    step: int
    weights: Weights
    data: dict[str, Any]
    """What tells the images that it was trained on from others."""

    @property
    def has_latents(self) -> bool:
        """Whether there is an h."""
        return 0 not in self.model.h_shape

    @cached_property
    def images(self) -> Images:
        """The run's images, read when they are first asked for; others than it was trained on are refused."""
        try:
            images = load_deep(self.recipe)
        except (ValueError, OSError) as error:
            raise ValueError(f"{self.path} was trained on {self.recipe.data}: {error}") from None
        got = fingerprint(training_images(self.recipe, images))
        if got != {name: self.data.get(name) for name in got}:
            raise ValueError(
                f"{self.recipe.data}: expected the images that {self.path} was trained on, {self.data.get('shape')}, "
                f"got others, {got['shape']}; put the old ones back, or training and test images would be mixed up"
            )
        return images


def load_run(
    path: Path,
    *,
    raw: bool = False,
    refused: Callable[[str], None] = lambda why: print(f"vages: checkpoint refused: {printable(why)}", file=sys.stderr),
) -> LoadedRun:
    """The newest checkpoint of a deep run that can be verified; `refused` is told of each newer one that cannot.

    Model and posterior are the selected ones where the run has selected some, else the averages where it keeps them,
    unless they are to be `raw`.
    """
    recipe = recipe_of(path)
    if not isinstance(recipe, DeepRecipe):
        raise ValueError(
            f"run: expected the run of a deep model, got {path}, that of a GRBM; 'vages train' has drawn its samples "
            "in that folder"
        )
    found = newest_checkpoint(path / "checkpoints", refused)
    if found is None:
        raise ValueError(
            f"run: expected a whole checkpoint in {path / 'checkpoints'}, got none; "
            f"go on with 'vages train --resume {path}'"
        )
    selected = recipe.fid_every and has_selected(found)
    kind: Weights = "raw" if raw else "selected by FID" if selected else "averages" if recipe.ema else "raw"
    prefixes: dict[Weights, str] = {"raw": "state/", "averages": "state/averages/", "selected by FID": "best/"}
    parts = _restored(recipe, found, prefixes[kind])
    return LoadedRun(path, recipe, parts.model, parts.posterior, found.step, kind, found.about["data"])


def _restored(recipe: DeepRecipe, found: Checkpoint, prefix: str) -> Averages:
    """The model and the posterior that lie under a prefix."""
    data = found.about.get("data")
    shape = data.get("shape") if isinstance(data, dict) else None
    if not (isinstance(shape, list) and len(shape) == 4 and all(type(size) is int and size > 0 for size in shape)):
        raise ValueError(f"{found.path}: expected a checkpoint of images, got one of something else; is it a run's?")
    _, channels, height, width = shape
    parts = eqx.filter_eval_shape(parts_of_deep(recipe, (channels, height, width)), jax.random.key(0))
    check_memory({"the model": shape_bytes(parts)}, f"is {found.path} a checkpoint of these settings?")
    template = Averages(*jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype) if _is_shape(x) else x, parts))
    own = tuple(f"{prefix}{part}/" for part in Averages._fields)
    return with_arrays(template, {k.removeprefix(prefix): v for k, v in found.arrays.items() if k.startswith(own)})


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)
