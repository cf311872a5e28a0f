"""Opens runs for the commands, with their recipe file if they have one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from vages.app.recipes import Recipe
    from vages.app.runs import Run


class Own(NamedTuple):
    """The recipe given by --recipe, or None, and whether its file may have changed since the run was started."""

    recipe: "Recipe | None" = None
    changed: bool = False


@contextmanager
def opened(run: Path, recipe: str | None, changed: bool, **how: Any) -> "Iterator[Run]":
    """Load a run. Errors from the recipe file are reported with their line."""
    from vages.app.recipes.finding import blamed
    from vages.app.runs import load_run

    own = own_recipe(recipe, changed)
    with blamed(own):
        yield load_run(run, own, changed=changed, **how)


def own_recipe(recipe: str | None, changed: bool = False) -> "Recipe | None":
    """Return the recipe given by --recipe, or None."""
    if recipe is None:
        if changed:
            raise ValueError("recipe_changed: expected a recipe that has changed, got none; name it with --recipe FILE")
        return None
    from vages.app.recipes.finding import find_recipe

    return find_recipe(recipe)
