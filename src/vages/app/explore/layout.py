"""Common parts of the pages of images and of rows: the heading, and panels under tabs."""

from collections.abc import Awaitable, Callable, Mapping
from html import escape
from pathlib import Path

from nicegui import events, ui

from vages.app.explore.worker_pool import Player

STYLE = Path(__file__).with_name("style.css")


def heading(name: str, about: str, player: Player) -> None:
    """Lay out the title and a line below it. The page's chain stops when the page is closed."""
    client = ui.context.client
    client.on_connect(player.come)
    client.on_disconnect(lambda: None if client.has_socket_connection else player.leave())
    ui.add_css(STYLE)
    with ui.element("header").classes("title"):
        ui.html(escape(name), tag="h1", sanitize=False)
        ui.label(about).classes("quiet")


def tabbed(panels: Mapping[str, Callable[[], object]], changed: Callable[[str], Awaitable[None]]) -> None:
    """Lay out panels under tabs, with the first one open; `changed` is called with the name of an opened panel."""

    async def change(event: events.ValueChangeEventArguments) -> None:
        await changed(event.value)

    # below a width of `breakpoint`, Quasar spreads the tabs over the whole line
    with ui.tabs().props("no-caps align=left breakpoint=0").classes("tabs") as tabs:
        names = {name: ui.tab(name) for name in panels}
    with ui.tab_panels(tabs, value=next(iter(panels)), on_change=change).props("keep-alive"):
        for name, panel in panels.items():
            with ui.tab_panel(name) as laid_out:
                panel()
            laid_out.props["aria-labelledby"] = names[name].html_id
            names[name].props["aria-controls"] = laid_out.html_id
