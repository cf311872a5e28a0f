"""Panels of the page of rows: draws of the model, draws given held coordinates, and a walk between two rows."""

from collections.abc import Awaitable, Callable
from functools import partial

import numpy as np
from jaxtyping import Float
from nicegui import ui

from vages.app.explore.chain_controls import ChainControls
from vages.app.explore.row_session import RowVisit
from vages.app.explore.session import play, tell
from vages.app.report.page.markup import Markup, element, written
from vages.app.runs.vectors import Draws, Frame

SLIDERS = 24  # coordinates with a slider
COLUMNS = 8  # of a walk's table
PAUSE = 0.03  # seconds


class DrawsStage:
    """Controls of draws that are shown on the plane, and the sampler's warnings."""

    def __init__(self, visit: RowVisit, start: str, moved: Callable[[], None]):
        self._visit, self._moved, self.controls = visit, moved, ChainControls(visit.player, start)
        self._warned = ui.label("").classes("quiet note")

    async def play(self, make: Callable[[], Draws], done: Callable[[Frame], None]) -> None:
        """Show draws until they end; `done` is called with the last frame unless they were stopped."""
        visit, panel, last = self._visit, self._visit.panel, None
        self.controls.begin()

        def shown(frame: Frame) -> None:
            nonlocal last
            last = frame
            if visit.panel == panel:
                visit.frame = frame
                self._moved()
            self.controls.at(frame.step, frame.steps, frame.summary or f"Step {frame.step:,} of {frame.steps:,}")
            self._warned.set_text(" ".join(frame.warned))

        await play(visit.player, make, shown, PAUSE)
        if last is None:
            self.controls.end("")
        elif last.ended:
            self.controls.end(last.summary)
            done(last)
        else:
            self.controls.end(f"Stopped at step {last.step:,} of {last.steps:,}")


def drawing(visit: RowVisit, moved: Callable[[], None]) -> None:
    """Lay out draws from p(v, h), and mean and spread of each coordinate beside the data's."""
    seed = 0

    async def start() -> None:
        nonlocal seed
        seed += 1
        await stage.play(partial(visit.vectors.drawn, seed), done)

    def done(frame: Frame) -> None:
        table.set_content(spreads(visit, frame.drawn))

    stage = DrawsStage(visit, "Draw", moved)
    stage.controls.start.on_click(start)
    table = ui.html(spreads(visit, None), sanitize=False).classes("table")


def completing(visit: RowVisit, moved: Callable[[], None]) -> None:
    """Lay out held coordinates, each with a slider, and draws of the others."""
    vectors, shown = visit.vectors, min(visit.size, SLIDERS)
    seed, listening, ready = 0, True, False
    drawn: Float[np.ndarray, "n d"] | None = None

    def label(i: int) -> str:
        if visit.held[i] or drawn is None:
            return written(float(visit.values[i]), 3) if visit.held[i] else "drawn"
        return _spread(drawn[:, i])

    def fill() -> None:
        """Set all controls to the values, and ignore the events that this causes."""
        nonlocal listening
        listening = False
        for i, (box, slider, text) in enumerate(zip(boxes, sliders, texts, strict=True)):
            box.set_value(bool(visit.held[i]))
            slider.set_value(float(np.clip(visit.values[i], slider.props["min"], slider.props["max"])))
            slider.set_enabled(bool(visit.held[i]))
            text.set_text(label(i))
        listening = True

    async def start() -> None:
        nonlocal seed
        seed += 1
        if visit.held.all() or not visit.held.any():
            tell("Hold at least one coordinate, and leave at least one to be drawn.")
            return
        await stage.play(partial(vectors.completed, visit.values.copy(), visit.held.copy(), seed), done)

    def done(frame: Frame) -> None:
        nonlocal drawn, ready
        drawn, ready = frame.drawn, True
        fill()

    async def again() -> None:
        """Discard the draws after a change of a value or of the row."""
        nonlocal drawn
        drawn, visit.frame = None, None
        fill()
        moved()

    def hold(i: int, yes: bool) -> Awaitable[None] | None:
        if listening:
            visit.held[i] = yes
            return again()
        return None

    def slide(i: int, value: float) -> Awaitable[None] | None:
        if listening and visit.held[i]:
            visit.values[i] = value
            return redrawn()
        return None

    async def redrawn() -> None:
        await again()
        if ready:  # nothing has to be compiled
            await start()

    async def preset(count: int) -> None:
        visit.held[:] = np.arange(visit.size) < count
        await again()

    boxes, sliders, texts = [], [], []
    with ui.row().classes("buttons presets").props('role=group aria-label="Held coordinates"'):
        ui.button("Hold the first half", on_click=partial(preset, visit.size // 2)).props("flat dense no-caps")
        ui.button("Hold none", on_click=partial(preset, 0)).props("flat dense no-caps")
    with ui.element("div").classes("sliders held"):
        for i in range(shown):
            low, high = (0.0, 1.0) if vectors.discrete else vectors.ranges[i].tolist()
            name = vectors.names[i]
            with ui.element("div").classes("slider"):
                box = ui.checkbox(name, on_change=lambda event, i=i: hold(i, bool(event.value))).props("dense")
                box.props["aria-label"] = f"Hold {name}"
                step = 1.0 if vectors.discrete else (high - low) / 200
                slide_one = lambda event, i=i: slide(i, event.value)
                slider = ui.slider(min=low, max=high, step=step, value=low, on_change=slide_one)
                slider.props["aria-label"] = f"Value of {name}"
                boxes.append(box)
                sliders.append(slider.props("selection-color=transparent"))
                texts.append(ui.label().classes("value"))
    if shown < visit.size:
        ui.label(f"The first {shown} of {visit.size} coordinates are shown; the buttons apply to all.").classes(
            "quiet note"
        )
    stage = DrawsStage(visit, "Complete", moved)
    stage.controls.start.on_click(start)
    visit.on_row(again)
    fill()


def walking(visit: RowVisit, moved: Callable[[], None]) -> None:
    """Lay out a walk from the row to another one."""
    vectors, seed = visit.vectors, 0

    def ends() -> str:
        return f"From {vectors.source} row {visit.row} to row {visit.other}."

    async def another() -> None:
        visit.other = visit.any_row()
        await changed()

    async def changed() -> None:
        visit.frame = None
        told.set_text(ends())
        table.set_content("")
        moved()

    async def start() -> None:
        nonlocal seed
        seed += 1
        await stage.play(partial(vectors.walked, visit.row, visit.other, seed), done)

    def done(frame: Frame) -> None:
        table.set_content(stations(visit, frame.drawn))

    told = ui.label(ends())
    with ui.row().classes("buttons"):
        ui.button("Another end row", on_click=another).props("flat dense no-caps")
    stage = DrawsStage(visit, "Walk", moved)
    stage.controls.start.on_click(start)
    station = (
        "Each point is drawn from noise interpolated between that of the two rows."
        if vectors.independent
        else "Each point is a draw of v given h on the line between the posterior means."
    )
    ui.label(station).classes("quiet note")
    table = ui.html("", sanitize=False).classes("table")
    visit.on_row(changed)


def spreads(visit: RowVisit, drawn: Float[np.ndarray, "n d"] | None) -> Markup:
    """Return a table of mean and standard deviation of the first coordinates, for the data and for draws."""
    vectors, rows = visit.vectors, []
    for i in range(min(visit.size, SLIDERS)):
        cells = [_spread(vectors.rows[:, i]), "" if drawn is None else _spread(drawn[:, i])]
        rows.append([vectors.names[i], *cells])
    more = f"the first {SLIDERS} of {visit.size} coordinates" if visit.size > SLIDERS else "coordinate"
    return _table([more, f"{vectors.source} data", "draws"], rows)


def stations(visit: RowVisit, drawn: Float[np.ndarray, "n d"]) -> Markup:
    """Return a table of the draws of a walk, one in each row."""
    shares = np.linspace(0, 1, len(drawn))
    rows = [
        [f"{share:.2f}", *(written(float(x), 3) for x in row[:COLUMNS])]
        for share, row in zip(shares, drawn, strict=True)
    ]
    return _table(["fraction", *visit.vectors.names[:COLUMNS]], rows)


def _spread(values: Float[np.ndarray, "n"]) -> str:
    return f"{written(float(values.mean()), 3)} ± {written(float(values.std()), 2)}"


def _table(head: list[str], rows: list[list[str]]) -> Markup:
    first = element("tr", *(element("th", text, scope="col") for text in head))
    cells = lambda row: [element("th", row[0], scope="row"), *(element("td", text) for text in row[1:])]
    return element("table", element("thead", first), element("tbody", *(element("tr", *cells(row)) for row in rows)))
