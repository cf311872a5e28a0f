"""Validation of a page's socket messages, by type, range, size and rate, before the server reads them.

A message is a Socket.IO packet in an Engine.IO packet. Accepted messages are rebuilt from the checked values, so that
the server cannot parse the original bytes differently.
"""

import json
from typing import Any

from nicegui import Client

from vages.app.explore.controls import ACTION, MOVE, Refused, accepted, parsed
from vages.app.explore.rates import Bucket

LARGEST_MESSAGE = 2**14  # bytes; messages of the page have a few hundred
_CONNECT, _EVENT = "40", "42"
_PLAIN = ("1", "3", "41")  # close, pong, disconnect
_MOST_ARGS = 4


class Conversation:
    """State of one socket: whether it has connected, and its message rate."""

    def __init__(self, client_id: str, now: float):
        self._client_id, self._bucket, self._greeted = client_id, Bucket(now), False

    @property
    def over(self) -> bool:
        """Whether the socket must be closed because it sends too much."""
        return self._bucket.exhausted

    def hear(self, text: str | None, now: float) -> str | None:
        """Return the message to pass on, or None if it is dropped."""
        if not self._bucket.take(MOVE, now):
            return None
        try:
            message, cost = self._checked(text or "")
        except Refused:
            self._bucket.take(ACTION - MOVE, now)
            return None
        return message if cost == MOVE or self._bucket.take(cost - MOVE, now) else None

    def _checked(self, text: str) -> tuple[str, int]:
        if text in _PLAIN:
            return text, MOVE
        if text == _CONNECT and not self._greeted:
            self._greeted = True
            return text, ACTION
        if not text.startswith(_EVENT) or len(text) > LARGEST_MESSAGE:
            raise Refused("packet: expected an event")
        packet = parsed(text.removeprefix(_EVENT))
        if not isinstance(packet, list) or len(packet) != 2 or not isinstance(packet[1], dict):
            raise Refused("packet: expected a name and an object")
        name, body = packet
        if body.get("client_id") != self._client_id:
            raise Refused("client_id: expected that of this socket")
        if name == "ack":
            body, cost = _acknowledged(body), MOVE
        elif name == "event":
            body, cost = _event(body)
        else:
            raise Refused("name: expected ack or event")
        return _EVENT + json.dumps([name, {"client_id": self._client_id, **body}], allow_nan=False), cost


def _acknowledged(body: dict[str, Any]) -> dict[str, Any]:
    number = body.get("next_message_id")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**53:
        raise Refused("next_message_id: expected an integer")
    return {"next_message_id": number}


def _event(body: dict[str, Any]) -> tuple[dict[str, Any], int]:
    number, listener, args = (body.get(name) for name in ("id", "listener_id", "args"))
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(listener, str):
        raise Refused("id, listener_id: expected an integer and a string")
    if not isinstance(args, list) or len(args) > _MOST_ARGS:
        raise Refused(f"args: expected a list of at most {_MOST_ARGS}")
    client = Client.instances.get(body["client_id"])
    element = None if client is None else client.elements.get(number)
    known = None if element is None else element._event_listeners.get(listener)
    if element is None or known is None:
        raise Refused("id, listener_id: expected a control of this page")
    checked, cost = accepted(element, known.type, args)
    return {"id": number, "listener_id": listener, "args": [json.dumps(arg) for arg in checked]}, cost
