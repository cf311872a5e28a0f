"""Shows chains as they run: four side by side, and moments of the first."""

from collections.abc import Callable
from functools import partial

import numpy as np
from nicegui import ui

from vages.app.explore.pictures import picture, show
from vages.app.explore.session import Visit
from vages.app.runs.playground import TOGETHER
from vages.app.runs.watching import Chain, Snapshot

PAUSE = 0.03  # seconds: a small model would otherwise be done before anything is seen
MOMENTS = 10


class Stage:
    """Buttons that start and stop, how far the chains are, and the pictures of all of them."""

    def __init__(self, visit: Visit, start: str, alt: str):
        self._visit = visit
        with ui.row().classes("buttons"):
            self.start = ui.button(start).props("unelevated no-caps")
            self.stop = ui.button("Stop", on_click=visit.player.stop).props("outline no-caps")
        self._bar = ui.linear_progress(0.0, show_value=False, size="4px")
        self._bar.props('aria-label="Steps done" instant-feedback')
        self._told = ui.label("").classes("told").props("role=status")
        with ui.element("div").classes("quartet"):
            self._pictures = [picture(f"{alt} {i}") for i in range(1, TOGETHER + 1)]
        self.stop.disable()

    async def play(self, make: Callable[[], Chain], also: Callable[[Snapshot], object] | None = None) -> None:
        """Show a chain until it ends, and say how it ended."""
        self.stop.enable()
        last: Snapshot | None = None

        def shown(snapshot: Snapshot) -> None:
            nonlocal last
            last = snapshot
            self._bar.set_value(snapshot.step / snapshot.steps)
            self._told.set_text(f"Step {snapshot.step:,} of {snapshot.steps:,}, temperature {snapshot.temperature:.2f}")
            for element, image in zip(self._pictures, snapshot.v, strict=True):
                show(element, image)
            if also is not None:
                also(snapshot)

        self._told.set_text("Compiling, where it was not done before…")
        await self._visit.play(make, shown, PAUSE)
        if not self._visit.player.playing:
            self.stop.disable()
        if last is None:
            self._told.set_text("")
        elif last.diverged.any():
            self._told.set_text(f"{last.diverged.sum()} of {len(last.diverged)} chains diverged: magenta")
        else:
            self._told.set_text(f"{'Done after' if last.ended else 'Stopped after'} {last.step:,} steps")


def watching(visit: Visit) -> None:
    """Chains given the image's latents, or with latents of their own."""
    playground = visit.playground
    seed = 0
    moments: list[ui.element] = []

    def remember(snapshot: Snapshot) -> None:
        due = int(np.floor(snapshot.step / snapshot.steps * (MOMENTS - 1)))
        for moment in moments[due:]:
            show(moment, snapshot.v[0])

    async def start() -> None:
        nonlocal seed
        seed += 1
        if visit.mean is not None and given is not None and given.value == "given":
            make = partial(playground.given, visit.mean, seed, visit.length, count=TOGETHER)
        else:
            make = partial(playground.joint, seed, visit.length)
        await stage.play(make, remember)

    given = None
    if playground.run.has_latents:
        kinds = {"given": "h is the image's posterior mean", "joint": "h is drawn too"}
        given = ui.radio(kinds, value="given").props("inline dense")
    stage = Stage(visit, "Start", "Chain")
    stage.start.on_click(start)
    ui.label("The first chain on its way").classes("subheading")
    with ui.element("div").classes("moments"):
        moments += [picture(f"Moment {i} of {MOMENTS}") for i in range(1, MOMENTS + 1)]
