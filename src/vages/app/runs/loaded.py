"""A deep run, loaded from its folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.app.recipes.deep import parts_of_deep
from vages.app.runs.config import recipe_of
from vages.app.runs.dataset import RunData, other_data, own_data, read_deep, read_other_images
from vages.app.settings import DeepSettings
from vages.data import Images
from vages.memory import check_memory, shape_bytes
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.storage.directory import Directory
from vages.terminal import printable
from vages.training.checkpoint import Checkpoint, newest_checkpoint
from vages.training.keeping import has_selected
from vages.training.learner import Averages
from vages.training.trees import with_arrays

Weights = Literal["raw", "averages", "selected by FID"]


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """What a run had learnt at a step: the model and the posterior, as they were, averaged, or selected till then."""

    path: Path
    recipe: DeepSettings
    model: EBLVM
    posterior: Posterior
    step: int
    weights: Weights
    data: dict[str, Any]
    """The fingerprint of the images that it was trained on."""
    dataset: dict[str, Any] | None = None
    """Where these were, and the fingerprint of each split."""
    other: str | None = None
    """Images that take their place, if any; see `on`."""
    where: str | None = None
    """Where its own images are now, if they were moved."""

    @property
    def has_latents(self) -> bool:
        """Whether there is an h."""
        return self.model.h.size > 0

    @property
    def data_name(self) -> str:
        """What its images are called."""
        return self.recipe.data if self.other is None else self.other

    def on(self, data: str) -> "LoadedRun":
        """The run as if these were its images: the name of a set, or a path. Images of another shape are refused."""
        return replace(self, other=data)

    @cached_property
    def images(self) -> Images:
        """The run's images, read when they are first asked for; others than it was trained on are refused."""
        return self.read.value

    @cached_property
    def read(self) -> RunData[Images]:
        """The same with their fingerprints."""
        about = {"data": self.data, "dataset": self.dataset}
        if self.other is None:
            return own_data(self.path, self.recipe, about, read_deep, self.where)
        return other_data(self.path, self.recipe, about, read_other_images, self.other, self.model.v.shape)

    @property
    def about_data(self) -> dict[str, Any] | None:
        """The name and fingerprints of what was read, and whether it is the run's own; None where nothing was read."""
        read = self.__dict__.get("read")
        return None if read is None else read.about()


def load_run(
    path: Path,
    *,
    raw: bool = False,
    data: str | None = None,
    refused: Callable[[str], None] = lambda why: print(f"vages: checkpoint refused: {printable(why)}", file=sys.stderr),
) -> LoadedRun:
    """The newest checkpoint of a deep run that can be verified; `refused` is told of each newer one that cannot.

    Model and posterior are the selected ones where the run has selected some, else the averages where it keeps them,
    unless they are to be `raw`. `data` is the place of the run's images, if they were moved: they are read at once, and
    refused if they are others.
    """
    recipe = recipe_of(path)
    if not isinstance(recipe, DeepSettings):
        raise ValueError(
            f"run: expected the run of a deep model, got {path}, that of a GRBM; 'vages train' has drawn its samples "
            "in that folder"
        )
    found = newest_checkpoint(Directory(path) / "checkpoints", refused)
    if found is None:
        raise ValueError(
            f"run: expected a whole checkpoint in {path / 'checkpoints'}, got none; "
            f"go on with 'vages train --resume {path}'"
        )
    selected = recipe.fid_every and has_selected(found)
    kind: Weights = "raw" if raw else "selected by FID" if selected else "averages" if recipe.ema else "raw"
    prefixes: dict[Weights, str] = {"raw": "state/", "averages": "state/averages/", "selected by FID": "best/"}
    parts = _restored(recipe, found, prefixes[kind])
    about = found.about
    run = LoadedRun(path, recipe, parts.model, parts.posterior, found.step, kind, about["data"], about.get("dataset"))
    if data is not None:
        run = replace(run, where=data)
        run.read  # noqa: B018
    return run


def _restored(recipe: DeepSettings, found: Checkpoint, prefix: str) -> Averages:
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
