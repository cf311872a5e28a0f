"""Recipes in users' files: `my_energy.py`, or `my_energy.py:name`.

The file is executed: it is trusted like any program of the user's. A run folder records its name and SHA-256, but does
not cause it to be executed.
"""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from vages.app.recipes.recipe import Origin, Recipe
from vages.terminal import printable

DEFAULT = "recipe"
_LARGEST = 2**24  # bytes of a program
_FOUND: dict[tuple[Path, str, str], Recipe] = {}


class BadRecipe(ValueError):
    """A recipe that cannot be used. The message is one line, with the line number in the user's file if known."""


def is_recipe_file(text: str) -> bool:
    """Whether a word of the command line names a file with a recipe, rather than a preset."""
    return _divided(text)[0].suffix == ".py"


def find_recipe(text: str) -> Recipe:
    """Return the recipe in FILE.py or FILE.py:NAME. Any error of the file is raised as `BadRecipe`."""
    path, name = _divided(text)
    if not path.is_file():
        raise BadRecipe(f"recipe: expected a file, got {path}, which does not exist; check the path")
    content = path.read_bytes()
    if len(content) > _LARGEST:
        raise BadRecipe(
            f"recipe: expected a file of at most {_LARGEST:,} bytes, got {path} of {len(content):,}; check the path"
        )
    digest = hashlib.sha256(content).hexdigest()
    if (known := _FOUND.get((path.resolve(), name, digest))) is not None:  # a command asks twice, the file runs once
        return known
    with blamed(path, always=True):
        module = _run(path, content)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if isinstance(value, Recipe)]
        advice = f"write {path}:{own[0]}" if own else f"add `{name} = vages.Recipe(…)`"
        raise BadRecipe(f"recipe: expected the name {name!r} in {path}, got no such name; {advice}")
    found: Any = getattr(module, name)
    about = module.__doc__
    if callable(found):
        about = found.__doc__ or about
        with blamed(path, always=True):
            found = found()
    if not isinstance(found, Recipe):
        raise BadRecipe(
            f"recipe: expected {name!r} in {path} to be a vages.Recipe, or a function without arguments that returns "
            f"one, got {type(found).__name__}; write {name} = vages.Recipe(…)"
        )
    recipe = replace(found, origin=Origin(f"{path.name}:{name}", digest, path.resolve(), _first_paragraph(about)))
    _FOUND[path.resolve(), name, digest] = recipe
    return recipe


@contextmanager
def blamed(recipe: Recipe | Path | None, *, always: bool = False) -> Iterator[None]:
    """Convert errors from the file of a user's recipe to `BadRecipe` with their line; other errors are unchanged.

    With `always`, all errors are attributed to the file.
    """
    path = (
        recipe if isinstance(recipe, Path) else None if recipe is None or recipe.origin is None else recipe.origin.path
    )
    try:
        yield
    except BadRecipe:
        raise
    except SystemExit as error:
        if not always:
            raise
        raise BadRecipe(f"{path}: expected the recipe's code to run, got SystemExit; remove the exit") from error
    except Exception as error:
        line = None if path is None else _line(path, error)
        checked = isinstance(error, TypeError) and ": expected " in str(error)  # of what the file's functions return
        if path is None or (line is None and not checked and not always):
            raise
        raise BadRecipe(_told(f"{path}" if line is None else f"{path}, line {line}", error)) from error


def _line(path: Path, error: BaseException) -> int | None:
    """Return the line of the file that an error comes from, or None."""
    if isinstance(error, SyntaxError):
        return error.lineno
    same, cause = path.resolve(), error
    while cause is not None:  # an error of vages may have been caused by one in an energy
        frames = traceback.extract_tb(cause.__traceback__)
        if lines := [frame.lineno for frame in frames if Path(frame.filename).resolve() == same]:
            return lines[-1]
        cause = cause.__cause__ or cause.__context__
    return None


def _told(where: str, error: Exception) -> str:
    first = str(error).strip().splitlines()
    reason = printable(first[0])[:400] if first else ""
    if isinstance(error, ValueError | TypeError) and ": expected " in reason:  # errors of vages include advice
        return f"{where}: {reason}"
    return f"{where}: expected the recipe's code to run, got {type(error).__name__}: {reason or 'no message'}; fix it"


def _first_paragraph(text: str | None) -> str:
    return printable(" ".join((text or "").strip().partition("\n\n")[0].split()))[:500]


def _divided(text: str) -> tuple[Path, str]:
    head, colon, name = text.rpartition(":")
    if colon and head.endswith(".py") and name.isidentifier():
        return Path(head), name
    return Path(text), DEFAULT


def _run(path: Path, content: bytes) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))  # as `python my_energy.py` does
    exec(compile(content, str(path), "exec"), module.__dict__)
    return module
