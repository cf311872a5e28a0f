"""A plane of two coordinates as SVG: the density, rows of the data, draws and chains."""

import base64
import io
from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Bool, Float, UInt8
from nicegui import events, ui
from PIL import Image

from vages.app.report.page.axes import Axis
from vages.app.report.page.markup import Markup, element, joined

SIZE = 500  # units of the drawing
LEFT, RIGHT, TOP, BOTTOM = 46, 494, 6, 462  # edges of the plane in it
_DECADES = 10.0  # nats below the highest log-density at which the color ends
_COLOR = (47, 138, 147)
_JITTER = np.random.default_rng(0).uniform(-0.18, 0.18, (4096, 2))  # of zeros and ones, which would overlap

Points = Float[np.ndarray, "n 2"]


class Plane:
    """Maps two coordinates to the drawing. Without a second coordinate, heights are random."""

    def __init__(self, ranges: Float[np.ndarray, "d 2"], x: int, y: int | None, *, jitter: bool = False):
        self.x, self.y, self._jitter = x, y, jitter
        self._across = Axis(*ranges[x].tolist())
        self._up = Axis(-1.0, 1.0) if y is None else Axis(*ranges[y].tolist())

    def place(self, rows: Float[np.ndarray, "n d"]) -> Points:
        """Return points in units of the drawing."""
        x = rows[:, self.x].astype(np.float64)
        y = 4 * _noise(len(rows), 0) if self.y is None else rows[:, self.y].astype(np.float64)
        if self._jitter:
            x, y = x + _noise(len(rows), 0), y + (0 if self.y is None else _noise(len(rows), 1))
        return np.stack([self.place_x(x), self.place_y(y)], axis=1)

    def place_x(self, values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return horizontal positions."""
        return LEFT + (RIGHT - LEFT) * self._across.place(values)

    def place_y(self, values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return vertical positions, from the top."""
        return BOTTOM - (BOTTOM - TOP) * self._up.place(values)

    def axes(self, names: tuple[str, ...]) -> Markup:
        """Return the frame, round numbers on both axes, and their names."""
        marks = [
            element("text", text, x=f"{LEFT + (RIGHT - LEFT) * at:.0f}", y=BOTTOM + 16, class_="across")
            for at, text in self._across.ticks(5)
        ]
        upward = [] if self.y is None else self._up.ticks(5)
        marks += [
            element("text", text, x=LEFT - 6, y=f"{BOTTOM - (BOTTOM - TOP) * at + 4:.0f}", class_="upward")
            for at, text in upward
        ]
        name_x = element("text", names[self.x], x=(LEFT + RIGHT) // 2, y=SIZE - 4, class_="across")
        middle = (TOP + BOTTOM) // 2
        turned = {"x": 10, "y": middle, "class_": "across", "transform": f"rotate(-90 10 {middle})"}
        name_y = "" if self.y is None else element("text", names[self.y], **turned)
        frame = element("rect", x=LEFT, y=TOP, width=RIGHT - LEFT, height=BOTTOM - TOP, class_="frame")
        return joined([frame, *marks, name_x, name_y])


def _noise(count: int, which: int) -> Float[np.ndarray, "n"]:
    return np.resize(_JITTER[:, which], count)


def dots(points: Points, kind: str) -> Markup:
    """Return one path with a dot for each point inside the frame."""
    seen = points[_inside(points)]
    return element("path", d="".join(f"M{x:.0f} {y:.0f}h0" for x, y in seen), class_=f"dots {kind}")


def lines(paths: Iterable[Points], kind: str) -> Markup:
    """Return a line through the points of each path that lie inside the frame."""
    joints = (" ".join(f"{x:.0f} {y:.0f}" for x, y in path[_inside(path)]) for path in paths)
    return element("path", d="".join(f"M{text}" for text in joints if text), class_=f"lines {kind}")


def ring(point: Points, kind: str) -> Markup:
    """Return a circle around one point."""
    if not _inside(point)[0]:
        return Markup("")
    x, y = point[0]
    return element("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=7, class_=f"ring {kind}")


def rule(at: float, *, across: bool, kind: str) -> Markup:
    """Return a line from edge to edge at the value of a held coordinate."""
    low, high = (TOP, BOTTOM) if across else (LEFT, RIGHT)
    ends = {"x1": at, "x2": at, "y1": low, "y2": high} if across else {"x1": low, "x2": high, "y1": at, "y2": at}
    return element("line", **{name: f"{value:.0f}" for name, value in ends.items()}, class_=f"rule {kind}")


def density_image(log: Float[np.ndarray, "y x"], *, as_log: bool) -> Markup:
    """Return the density, or its logarithm over ten nats, as the opacity of one color."""
    file = io.BytesIO()
    Image.fromarray(density_pixels(log, as_log=as_log), "RGBA").save(file, format="PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    place = {"x": LEFT, "y": TOP, "width": RIGHT - LEFT, "height": BOTTOM - TOP}
    return element("image", href=url, preserveAspectRatio="none", **place)


def density_pixels(log: Float[np.ndarray, "y x"], *, as_log: bool) -> UInt8[np.ndarray, "y x 4"]:
    """Return the pixels of `density_image`, rows from the top as in image files."""
    finite = np.where(np.isfinite(log), log, -np.inf)
    below = finite - (finite.max() if np.isfinite(finite.max()) else 0)
    strength = np.clip(1 + below / _DECADES, 0, 1) if as_log else np.exp(below)
    pixels = np.empty((*log.shape, 4), np.uint8)
    pixels[..., :3] = _COLOR
    pixels[..., 3] = np.rint(220 * strength)
    return pixels[::-1]


def nearest(points: Points, x: float, y: float) -> int:
    """Return the index of the point that is nearest to a position in the drawing."""
    return int(np.argmin(np.sum((points - [x, y]) ** 2, axis=1)))


class Drawing:
    """Two layers: a static one below, and a changing one above, which receives mouse events."""

    def __init__(self, alt: str, on_click: Callable[[float, float], object]):
        def clicked(event: events.MouseEventArguments) -> object:
            return on_click(event.image_x, event.image_y)  # may be an awaitable

        with ui.element("div").classes("plane").props("role=img") as self._box:
            self._below = ui.html("", sanitize=False)
            self._above = ui.interactive_image(
                on_mouse=clicked, events=["pointerdown"], size=(SIZE, SIZE), sanitize=False
            )
            self._above.props("aria-hidden=true")
        self._box.props["aria-label"] = alt

    def put_below(self, parts: Iterable[Markup]) -> None:
        """Draw the lower layer."""
        self._below.set_content(element("svg", joined(parts), viewBox=f"0 0 {SIZE} {SIZE}", aria_hidden="true"))

    def put_above(self, parts: Iterable[Markup]) -> None:
        """Draw the upper layer."""
        self._above.set_content(joined(parts))


def _inside(points: Points) -> Bool[np.ndarray, "n"]:
    with np.errstate(invalid="ignore"):
        x, y = points.T
        return (x >= LEFT) & (x <= RIGHT) & (y >= TOP) & (y <= BOTTOM)
