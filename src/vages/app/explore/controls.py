"""Validation of what each control of the page may send. Anything else is refused before it reaches a handler."""

import json
from typing import Any, NamedTuple

from nicegui import ui
from nicegui.element import Element

MOVE = 1  # units of `rates`: a moving mouse sends one message per frame of the screen
SLIDE = 10  # sliders send at most 20 messages a second
ACTION = 20  # buttons and choices
_CHANGE = "update:modelValue"


class Refused(ValueError):
    """A message that the page itself never sends."""


class Accepted(NamedTuple):
    """Checked arguments of an event, and its cost."""

    args: list[Any]
    cost: int


def accepted(element: Element, event: str, args: list[Any]) -> Accepted:
    """Check the arguments of an event of an element; raise `Refused` if they have the wrong type, range or number."""
    if event == "click" and element.tag in ("q-btn", "button"):
        return Accepted([], ACTION)
    if isinstance(element, ui.upload) and event in ("rejected", "failed"):
        return Accepted([], ACTION)
    if isinstance(element, ui.select) and event in ("popupShow", "popupHide"):
        return Accepted([], ACTION)
    if isinstance(element, ui.interactive_image) and event == "mouse":
        return Accepted([_mouse(element, _only(args))], MOVE)
    if event != _CHANGE:
        raise Refused(f"event: {event} of {element.tag} is not used")
    value = _only(args)
    if isinstance(element, ui.slider):
        return Accepted([_number(value, element.props["min"], element.props["max"])], SLIDE)
    if isinstance(element, ui.checkbox):
        if not isinstance(value, bool):
            raise Refused("expected true or false")
        return Accepted([value], ACTION)
    if isinstance(element, ui.select):
        index = _index(_entry(value, "value"), len(element.options))
        return Accepted([{"value": index}], ACTION)
    if isinstance(element, (ui.radio, ui.toggle)):
        return Accepted([_index(value, len(element.options))], ACTION)
    if isinstance(element, (ui.tabs, ui.tab_panels)):
        return Accepted([_one_of(value, [child.props["name"] for child in element.default_slot.children])], ACTION)
    raise Refused(f"event: {event} of {element.tag} is not used")


def parsed(text: object) -> Any:
    """Parse JSON; raise `Refused` if it is invalid."""
    if not isinstance(text, str):
        raise Refused("expected JSON")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("expected JSON") from error


def _mouse(image: ui.interactive_image, value: object) -> dict[str, Any]:
    width, height = image.props["size"]
    return {
        "mouse_event_type": _one_of(_entry(value, "mouse_event_type"), image.props["events"]),
        "image_x": _number(_entry(value, "image_x"), -width, 2 * width),  # a finger may leave the image
        "image_y": _number(_entry(value, "image_y"), -height, 2 * height),
        "buttons": _index(_entry(value, "buttons"), 64),
    }


def _only(args: list[Any]) -> Any:
    if len(args) != 1:
        raise Refused(f"args: expected 1, got {len(args)}")
    return parsed(args[0])


def _entry(value: object, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise Refused(f"expected an object with {name}")
    return value[name]


def _number(value: object, least: float, most: float) -> float:
    if (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most
    ):  # NaN is refused as well
        raise Refused(f"expected a number from {least} to {most}")
    return float(value)


def _index(value: object, count: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise Refused(f"expected an integer from 0 to {count - 1}")
    return value


def _one_of(value: object, names: list[str]) -> str:
    if not isinstance(value, str) or value not in names:
        raise Refused(f"expected one of {', '.join(names)}")
    return value
