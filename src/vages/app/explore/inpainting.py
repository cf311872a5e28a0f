"""Hiding part of an image with the mouse, and inpainting it."""

from functools import partial

import numpy as np
from jaxtyping import Bool
from nicegui import events, ui

from vages.app.explore.pictures import png_url, veil
from vages.app.explore.session import Visit, tell
from vages.app.explore.watching import Stage
from vages.app.runs.completions import HIDDEN, hidden_pixels

PRESETS = {"half": "Lower half", "left": "Left half", "center": "Center"}
assert set(PRESETS) == set(HIDDEN)


def inpainting(visit: Visit) -> None:
    """Lay out an image to paint on, and its completions."""
    shape = visit.playground.images.shape[1:]
    _, height, width = shape
    hidden = np.zeros((height, width), bool)
    seed, last = 0, None

    def cover() -> None:
        canvas.set_content(veil(hidden))

    def paint(event: events.MouseEventArguments) -> None:
        nonlocal last
        if event.type != "pointerdown" and not event.buttons:
            return
        here = event.image_x, event.image_y
        begin = here if event.type == "pointerdown" or last is None else last
        hidden[stroke(hidden.shape, begin, here, float(brush.value or 1))] = tool.value == "hide"
        last = here
        cover()

    def preset(name: str | None) -> None:
        hidden[:] = False if name is None else hidden_pixels(name, shape)[0]
        cover()

    async def another() -> None:
        canvas.set_source(png_url(visit.image))

    async def complete() -> None:
        nonlocal seed
        seed += 1
        if hidden.all() or not hidden.any():
            tell("Hide a part of the image first, but not all of it: paint on it, or use the buttons below it.")
            return
        await stage.play(partial(visit.playground.completed, visit.image, hidden.copy(), seed, visit.length))

    with ui.element("div").classes("side-by-side"):
        with ui.element("div").classes("painting"):
            # For the mouse only; the buttons below also work without one.
            with ui.element("div").props('role=img aria-label="The chosen image, to be painted on with the mouse"'):
                canvas = ui.interactive_image(
                    on_mouse=paint, events=["pointerdown", "pointermove"], size=(width, height), sanitize=False
                )
                canvas.classes("large canvas").props("aria-hidden=true")
            with ui.row().classes("buttons presets").props('role=group aria-label="Hidden part"'):
                for name, title in PRESETS.items():
                    ui.button(title, on_click=partial(preset, name)).props("flat dense no-caps")
                ui.button("Clear", on_click=partial(preset, None)).props("flat dense no-caps")
            tool = ui.radio({"hide": "Hide", "show": "Uncover"}, value="hide").props("inline dense")
            with ui.element("div").classes("slider"):
                ui.label("Brush").classes("name")
                brush = ui.slider(min=1, max=max(3, width // 3), step=1, value=max(1, width // 10))
                brush.props('aria-label="Size of the brush, in pixels"')
        with ui.element("div").classes("wide"):
            stage = Stage(visit, "Complete", "Completion")
            stage.controls.start.on_click(complete)
    visit.on_image(another)


def stroke(
    shape: tuple[int, int], begin: tuple[float, float], end: tuple[float, float], size: float
) -> Bool[np.ndarray, "height width"]:
    """Return the pixels that a square brush touches on the straight line between two points (x, y)."""
    height, width = shape
    steps = 2 + int(2 * max(abs(end[0] - begin[0]), abs(end[1] - begin[1])))  # a fast mouse leaves gaps
    x, y = np.linspace(begin, end, steps).T[:, None]
    across = np.abs(np.arange(width)[:, None] + 0.5 - x) <= size / 2
    down = np.abs(np.arange(height)[:, None] + 0.5 - y) <= size / 2
    return down.astype(np.float32) @ across.T.astype(np.float32) > 0
