"""A GRBM's run come back from its folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from vages.data import Splits
from vages.learners import Averages
from vages.memory import check_memory, shape_bytes
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.posteriors import Posterior
from vages.recipes.recipe import Recipe, load_data, parts_of
from vages.runs.config import recipe_of
from vages.terminal import printable
from vages.training import one_seed
from vages.training.checkpoint import newest_checkpoint
from vages.training.keeping import has_selected
from vages.training.trees import with_arrays


@dataclass(frozen=True, eq=False)
class GRBMRun:
    """What a run had learnt at a step, of one of its seeds: the model that `train` would have reported."""

    path: Path
    recipe: Recipe
    model: GRBM
    posterior: Posterior
    step: int
    seed: int

    @cached_property
    def splits(self) -> Splits:
        """The seed's data, read when they are first asked for."""
        return load_data(self.recipe, self.recipe.seed + self.seed)


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
    if not isinstance(recipe, Recipe):
        raise ValueError(f"run: expected the run of a GRBM, got {path}, that of a deep model; use load_run")
    if not 0 <= seed < recipe.seeds:
        raise ValueError(f"seed: expected one of the {recipe.seeds} seeds of {path}, counted from 0, got {seed}")
    found = newest_checkpoint(path / "checkpoints", refused)
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
    return GRBMRun(path, recipe, model, posterior, found.step, seed)


def _zeros(seeds: int) -> Callable[[Any], Any]:
    return lambda x: jnp.zeros((seeds, *x.shape), x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x
