"""Your own examples, from .npy, .npz and .csv files. Nothing is unpickled."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Float32
from numpy.typing import DTypeLike

from vages.data.images import Labels
from vages.data.splits import Splits, split_rows
from vages.files import BadFile, read_csv, read_npy, read_npz
from vages.files.limits import MAX_ARRAY_BYTES, MAX_TABLE_BYTES

Item = TypeVar("Item")
_LABELS = ("labels", *(f"{name}_labels" for name in Splits._fields))


def load_array(path: str | Path) -> Float32[np.ndarray, "rows _ ..."]:
    """Read the only array of a .npy, .npz or .csv file, one example per row, as float32.

    Integers and booleans are converted without rescaling: pixels from 0 to 255 keep their values. All numbers must be
    finite in float32.
    """
    path = Path(path)
    arrays = read_arrays(path)
    if len(arrays) != 1:
        hint = "use load_splits" if set(arrays) == set(Splits._fields) else "save the array alone"
        raise ValueError(f"{path}: expected one array, got {list_of(arrays)}; {hint}")
    return as_examples(str(path), *arrays.values())


def load_splits(
    path: str | Path, seed: int, validation: float = 0.1, test: float = 0.1, *, dtype: DTypeLike = np.float32
) -> Splits:
    """Read the arrays `train`, `validation` and `test` of a .npz file, or split the only array of a file by `split`.

    Each array is read as by `load_array`. If the file has the three sets, `seed` and the fractions are not used. Arrays
    of labels (see `load_labels`) are ignored. With float64 as `dtype` the numbers are not rounded to float32, so that
    they can be standardized first.
    """
    path = Path(path)
    arrays = one_or_splits(path, read_arrays(path))
    if len(arrays) == 1:
        array = _checked(str(path), next(iter(arrays.values())), dtype)
        try:
            parts = split_rows(len(array), seed, validation, test)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return Splits(*(array[rows].astype(dtype, order="C", copy=False) for rows in parts))
    splits = Splits(*(as_examples(f"{path}, array {name!r}", arrays[name], dtype) for name in Splits._fields))
    shapes = [list(examples.shape[1:]) for examples in splits]
    if shapes.count(shapes[0]) != 3:
        raise ValueError(
            f"{path}: expected examples of one shape, got {shapes[0]} in train, {shapes[1]} in validation and "
            f"{shapes[2]} in test; reshape them"
        )
    return splits


def load_test_rows(path: str | Path, *, dtype: DTypeLike = np.float32) -> Float[np.ndarray, "rows _ ..."]:
    """Read all rows of a file's only array, or those of `test` if it has three sets. Labels are ignored."""
    path = Path(path)
    arrays = one_or_splits(path, read_arrays(path))
    name = "test" if len(arrays) == 3 else next(iter(arrays))
    return as_examples(f"{path}, array {name!r}" if name else str(path), arrays[name], dtype)


class NoLabels(ValueError):
    """Error for a file without labels."""


def load_labels(path: str | Path, seed: int, validation: float = 0.1, test: float = 0.1) -> Labels:
    """Read the labels in a .npz file, split like the examples by `load_splits`: a context for `Batch`.

    They are integers from 0, in an array `labels` with one for each example; in a file with three sets, in
    `train_labels`, `validation_labels` and `test_labels`.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"{path}: expected a .npz file, got a folder; load_images({str(path)!r}).labels has its classes"
        )
    return labels_among(read_arrays(path), path, seed, validation, test)


def labels_among(
    arrays: dict[str, np.ndarray], path: str | Path, seed: int, validation: float = 0.1, test: float = 0.1
) -> Labels:
    """Return the labels among the arrays of a file, as in `load_labels`. `path` is for errors."""
    found = {name: array for name, array in arrays.items() if name in _LABELS}
    rows = {name: len(array) for name, array in without_labels(arrays).items() if array.ndim}
    wanted = (
        {f"{name}_labels": rows[name] for name in rows} if len(rows) == 3 else {"labels": max(rows.values(), default=0)}
    )
    if set(found) != set(wanted):
        raise (ValueError if found else NoLabels)(
            f"{path}: expected labels in {list_of(wanted)}, got {list_of(found)}; save them beside the data"
        )
    for name, array in found.items():
        if fault := _fault(array, wanted[name]):
            raise ValueError(f"{path}, array {name!r}: expected {wanted[name]} whole numbers from 0, got {fault}")
    if len(found) == 3:
        return Labels(*(found[f"{name}_labels"].astype(np.int32) for name in Splits._fields))
    return Labels(
        *(found["labels"].astype(np.int32)[part] for part in split_rows(wanted["labels"], seed, validation, test))
    )


def one_or_splits(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a file except labels; raise unless they are one array or the three sets."""
    found = without_labels(arrays)
    if len(found) == 1 or set(found) == set(Splits._fields):
        return found
    classes = [name for name, array in found.items() if array.ndim == 1 and array.dtype.kind in "iu"]
    hint = f"rename {classes[0]!r} to 'labels'" if len(found) == 2 and len(classes) == 1 else "rename or remove"
    raise BadFile(
        f"{path}: expected one array beside 'labels', or the three {list_of(Splits._fields)}, got {list_of(arrays)}; "
        f"{hint}"
    )


def _fault(labels: np.ndarray, count: int) -> str | None:
    """Describe what is wrong with labels and what to do; None if they are valid."""
    if labels.ndim != 1:
        column = labels.size == len(labels) if labels.ndim else False
        return f"the shape {labels.shape}; save {'labels.ravel()' if column else 'one number for each example'}"
    if len(labels) != count:
        return f"{len(labels)}; save one label for each example"
    if labels.dtype.kind not in "iu":
        return f"{labels.dtype}; save them as integers, labels.astype(int) say"
    if labels.min(initial=0) < 0:
        return f"{labels.min()} in row {labels.argmin()}; number the classes from 0, and leave out what has no class"
    if labels.max(initial=0) >= 2**31:
        return f"{labels.max()} in row {labels.argmax()}; number the classes from 0 without gaps"
    return None


def without_labels(arrays: dict[str, Item]) -> dict[str, Item]:
    """Return the arrays of a file except labels."""
    return {name: array for name, array in arrays.items() if name not in _LABELS}


ENDINGS = (".npy", ".npz", ".csv")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file by name. The only array of a .npy or .csv file has the name ''."""
    match path.suffix.lower():
        case ".npy":
            return {"": read_npy(path, MAX_ARRAY_BYTES)}
        case ".npz":
            return read_npz(path, MAX_ARRAY_BYTES)
        case ".csv":
            return {"": read_csv(path, MAX_TABLE_BYTES)}
    raise ValueError(
        f"{path}: expected a name that ends in .npy, .npz or .csv, got {path.suffix or 'no ending'!r}; save the array "
        "with numpy.save"
    )


def as_examples(name: str, array: np.ndarray, dtype: DTypeLike = np.float32) -> np.ndarray:
    """Convert an array, one example per row, to `dtype`. It must be finite in float32. `name` is for the error."""
    return _checked(name, array, dtype).astype(dtype, order="C", copy=False)


def _checked(name: str, array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Return an array, finite in float32, in this dtype. Integers are not converted yet, to save memory."""
    if array.ndim < 2:
        raise ValueError(
            f"{name}: expected 2 dimensions or more, the first counting examples, got shape {array.shape}; "
            "reshape it, e.g. to (n, 1)"
        )
    if array.size == 0:
        raise ValueError(f"{name}: expected examples, got an empty array of shape {array.shape}; save it again")
    if array.dtype.kind in "biu":
        return array
    with np.errstate(over="ignore"):
        examples = array.astype(np.float32, order="C")
    finite = np.isfinite(examples)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name}: expected numbers that are finite in float32, got {array[where]} at {where} "
            f"({finite.size - int(finite.sum())} of {finite.size} entries); clean the data"
        )
    return examples if dtype == np.float32 else array.astype(dtype, order="C")


def list_of(names: Iterable[str]) -> str:
    """Format names for an error."""
    return ", ".join(map(repr, names)) or "none"
