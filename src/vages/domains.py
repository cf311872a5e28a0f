"""Domains of the variables of a model.

    Real(10)              ten real numbers; Real(3, 32, 32) an image
    Binary(6)             six zeros and ones
    Categorical(2, 10)    two choices among ten, each a one-hot row
    Empty()               no variables: the h of a model without latents

Mixed latents are a dict of domains, `{"z": Real(4), "y": Categorical(1, 10)}`, and h is then a dict of arrays.

A domain says whether the variable has a gradient, and which states can be enumerated. For discrete domains, estimators
also accept relaxed values between 0 and 1, as drawn from a relaxed posterior; samplers and enumerated states are
exactly 0 or 1.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

MAX_STATES = 2**20  # enumerating these takes seconds; each further binary unit doubles the time


class Domain(ABC):
    """The set of values of a variable of one example: arrays of one shape, or dicts of them."""

    shape: Any  # of a value; a dict of shapes if values are dicts

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers a value has."""

    @property
    @abstractmethod
    def continuous(self) -> bool:
        """Whether the variable has a density, so that gradients in it are defined."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of states; None if there are infinitely many."""

    @abstractmethod
    def struct(self, dtype: Any, *lead: int) -> Any:
        """Return shapes and dtypes of values with the leading axes `lead`."""

    @abstractmethod
    def _state(self, numbers: Integer[Array, "n"]) -> Any:
        """Return the states with these indices, one per row."""

    @abstractmethod
    def _index(self, x: Any) -> Array:
        """See `index`."""

    @property
    def enumerable(self) -> bool:
        """Whether there are at most 2²⁰ states, so that they can be enumerated."""
        return self.count is not None and self.count <= MAX_STATES

    def states(self, dtype: Any = jnp.float32, numbers: Array | None = None) -> Any:
        """Return all states, one per row, or those with the indices `numbers`; ValueError unless `enumerable`."""
        self._check_enumerable()
        numbers = jnp.arange(self.count, dtype=jnp.uint32) if numbers is None else numbers
        return jax.tree.map(lambda x: x.astype(dtype), self._state(numbers.astype(jnp.uint32)))

    def index(self, x: Any) -> Integer[Array, ""]:
        """Return the row of a state in `states()`. A relaxed state is rounded."""
        self._check_enumerable()
        return self._index(jax.tree.map(jnp.asarray, x))

    def zeros(self, dtype: Any, *lead: int) -> Any:
        """Return a value of zeros with the leading axes `lead`."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.struct(dtype, *lead))

    def _check_enumerable(self) -> None:
        if not self.enumerable:
            counted = "real numbers" if self.count is None else f"{self.count:.3g}"
            raise ValueError(
                f"{self!r}: expected at most {MAX_STATES} states to enumerate, got {counted}; draw samples instead"
            )


def as_domain(domain: Any) -> Any:
    """Convert a dict of domains to a `Product`; return anything else unchanged."""
    return Product(domain) if isinstance(domain, Mapping) else domain


@dataclass(frozen=True, init=False, repr=False)
class _Arrays(Domain):
    """A domain of arrays of one shape."""

    shape: tuple[int, ...]

    def __init__(self, *shape: int):
        if not shape or not all(isinstance(size, int | np.integer) and size > 0 for size in shape):
            name = type(self).__name__
            raise ValueError(
                f"{name}: expected sizes of 1 or more, got {_listed(shape)}; write {name}(3) for a vector of three, "
                "and Empty() for no variables"
            )
        object.__setattr__(self, "shape", tuple(int(size) for size in shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_listed(self.shape)})"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def struct(self, dtype: Any, *lead: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*lead, *self.shape), dtype)


class Real(_Arrays):
    """Real numbers."""

    @property
    def continuous(self) -> bool:
        return True

    @property
    def count(self) -> None:
        return None

    def _state(self, numbers: Array) -> Array:
        raise ValueError(f"{self!r}: expected a discrete domain, whose states can be indexed, got real numbers")

    def _index(self, x: Array) -> Array:
        return self._state(x)


class Binary(_Arrays):
    """Zeros and ones."""

    @property
    def continuous(self) -> bool:
        return False

    @property
    def count(self) -> int:
        return 2**self.size

    def _state(self, numbers: Array) -> Array:
        return _digits(numbers, 2, self.size).reshape(-1, *self.shape)

    def _index(self, x: Array) -> Array:
        return _number(jnp.round(x).reshape(-1), 2)


class Categorical(_Arrays):
    """`n` choices among `k`, each a one-hot row: arrays of shape (n, k)."""

    def __init__(self, n: int, k: int):
        super().__init__(n, k)
        if k < 2:
            raise ValueError(f"Categorical: expected a choice among 2 or more, got {k}; Empty() is no choice")

    @property
    def continuous(self) -> bool:
        return False

    @property
    def count(self) -> int:
        n, k = self.shape
        return k**n

    def _state(self, numbers: Array) -> Array:
        n, k = self.shape
        return jax.nn.one_hot(_digits(numbers, k, n).astype(jnp.int32), k)

    def _index(self, x: Array) -> Array:
        return _number(jnp.argmax(x, axis=-1), self.shape[1])


class Empty(_Arrays):
    """No variables: the only state is empty."""

    def __init__(self):
        object.__setattr__(self, "shape", (0,))

    def __repr__(self) -> str:
        return "Empty()"

    @property
    def continuous(self) -> bool:
        return True

    @property
    def count(self) -> int:
        return 1

    def _state(self, numbers: Array) -> Array:
        return jnp.zeros((len(numbers), 0))

    def _index(self, x: Array) -> Array:
        return jnp.zeros((), jnp.uint32)


@dataclass(frozen=True, init=False, repr=False)
class Product(Domain):
    """Several named variables together: a value is a dict of arrays."""

    parts: tuple[tuple[str, Domain], ...]

    def __init__(self, parts: Mapping[str, Any]):
        for name in parts:
            if not isinstance(name, str):
                raise TypeError(f"domains: expected names in a dict of domains, got {name!r}; write {str(name)!r}, say")
        kept = tuple(sorted(parts.items()))
        for name, domain in kept:
            if not isinstance(domain, Domain) or isinstance(domain, Product | Empty):
                raise TypeError(
                    f"{name}: expected Real, Binary or Categorical in a dict of domains, got {domain!r}; "
                    "write {'z': Real(4), 'y': Binary(2)}, say"
                )
        if not kept:
            raise ValueError("domains: expected a dict with names, got an empty one; write Empty() for no variables")
        object.__setattr__(self, "parts", kept)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {domain!r}" for name, domain in self.parts) + "}"

    @property
    def shape(self) -> dict[str, tuple[int, ...]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {name: domain.shape for name, domain in self.parts}

    @property
    def size(self) -> int:
        return sum(domain.size for _, domain in self.parts)

    @property
    def continuous(self) -> bool:
        return all(domain.continuous for _, domain in self.parts)

    @property
    def count(self) -> int | None:
        counts = [domain.count for _, domain in self.parts]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    def struct(self, dtype: Any, *lead: int) -> dict[str, Any]:
        return {name: domain.struct(dtype, *lead) for name, domain in self.parts}

    def _state(self, numbers: Array) -> dict[str, Any]:
        states, place = {}, 1
        for name, domain in self.parts:
            assert domain.count is not None
            states[name] = domain._state(numbers // np.uint32(place) % np.uint32(domain.count))
            place *= domain.count
        return states

    def _index(self, x: dict[str, Any]) -> Array:
        index, place = jnp.zeros((), jnp.uint32), 1
        for name, domain in self.parts:
            index = index + domain._index(x[name]).astype(jnp.uint32) * np.uint32(place)
            place *= domain.count or 1
        return index


def _digits(numbers: Integer[Array, "n"], base: int, digits: int) -> Array:
    """Return the digits of each number in this base, one number per row; the first digit changes fastest."""
    return (numbers[:, None] // _places(base, digits)[None] % np.uint32(base)).astype(jnp.float32)


def _number(digits: Array, base: int) -> Integer[Array, ""]:
    return jnp.sum(digits.astype(jnp.uint32) * _places(base, len(digits)))


def _places(base: int, digits: int) -> np.ndarray:
    return (base ** np.arange(digits, dtype=np.uint64)).astype(np.uint32)


def _listed(shape: tuple[Any, ...]) -> str:
    return ", ".join(map(str, shape))
