"""Training by a recipe, in memory or into a run's folder."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vages.app.recipes.examples import Examples
from vages.app.recipes.recipe import Recipe
from vages.app.recipes.trained import Trained
from vages.checks import check_kind, told
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.training import fit, make_seeds, one_seed, seed_keys
from vages.training.selection import weights_of


def train(
    recipe: Recipe, data: Examples | None = None, *, begin: tuple[EBLVM, Posterior] | None = None, **how: Any
) -> Trained:
    """Train every seed in one program. `how` is passed on to `fit`: folder, resume, guard, mesh, …

    `data` are those of the recipe, if they have been loaded already. `begin` are the model and posterior to start from,
    in place of new ones.
    """
    check_kind("recipe", recipe, Recipe, "a vages.Recipe", "for a preset, give vages.app.recipes.preset('board'), say")
    data = recipe.load() if data is None else data
    recipe = recipe.settled(data)
    if begin is not None:
        check_begin(recipe, data, begin)
    keys, models, posteriors = make_seeds(recipe.seeds, lambda key: recipe.make(key, data))
    if begin is not None:
        models, posteriors = _taken(begin, (models, posteriors))
    if not recipe.stacked:
        keys, models, posteriors = one_seed((keys, models, posteriors))
    settings = recipe.settings
    curve = min(500, max(10, settings.steps // 100))  # iterations between the hundred points of a curve
    chunk = curve if recipe.parts is None else recipe.parts.chunk
    if chunk is not None:
        how = {"chunk": chunk if recipe.evaluate is None else _dividing(recipe.evaluate_every, chunk), **how}
    if recipe.evaluate is not None:
        how |= {"maximize": recipe.maximize, "minimize": recipe.minimize, "evaluate_every": recipe.evaluate_every}
        how["evaluate"] = lambda state: _looked(recipe, recipe.evaluate, weights_of(state), data, "evaluation")
    source = data.source()
    stream = data.stream is not None
    fitted = fit(
        keys,
        models,
        posteriors,
        source if stream else jax.tree.map(_on_device, source),
        recipe.make_learner(),
        steps=settings.steps,
        batch=None if stream else settings.batch,
        **how,
    )
    tested = _looked(recipe, recipe.test, fitted, data, "test")
    plain = {name: np.asarray(value, np.float64) for name, value in tested.items()}
    return Trained(recipe, data, fitted.model, fitted.posterior, plain, fitted)


def _dividing(every: int, chunk: int) -> int:
    """Return the largest divisor of `every` between half of `chunk` and `chunk`, or `chunk` if there is none.

    With a divisor, all chunks have one length, and training is compiled once: each length is compiled separately.
    """
    return next((length for length in range(chunk, (chunk - 1) // 2, -1) if every % length == 0), chunk)


def check_evaluation(recipe: Recipe, data: Examples) -> None:
    """Call the `evaluate` of a user's recipe once, on a new model, and raise if it or its numbers are wrong."""
    if recipe.parts is not None or recipe.evaluate is None:
        return
    use = recipe.seeds[:1]
    _, models, posteriors = make_seeds(use, lambda key: recipe.make(key, data))
    model, posterior = one_seed((models, posteriors))
    key = seed_keys(use, "evaluation")[0]
    found = _numbers(recipe.evaluate(key, recipe.settings, model, posterior, data.of_seed(0)), "evaluate")
    for name, value in found.items():
        if np.shape(value) != () or np.asarray(value).dtype.kind not in "fiub":
            raise TypeError(f"evaluate: expected a number for {name!r}, got {told(value)}; return numbers by name")
    chosen = recipe.maximize or recipe.minimize
    if chosen is not None and chosen not in found:
        which, names = ("maximize" if recipe.maximize else "minimize"), ", ".join(map(str, found)) or "none"
        raise ValueError(f"{which}: expected a number of `evaluate`, which returns {names}, got {chosen!r}; choose one")


def check_begin(recipe: Recipe, data: Examples, begin: tuple[EBLVM, Posterior]) -> None:
    """Raise ValueError unless the model and posterior to start from have the structure and shapes of the recipe's."""
    fresh = eqx.filter_eval_shape(lambda key: recipe.settled(data).make(key, data), jax.random.key(0))
    own, other = (_shapes({"model": model, "posterior": posterior}) for model, posterior in (fresh, begin))
    for name in own | other:
        if own.get(name) != other.get(name):
            expected, got = (one.get(name, "no array") for one in (own, other))
            raise ValueError(
                f"from: expected {expected} for {name}, as in this recipe, got {got} in that run; change the settings "
                "that differ"
            )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    is_array = lambda x: eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x.shape for path, x in leaves}


def _taken(begin: Any, fresh: Any) -> Any:
    """Broadcast `begin` to all seeds."""
    own, structure = jax.tree.flatten(eqx.filter(fresh, eqx.is_array))
    other = jax.tree.leaves(eqx.filter(begin, eqx.is_array))
    arrays = [jnp.broadcast_to(y, x.shape) for x, y in zip(own, other, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, arrays), fresh)


def _on_device(array: Any) -> Any:
    return array if isinstance(array, np.memmap) else jnp.asarray(array)


def _looked(recipe: Recipe, look: Any, weights: Any, data: Examples, use: str) -> dict[str, Any]:
    """Return the numbers of an evaluation. Seeds of users' recipes are evaluated one after the other."""
    if look is None:
        return {}
    keys = seed_keys(recipe.seeds, use)
    model, posterior = weights.model, weights.posterior
    if recipe.parts is not None or not recipe.stacked:
        return _numbers(look(keys[0], recipe.settings, model, posterior, data), use)
    each = [
        _numbers(look(key, recipe.settings, *one_seed((model, posterior), i), data.of_seed(i)), use)
        for i, key in enumerate(keys)
    ]
    return {name: np.array([one[name] for one in each]) for name in each[0]}


def _numbers(found: Any, use: str) -> dict[str, Any]:
    """Return what an evaluation returned. Raise TypeError if it is not a dict."""
    if not isinstance(found, Mapping):
        raise TypeError(f"{use}: expected a dict of numbers by name, got {type(found).__name__}; return one")
    return dict(found)
