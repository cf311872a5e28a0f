"""Curves that can be read without a script; with one, the values are shown on hover, and the curves can be zoomed.

The lines are SVG in a square of 1000 units that is stretched to the available space; labels are HTML on top of it, so
that text is not stretched. To zoom, the script changes the square's viewBox; nothing is drawn again.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vages.app.report.page.axes import Axis, axis_of, drawable
from vages.app.report.page.markup import Markup, element, embedded_json, joined, number, written
from vages.app.report.page.thinning import thin

POINTS = 2000  # of a curve on the page, about
SEPARATE = 8  # seeds that are drawn as lines; more are drawn as a band
_SIDE = 1000


@dataclass(frozen=True, eq=False)
class Line:
    """Values along an axis, with one column for each seed."""

    name: str
    x: Float[np.ndarray, "n"]
    values: Float[np.ndarray, "n seeds"]


@dataclass(frozen=True, eq=False)
class Panel:
    """Lines over one axis; `ceiling` is the name and value of a reference line."""

    title: str
    x_label: str
    lines: tuple[Line, ...]
    ceiling: tuple[str, float] | None = None


@dataclass(frozen=True, eq=False)
class _Summary:
    """A line as it is shown: the mean over seeds, and their range."""

    name: str
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray


def curve_figure(panel: Panel) -> Markup:
    """Return the panel with its axes, its legend, a description in words, and the data for the script."""
    lines = [_summary(line, most=POINTS // max(1, len(panel.lines) // 2)) for line in panel.lines]
    ceiling = [] if panel.ceiling is None else [panel.ceiling[1]]
    x = axis_of(np.concatenate([line.x for line in lines]))
    y = axis_of(np.concatenate([*(np.r_[line.low, line.high] for line in lines), ceiling]), margin=0.05, may_log=True)
    steps = np.unique(np.concatenate([line.x for line in lines]))
    across = x.ticks(6) if len(steps) > 1 else [(0.5, written(float(step), 9)) for step in steps]
    several = len(lines) > 1
    drawing = element(
        "svg",
        joined(_drawn(line, i, x, y) for i, line in enumerate(lines)),
        _level(panel.ceiling[1], y) if panel.ceiling is not None else "",
        viewBox=f"0 0 {_SIDE} {_SIDE}",
        preserveAspectRatio="none",
        aria_hidden="true",
        focusable="false",
    )
    label = f"{panel.title} against {panel.x_label}, {len(steps)} points"
    surface = element(
        "div",
        drawing,
        class_="surface",
        tabindex="0",
        role="slider",
        aria_label=f"{label}. Arrow keys read the values, plus and minus zoom, 0 shows all.",
        aria_orientation="horizontal",
        aria_valuemin=0,
        aria_valuemax=max(0, len(steps) - 1),
        aria_valuenow=max(0, len(steps) - 1),
        aria_valuetext=_told_at_end(lines, panel.x_label),
    )
    legend = _legend(lines, panel.ceiling) if several or panel.ceiling else ""
    title = element("h3", panel.title)
    scale = element("span", "logarithmic scale", class_="note") if y.log else ""
    data = {
        "x": [x.low, x.high],
        "y": [y.low, y.high],
        "log": y.log,
        "label": panel.x_label,
        "lines": [_plain(line) for line in lines],
    }
    return element(
        "figure",
        element("div", title, scale, "" if several else legend, _buttons(panel.title), class_="head"),
        legend if several else "",
        element("div", _marks(y.ticks(5), "y"), _marks(across, "x"), surface, class_="plot"),
        element("p", panel.x_label, class_="axis"),
        element("figcaption", joined((_in_words(line, several) for line in lines), " ")),
        element("script", embedded_json(data), type="application/json"),
        class_="curve",
    )


def _summary(line: Line, most: int) -> _Summary:
    finite = drawable(line.values)
    counts = finite.sum(1)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.where(finite, line.values, 0).sum(1) / np.where(counts, counts, np.nan)
    low = np.where(counts > 0, np.where(finite, line.values, np.inf).min(1, initial=np.inf), np.nan)
    high = np.where(counts > 0, np.where(finite, line.values, -np.inf).max(1, initial=-np.inf), np.nan)
    values = np.where(finite, line.values, np.nan)
    seeds = values if 1 < values.shape[1] <= SEPARATE else values[:, :0]
    kept = thin(np.column_stack([mean, low, high, seeds] if line.values.shape[1] > 1 else [mean]), most)
    return _Summary(line.name, line.x[kept], mean[kept], low[kept], high[kept], values[kept])


def _drawn(line: _Summary, i: int, x: Axis, y: Axis) -> Markup:
    across = _SIDE * x.place(line.x)
    down = lambda values: _SIDE * (1 - y.place(values))
    count = line.seeds.shape[1]
    parts = []
    if count > SEPARATE:
        parts.append(_band(across, down(line.low), down(line.high)))
    elif count > 1:
        parts += [element("path", d=_path(across, down(seed)), class_="seed") for seed in line.seeds.T]
    alone = np.isfinite(line.mean).sum() == 1
    parts.append(element("path", d=_path(across, down(line.mean)), class_="line dot" if alone else "line"))
    return element("g", *parts, class_=_color(i))


def _path(across: np.ndarray, down: np.ndarray) -> str:
    """Return straight lines through the points; non-finite values leave gaps, and an isolated point is a dot."""
    pieces, pen = [], "M"
    for u, v in zip(across.tolist(), down.tolist(), strict=True):
        if not np.isfinite(v):
            pen = "M"
            continue
        pieces.append(f"{pen}{u:.2f} {v:.2f}" + ("h0" if pen == "M" else ""))
        pen = "L"
    return "".join(pieces)


def _band(across: np.ndarray, low: np.ndarray, high: np.ndarray) -> Markup:
    there = np.isfinite(low) & np.isfinite(high)
    if there.sum() == 1:
        whisker = f"M{across[there][0]:.2f} {high[there][0]:.2f}V{low[there][0]:.2f}"
        return element("path", d=whisker, class_="seed")
    edge = np.concatenate([np.c_[across, high][there], np.c_[across, low][there][::-1]])
    return element("path", d="M" + "L".join(f"{u:.2f} {v:.2f}" for u, v in edge) if len(edge) else "", class_="band")


def _level(value: float, y: Axis) -> Markup:
    at = _SIDE * (1 - float(y.place(np.array([value]))[0]))
    return element("path", d=f"M0 {at:.2f}H{_SIDE}", class_="ceiling") if np.isfinite(at) else Markup("")


def _marks(ticks: list[tuple[float, str]], which: str) -> Markup:
    side = "left" if which == "x" else "bottom"
    marks = (element("span", element("b", text), style=f"{side}:{100 * at:.3f}%") for at, text in ticks)
    return element("div", *marks, class_=f"{which}-marks", aria_hidden="true")


def _legend(lines: list[_Summary], ceiling: tuple[str, float] | None) -> Markup:
    named = lines if len(lines) > 1 else []
    entries = [element("li", element("i", class_=_color(i)), line.name) for i, line in enumerate(named)]
    if ceiling is not None:
        entries.append(element("li", element("i", class_="ceiling"), ceiling[0]))
    return element("ul", *entries, class_="legend")


def _buttons(title: str) -> Markup:
    names = {"in": ("+", "Zoom in"), "out": ("\N{MINUS SIGN}", "Zoom out"), "all": ("All", "Show all of")}
    buttons = (
        element("button", sign, type="button", data_zoom=key, aria_label=f"{told}, {title}", title=told)
        for key, (sign, told) in names.items()
    )
    return element("span", *buttons, class_="zoom")


def _in_words(line: _Summary, several: bool) -> Markup:
    """Return a description of the curve: its last, lowest and highest values."""
    finite = np.isfinite(line.mean)
    name = f"{line.name}: " if several else ""
    if not finite.any():
        return element("span", f"{name}no finite values.")
    steps, mean = line.x[finite], line.mean[finite]
    low, high = int(mean.argmin()), int(mean.argmax())
    count = line.seeds.shape[1]
    if len(line.x) == 1:
        spread = f", the mean of {count} seeds" if count > 1 else ""
        return element(
            "span", name or "Only value: ", number(float(mean[0])), f" at {written(float(steps[0]), 9)}{spread}."
        )
    drawn = (
        ""
        if count == 1
        else f" Means of {count} seeds; "
        + ("the band is their range." if count > SEPARATE else "thin lines are the seeds.")
    )
    at = lambda i: joined([number(float(mean[i])), f" at {written(float(steps[i]), 9)}"])
    gaps = "" if finite.all() else f" {int((~finite).sum())} values are not finite, or too large."
    return element(
        "span",
        f"{name}last " if several else "Last ",
        at(-1),
        ", lowest ",
        at(low),
        ", highest ",
        at(high),
        ".",
        drawn,
        gaps,
    )


def _told_at_end(lines: list[_Summary], x_label: str) -> str:
    last = [(line.name, line.x[-1], line.mean[-1]) for line in lines if len(line.x)]
    if not last:
        return "no values"
    told = ", ".join(f"{name} {written(float(value))}" for name, _, value in last)
    return f"{x_label} {written(float(last[0][1]), 9)}: {told}"


def _plain(line: _Summary) -> dict[str, object]:
    told: dict[str, object] = {"name": line.name, "x": _numbers(line.x), "y": _numbers(line.mean)}
    if line.seeds.shape[1] > 1:
        told |= {"low": _numbers(line.low), "high": _numbers(line.high), "seeds": line.seeds.shape[1]}
    return told


def _numbers(values: np.ndarray) -> list[float | int | None]:
    """Round to seven digits, the precision of float32; non-finite values become None."""
    short = [float(f"{value:.7g}") if np.isfinite(value) else None for value in values.tolist()]
    return [
        int(value) if value is not None and value == int(value) and abs(value) < 2**53 else value for value in short
    ]


def _color(i: int) -> str:
    return f"c{i % 7}"
