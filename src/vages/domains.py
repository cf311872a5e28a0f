"""What the variables of a model are.

    Real(10)              ten real numbers; Real(3, 32, 32) an image
    Binary(6)             six zeros and ones
    Categorical(2, 10)    two choices among ten, each a row of one 1 and nine 0
    Empty()               none: the latents of a model without latents

A domain says whether gradients in the variable mean something, and which states can be listed. Estimators take relaxed
values between 0 and 1 where a domain is discrete, as a relaxed posterior draws them; samplers and lists of states know
0 and 1 alone.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

MAX_STATES = 2**20  # a list of these takes seconds; each further binary unit doubles it


@dataclass(frozen=True, init=False, repr=False)
class Domain(ABC):
    """The values of one example's variable: arrays of one shape."""

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
        """How many numbers a value has."""
        return math.prod(self.shape)

    @property
    @abstractmethod
    def continuous(self) -> bool:
        """Whether the variable has a density, so that gradients in it mean something."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of states; None where there is no end to them."""

    @abstractmethod
    def _states(self) -> Array:
        """All states, one a row."""

    @property
    def enumerable(self) -> bool:
        """Whether its states can be listed, up to 2²⁰ of them."""
        return self.count is not None and self.count <= MAX_STATES

    def states(self, dtype: Any = jnp.float32) -> Float[Array, "states ..."]:
        """All states, one a row; ValueError where they are too many, or not to be counted."""
        if not self.enumerable:
            raise ValueError(f"{self!r}: expected at most {MAX_STATES} states to list, got {self._counted()}")
        return self._states().astype(dtype)

    def index(self, x: Array) -> Integer[Array, ""]:
        """The row of a state in `states()`; a relaxed one is rounded."""
        return self._index(jnp.asarray(x))

    @abstractmethod
    def _index(self, x: Array) -> Array:
        """See `index`."""

    def _counted(self) -> str:
        return "real numbers" if self.count is None else f"{self.count:.3g}"


class Real(Domain):
    """Real numbers."""

    @property
    def continuous(self) -> bool:
        return True

    @property
    def count(self) -> None:
        return None

    def _states(self) -> Array:
        raise NotImplementedError

    def _index(self, x: Array) -> Array:
        raise ValueError(f"{self!r}: expected a discrete domain, whose states have places, got real numbers")


class Binary(Domain):
    """Zeros and ones."""

    @property
    def continuous(self) -> bool:
        return False

    @property
    def count(self) -> int:
        return 2**self.size

    def _states(self) -> Array:
        return _digits(self.count, 2, self.size).reshape(-1, *self.shape)

    def _index(self, x: Array) -> Array:
        return _number(jnp.round(x).reshape(-1), 2)


class Categorical(Domain):
    """`n` choices among `k`, each a row of one 1 and zeros: arrays of shape (n, k)."""

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

    def _states(self) -> Array:
        n, k = self.shape
        return jax.nn.one_hot(_digits(self.count, k, n).astype(jnp.int32), k)

    def _index(self, x: Array) -> Array:
        return _number(jnp.argmax(x, axis=-1), self.shape[1])


class Empty(Domain):
    """No variables. Its one state is empty."""

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

    def _states(self) -> Array:
        return jnp.zeros((1, 0))

    def _index(self, x: Array) -> Array:
        return jnp.zeros((), jnp.uint32)


def _digits(count: int, base: int, digits: int) -> Float[Array, "states digits"]:
    """The numbers below `count`, one a row, as digits to this base; the first digit changes fastest."""
    numbers = jnp.arange(count, dtype=jnp.uint32)[:, None]
    return (numbers // _places(base, digits)[None] % np.uint32(base)).astype(jnp.float32)


def _number(digits: Array, base: int) -> Integer[Array, ""]:
    return jnp.sum(digits.astype(jnp.uint32) * _places(base, len(digits)))


def _places(base: int, digits: int) -> np.ndarray:
    return (base ** np.arange(digits, dtype=np.uint64)).astype(np.uint32)


def _listed(shape: tuple[Any, ...]) -> str:
    return ", ".join(map(str, shape))
