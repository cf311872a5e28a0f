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
from vages.app.runs.commands import resume_command
from vages.app.runs.config import recipe_of
from vages.app.runs.dataset import RunData, other_data, own_data, told_place
from vages.checks import check_kind
from vages.memory import check_memory, shape_bytes
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.storage.directory import Directory
from vages.terminal import printable
from vages.training import RunFolder, one_seed
from vages.training.checkpoint import Checkpoint, has_checkpoints, newest_checkpoint
from vages.training.keeping import has_selected
from vages.training.learner import Averages
from vages.training.trees import with_arrays

Weights = Literal["raw", "averages", "selected"]
_PREFIXES: dict[Weights, str] = {"raw": "state/", "averages": "state/averages/", "selected": "best/"}


@dataclass(frozen=True, eq=False)
class Run:
    """Model and posterior of one seed of a run at a checkpoint, with raw, averaged or selected weights.

    If `units` is not None, both work on standardized data: `standardized` converts to these, `in_units` converts back.
    """

    path: Path
    recipe: Recipe
    model: EBLVM
    posterior: Posterior
    step: int
    weights: Weights
    seed: int = 0
    """Index of the seed, from 0."""
    fingerprint: dict[str, Any] | None = None
    """Fingerprint of the training examples."""
    dataset: dict[str, Any] | None = None
    """Location of the data, and the fingerprint of each split."""
    other: str | None = None
    """Other data to use in their place, if any; see `on`."""
    where: str | None = None
    """New location of the run's own data, if they were moved."""

    @property
    def settings(self) -> Any:
        """Settings of the recipe."""
        return self.recipe.settings

    @property
    def has_latents(self) -> bool:
        """Whether the model has latents."""
        return self.model.h.size > 0

    @property
    def is_of_images(self) -> bool:
        """Whether v is an image (channels, height, width)."""
        return len(self.model.v.shape) == 3 and self.model.v.shape[0] in (1, 3)

    @property
    def units(self) -> Units | None:
        """Units of the data, if the model works on standardized data."""
        return self.recipe.units

    def in_units(self, v: Any) -> Any:
        """Convert values from the model's scale to the data's units."""
        return in_units(self.units, v)

    def standardized(self, v: Any) -> Any:
        """Convert values from the data's units to the model's scale, in float32; v may be float64."""
        return standardized(self.units, v)

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width) if examples are images, even if the model works on vectors; else None."""
        return self.model.v.shape if self.is_of_images else self.data.image

    @property
    def held_out(self) -> tuple[Literal["test", "train"], Any]:
        """Name and examples of the test split, or of the training split if there are no test examples."""
        splits = self.data.splits
        return ("test", splits.test) if len(splits.test) else ("train", splits.train)

    @property
    def data_has_context(self) -> bool:
        """Whether the data have a context, such as labels."""
        return self.data.context is not None

    @property
    def data_name(self) -> str:
        """Name of the data."""
        return told_place(self.recipe.place, self.recipe) if self.other is None else self.other

    @property
    def told(self) -> str:
        """Short description of the data and the training method."""
        if self.recipe.origin is not None:
            return self.recipe.origin.name
        if self.recipe.parts is None:
            return self.recipe.kind
        return f"{self.settings.data} · {getattr(self.settings, 'method', self.recipe.kind)}"

    def on(self, data: str) -> "Run":
        """Return the run with other data: the name of a dataset, or a path. Examples must have the model's shape."""
        return replace(self, other=data)

    @cached_property
    def data(self) -> Examples:
        """Data of the run's seed, read at first use; those it was trained on, unless replaced by `on`."""
        return self.read.value.of_seed(self.seed)

    @cached_property
    def read(self) -> RunData:
        """Data of all seeds, with their fingerprints."""
        about = {"data": self.fingerprint, "dataset": self.dataset}
        if self.other is None:
            return own_data(self.path, self.recipe, about, self.where)
        return other_data(self.path, self.recipe, about, self.other, self.model.v.shape)

    @property
    def about_data(self) -> dict[str, Any] | None:
        """Name and fingerprints of the data, and whether they are the run's own; None if no data were read."""
        read = self.__dict__.get("read")
        return None if read is None else read.about()

    @property
    def history(self) -> list[dict[str, Any]]:
        """Logged metrics, oldest first."""
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
    """Load the newest valid checkpoint of a run; `refused` is called with the reason for each newer, invalid one.

    The selected weights are loaded if the run has selected some, else the averages if it keeps them; with `raw`, the
    weights of the last step. A run of a custom recipe needs its `recipe`; with `changed`, the file of the recipe may
    have changed since. `seed` is the index of one of the run's seeds. `data` is the location of the run's data if they
    were moved: they are read at once, and must be those that the run was trained on.
    """
    path = Path(path)
    if recipe is not None:
        check_kind("recipe", recipe, Recipe, "a vages.Recipe, or None for a preset", "import it from its file")
    recipe = recipe_of(path, recipe, changed=changed)
    if not 0 <= seed < len(recipe.seeds):
        raise ValueError(f"seed: expected one of the {len(recipe.seeds)} seeds of {path}, counted from 0, got {seed}")
    found = newest_checkpoint(Directory(path) / "checkpoints", refused)
    if found is None:
        diverged = any(event.get("event") == "diverged" for event in RunFolder.events(path)[-1:])
        begin = "training diverged before the first; start a new run, for example with a smaller learning rate"
        again = begin if diverged else f"resume it with: {resume_command(recipe, path)}"
        if has_checkpoints(Directory(path) / "checkpoints"):
            again = "all that are there are damaged; start a new run, or copy them from a backup"
        raise ValueError(f"run: expected a whole checkpoint in {path / 'checkpoints'}, got none; {again}")
    selects = (recipe.maximize or recipe.minimize) is not None
    averaged = recipe.make_learner().ema is not None
    kind: Weights = "averages" if averaged else "raw"
    kind = "raw" if raw else "selected" if selects and has_selected(found, seed) else kind
    about = found.about
    # read at once: data from which a custom recipe builds its model, and data that were moved
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
    """Return the shape of an example, as recorded in the checkpoint."""
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
    """Return the model and the posterior that are stored under a prefix."""
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
