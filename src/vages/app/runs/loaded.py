"""A run, loaded from its folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.app.recipes import Examples, Recipe, example_of
from vages.app.recipes.units import Units, in_units, standardized
from vages.app.runs.config import recipe_of
from vages.app.runs.dataset import RunData, other_data, own_data, told_place
from vages.memory import check_memory, shape_bytes
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.storage.directory import Directory
from vages.terminal import printable
from vages.training import RunFolder, one_seed
from vages.training.checkpoint import Checkpoint, newest_checkpoint
from vages.training.keeping import has_selected
from vages.training.learner import Averages
from vages.training.trees import with_arrays

Weights = Literal["raw", "averages", "selected"]
_PREFIXES: dict[Weights, str] = {"raw": "state/", "averages": "state/averages/", "selected": "best/"}


@dataclass(frozen=True, eq=False)
class Run:
    """What a run had learnt at a step: model and posterior of one of its seeds, raw, averaged or selected till then.

    Where `units` are not None, both know standardized numbers: `standardized` makes these, `in_units` goes back.
    """

    path: Path
    recipe: Recipe
    model: EBLVM
    posterior: Posterior
    step: int
    weights: Weights
    seed: int = 0
    """The number of the seed, counted from 0."""
    fingerprint: dict[str, Any] | None = None
    """That of the examples that it was trained on."""
    dataset: dict[str, Any] | None = None
    """Where these were, and the fingerprint of each split."""
    other: str | None = None
    """Data that take their place, if any; see `on`."""
    where: str | None = None
    """Where its own data are now, if they were moved."""

    @property
    def settings(self) -> Any:
        """Those of the recipe."""
        return self.recipe.settings

    @property
    def has_latents(self) -> bool:
        """Whether there is an h."""
        return self.model.h.size > 0

    @property
    def is_of_images(self) -> bool:
        """Whether v is an image (channels, height, width)."""
        return len(self.model.v.shape) == 3 and self.model.v.shape[0] in (1, 3)

    @property
    def units(self) -> Units | None:
        """Of the data, where the model knows them standardized."""
        return self.recipe.units

    def in_units(self, v: Any) -> Any:
        """Numbers of the model in the data's units."""
        return in_units(self.units, v)

    def standardized(self, v: Any) -> Any:
        """Numbers in the data's units as the model sees them, in float32; v may be float64."""
        return standardized(self.units, v)

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width) of an example that is an image, also where the model sees a vector; else None."""
        return self.model.v.shape if self.is_of_images else self.data.image

    @property
    def held_out(self) -> tuple[Literal["test", "train"], Any]:
        """Test examples, or training examples where there are none, and which of them these are."""
        splits = self.data.splits
        return ("test", splits.test) if len(splits.test) else ("train", splits.train)

    @property
    def data_has_context(self) -> bool:
        """Whether its model is conditioned on something beside v."""
        return self.data.context is not None

    @property
    def data_name(self) -> str:
        """What its data are called."""
        return told_place(self.recipe.place, self.recipe) if self.other is None else self.other

    @property
    def told(self) -> str:
        """What it was trained on and how, in a few words."""
        if self.recipe.origin is not None:
            return self.recipe.origin.name
        if self.recipe.parts is None:
            return self.recipe.kind
        return f"{self.settings.data} · {getattr(self.settings, 'method', self.recipe.kind)}"

    def on(self, data: str) -> "Run":
        """The run as if these were its data: the name of a set, or a path. Examples of another shape are refused."""
        return replace(self, other=data)

    @cached_property
    def data(self) -> Examples:
        """The data of its seed, read when they are first asked for; others than it was trained on are refused."""
        return self.read.value.of_seed(self.seed)

    @cached_property
    def read(self) -> RunData:
        """The data of all seeds with their fingerprints."""
        about = {"data": self.fingerprint, "dataset": self.dataset}
        if self.other is None:
            return own_data(self.path, self.recipe, about, self.where)
        return other_data(self.path, self.recipe, about, self.other, self.model.v.shape)

    @property
    def about_data(self) -> dict[str, Any] | None:
        """The name and fingerprints of what was read, and whether it is the run's own; None where nothing was read."""
        read = self.__dict__.get("read")
        return None if read is None else read.about()

    @property
    def history(self) -> list[dict[str, Any]]:
        """What was logged, oldest first."""
        return RunFolder.metrics(self.path)


def load_run(
    path: Path | str,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    raw: bool = False,
    data: str | None = None,
    changed: bool = False,
    refused: Callable[[str], None] = lambda why: print(f"vages: checkpoint refused: {printable(why)}", file=sys.stderr),
) -> Run:
    """The newest checkpoint of a run that can be verified; `refused` is told of each newer one that cannot.

    Model and posterior are the selected ones where the run has selected some, else the averages where it keeps them,
    unless they are to be `raw`. `recipe` is that of a run by a recipe of one's own; with `changed`, its file may have
    changed since. `data` is the place of the run's data, if they were moved: they are read at once, and refused if they
    are others.
    """
    path = Path(path)
    recipe = recipe_of(path, recipe, changed=changed)
    if not 0 <= seed < len(recipe.seeds):
        raise ValueError(f"seed: expected one of the {len(recipe.seeds)} seeds of {path}, counted from 0, got {seed}")
    found = newest_checkpoint(Directory(path) / "checkpoints", refused)
    if found is None:
        diverged = any(event.get("event") == "diverged" for event in RunFolder.events(path)[-1:])
        begin = "training diverged before the first; start a new run with a smaller learning rate, say"
        again = begin if diverged else f"go on with 'vages train --resume {path}'"
        raise ValueError(f"run: expected a whole checkpoint in {path / 'checkpoints'}, got none; {again}")
    selects = (recipe.maximize or recipe.minimize) is not None
    averaged = recipe.make_learner().ema is not None
    kind: Weights = "averages" if averaged else "raw"
    kind = "raw" if raw else "selected" if selects and has_selected(found, seed) else kind
    about = found.about
    # those that a recipe of one's own builds its model for, and those that were moved, are read at once
    read = own_data(path, recipe, about, data) if recipe.parts is None or data is not None else None
    examples = example_of(_shape(found, recipe)) if read is None else read.value
    parts = _restored(recipe, found, _PREFIXES[kind], examples)
    model, posterior = one_seed(parts, seed) if recipe.stacked else parts
    fingerprint, dataset = about.get("data"), about.get("dataset")
    run = Run(path, recipe, model, posterior, found.step, kind, seed, fingerprint, dataset, where=data)
    if read is not None:
        run.__dict__["read"] = read
    return run


def _shape(found: Checkpoint, recipe: Recipe) -> tuple[int, ...]:
    """Of an example, as the checkpoint says it."""
    data = found.about.get("data")
    shape = data.get("shape") if isinstance(data, dict) else None
    if not (isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)):
        raise _strange(found, recipe)
    vectors = recipe.parts is not None and recipe.parts.stacked and len(shape) <= 3  # one set, or one for each seed
    return tuple(shape[-1:]) if vectors else tuple(shape[1:])


def _strange(found: Checkpoint, recipe: Recipe) -> ValueError:
    return ValueError(
        f"{found.path}: expected a checkpoint of {recipe.kind}, got one of something else; is it a run's?"
    )


def _restored(recipe: Recipe, found: Checkpoint, prefix: str, data: Examples) -> Averages:
    """The model and the posterior that lie under a prefix."""
    if recipe.parts is not None and len(data.shape) != recipe.parts.rank:
        raise _strange(found, recipe)
    parts = eqx.filter_eval_shape(lambda key: recipe.make(key, data), jax.random.key(0))
    seeds = (len(recipe.seeds),) if recipe.stacked else ()
    size = shape_bytes(parts) * (seeds[0] if seeds else 1)
    check_memory({"the model": size}, f"is {found.path} a checkpoint of these settings?")
    zeros = lambda x: jnp.zeros((*seeds, *x.shape), x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x
    template = Averages(*jax.tree.map(zeros, parts))
    own = tuple(f"{prefix}{part}/" for part in Averages._fields)
    return with_arrays(template, {k.removeprefix(prefix): v for k, v in found.arrays.items() if k.startswith(own)})
