"""The classes of a run's images: labels, names, and numbers of training images."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from vages.app.recipes import Examples
from vages.terminal import printable

_RECORDED = 1000  # classes that a run records, at most
_TOLD = 10  # classes that a message lists, at most

Classes = list[dict[str, Any]]  # for each class its label, its name if it has one, and its number of training images


def classes_of(data: Examples) -> Classes:
    """Return the classes that occur in any split; empty if the examples have no labels."""
    if data.labels is None:
        return []
    train, found = data.labels.train, np.unique(np.concatenate(data.labels))
    counts = dict(zip(*(x.tolist() for x in np.unique(train, return_counts=True)), strict=True))
    names = getattr(data.labels, "names", ())
    name = lambda label: {"name": printable(names[label])} if names else {}
    return [{"label": label, **name(label), "images": counts.get(label, 0)} for label in found.tolist()]


def class_record(data: Examples) -> dict[str, Classes]:
    """Return the classes as a run records them; empty if there are none or too many."""
    classes = classes_of(data)
    return {"classes": classes} if 0 < len(classes) <= _RECORDED else {}


def recorded_classes(dataset: dict[str, Any] | None) -> Classes:
    """Return the classes in the record of a run's data; empty for early runs and for invalid records."""
    found = (dataset or {}).get("classes")
    known = lambda one: isinstance(one, dict) and type(one.get("label")) is int and type(one.get("images")) is int
    return found if isinstance(found, list) and all(map(known, found)) else []


def told_classes(classes: Classes) -> str:
    """Return one line with the first classes, their numbers of training images, and the number of other classes."""
    told = (f"{told_class(one)}: {one['images']}" for one in classes)
    return f"training images of {len(classes)} classes: {_listed(told, len(classes))}"


def _listed(told: Iterable[str], count: int) -> str:
    return ", ".join(islice(told, _TOLD)) + (f" and {count - _TOLD} more" if count > _TOLD else "")


def told_class(one: dict[str, Any]) -> str:
    """Return the label of a class, and its name if it has one."""
    return f"{one['label']} ({one['name']})" if "name" in one else str(one["label"])


def untrained_problem(data: Examples, settings: Any) -> str | None:
    """Return a warning about classes that the model can be conditioned on but that have no training image, or None."""
    if "label" not in (data.context or {}) or not (classes := classes_of(data)):
        return None
    by_label = {one["label"]: one for one in classes}
    trained = {one["label"] for one in classes if one["images"]}
    count = max(max(by_label) + 1, getattr(settings, "classes", None) or 0)
    empty = count - len(trained)
    if not empty:
        return None
    told = (told_class(by_label.get(label, {"label": label})) for label in range(count) if label not in trained)
    return (
        f"{empty} of {count} classes have no training image: {_listed(told, empty)}; the model does not "
        "learn their labels; number the classes from 0 without gaps, or add images"
    )


def class_of(label: int, classes: Classes) -> dict[str, Any]:
    """Return the class with this label; an unknown class has no images."""
    return next((one for one in classes if one["label"] == label), {"label": label, "images": 0})


def label_of(given: str | int | None, classes: Classes) -> int | None:
    """Return the label of a class given by name or label. A text is a name first, as folders may be named 1, 2, 10."""
    if not isinstance(given, str):
        return given
    found = [one["label"] for one in classes if one.get("name") == printable(given)]
    if found:
        return found[0]
    try:
        return int(given)
    except ValueError:
        known = f"choose one of {_listed(map(told_class, classes), len(classes))}" if classes else "give its number"
        raise ValueError(f"label: expected the name or number of a class, got {given!r}; {known}") from None


def untrained_label(label: int | None, classes: Classes) -> list[str]:
    """Return a warning if no training image had this label; -1 stands for no label."""
    if label is None or label < 0 or not classes or class_of(label, classes)["images"]:
        return []
    return [
        f"no training image had the label {told_class(class_of(label, classes))}: the model has not learned this label"
    ]
