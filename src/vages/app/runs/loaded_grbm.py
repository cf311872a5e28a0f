"""A GRBM's run, loaded from its folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.app.recipes.grbm import parts_of
from vages.app.runs.config import recipe_of
from vages.app.runs.dataset import RunData, other_data, own_data, read_grbm
from vages.app.settings import GRBMSettings
from vages.data import TOYS, Splits
from vages.memory import check_memory, shape_bytes
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.posteriors import Posterior
from vages.storage.directory import Directory
from vages.terminal import printable
from vages.training import one_seed
from vages.training.checkpoint import newest_checkpoint
from vages.training.keeping import has_selected
from vages.training.learner import Averages
from vages.training.trees import with_arrays


@dataclass(frozen=True, eq=False)
class GRBMRun:
    """What a run had learnt at a step, of one of its seeds: the model that `train` would have reported."""

    path: Path
    recipe: GRBMSettings
    model: GRBM
    posterior: Posterior
    step: int
    seed: int
    data: dict[str, Any] | None = None
    """The fingerprint of the training data of all seeds."""
    dataset: dict[str, Any] | None = None
    """Where the data were, and the fingerprint of each split."""
    other: str | None = None
    """Data that take their place, if any; see `on`."""

    @property
    def data_name(self) -> str:
        """What its data are called."""
        return self.recipe.data if self.other is None else self.other

    def on(self, data: str) -> "GRBMRun":
        """The run as if these were its data: a toy, freyface, or a file. Examples of another shape are refused."""
        return replace(self, other=data)

    @cached_property
    def splits(self) -> Splits:
        """The seed's data, read when they are first asked for; others than it was trained on are refused."""
        data = self.read.value
        return Splits(*(part[self.seed] for part in data)) if self.data_name in TOYS else data

    @cached_property
    def read(self) -> RunData[Splits]:
        """The data of all seeds with their fingerprints."""
        about = {"data": self.data, "dataset": self.dataset}
        if self.other is None:
            return own_data(self.path, self.recipe, about, read_grbm)
        return other_data(self.path, self.recipe, about, read_grbm, self.other, self.model.v.shape)

    @property
    def about_data(self) -> dict[str, Any] | None:
        """The name and fingerprints of what was read, and whether it is the run's own; None where nothing was read."""
        read = self.__dict__.get("read")
        return None if read is None else read.about()


def load_grbm_run(
    path: Path,
    seed: int = 0,
    *,
    refused: Callable[[str], None] = lambda why: print(f"vages: checkpoint refused: {printable(why)}", file=sys.stderr),
) -> GRBMRun:
    """The newest checkpoint that can be verified, of the run's seed number `seed`, counted from 0.

    It is the best on validation data, where the latents are too many to be enumerated and one was judged by then; else
    the last model, or its average.
    """
    recipe = recipe_of(path)
    if not isinstance(recipe, GRBMSettings):
        raise ValueError(f"run: expected the run of a GRBM, got {path}, that of a deep model; use load_run")
    if not 0 <= seed < recipe.seeds:
        raise ValueError(f"seed: expected one of the {recipe.seeds} seeds of {path}, counted from 0, got {seed}")
    found = newest_checkpoint(Directory(path) / "checkpoints", refused)
    if found is None:
        raise ValueError(
            f"run: expected a whole checkpoint in {path / 'checkpoints'}, got none; "
            f"go on with 'vages train --resume {path}'"
        )
    selected = recipe.latents > MAX_ENUMERATED and has_selected(found, seed)
    prefix = "best/" if selected else "state/" if recipe.ema is None else "state/averages/"
    weights = [array for name, array in found.arrays.items() if name == f"{prefix}model/visible_bias"]
    if len(weights) != 1 or weights[0].ndim != 2:
        raise ValueError(f"{found.path}: expected a checkpoint of GRBMs, got one of something else; is it a run's?")
    parts = eqx.filter_eval_shape(parts_of(recipe, weights[0].shape[1]), jax.random.key(0))
    check_memory({"the models": recipe.seeds * shape_bytes(parts)}, f"is {found.path} a checkpoint of these settings?")
    template = Averages(*jax.tree.map(_zeros(recipe.seeds), parts))
    own = tuple(f"{prefix}{part}/" for part in Averages._fields)
    all_seeds = with_arrays(template, {k.removeprefix(prefix): v for k, v in found.arrays.items() if k.startswith(own)})
    model, posterior = one_seed(all_seeds, seed)
    about = found.about
    return GRBMRun(path, recipe, model, posterior, found.step, seed, about.get("data"), about.get("dataset"))


def _zeros(seeds: int) -> Callable[[Any], Any]:
    return lambda x: jnp.zeros((seeds, *x.shape), x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x
