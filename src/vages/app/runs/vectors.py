"""Contents of `vages explore` for a run of vectors: rows, the density on the plane, draws and walks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32

from vages.app.report import Extent, grid_points
from vages.app.runs.draws import check_drawable, on_the_way, sampled
from vages.app.runs.loaded import Run
from vages.app.runs.playground import play_key
from vages.app.runs.watching import Stoppable
from vages.domains import Binary, Categorical
from vages.evaluation import log_density
from vages.samplers import Held, Heun, Samples

CHAINS = 16  # as in `vages.sample`
DRAWS = 1000
STATIONS = 9  # of a walk
_ROWS = 2000  # held-out rows, at most
_SIDE = 96  # cells on each side of the density's picture
_LATENT_DRAWS = 200  # for each cell, if h cannot be summed out
_FRAMES = 60
_TAIL = 12  # last steps of a chain that are shown


class Frame(NamedTuple):
    """The draws so far, and the last steps of each chain; the last frame has the sampler's summary and warnings."""

    step: int
    steps: int
    drawn: Float32[np.ndarray, "n d"]
    tails: Float32[np.ndarray, "chains t d"]
    summary: str = ""
    warned: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether this is the last frame."""
        return self.step == self.steps


class Draws(Stoppable):
    """Draws by `vages.sample`, shown step by step after its chains have run.

    The chains run when the first frame is requested.
    """

    def __init__(
        self,
        draw: Callable[[], tuple[Samples, list[str]]],
        frames: int = _FRAMES,
        in_units: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ):
        super().__init__()
        self._draw, self._frames, self._in_units = draw, frames, in_units

    def __iter__(self) -> Iterator[Frame]:
        if self.stopped:
            return
        samples, warned = self._draw()
        v = np.asarray(self._in_units(np.asarray(samples.v)), np.float32).reshape(samples.draws, -1)
        chains = _chains(samples, self._in_units)
        steps = len(v) if chains is None else chains.shape[1]
        for step in np.unique(np.linspace(1, steps, min(steps, self._frames)).astype(int)).tolist():
            if self.stopped:
                return
            known = v[: len(v) * step // steps]
            tails = v[:0, None] if chains is None else chains[:, max(0, step - _TAIL) : step]
            if step < steps:
                yield Frame(step, steps, known, tails)
            else:
                yield Frame(step, steps, known, tails[:, -1:], _summary(samples), tuple(warned))


class PlaneDensity(NamedTuple):
    """log p̃(v) on a grid, row by row from the bottom; and whether h is summed or integrated out exactly."""

    log: Float32[np.ndarray, "y x"]
    exact: bool


@dataclass(frozen=True, eq=False)
class Vectors:
    """A prepared run: `rows` are held-out examples as vectors, or training examples if there are none."""

    run: Run
    source: Literal["test", "train"]
    rows: Float32[np.ndarray, "n d"]
    names: tuple[str, ...]
    ranges: Float[np.ndarray, "d 2"]  # where most values of each coordinate lie
    density: PlaneDensity | None  # of points on the plane

    @property
    def discrete(self) -> bool:
        """Whether coordinates are zeros and ones."""
        return not self.run.model.v.continuous

    @property
    def independent(self) -> bool:
        """Whether draws are independent, by Heun's method, rather than those of chains."""
        return isinstance(self.run.recipe.make_sampler(), Heun)

    def drawn(self, seed: int) -> Draws:
        """Return draws from p(v, h)."""
        return self._draws(lambda: sampled(play_key(seed), self.run, DRAWS))

    def _draws(self, draw: Callable[[], tuple[Samples, list[str]]]) -> Draws:
        return Draws(draw, in_units=self.run.in_units)

    def _seen(self, rows: np.ndarray) -> np.ndarray:
        """Convert rows from the data's units to the model's scale."""
        return self.run.standardized(np.asarray(rows).reshape(-1, *self.run.model.v.shape))

    def completed(self, values: Float[np.ndarray, "d"], held: Bool[np.ndarray, "d"], seed: int) -> Draws:
        """Return draws of the other coordinates and of h, given those that are held at these values.

        Binary values are rounded; the entries of a categorical variable are held together.
        """
        domain = self.run.model.v
        known, mask = self._seen(values)[0], held.reshape(domain.shape)
        if isinstance(domain, Binary):
            known = np.rint(known)
        elif isinstance(domain, Categorical):
            known = np.eye(domain.shape[1], dtype=np.float32)[known.argmax(-1)]
            mask = np.broadcast_to(mask.any(-1, keepdims=True), mask.shape)
        if mask.all() or not mask.any():
            raise ValueError(f"held: expected some coordinates, got {'all' if mask.all() else 'none'}")
        where = Held(jnp.asarray(mask), jnp.asarray(known))
        return self._draws(lambda: sampled(play_key(seed), self.run, DRAWS, held=where))

    def walked(self, one: int, other: int, seed: int) -> Draws:
        """Return draws of v given h at points on the way from one row to another."""
        ends = self._seen(self.rows[[one, other]])
        along = np.linspace(0, 1, STATIONS, dtype=np.float32)
        return self._draws(lambda: on_the_way(play_key(seed), self.run, ends, along))


def vectors(run: Run) -> Vectors:
    """Read the run's held-out rows, and compute the model's density if they are points on the plane."""
    check_drawable(run, CHAINS * DRAWS)
    source, examples = run.held_out
    shape = run.model.v.shape
    rows = np.asarray(run.in_units(np.asarray(examples[:_ROWS])), np.float32).reshape(-1, int(np.prod(shape)))
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        raise ValueError(f"run: expected rows of finite numbers to show, got none in the {source} data of {run.path}")
    places = [",".join(map(str, place)) for place in np.ndindex(*shape)]
    ranges = ranges_of(rows)
    density = None
    if shape == (2,) and run.model.v.continuous:
        density = _density(run, (*ranges[0].tolist(), *ranges[1].tolist()))
    return Vectors(run, source, rows, tuple(f"v[{place}]" for place in places), ranges, density)


def ranges_of(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d 2"]:
    """Return the range of each coordinate: all but the outermost 0.2 % of its values, with a margin."""
    low, high = np.percentile(rows.astype(np.float64), (0.1, 99.9), axis=0)
    width = np.where(high > low, high - low, 1.0)
    return np.stack([low - 0.15 * width, high + 0.15 * width], axis=1)


def _density(run: Run, extent: Extent) -> PlaneDensity:
    points = grid_points(extent, _SIDE)
    points = jnp.asarray(run.standardized(points))
    found = eqx.filter_jit(log_density)(play_key(0), run.model, run.posterior, points, samples=_LATENT_DRAWS)
    log = np.asarray(found.value, np.float32) - np.float32(0.0 if run.units is None else run.units.log_volume)
    return PlaneDensity(log.reshape(_SIDE, _SIDE), bool(found.exact))


def _chains(
    samples: Samples, in_units: Callable[[np.ndarray], np.ndarray]
) -> Float32[np.ndarray, "chains steps d"] | None:
    """Return the chains of the draws; None if draws are independent, or if each has a chain of its own."""
    trace = None if samples.trace is None else samples.trace.get("v")
    if trace is None or np.ndim(trace) != 2 + np.ndim(samples.v) - 1:
        return None
    trace = np.asarray(in_units(np.asarray(trace)), np.float32)
    return trace.reshape(*trace.shape[:2], -1)


def _summary(samples: Samples) -> str:
    if not samples.rhat:
        return f"{samples.draws:,} independent draws"
    numbers = f"{samples.draws:,} draws, R̂ at most {samples.worst_rhat:.3f}"
    alone = np.ndim(samples.rhat["v"]) == np.ndim(samples.v) - 1
    return f"{numbers}, effective sample size at least {samples.least_ess:,.0f}" if alone else numbers
