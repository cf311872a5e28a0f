"""Panel to move through the latents: bars of h, sliders for directions and single coordinates, and an image given h."""

import math
from collections.abc import Awaitable, Callable
from functools import partial

import numpy as np
from nicegui import ui

from vages.app.explore.pictures import picture, show
from vages.app.explore.session import Visit
from vages.app.runs.watching import Snapshot

FRAMES = 12  # few, as the next move of a slider comes soon
REACH = 4.0  # standard deviations to either side
LEGEND = 'bars are h, <span class="tick"></span> the posterior mean of the image'


def moving(visit: Visit) -> Callable[[], Awaitable[None]]:
    """Lay out the controls of h and the image given h; return the function that draws it again."""
    playground = visit.playground
    directions = playground.directions
    assert directions is not None
    size = math.prod(playground.model.h.shape)
    seed, single = 0, np.zeros(size, np.float32)
    listening, ready = True, False

    def latents() -> np.ndarray:
        assert visit.mean is not None
        amounts = np.asarray([slider.value for slider in sliders])
        return playground.moved(visit.mean, amounts) + single.reshape(playground.model.h.shape)

    async def draw() -> None:
        if visit.mean is None:
            return
        h = latents()
        chart.options["series"][0]["data"] = np.round(h.reshape(-1), 4).tolist()
        chart.options["series"][1]["data"] = np.round(visit.mean.reshape(-1), 4).tolist()
        chart.update()
        for slider, value in zip(sliders, values, strict=True):
            value.set_text(f"{slider.value:+.1f} sd")
        value_of_coordinate.set_text(f"{h.reshape(-1)[coordinate.value - 1]:+.2f}")
        if visit.panel != "Move":
            return  # not visible
        if not ready:
            told.set_text("compiling (only once)…")
        if not await visit.play(partial(playground.given, h, seed, visit.length, frames=FRAMES), shown):
            told.set_text("")

    def shown(snapshot: Snapshot) -> None:
        nonlocal ready
        ready = True
        show(drawn, snapshot.v[0])
        end = "a draw with this h at all noise levels" if playground.run.recipe.flows else "a draw from p(v | h)"
        told.set_text(end if snapshot.ended else f"step {snapshot.step:,} of {snapshot.steps:,}")

    async def turn() -> None:
        if visit.mean is not None:
            i = coordinate.value - 1
            amounts = np.asarray([slider.value for slider in sliders])
            single[i] = turned.value - playground.moved(visit.mean, amounts).reshape(-1)[i]
            await draw()

    def point() -> None:
        """Set the slider of the single coordinate to its value in h."""
        nonlocal listening
        if visit.mean is not None:
            listening = False
            turned.set_value(float(np.round(latents().reshape(-1)[coordinate.value - 1], 2)))
            listening = True

    async def moved() -> None:
        point()
        await draw()

    def heard(handler: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None] | None]:
        """Return a handler that ignores changes by the page itself, checked at once rather than when it is awaited."""
        return lambda: handler() if listening else None

    async def back() -> None:
        nonlocal listening
        listening = False
        single[:] = 0
        for slider in sliders:
            slider.set_value(0.0)
        listening = True
        await moved()

    async def other_noise() -> None:
        nonlocal seed
        seed += 1
        await draw()

    with ui.element("div").classes("side-by-side"):
        with ui.element("figure"):
            drawn = picture("An image drawn given these latents").classes("large")
            with ui.element("figcaption"):
                told = ui.label()
            with ui.row().classes("buttons"):
                ui.button("Reset", on_click=back).props("flat dense no-caps")
                ui.button("Other noise", on_click=other_noise).props("flat dense no-caps")
                ui.button("Stop", on_click=visit.player.stop).props("flat dense no-caps")
        with ui.element("figure").classes("wide"):
            with ui.element("div").props('role=img aria-label="Bars of the posterior mean and of h"'):
                chart = ui.echart(_bars(size), renderer="svg").classes("chart")
            with ui.element("figcaption"):
                ui.html(LEGEND, sanitize=False)
    ui.label("Principal directions of the training images").classes("subheading")
    sliders, values = [], []
    with ui.element("div").classes("sliders"):
        for i, share in enumerate(directions.shares, 1):
            with ui.element("div").classes("slider"):
                ui.label(f"{i}").classes("name")
                slider = ui.slider(min=-REACH, max=REACH, step=0.1, value=0.0, on_change=heard(moved))
                slider.props["aria-label"] = f"Direction {i}, {share:.0%} of the variance"
                sliders.append(slider.props("selection-color=transparent :markers=4"))
                values.append(ui.label("+0.0 sd").classes("value"))
                ui.label(f"{share:.0%}").classes("quiet share").tooltip("share of the variance of posterior means")
    ui.label("A single coordinate").classes("subheading")
    with ui.element("div").classes("slider single"):
        names = {i: f"h{i}" for i in range(1, size + 1)}
        coordinate = ui.select(names, value=1, on_change=moved).props('dense borderless aria-label="Coordinate"')
        reach = max(1, math.ceil(2 * directions.largest))
        turned = ui.slider(min=-reach, max=reach, step=reach / 100, value=0.0, on_change=heard(turn))
        turned.props(f'selection-color=transparent :markers={reach} aria-label="Value of the coordinate"')
        value_of_coordinate = ui.label("+0.00").classes("value")
    visit.on_image(back)
    return draw


def _bars(size: int) -> dict:
    """Return a chart with bars of h over its coordinates, and a tick for each coordinate of the mean."""
    return {
        "grid": {"left": 36, "right": 8, "top": 8, "bottom": 24},
        "animation": False,
        "xAxis": {
            "type": "category",
            "data": [str(i) for i in range(1, size + 1)],
            "axisTick": {"show": False},
            "axisLine": {"onZero": True},
            "axisLabel": {"hideOverlap": True},
        },
        "yAxis": {"type": "value", "splitNumber": 3, "splitLine": {"lineStyle": {"color": "#808080", "opacity": 0.2}}},
        "series": [
            {"name": "h", "type": "bar", "data": [], "itemStyle": {"color": "#2f8a93"}, "barWidth": "60%"},
            {
                "name": "posterior mean",
                "type": "scatter",
                "data": [],
                "symbol": "rect",
                "symbolSize": [max(4, 400 // (size + 4)), 3],
                "itemStyle": {"color": "#d9922e"},
            },
        ],
        "tooltip": {"trigger": "axis"},
    }
