"""The data that a run was trained on: found again from any folder, and told from other data by fingerprints.

A run records the fingerprint of each split, and of data in a file or folder where that was. `own_data` tries the places
in the order of `places`, and returns the first data with the recorded fingerprints; other data are refused.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from vages.app.recipes.deep import load_deep, training_parts
from vages.app.recipes.grbm import load_all_data
from vages.app.settings import DeepSettings, GRBMSettings
from vages.data import IMAGE_SETS, TOYS, Images, Splits, load_images
from vages.terminal import printable
from vages.training.digests import fingerprint

AnyRecipe = TypeVar("AnyRecipe", GRBMSettings, DeepSettings)
Data = TypeVar("Data")
Fingerprints = dict[str, dict[str, Any]]  # of each split by its name


@dataclass(frozen=True, eq=False)
class RunData(Generic[Data]):
    """Data that were read for a run, and whether they are its own, that is, those that it was trained on."""

    value: Data
    name: str
    own: bool
    fingerprints: Fingerprints

    def about(self) -> dict[str, Any]:
        """Plain values, for a result."""
        return {"name": printable(self.name), "own": self.own, **self.fingerprints}


def told_of_data(about: dict[str, Any]) -> str:
    """A line on the data that a run was evaluated on; `about` is that of `RunData`."""
    if about["own"]:
        return f"evaluated on the run's own data, {about['name']}"
    return f"evaluated on {about['name']}, not on the run's own data"


def read_grbm(recipe: GRBMSettings) -> tuple[Splits, Fingerprints]:
    """The data of all seeds (see `load_all_data`) and their fingerprints."""
    data = load_all_data(recipe)
    return data, _fingerprints(data, (data.train,))


def read_deep(recipe: DeepSettings) -> tuple[Images, Fingerprints]:
    """The images and their fingerprints; that of the training images has the mirror images in it."""
    images = load_deep(recipe)
    return images, _fingerprints(images.splits, training_parts(recipe, images))


def read_other_images(recipe: DeepSettings) -> tuple[Images, Fingerprints]:
    """The same for images that nothing is trained on: a batch may be larger."""
    images = load_images(recipe.data, seed=recipe.seed)
    return images, _fingerprints(images.splits, training_parts(recipe, images))


def dataset_record(recipe: GRBMSettings | DeepSettings, run: Path, fingerprints: Fingerprints) -> dict[str, Any]:
    """What a run records of its data. Sets that have a name have no path; it is looked for as $VAGES_DATA says."""
    if _has_name(recipe):
        return dict(fingerprints)
    path = os.path.abspath(recipe.data)
    from_run = os.path.relpath(os.path.realpath(path), os.path.realpath(run))
    found = {name: text for name, text in (("path", path), ("from_run", from_run)) if _can_be_kept(text)}
    return {**found, **fingerprints}


def data_digests(record: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of each split in what a run records of its data; where the data are does not matter."""
    return {name: record[name]["sha256"] for name in Splits._fields}


def own_data(
    run: Path,
    recipe: AnyRecipe,
    about: dict[str, Any],
    read: Callable[[AnyRecipe], tuple[Data, Fingerprints]],
    where: str | None = None,
) -> RunData[Data]:
    """The data that the run was trained on; `about` is what its checkpoint is about.

    `where` is the place of data that were moved. No other place is tried then.
    """
    expected = expected_fingerprints(about)
    if not expected:
        raise ValueError(
            f"{run}: expected a fingerprint of the data in its checkpoint, got none; 'vages evaluate {run} --data "
            "FILE' takes any data"
        )
    problem, advice = None, f"say where they are now with --data ('vages evaluate {run} --data FILE' takes others)"
    for place in places(run, recipe, about) if where is None else [where]:
        here = replace(recipe, data=place)
        if not _has_name(here) and not os.path.exists(place):
            raise ValueError(f"{place}: expected the data that {run} was trained on, got nothing there; {advice}")
        try:
            value, got = read(here)
        except (ValueError, OSError) as error:
            reason = str(error).split("; ")[0]
            problem = problem or (
                f"{place}: expected the data that {run} was trained on, got others or damaged ones ({reason}); {advice}"
            )
            continue
        wrong = [name for name, one in expected.items() if got[name] != one]
        if not wrong:
            return RunData(value, place, True, got)
        problem = problem or (
            f"{place}: expected the data that {run} was trained on, {_told(expected[wrong[0]])} for {wrong[0]}, got "
            f"others, {_told(got[wrong[0]])}; {advice}"
        )
    raise ValueError(problem)


def other_data(
    run: Path,
    recipe: AnyRecipe,
    about: dict[str, Any],
    read: Callable[[AnyRecipe], tuple[Data, Fingerprints]],
    name: str,
    shape: tuple[int, ...],
) -> RunData[Data]:
    """Data that somebody names, of examples of this shape, whether they are the run's own or not."""
    value, got = read(replace(recipe, data=name))
    example = tuple(got["train"]["shape"][-len(shape) :])
    if example != shape:
        raise ValueError(
            f"data: expected examples of the shape {shape} that the model of {run} has, got {example} in {name}; "
            "choose others"
        )
    expected = expected_fingerprints(about)
    return RunData(value, name, bool(expected) and all(got[key] == one for key, one in expected.items()), got)


def places(run: Path, recipe: GRBMSettings | DeepSettings, about: dict[str, Any]) -> list[str]:
    """Where a run's data may be, in the order in which they are tried.

    The name of a set; else the path where the data were, the same place as seen from the run's folder (of a project
    that was moved), and the path as it was given, from the current folder. Those where nothing is are left out, unless
    nothing is in any of them.
    """
    if _has_name(recipe):
        return [recipe.data]
    record = about.get("dataset")
    record = record if isinstance(record, dict) else {}
    path, from_run = record.get("path"), record.get("from_run")
    found = [path] if isinstance(path, str) else []
    found += [os.path.normpath(os.path.join(os.path.realpath(run), from_run))] if isinstance(from_run, str) else []
    found += [recipe.data]
    there = {os.path.abspath(one): None for one in found if os.path.exists(one)}
    return list(there) or found[:1]


def expected_fingerprints(about: dict[str, Any]) -> Fingerprints:
    """The fingerprints in what a checkpoint is about. Early runs have that of the training data alone."""
    record, train = about.get("dataset"), about.get("data")
    found = {name: record.get(name) for name in Splits._fields} if isinstance(record, dict) else {}
    if isinstance(train, dict):
        found["train"] = {name: one for name, one in train.items() if name != "position"}
    return {name: one for name, one in found.items() if isinstance(one, dict) and "sha256" in one}


def _fingerprints(splits: Splits, train: tuple[np.ndarray, ...]) -> Fingerprints:
    """All three at once: a digest is computed without Python's lock."""
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda parts: fingerprint(*parts), (train, (splits.validation,), (splits.test,)))
        return dict(zip(Splits._fields, found, strict=True))


def _has_name(recipe: GRBMSettings | DeepSettings) -> bool:
    return recipe.data in (IMAGE_SETS if isinstance(recipe, DeepSettings) else (*TOYS, "freyface"))


def _can_be_kept(text: str) -> bool:
    """Whether a file of JSON can hold a path: not where its bytes are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(one: dict[str, Any]) -> str:
    return f"{one.get('dtype')!s:.20}{one.get('shape')!s:.80} with SHA-256 {one.get('sha256')!s:.12}"
