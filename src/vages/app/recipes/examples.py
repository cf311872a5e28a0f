"""The training and held-out examples of a recipe."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vages.app.recipes.units import Units, in_units
from vages.checks import struct_of
from vages.data import Images, Labels, Splits, load_labels, load_splits
from vages.data.arrays import NoLabels
from vages.data.splits import split_rows
from vages.objectives import Batch
from vages.training.sources import as_batch

_FROM_STREAM = 10_000  # rows that represent a stream where examples are needed
_HELD_OUT = 10_000  # most rows of a memory-mapped array for validation, and for test


@dataclass(frozen=True, eq=False)
class Examples:
    """Three sets of examples, their labels, if any, and what is trained on, if that is not `splits.train`.

    **Arguments**

    - `splits`: (train, validation, test), with a leading axis of seeds where they are `per_seed`.
    - `labels`: classes of the examples, for a linear probe and pictures.
    - `context`: what the model is conditioned on: three arrays for each name.
    - `parts`: arrays that are trained on, concatenated, in place of `splits.train`.
    - `stream`: a function of the step or an iterator that is trained on; `splits.train` holds its first rows.
    - `units`: the units of the data, if examples are standardized.
    - `image`: (channels, height, width) of examples that are images in [0, 1] in the form of vectors.
    """

    splits: Splits
    labels: Labels | Splits | None = None
    context: Mapping[str, Splits] | None = None
    parts: tuple[np.ndarray, ...] = ()
    stream: Any = None
    stream_batch: Batch | None = None  # the shapes of its batches
    per_seed: bool = False
    image: tuple[int, int, int] | None = None
    units: Units | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.splits.train.shape[2 if self.per_seed else 1 :]

    @property
    def rows(self) -> int:
        """The number of training examples, without `parts`."""
        return self.splits.train.shape[1 if self.per_seed else 0]

    @property
    def trained(self) -> tuple[np.ndarray, ...]:
        """The arrays that are trained on."""
        return self.parts or (self.splits.train,)

    def source(self) -> Any:
        """Return the training data in the form that `fit` takes."""
        if self.stream is not None:
            return self.stream
        first, *others = self.trained
        v = np.concatenate([first, *others]) if others else first
        if self.context is None:
            return v
        times = len(self.trained)
        return Batch(v, {name: np.concatenate([part.train] * times) for name, part in self.context.items()})

    @property
    def log_volume(self) -> float:
        """log p in the model's units minus log p in the data's units."""
        return 0.0 if self.units is None else self.units.log_volume

    def in_units(self, v: Any) -> Any:
        """Convert numbers from the model's units to the data's."""
        return in_units(self.units, v)

    def standardized(self, units: Units | None) -> "Examples":
        """Return examples in the given units, or standardized to mean 0 and standard deviation 1."""
        if self.stream is not None or self.parts or isinstance(self.splits.train, np.memmap):
            raise ValueError(
                "standardize: expected an array in memory, got a stream, a memory-mapped array or several parts; "
                "standardize them where they are made"
            )
        units = Units.of(self.splits.train, per_seed=self.per_seed) if units is None else units
        if units.mean.shape != self.shape:
            raise ValueError(
                f"data: expected examples of the shape {units.mean.shape} that the run was standardized for, got "
                f"{self.shape}; choose others"
            )
        return replace(self, splits=Splits(*map(units.standardized, self.splits)), units=units)

    def of_seed(self, seed: int) -> "Examples":
        """Return the examples of one seed, counted from 0."""
        if not self.per_seed:
            return self
        return replace(self, splits=Splits(*(part[seed] for part in self.splits)), per_seed=False)


def as_examples(data: Any, seed: int, *, exact: bool = False) -> Examples:
    """Convert the data of a user's recipe.

    A single array is split: 80 % of its rows for training, 10 % for validation and 10 % for test. With `exact`, v in 64
    bits is not rounded to 32, which `Examples.standardized` does later.
    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, Images):
        return Examples(data.splits, data.labels)
    if isinstance(data, Splits):
        return Examples(Splits(*(_floats(part, exact) for part in data)))
    if isinstance(data, str | Path):
        return _of_file(Path(data), seed, exact)
    if isinstance(data, Iterator) or (callable(data) and not hasattr(data, "shape")):
        raise TypeError(
            f"data: expected a function that makes the stream, got {type(data).__name__} itself; write data=lambda "
            "settings: …, so that each command can start it from the beginning"
        )
    return _divided(as_batch(data), seed, exact)


def of_stream(make: Callable[[], Any]) -> Examples:
    """Convert a stream of batches. Its first rows represent the training examples; no examples are held out."""
    stream = make()
    each = make()
    batches: Iterator[Any] = map(each, count()) if callable(each) and not isinstance(each, Iterator) else iter(each)
    first = as_batch(next(batches, None))
    more = max(1, -(-_FROM_STREAM // max(1, len(first.v)))) - 1
    some = [first, *map(as_batch, islice(batches, more))]
    rows = jax.tree.map(lambda *x: np.concatenate([np.asarray(part) for part in x])[:_FROM_STREAM], *some)
    alone = lambda x: Splits(x, x[:0], x[:0])
    context = rows.context and {name: alone(x) for name, x in rows.context.items()}
    one = jax.tree.map(lambda x: struct_of(np.asarray(x)), first)
    return Examples(alone(rows.v), context=context, stream=stream, stream_batch=one)


def is_stream(data: Any) -> bool:
    """Whether `data` is a stream of batches."""
    known = Examples | Images | Splits | Batch | Mapping | str | Path
    return not isinstance(data, known) and not hasattr(data, "shape") and (callable(data) or hasattr(data, "__iter__"))


def _divided(batch: Batch, seed: int, exact: bool) -> Examples:
    """Split rows 80:10:10. The last rows of a memory-mapped array are held out, so that it is not read."""
    if np.ndim(batch.v) < 1 or np.asarray(batch.v[:1]).dtype.kind not in "fiub":
        raise TypeError("data: expected an array of numbers with a row for each example, got another; give (n, …)")
    rows = len(batch.v)
    if isinstance(batch.v, np.memmap):
        held_out = min(rows // 10, _HELD_OUT)
        ends = 0, rows - 2 * held_out, rows - held_out, rows
        cuts: Any = [slice(*pair) for pair in pairwise(ends)]
    else:
        cuts, batch = split_rows(rows, seed), jax.tree.map(np.asarray, batch)
    take = lambda array, exact=False: Splits(*(_floats(array[part], exact) for part in cuts))
    context = batch.context and {name: take(x) for name, x in batch.context.items()}
    return Examples(take(batch.v, exact), context=context)


def _of_file(path: Path, seed: int, exact: bool) -> Examples:
    splits = load_splits(path, seed, dtype=np.float64 if exact else np.float32)
    try:
        labels = load_labels(path, seed)
    except NoLabels:
        labels = None
    return Examples(splits, labels)


def placed(path: Path, beside: Path | None) -> Path:
    """Return the path of a recipe's data file: next to the recipe file if it exists there, else unchanged."""
    near = path if beside is None else beside / path
    return near if near.exists() else path


def _floats(array: Any, exact: bool = False) -> Any:
    """Convert numbers of 64 bits to 32 bits, unless `exact`. A memory-mapped array is returned unchanged."""
    if isinstance(array, np.memmap):
        return array
    array = np.asarray(array)
    if exact:
        return array
    narrow = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}.get(array.dtype.name)
    return array if narrow is None else array.astype(narrow)
