"""Sources of batches: an array, a memory-mapped array, a function of the step, or an iterator.

To the training loop, all of them are a `Source`: `part(start, stop)` returns rows, and the indices of those that each
iteration uses. For an array, these are all rows, which stay on the device; otherwise, the rows of these iterations.
"""

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vages.checks import (
    check_context,
    check_count,
    check_finite,
    check_numbers,
    check_own_context,
    finite_entries,
    struct_of,
    told,
)
from vages.data import Batches
from vages.objectives import Batch
from vages.training.digests import fingerprint, sampled_fingerprint
from vages.training.trees import key_bits

DEFAULT_BATCH = 100
_PART = 2**27  # bytes of batches that are copied to the device at a time


class EndOfData(ValueError):
    """Error for an iterator that has no more batches."""

    def __init__(self, made: int):
        super().__init__(f"data: expected more batches, got an end after {made}; give more, or repeat them")


class Source(ABC):
    """Batches of `batch` examples for one run, or for several seeds at once."""

    batch: int
    own_data = False  # whether the rows of a part have a leading axis of seeds
    most: int | None = None  # limit of iterations in a part

    examples: Any  # v of all examples, or of the first batch of a stream, for checks
    whole = True  # whether these are all examples

    @property
    @abstractmethod
    def one(self) -> Batch:
        """The shapes and dtypes of one batch."""

    @abstractmethod
    def part(self, start: int, stop: int) -> tuple[Batch, np.ndarray]:
        """Return rows, and the indices (seeds, iterations, batch) of those that iterations from start to stop use.

        There are fewer iterations if the data end earlier. Raise EndOfData if there are none.
        """

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return an identification of the data, as JSON."""

    def state(self) -> Any:
        """Return what a resumed run needs in addition to the number of iterations, as JSON."""
        return None

    def go_to(self, step: int, state: Any) -> None:  # noqa: B027
        """Continue after the batches of `step` iterations, with the `state` that was saved there, or None."""


def source_of(
    data: Any,
    batch: int | None,
    seeds: Sequence[int],
    many: bool,
    model: Any,
    posterior: Any = None,
    known: Any = None,
) -> Source:
    """Return the source for a user's data. Raise if they are not data, or do not fit the model's v or a context.

    `seeds` decide the order of an array's rows. With `many`, there is an axis of seeds, which an array may have too.
    `known` is the fingerprint of an array's v, if it is already known.
    """
    if batch is not None:
        check_count("batch", batch, 1, "give more")
    if not isinstance(data, Batch | Mapping | Sequence) and not hasattr(data, "shape"):
        if callable(data) and not isinstance(data, Iterator):
            return _Stream(_Function(data), batch, len(seeds), model, posterior)
        if isinstance(data, Iterable):
            return _Stream(_Iterated(iter(data)), batch, len(seeds), model, posterior)
    rows, v_shape = as_batch(data), tuple(model.v.shape)
    check_numbers("data", rows.v)
    own_rows = many and rows.v.ndim == len(v_shape) + 2
    if own_rows and len(rows.v) != len(seeds):
        raise ValueError(f"data: expected one set of rows per seed, {len(seeds)}, got {len(rows.v)}")
    if (found := tuple(rows.v.shape[1 + own_rows :])) != v_shape:
        raise ValueError(f"data: expected rows of the model's shape {v_shape}, got {found}; reshape them")
    size = rows.v.shape[int(own_rows)]
    if not size:
        raise ValueError(f"data: expected one row or more, got none in an array of shape {rows.v.shape}; add examples")
    check_context(rows.context, size, seeds=len(seeds) if own_rows else None)
    check_own_context(rows.context, model, posterior)
    order = [Batches(size, DEFAULT_BATCH if batch is None else batch, seed) for seed in seeds]
    if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(rows)):
        return _Mapped(rows, order, own_rows, many)
    return _InMemory(rows, order, own_rows, known)


def as_batch(data: Any) -> Batch:
    """Return a batch from a batch, an array v, or a mapping with v and the context."""
    if isinstance(data, Mapping):
        if "v" not in data:
            raise ValueError(f"data: expected examples named 'v' in a dict, got the names {told(list(data))}; rename")
        return Batch(data["v"], {name: array for name, array in data.items() if name != "v"} or None)
    if not isinstance(data, Batch) and not hasattr(data, "shape"):
        raise TypeError(
            f"data: expected an array, a Batch, a function of the step or an iterator, got {type(data).__name__}; wrap "
            "it in jnp.asarray"
        )
    return data if isinstance(data, Batch) else Batch(data)


class _InMemory(Source):
    """Rows that stay on the device, visited in shuffled epochs; with an axis of seeds if each has its own rows."""

    def __init__(self, rows: Batch, order: list[Batches], own_rows: bool, known: Any):
        check_finite("data", rows.v)
        for name, array in (rows.context or {}).items():
            check_finite(f"context[{name!r}]", array)
        self.rows, self.batch, self.own_data, self._order, self._known = rows, order[0].batch, own_rows, order, known
        self.examples = rows.v

    @property
    def one(self) -> Batch:
        return _one(self.rows, self.batch, 1 + self.own_data)

    def part(self, start: int, stop: int) -> tuple[Batch, np.ndarray]:
        return self.rows, np.stack([one.indices(start, stop - start) for one in self._order])

    def fingerprint(self) -> dict[str, Any]:
        return with_context(self._known or fingerprint(self.rows.v), self.rows.context, fingerprint)


class _Mapped(Source):
    """Rows of arrays on disk, in the same order. They may be larger than memory, as each part is read when needed."""

    def __init__(self, rows: Batch, order: list[Batches], own_rows: bool, many: bool):
        self.rows, self.batch, self.own_data, self._order, self._own_rows = rows, order[0].batch, many, order, own_rows
        self.most, self.examples = _most(self.one, len(order)), rows.v

    @property
    def one(self) -> Batch:
        return _one(self.rows, self.batch, 1 + self._own_rows)

    def part(self, start: int, stop: int) -> tuple[Batch, np.ndarray]:
        drawn = [self._read(i, one.indices(start, stop - start).reshape(-1)) for i, one in enumerate(self._order)]
        rows = jax.tree.map(lambda *x: np.stack(x), *drawn) if self.own_data else drawn[0]
        return rows, _numbers(len(drawn), stop - start, self.batch)

    def fingerprint(self) -> dict[str, Any]:
        return with_context(sampled_fingerprint(self.rows.v), self.rows.context, sampled_fingerprint)

    def _read(self, seed: int, numbers: np.ndarray) -> Batch:
        """Return these rows, after reading them in the order on disk and checking them."""
        order = np.argsort(numbers, kind="stable")
        back = np.argsort(order, kind="stable")
        take = lambda x: np.asarray((x[seed] if self._own_rows else x)[numbers[order]])[back]
        rows = jax.tree.map(take, self.rows)
        _check_numbers(rows, lambda row: f"row {numbers[row]}")
        return rows


class _Stream(Source):
    """Batches from a function or an iterator, the same for all seeds."""

    whole = False

    def __init__(self, reader: "_Function | _Iterated", batch: int | None, seeds: int, model: Any, posterior: Any):
        v_shape = tuple(model.v.shape)
        self._reader, self._seeds, self._parts = reader, seeds, (model, posterior)
        first = self._checked(reader.first(), 0)
        self.batch = len(first.v)
        if tuple(first.v.shape[1:]) != v_shape:
            raise ValueError(f"data: expected batches (n, *{v_shape}), as the model's v, got {first.v.shape}; reshape")
        if batch not in (None, self.batch):
            raise ValueError(f"batch: expected {self.batch}, the size of the data's batches, got {batch}; leave it out")
        self._one, self._first = jax.tree.map(struct_of, first), (_shapes(first), _told(first))
        self._fingerprint = with_context(fingerprint(first.v), first.context, fingerprint)
        self.most, self.examples = _most(self._one, 1), first.v

    @property
    def one(self) -> Batch:
        return self._one

    def part(self, start: int, stop: int) -> tuple[Batch, np.ndarray]:
        batches = list[Batch]()
        for step in range(start, stop):
            try:
                batches.append(self._checked(self._reader.read(step), step))
            except EndOfData:
                if not batches:
                    raise
                break
        rows = jax.tree.map(lambda *x: np.concatenate(x), *batches)
        return rows, _numbers(self._seeds, len(batches), self.batch)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the first batch, by which functions and iterators are identified."""
        return {"batches": self._reader.kind, **self._fingerprint}

    def state(self) -> Any:
        return self._reader.state()

    def go_to(self, step: int, state: Any) -> None:
        self._reader.go_to(step, state)

    def _checked(self, data: Any, step: int) -> Batch:
        batch = as_batch(data)
        check_numbers("data", batch.v)
        rows = jax.tree.map(_copied, batch)
        if rows.v.ndim == 0 or not len(rows.v):
            raise ValueError(f"data: expected batches of examples, got shape {rows.v.shape} at step {step}; add them")
        check_context(rows.context, len(rows.v))
        if step and _shapes(rows) != self._first[0]:
            raise ValueError(
                f"data: expected every batch to be like the first, {self._first[1]}, got {_told(rows)} at step {step}; "
                "make them alike, and leave a smaller last batch out"
            )
        check_own_context(rows.context, *self._parts)
        _check_numbers(rows, lambda row: f"example {row} of the batch at step {step}")
        return rows


def _copied(x: Any) -> np.ndarray:
    """Return the array on the host. NumPy arrays are copied: loaders may fill the same buffer with the next batch."""
    return np.asarray(x) if isinstance(x, jax.Array) else np.array(x)


class _Function:
    """Batches as a function of the step. A resumed run needs no other state."""

    kind = "function of the step"

    def __init__(self, function: Callable[[int], Any]):
        self.read = function

    def first(self) -> Any:
        return self.read(0)

    def state(self) -> None:
        return None

    def go_to(self, step: int, state: Any) -> None:
        """Do nothing, since there is no state."""


class _Iterated:
    """Batches from an iterator.

    If it has `get_state` and `set_state`, like Grain's iterators, a resumed run continues exactly. Otherwise, as many
    batches as were used are skipped, which is exact if a new iterator returns the same batches again. A run that
    recovers from divergence then continues with later batches.
    """

    kind = "iterator"

    def __init__(self, iterator: Iterator[Any]):
        self._iterator, self._made, self._waiting = iterator, 0, []
        self._keeps = hasattr(iterator, "get_state") and hasattr(iterator, "set_state")
        self._start = self._kept()

    def first(self) -> Any:
        batch = self._next()
        if self._keeps:
            self._set(self._start)
        else:
            self._waiting, self._made = [batch], 0
        return batch

    def read(self, step: int) -> Any:
        return self._next()

    def state(self) -> Any:
        return self._kept() if self._keeps else None

    def go_to(self, step: int, state: Any) -> None:
        if self._keeps:
            self._set(self._start if state is None else state)
            self._made = 0 if state is None else step
        while self._made < step:
            self._next()

    def _next(self) -> Any:
        try:
            batch = self._waiting.pop() if self._waiting else next(self._iterator)
        except StopIteration:
            raise EndOfData(self._made) from None
        self._made += 1
        return batch

    def _kept(self) -> Any:
        if not self._keeps:
            return None
        state: Any = self._iterator.get_state()  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(state, bytes):
            return {"bytes": base64.b64encode(state).decode()}
        try:
            return {"json": json.loads(json.dumps(state))}
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"data: expected get_state() to give bytes or JSON, got {type(state).__name__}: {error}; convert it"
            ) from None

    def _set(self, state: Any) -> None:
        told = base64.b64decode(state["bytes"]) if "bytes" in state else state["json"]
        self._iterator.set_state(told)  # pyright: ignore[reportAttributeAccessIssue]
        self._made = 0


def _shapes(rows: Batch) -> Any:
    return jax.tree.map(lambda x: (tuple(x.shape), np.dtype(x.dtype).name), rows)


def _one(rows: Batch, batch: int, drop: int) -> Batch:
    return jax.tree.map(lambda x: struct_of(x, batch, drop=drop), rows)


def _most(one: Batch, seeds: int) -> int:
    size = sum(prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(one))
    return max(1, _PART // max(1, seeds * size))


def _numbers(seeds: int, iterations: int, batch: int) -> np.ndarray:
    """Return the indices of the rows of a part, in order."""
    rows = np.arange(iterations * batch, dtype=np.int32).reshape(iterations, batch)
    return np.broadcast_to(rows, (seeds, *rows.shape))


def _check_numbers(rows: Batch, where: Callable[[int], str]) -> None:
    for name, array in {"data": rows.v, **{f"context[{k!r}]": x for k, x in (rows.context or {}).items()}}.items():
        if jnp.issubdtype(array.dtype, jnp.floating) and not (finite := finite_entries(array)).all():
            row = int(np.argwhere(~finite.reshape(len(array), -1).all(1))[0, 0])
            got, advice = "NaN or infinity", "clean the data"
            if np.isfinite(array[row]).all():
                got, advice = "numbers too large for float32", "standardize the data, or divide them by a constant"
            raise ValueError(f"{name}: expected finite numbers, got {got} in {where(row)}; {advice}")


def with_context(found: dict[str, Any], context: Any, of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return a fingerprint of v, extended by those of the context."""
    if context is None:
        return found
    return found | {"context": {name: of(key_bits(array)) for name, array in sorted(context.items())}}


def _told(batch: Batch) -> str:
    shapes = {"v": batch.v, **(batch.context or {})}
    return ", ".join(f"{name} {np.dtype(x.dtype).name}{list(x.shape)}" for name, x in shapes.items())
