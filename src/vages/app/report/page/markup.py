"""HTML elements. Text that is not marked as HTML is escaped."""

import html
import json
import math
import re
from typing import Any

_VOID = {"meta", "img", "input", "br", "wbr"}
# control characters, lone surrogates, noncharacters, and marks that change the direction of text
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Escape text for HTML; characters that are unfit for a page become replacement characters."""
    return text if isinstance(text, Markup) else Markup(html.escape(_UNFIT.sub("\ufffd", str(text))))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. Children are escaped unless they are Markup; attributes are always escaped.

    `class_` is written as class, `data_x` as data-x. True gives an attribute without a value, None and False give none.
    """
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{''.join(map(escape, children))}</{name}>")


def joined(parts: Any, between: str = "") -> Markup:
    """Join pieces of HTML."""
    return Markup(escape(between).join(map(escape, parts)))


def embedded_json(value: Any) -> Markup:
    """Return JSON for the page's script, escaped so that no text can close the script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, as json does by default
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def is_number(value: object) -> bool:
    """Whether this is a number, finite or not; booleans are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_float(value: object) -> float:
    """Return a number as a float; NaN for other values and for numbers that are too large."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def written(value: float | int, digits: int = 5) -> str:
    """Format a number with `digits` significant digits, thousands separators, and a minus sign."""
    if isinstance(value, int):
        text = f"{value:,}" if abs(value) < 10**15 else "very large"
    elif not math.isfinite(value):
        text = "not a number" if math.isnan(value) else "∞" if value > 0 else "-∞"
    elif value == 0 or 1e-4 <= abs(value) < 1e7:
        places = digits if value == 0 else digits - 1 - math.floor(math.log10(abs(value)))
        text = f"{value:,.{max(places, 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{digits - 1}g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return text.replace("-", "\N{MINUS SIGN}")


def number(value: float | int) -> Markup:
    """Format a number as an HTML `data` element, which keeps the exact value."""
    return element("data", written(value), value=repr(value) if abs(value) < 1e300 else str(as_float(value)))


def duration(seconds: float | int) -> str:
    """Format a duration."""
    if not 0 <= seconds < 1e12:
        return "not a number"
    if seconds < 100:
        return f"{written(seconds, 3)} s"
    if seconds < 6000:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"
