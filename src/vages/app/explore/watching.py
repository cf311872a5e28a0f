"""Panel that shows chains as they run: four side by side, and moments of the first; or draws by Heun's method."""

from collections.abc import Callable
from functools import partial

import numpy as np
from nicegui import ui

from vages.app.explore.chain_controls import ChainControls
from vages.app.explore.pictures import picture, show
from vages.app.explore.session import Visit
from vages.app.runs.playground import TOGETHER
from vages.app.runs.watching import Chain, Flowed, Snapshot

PAUSE = 0.03  # seconds, so that chains of a small model can be seen
MOMENTS = 10


class Stage:
    """Controls and pictures of four chains, or of four draws by Heun's method."""

    def __init__(self, visit: Visit, start: str, alt: str):
        self._visit, self.controls = visit, ChainControls(visit.player, start)
        with ui.element("div").classes("quartet"):
            self._pictures = [picture(f"{alt} {i}") for i in range(1, TOGETHER + 1)]

    async def play(self, make: Callable[[], Chain | Flowed], also: Callable[[Snapshot], object] | None = None) -> None:
        """Show chains until they end, and how they ended."""
        self.controls.begin()
        last: Snapshot | None = None

        def shown(snapshot: Snapshot) -> None:
            nonlocal last
            last = snapshot
            heat = "" if snapshot.temperature is None else f", temperature {snapshot.temperature:.2f}"
            self.controls.at(snapshot.step, snapshot.steps, f"Step {snapshot.step:,} of {snapshot.steps:,}{heat}")
            for element, image in zip(self._pictures, snapshot.v, strict=True):
                show(element, image)
            if also is not None:
                also(snapshot)

        await self._visit.play(make, shown, PAUSE)
        if last is None:
            self.controls.end("")
        elif last.diverged.any():
            what = "draws" if self._visit.playground.run.recipe.flows else "chains"
            self.controls.end(f"{last.diverged.sum()} of {len(last.diverged)} {what} diverged (shown in magenta)")
        else:
            self.controls.end(f"{'Done after' if last.ended else 'Stopped after'} {last.step:,} steps")


def watching(visit: Visit) -> None:
    """Lay out chains given the image's latents, or with latents that are drawn too."""
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
        kinds = {"given": "h is the image's posterior mean", "joint": "h is drawn with the image"}
        given = ui.radio(kinds, value="given").props("inline dense")
    stage = Stage(visit, "Start", "Draw" if playground.run.recipe.flows else "Chain")
    stage.controls.start.on_click(start)
    if playground.run.recipe.flows:
        return  # draws are shown only when complete
    ui.label("Snapshots of the first chain").classes("subheading")
    with ui.element("div").classes("moments"):
        moments += [picture(f"Snapshot {i} of {MOMENTS}") for i in range(1, MOMENTS + 1)]
