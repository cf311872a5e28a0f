"""The page: an image on the left and up to three panels on the right; or the page of rows."""

from functools import partial
from math import prod

from nicegui import ui

from vages.app.explore.choosing import choosing
from vages.app.explore.inpainting import inpainting
from vages.app.explore.layout import heading, tabbed
from vages.app.explore.moving import moving
from vages.app.explore.rows import rows_page
from vages.app.explore.session import Visit
from vages.app.explore.watching import watching
from vages.app.explore.worker_pool import Turns
from vages.app.runs.playground import Playground
from vages.app.runs.vectors import Vectors


def page(ready: Playground | Vectors, turns: Turns) -> None:
    """Lay out one visitor's page."""
    if isinstance(ready, Vectors):
        rows_page(ready, turns)
    else:
        _images_page(ready, turns)


def _images_page(playground: Playground, turns: Turns) -> None:
    visit = Visit(playground, turns)
    run = playground.run
    latents = f"{prod(playground.model.h.shape)} latents" if run.has_latents else "no latents"
    about = f"{run.told} · {latents} · {run.weights}, checkpoint of step {run.step:,}"
    heading(run.path.resolve().name, about, visit.player)
    with ui.element("div").classes("columns"):
        choosing(visit)
        with ui.element("section").classes("doing"):
            panels = {"Move": moving} if run.has_latents else {}
            panels |= {"Draw" if run.recipe.flows else "Watch": watching, "Inpaint": inpainting}
            opened = {}
            visit.panel = next(iter(panels))

            async def change(name: str) -> None:
                visit.player.stop()
                visit.panel = name
                if (redraw := opened[name]) is not None:
                    await redraw()

            def lay_out(name: str) -> None:
                opened[name] = panels[name](visit)

            tabbed({name: partial(lay_out, name) for name in panels}, change)
