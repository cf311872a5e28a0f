"""A walk through a model's latents: trajectories of chains, with one slider for h and one for time."""

import numpy as np
from jaxtyping import Float

from vages.app.report.images import sheet_image, tile
from vages.app.report.page.embedded import Picture
from vages.app.report.page.markup import Markup, element, embedded_json, written
from vages.app.report.trajectories import Trajectory

_PIXELS = 2**20  # of a sheet, at most
_CELLS = 24  # chains, and moments, at most


def walk_figure(
    trajectory: Trajectory, line: Float[np.ndarray, "chains"], steps: list[int], title: str, unit: str = " m"
) -> Markup:
    """Return a large picture and a sheet of images, whose rows are chains and whose columns are moments.

    Two sliders select the image of the sheet that is shown large. Without the script, and in print, only the sheet is
    shown. Large sheets omit intermediate chains and moments. `line` is the position of each chain on the line in h, in
    `unit`.
    """
    if trajectory.ndim not in (4, 5) or not trajectory.size:
        raise ValueError(f"trajectory: expected images by time and chain, got the shape {trajectory.shape}")
    if trajectory.shape[:2] != (len(steps), len(line)):
        raise ValueError(f"trajectory: expected {len(steps)} moments of {len(line)} chains, got {trajectory.shape[:2]}")
    height, width = trajectory.shape[-2:]
    side = max(1, min(_CELLS, int((_PIXELS / (height * width)) ** 0.5)))
    moments, chains = _spread(len(steps), side), _spread(len(line), side)
    images = trajectory[np.ix_(moments, chains)].swapaxes(0, 1)
    sheet = Picture.of(sheet_image(tile(images.reshape(-1, *images.shape[2:]), columns=len(moments), gap=0)))
    rows = [f"{written(float(line[i]), 3)}{unit}" for i in chains]
    columns = [written(int(steps[i])) for i in moments]
    alt = f"{len(rows)} rows of images, h from {rows[0]} to {rows[-1]}; {len(columns)} columns, from noise to the image"
    last = len(columns) - 1
    return element(
        "div",
        element(
            "div",
            element("div", class_="stage", role="img", aria_label=f"h = {rows[0]}, step {columns[last]}", hidden=True),
            _slider("h", "h", rows, 0),
            _slider("t", "step", columns, last),
            element(
                "div",
                element("button", "Play", type="button", data_play="t", aria_pressed="false"),
                element("button", "Walk", type="button", data_play="h", aria_pressed="false"),
                element("span", "through time, or through the latents", class_="note"),
                class_="buttons",
            ),
            class_="player",
        ),
        element(
            "div",
            element(
                "img",
                src=sheet.uri,
                alt=alt,
                width=sheet.width,
                height=sheet.height,
                class_="pixels sheet",
            ),
            element("div", class_="cursor", hidden=True, aria_hidden="true"),
            class_="plate sheet-plate",
        ),
        element(
            "p", f"Rows: h from {rows[0]} to {rows[-1]}. Columns: steps {columns[0]} to {columns[-1]}.", class_="note"
        ),
        element("script", embedded_json({"rows": rows, "columns": columns}), type="application/json"),
        class_="walk",
        role="group",
        aria_label=title,
        style=f"--ratio:{width}/{height};--rows:{len(rows)};--columns:{len(columns)}",
    )


def _slider(kind: str, name: str, labels: list[str], value: int) -> Markup:
    return element(
        "label",
        element("span", name, element("output", labels[value])),
        element(
            "input",
            type="range",
            min=0,
            max=len(labels) - 1,
            value=value,
            data_axis=kind,
            aria_valuetext=labels[value],
            aria_label="latents, h" if kind == "h" else "time, step of the sampler",
        ),
        class_="slide",
    )


def _spread(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the integers below `count`, evenly spaced, including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
