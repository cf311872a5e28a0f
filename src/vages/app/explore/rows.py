"""The page of a run whose examples are vectors: a plane of two coordinates, and panels."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from nicegui import ui

from vages.app.explore.layout import heading, tabbed
from vages.app.explore.plane import Drawing, nearest
from vages.app.explore.row_panels import completing, drawing, walking
from vages.app.explore.row_session import SHOWN, RowVisit
from vages.app.explore.worker_pool import Turns
from vages.app.runs.vectors import Vectors

_LEGEND = {
    "Draw": 'data, <span class="key drawn"></span> draws, <span class="key chain"></span> chains',
    "Complete": 'data, <span class="key drawn"></span> draws given the held coordinates',
    "Walk": 'data, <span class="key drawn"></span> draws between two rows',
}
_INDEPENDENT = 'data, <span class="key drawn"></span> draws'


def rows_page(vectors: Vectors, turns: Turns) -> None:
    """Lay out one visitor's page."""
    visit, run = RowVisit(vectors, turns), vectors.run
    latents = f"h {run.model.h!r}" if run.has_latents else "no latents"
    about = f"{run.told} · v {run.model.v!r}, {latents} · {run.weights}, checkpoint of step {run.step:,}"
    heading(run.path.resolve().name, about, visit.player)

    def told(panel: str) -> str:
        return _INDEPENDENT if panel == "Draw" and vectors.independent else _LEGEND[panel]

    def redraw() -> None:
        sheet.put_below(visit.below())
        sheet.put_above(visit.above())

    def moved() -> None:
        sheet.put_above(visit.above())

    async def chosen() -> None:
        caption.set_text(f"{vectors.source} row {visit.row}")
        moved()

    def clicked(x: float, y: float) -> Awaitable[None]:
        return visit.choose(nearest(visit.plane.place(vectors.rows[:SHOWN]), x, y))

    async def change(name: str) -> None:
        visit.player.stop()
        visit.panel, visit.frame = name, None
        legend.set_content(told(name))
        moved()

    def turn(which: str, event: Any) -> None:
        setattr(visit, which, event.value)
        redraw()

    with ui.element("div").classes("columns rows"):
        with ui.element("section").classes("seeing"):
            ui.html("Rows", tag="h2", sanitize=False)
            sheet = Drawing("Rows of the data and draws of the model, on a plane of two coordinates", clicked)
            with ui.element("figcaption"):
                with ui.element("span"):
                    ui.html('<span class="key data"></span>', tag="span", sanitize=False)
                    legend = ui.html(told(visit.panel), tag="span", sanitize=False)
            if visit.size > 2:
                names = dict(enumerate(vectors.names))
                with ui.element("div").classes("length"):
                    for title, which in (("Across", "x"), ("Up", "y")):
                        ui.label(title)
                        select = ui.select(names, value=getattr(visit, which), on_change=partial(turn, which))
                        select.props(f'dense borderless aria-label="Coordinate {title.lower()}"')
            if vectors.density is not None:
                _density_choice(visit, turn)
            with ui.row().classes("buttons chosen"):
                caption = ui.label(f"{vectors.source} row {visit.row}")
                ui.button("Another row", on_click=lambda: visit.choose(visit.any_row())).props("flat dense no-caps")
        visit.on_row(chosen)
        with ui.element("section").classes("doing"):
            panels = {"Draw": partial(drawing, visit, moved)}
            if visit.size > 1:
                panels["Complete"] = partial(completing, visit, moved)
            if run.has_latents:
                panels["Walk"] = partial(walking, visit, moved)
            tabbed(panels, change)
    redraw()


def _density_choice(visit: RowVisit, turn: Callable[[str, Any], None]) -> None:
    density = visit.vectors.density
    assert density is not None
    how = "latents summed or integrated out" if density.exact else "estimated with samples of the posterior"
    with ui.element("div").classes("length"):
        toggle = ui.toggle({False: "Density", True: "Log density"}, value=False, on_change=partial(turn, "as_log"))
        toggle.props('no-caps flat dense toggle-color=primary aria-label="Quantity shown by the color"')
        law = "normalized" if visit.vectors.run.model.normalized else "not normalized"
        ui.label(f"of the model, {law}: {how}").classes("quiet note")
