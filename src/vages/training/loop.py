"""Iterations on the device in compiled chunks, which are divided to limit memory and the delay of signals."""

import time
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from vages.training.cluster import check_same
from vages.training.devices import any_process, everywhere, here, place
from vages.training.learner import LearnerState
from vages.training.program import Chunk
from vages.training.signals import StopSignals
from vages.training.sources import EndOfData, Source

_LONG = 5.0  # seconds of compiled work, above which chunks are divided so that signals are handled
_MOST_PARTS = 64  # of a chunk; each doubling is another compilation


class Loop:
    """Run the iterations of a program on the batches of a source."""

    def __init__(self, program: Chunk, source: Source, mesh: Mesh | None, many: bool):
        self._program, self._source, self._mesh, self._many = program, source, mesh, many
        self._parts, self._lengths, self._compared = 1, set[int](), False
        self._rows: tuple[Any, Any] | None = None  # from the source, and on the devices
        self.ended = False  # whether the data have ended

    def advance(
        self, state: LearnerState, keys: Array, begin: int, end: int, stop: StopSignals
    ) -> tuple[LearnerState, dict[str, np.ndarray], int]:
        """Return the state after the iterations from begin to end, their metrics, and the last iteration made.

        It returns early if a signal came or the data ended.
        """
        made, slow, reached = list[dict[str, np.ndarray]](), False, begin
        for start, until in self._cut(begin, end):
            try:
                arguments, count = self._arguments(keys, start, until)
            except EndOfData:
                self.ended = True
                break
            if not self._compared:
                check_same(lambda: {"program": {"sha256": self._program.digest(state, *arguments)}})  # noqa: B023
                self._compared = True
            clock = time.perf_counter()
            state, metrics = self._program(state, *arguments)
            made.append({name: np.asarray(values, np.float64) for name, values in here(metrics).items()})
            reached = start + count
            # the first part of each length includes compilation, so it is not timed
            slow |= count in self._lengths and time.perf_counter() - clock > _LONG
            self._lengths.add(count)
            self.ended = reached < until
            if self.ended or (until < end and stop.in_any_process() is not None):
                break
        if self._parts < _MOST_PARTS and any_process(slow):
            self._parts *= 2
        metrics = {name: np.concatenate([part[name] for part in made], axis=-1) for name in made[0]} if made else {}
        return state, metrics, reached

    def _cut(self, start: int, end: int) -> list[tuple[int, int]]:
        """Divide iterations into nearly equal parts of two or more, since a single one costs as much as two."""
        parts = max(1, min(self._parts, (end - start) // 2))
        if self._source.most is not None:
            parts = max(parts, -(-(end - start) // self._source.most))
        cuts = [start + (end - start) * i // parts for i in range(parts + 1)]
        return list(pairwise(cuts))

    def _arguments(self, keys: Array, start: int, until: int) -> tuple[tuple[Any, ...], int]:
        """Return the arguments of the program, except for the state, and the number of iterations."""
        rows, indices = self._source.part(start, until)
        if self._rows is None or self._rows[0] is not rows:
            self._rows = rows, everywhere(jax.tree.map(jnp.asarray, rows), self._mesh)
        batch = () if self._mesh is None else self._mesh.axis_names
        arguments = (
            self._rows[1],
            place(indices if self._many else indices[0], self._mesh, PartitionSpec(*[None] * (1 + self._many), batch)),
            everywhere(keys if self._many else keys[0], self._mesh),
            everywhere(jnp.asarray(start, jnp.uint32), self._mesh),
        )
        return arguments, indices.shape[1]
