"""The page: an image on the left, three things to do with it on the right."""

from html import escape
from math import prod
from pathlib import Path

from nicegui import events, ui

from vages.app.explore.choosing import choosing
from vages.app.explore.inpainting import inpainting
from vages.app.explore.moving import moving
from vages.app.explore.session import Visit
from vages.app.explore.watching import watching
from vages.app.explore.worker_pool import Turns
from vages.app.runs.playground import Playground

STYLE = Path(__file__).with_name("style.css")


def page(playground: Playground, turns: Turns) -> None:
    """Lay out one visitor's page; its chain stops when the page is closed."""
    visit = Visit(playground, turns)
    client = ui.context.client
    client.on_connect(visit.player.come)
    client.on_disconnect(lambda: None if client.has_socket_connection else visit.player.leave())
    ui.add_css(STYLE)
    run = playground.run
    latents = f"{prod(playground.model.h.shape)} latents" if run.has_latents else "no latents"
    with ui.element("header").classes("title"):
        ui.html(escape(run.path.resolve().name), tag="h1", sanitize=False)
        about = (
            f"{run.settings.data} · {run.settings.method} · {latents} · {run.weights}, checkpoint of step {run.step:,}"
        )
        ui.label(about).classes("quiet")
    with ui.element("div").classes("columns"):
        choosing(visit)
        with ui.element("section").classes("doing"):
            panels = {"Move": moving} if run.has_latents else {}
            panels |= {"Watch": watching, "Inpaint": inpainting}
            opened = {}
            visit.panel = next(iter(panels))

            async def change(event: events.ValueChangeEventArguments) -> None:
                visit.player.stop()
                visit.panel = event.value
                if (redraw := opened[event.value]) is not None:
                    await redraw()

            with ui.tabs().props("no-caps align=left").classes("tabs") as tabs:
                for name in panels:
                    ui.tab(name)
            with ui.tab_panels(tabs, value=visit.panel, on_change=change).props("keep-alive"):
                for name, panel in panels.items():
                    with ui.tab_panel(name):
                        opened[name] = panel(visit)
