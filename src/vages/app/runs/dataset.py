"""The data that a run was trained on: found from any folder, and verified by fingerprints.

A run records the fingerprint of each split, and the path of data in a file or folder. `own_data` tries the candidates
in the order of `places`, and returns the first data with the recorded fingerprints; other data are refused.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.recipes import Examples, Recipe
from vages.app.runs.classes import classes_of, recorded_classes
from vages.data import Splits
from vages.storage.directory import Directory
from vages.terminal import printable
from vages.training.checkpoint import newest_about
from vages.training.digests import fingerprint, sampled_fingerprint
from vages.training.sources import with_context

Fingerprints = dict[str, dict[str, Any]]  # of each split, by name


@dataclass(frozen=True, eq=False)
class RunData:
    """Data that were read for a run; `own` says whether the run was trained on them."""

    value: Examples
    name: str
    own: bool
    fingerprints: Fingerprints

    def about(self) -> dict[str, Any]:
        """Return plain values for a result."""
        return {"name": printable(self.name), "own": self.own, **self.fingerprints}


def told_of_data(about: dict[str, Any]) -> str:
    """Return a line on the data that a run was evaluated on; `about` is that of `RunData`."""
    if about["own"]:
        return f"evaluated on the run's own data, {about['name']}"
    return f"evaluated on {about['name']}, not on the run's own data"


def read(recipe: Recipe, *, check: bool = True) -> tuple[Examples, Fingerprints]:
    """Return the data of a recipe and their fingerprints; that of the training data covers all of its parts."""
    data = recipe.load(check=check)
    return data, fingerprints(data)


def dataset_record(recipe: Recipe, run: Path, fingerprints: Fingerprints) -> dict[str, Any]:
    """Return what a run records about its data. Named datasets are found by $VAGES_DATA and have no path."""
    if recipe.is_named or recipe.place is None:
        return dict(fingerprints)
    path = os.path.abspath(recipe.place)
    from_run = os.path.relpath(os.path.realpath(path), os.path.realpath(run))
    found = {name: text for name, text in (("path", path), ("from_run", from_run)) if _can_be_kept(text)}
    return {**found, **fingerprints}


def recorded_dataset(run: Path, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of a run's data in its newest checkpoint, or else at its start, in its events; {} if none."""
    started = [event.get("dataset") for event in events if event.get("event") == "started"]
    about = newest_about(Directory(run) / "checkpoints") or {}
    found = about.get("dataset") or (started[-1] if started else None)
    return found if isinstance(found, dict) else {}


def data_digests(record: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each split in the record of a run's data, without its paths."""
    return {name: str(record[name].get("sha256")) for name in Splits._fields}


def own_data(run: Path, recipe: Recipe, about: dict[str, Any], where: str | None = None) -> RunData:
    """Return the data that the run was trained on; `about` is the metadata of its checkpoint.

    `where` is the location of data that were moved; no other is tried then. Fingerprints identify the data. Whether a
    new run could be trained on them was checked when the run was started.
    """
    expected = expected_fingerprints(about)
    if not expected:
        raise ValueError(
            f"{run}: expected a fingerprint of the data in its checkpoint, got none; 'vages evaluate {run} --data "
            "FILE' accepts any data"
        )
    problem, moved = None, f"give their new path with --data ('vages evaluate {run} --data FILE' accepts others)"
    advice = f"restore them, or {moved}"
    for place in places(run, recipe, about) if where is None else [where]:
        here, said = recipe if place is None else recipe.at(place), told_place(place, recipe)
        if place is not None and not here.is_named and not os.path.exists(place):
            raise ValueError(f"{place}: expected the data that {run} was trained on, got nothing at that path; {moved}")
        try:
            value, got = read(here, check=False)
        except (ValueError, OSError) as error:
            reason = str(error).split("; ")[0]
            problem = problem or (
                f"{said}: expected the data that {run} was trained on, got other or damaged data ({reason}); {advice}"
            )
            continue
        wrong = [name for name, one in expected.items() if not _same(got[name], one)]
        if not wrong:
            return RunData(value, said, True, got)
        before, now = (_told(found[wrong[0]]) for found in (expected, got))
        others = "others" if before != now else "the same with other labels"
        others += _other_classes(about.get("dataset"), value)
        problem = problem or (
            f"{said}: expected the data that {run} was trained on, {before} for {wrong[0]}, got {others}, {now}; "
            f"{advice}"
        )
    raise ValueError(problem)


def other_data(run: Path, recipe: Recipe, about: dict[str, Any], name: str, shape: tuple[int, ...]) -> RunData:
    """Return the named data, whose examples must have this shape; they may or may not be the run's own."""
    value, got = read(recipe.at(name), check=False)
    example = tuple(got["train"]["shape"][-len(shape) :])
    if example != shape:
        raise ValueError(
            f"data: expected examples of the shape {shape} that the model of {run} has, got {example} in {name}; "
            "choose others"
        )
    expected = expected_fingerprints(about)
    return RunData(value, name, bool(expected) and all(_same(got[key], one) for key, one in expected.items()), got)


def told_place(place: str | None, recipe: Recipe) -> str:
    """Return the name of the data in messages."""
    if place is not None:
        return place
    return "the data of the recipe" if recipe.origin is None else f"the data of {recipe.origin.name}"


def places(run: Path, recipe: Recipe, about: dict[str, Any]) -> list[str] | list[None]:
    """Return the candidates for the location of a run's data, in the order in which they are tried.

    These are the name of a dataset, or None for data that the recipe generates; else the recorded absolute path, the
    recorded path relative to the run's folder (for a project that was moved), and the path in the settings relative to
    the current folder. Paths that do not exist are left out; if none exists, the first one is returned.
    """
    if recipe.place is None:
        return [None]
    if recipe.is_named:
        return [recipe.place]
    record = about.get("dataset")
    record = record if isinstance(record, dict) else {}
    path, from_run = record.get("path"), record.get("from_run")
    found = [path] if isinstance(path, str) else []
    found += [os.path.normpath(os.path.join(os.path.realpath(run), from_run))] if isinstance(from_run, str) else []
    found += [recipe.place]
    there = {os.path.abspath(one): None for one in found if os.path.exists(one)}
    return list(there) or found[:1]


def expected_fingerprints(about: dict[str, Any]) -> Fingerprints:
    """Return the fingerprints in a checkpoint's metadata. Early runs have that of the training data only."""
    record, train = about.get("dataset"), about.get("data")
    found = {name: record.get(name) for name in Splits._fields} if isinstance(record, dict) else {}
    if isinstance(train, dict) and "batches" not in train:  # else the record is of a stream's first batch
        recorded = found.get("train")
        labels = {"labels": recorded["labels"]} if isinstance(recorded, dict) and "labels" in recorded else {}
        found["train"] = {name: one for name, one in train.items() if name != "position"} | labels
    return {name: one for name, one in found.items() if isinstance(one, dict) and "sha256" in one}


def fingerprints(data: Examples) -> Fingerprints:
    """Return the fingerprints of all splits, computed in threads; that of a stream covers its first rows."""
    parts = data.trained, (data.splits.validation,), (data.splits.test,)
    one = sampled_fingerprint if isinstance(data.splits.train, np.memmap) else fingerprint
    with ThreadPoolExecutor(3) as pool:
        found = dict(zip(Splits._fields, pool.map(lambda arrays: one(*arrays), parts), strict=True))
    if data.labels is not None:
        found = {name: about | {"labels": fingerprint(getattr(data.labels, name))} for name, about in found.items()}
    known = data.context
    if known is None:
        return found
    repeated = lambda part, name: np.concatenate([part] * len(data.trained)) if name == "train" else part
    context = lambda name: {key: repeated(getattr(splits, name), name) for key, splits in known.items()}
    return {name: with_context(about, context(name), one) for name, about in found.items()}


def _other_classes(record: Any, data: Examples) -> str:
    """Describe the first class (folder) that the recorded data have and the given data lack, and vice versa."""
    found = recorded_classes(record if isinstance(record, dict) else None), classes_of(data)
    before, now = (sorted({str(one["name"]) for one in classes if "name" in one}) for classes in found)
    gone, new = ([name for name in ours if name not in theirs][:1] for ours, theirs in ((before, now), (now, before)))
    told = [*(f"without the class {name!r:.80}" for name in gone), *(f"with the class {name!r:.80}" for name in new)]
    return f" {' and '.join(told)}" if before and told else ""


def _same(got: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a fingerprint is the expected one. Early runs have none for labels."""
    return {name: one for name, one in got.items() if name != "labels" or name in expected} == expected


def _can_be_kept(text: str) -> bool:
    """Whether a path can be stored in JSON, that is, encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(one: dict[str, Any]) -> str:
    return f"{one.get('dtype')!s:.20}{one.get('shape')!s:.80} with SHA-256 {one.get('sha256')!s:.12}"
