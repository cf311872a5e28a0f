"""The state of one open page of rows, and what it shows on the plane."""

from collections.abc import Awaitable, Callable

import numpy as np

from vages.app.explore.plane import Plane, density_image, dots, lines, ring, rule
from vages.app.explore.worker_pool import Player, Turns
from vages.app.report.page.markup import Markup
from vages.app.runs.vectors import Frame, Vectors

SHOWN = 1000  # rows of the data on the plane


class RowVisit:
    """The coordinates that are shown, the row, the held coordinates, and the last draws."""

    def __init__(self, vectors: Vectors, turns: Turns):
        self.vectors, self.turns, self.player = vectors, turns, Player(turns)
        self.panel = "Draw"
        self.size = vectors.rows.shape[1]
        self.x, self.y = 0, 1 if self.size > 1 else None
        self.as_log = False
        self.row, self.other = 0, min(1, len(vectors.rows) - 1)
        self.values = vectors.rows[0].copy()
        self.held = np.arange(self.size) < 1
        self.frame: Frame | None = None
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._rng = np.random.default_rng(0)

    def on_row(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Register a function to be called whenever the row changes."""
        self._listeners.append(listener)

    async def choose(self, row: int) -> None:
        """Choose a row of the data."""
        self.player.stop()
        self.row, self.values, self.frame = row, self.vectors.rows[row].copy(), None
        for listener in self._listeners:
            await listener()

    def any_row(self) -> int:
        """Return the number of a random row."""
        return int(self._rng.integers(len(self.vectors.rows)))

    @property
    def plane(self) -> Plane:
        """The plane of the two coordinates."""
        return Plane(self.vectors.ranges, self.x, self.y, jitter=self.vectors.discrete)

    def below(self) -> list[Markup]:
        """Return the density, if there is one, the axes, and the data."""
        density = self.vectors.density
        picture = [] if density is None else [density_image(density.log, as_log=self.as_log)]
        rows = self.plane.place(self.vectors.rows[:SHOWN])
        return [*picture, dots(rows, "data"), self.plane.axes(self.vectors.names)]

    def above(self) -> list[Markup]:
        """Return the draws, the chains, the held coordinates, and the row."""
        plane, parts = self.plane, list[Markup]()
        one = lambda values: plane.place(np.asarray(values)[None])
        if self.panel == "Complete":
            if self.held[self.x]:
                parts.append(rule(one(self.values)[0, 0], across=True, kind="held"))
            if self.y is not None and self.held[self.y]:
                parts.append(rule(one(self.values)[0, 1], across=False, kind="held"))
        if self.frame is not None:
            drawn = plane.place(self.frame.drawn)
            parts += [lines([drawn], "walked")] if self.panel == "Walk" else []
            parts.append(dots(drawn, "large drawn" if self.panel == "Walk" else "drawn"))
            tails = [plane.place(tail) for tail in self.frame.tails]
            if tails and self.panel == "Draw":
                parts += [lines(tails, "chain"), dots(np.concatenate([tail[-1:] for tail in tails]), "large chain")]
        parts += [ring(one(self.values), "row")] if self.panel != "Draw" else []
        parts += [ring(one(self.vectors.rows[self.other]), "row")] if self.panel == "Walk" else []
        return parts
