"""The order in which examples are visited, as a pure function of the seed and the iteration."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Int32


@dataclass(frozen=True)
class Batches:
    """Batches of `batch` rows out of `size`, from an endless stream of shuffled epochs.

    Epoch e is a permutation of the rows drawn from Philox with the key (seed, e). Iteration t takes the positions
    t·batch, …, (t + 1)·batch − 1 of the stream: a batch may straddle two epochs, so that all batches have the same
    size. There is no state between iterations, so a run that is resumed at iteration t sees the same batches (as long
    as NumPy's `Generator.permutation` does not change).
    """

    size: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.size < 2**31:
            raise ValueError(f"size: expected 1 to 2**31 - 1 rows, got {self.size}; rows are indexed by an int32")
        if not 1 <= self.batch <= self.size:
            raise ValueError(f"batch: expected 1 to {self.size} rows, those of the data, got {self.batch}; change it")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed: expected an integer from 0 to 2**64 - 1, got {self.seed}; choose another")

    def indices(self, step: int, steps: int) -> Int32[np.ndarray, "steps batch"]:
        """Return the rows of the iterations step, …, step + steps − 1, one iteration per row."""
        if step < 0 or steps < 0:
            raise ValueError(f"indices: expected step and steps of 0 or more, got {step} and {steps}; count from 0")
        start, stop = step * self.batch, (step + steps) * self.batch
        first, last = start // self.size, max(start, stop - 1) // self.size
        stream = np.concatenate(
            [
                self._epoch(epoch)[max(start - epoch * self.size, 0) : stop - epoch * self.size]
                for epoch in range(first, last + 1)
            ]
        )
        return stream.reshape(steps, self.batch)

    @cached_property
    def _epoch(self) -> Callable[[int], np.ndarray]:
        """The permutation of an epoch. Two are cached, for the next chunk or the same one again."""
        return lru_cache(maxsize=2)(lambda epoch: _permutation(self.size, self.seed, epoch))


def _permutation(size: int, seed: int, epoch: int) -> Int32[np.ndarray, "size"]:
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], np.uint64)))
    return generator.permutation(size).astype(np.int32)
