"""Choosing an image from the dataset, or uploading one."""

from functools import partial

import numpy as np
from nicegui import events, ui

from vages.app.explore.pictures import picture, show
from vages.app.explore.security import LARGEST_FILE
from vages.app.explore.session import Visit, tell
from vages.app.runs.own_examples import fitted_image
from vages.app.runs.playground import Length
from vages.files import BadFile

SHOWN = 20
_TOO_LARGE = f"The file was refused: expected a PNG, JPEG or BMP image of at most {LARGEST_FILE // 1_000_000} MB."


def choosing(visit: Visit) -> None:
    """Lay out the chosen image, some others, and an upload button."""
    playground = visit.playground
    order = np.random.default_rng(0).permutation(len(playground.images))
    first, reading = 0, False

    async def choose(row: int) -> None:
        label = "" if playground.labels is None else f", class {playground.labels[row]}"
        await take(playground.images[row], f"{playground.source} image {row}{label}")

    async def take(image: np.ndarray, title: str) -> None:
        caption.set_text(title)
        chosen.props["alt"] = f"The chosen image: {title}"
        show(chosen, image)
        await visit.choose(image)

    def row_of(place: int) -> int:
        return int(order[(first + place) % len(order)])

    async def choose_shown(place: int) -> None:
        await choose(row_of(place))

    def fill() -> None:
        for place, (button, image) in enumerate(thumbnails):
            row = row_of(place)
            button.props["aria-label"] = f"Choose {playground.source} image {row}"
            show(image, playground.images[row])

    def others() -> None:
        nonlocal first
        first += SHOWN
        fill()

    async def brought(upload: events.UploadEventArguments) -> None:
        nonlocal reading
        if reading:
            return  # one file at a time, as the page sends them
        reading = True
        uploader.reset()
        try:
            content, name, shape = await upload.file.read(), upload.file.name, playground.images.shape[1:]
            image = await visit.turns.run(fitted_image, content, name, shape)
        except BadFile as error:
            tell(str(error))
            return
        finally:
            reading = False
        await take(image, upload.file.name)

    with ui.element("section").classes("choosing"):
        ui.html("Image", tag="h2", sanitize=False)
        with ui.element("div").classes("shelf"):
            with ui.element("figure"):
                chosen = picture("The chosen image").classes("large")
                with ui.element("figcaption"):
                    caption = ui.label()
            thumbnails = []
            with ui.element("div").classes("thumbnails"):
                for place in range(min(SHOWN, len(order))):
                    click = partial(choose_shown, place)
                    with ui.element("button").classes("thumbnail").on("click", click, args=[]) as button:
                        thumbnails.append((button, picture("")))
            fill()
        with ui.row().classes("buttons"):
            ui.button("Others", on_click=others).props("flat no-caps")
            ui.button("Upload", on_click=lambda: uploader.run_method("pickFiles")).props("flat no-caps")
        uploader = ui.upload(
            max_file_size=LARGEST_FILE, auto_upload=True, on_upload=brought, on_rejected=lambda: tell(_TOO_LARGE)
        )
        uploader.props('accept=".png,.jpg,.jpeg,.bmp" no-thumbnails').classes("hidden-uploader")
        uploader.on("failed", lambda: tell(_TOO_LARGE), args=[])
        lengths: dict[Length, str] = {name: f"{s.steps:,} steps" for name, s in playground.schedules.items()}
        with ui.element("div").classes("length"):
            flows = playground.run.recipe.flows
            ui.label("Draws in" if flows else "Chains of")
            toggle = ui.toggle(
                lengths, value=visit.length, on_change=lambda event: setattr(visit, "length", event.value)
            )
            toggle.props("no-caps flat dense toggle-color=primary")
            toggle.props["aria-label"] = "Number of steps of Heun's method" if flows else "Length of chains"
    ui.timer(0, partial(choose, int(order[0])), once=True)
