"""Limits on concurrent pages, sockets and uploads, and the filter of messages to the server."""

import asyncio
import re
import time
from collections.abc import Mapping
from urllib.parse import parse_qsl

from nicegui import Client
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vages.app.explore.messages import Conversation
from vages.app.explore.security import refuse

PAGES = 32  # including those that were closed a moment ago
SOCKETS = 16  # one for each open page
UPLOADS = 2
UNCONNECTED = 3.0  # seconds that a page may take to open its socket, if there are many
STALLED = 5.0  # seconds that a socket may leave sent data unread
_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


class Visitors:
    """Middleware that accepts the page, its files and uploads, and its socket, and refuses all else.

    `prefix` is their common path. The web socket is the only transport.
    """

    def __init__(self, app: ASGIApp, prefix: str):
        self.app, self._prefix = app, prefix
        self._sockets, self._uploads = 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(self._prefix)
        if path.startswith("/_nicegui/"):
            await (self._upload if scope["method"] == "POST" else self.app)(scope, receive, send)
        elif path not in ("", "/"):
            await refuse(scope, receive, send, 404, "path: expected the address that vages explore printed")
        elif any(name.lower() == b"sec-purpose" for name, _ in scope["headers"]):
            await refuse(scope, receive, send, 503, "page: expected to be opened, not prefetched")
        elif _full():
            reason = f"pages: expected at most {PAGES}, got more; close some and try again in {UNCONNECTED:g} seconds"
            await refuse(scope, receive, send, 503, reason)
        else:
            await self.app(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._uploads == UPLOADS:
            await refuse(scope, receive, send, 503, f"uploads: expected at most {UPLOADS} at a time, got more")
            return
        self._uploads += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._uploads -= 1

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = _query(scope["query_string"])
        if query is None or not scope["path"].removeprefix(self._prefix).startswith("/_nicegui_ws/"):
            await refuse(scope, receive, send, 403, "socket: expected that of the page, got another")
            return
        if self._sockets == SOCKETS:
            await refuse(scope, receive, send, 503, f"sockets: expected at most {SOCKETS} open pages, got more")
            return
        self._sockets += 1
        try:
            line = _Line(Conversation(query["client_id"], time.monotonic()), receive, send)
            await self.app(scope, line.receive, line.send)
        finally:
            self._sockets -= 1


class _Line:
    """Receive and send functions of a socket, filtered by its conversation."""

    def __init__(self, conversation: Conversation, receive: Receive, send: Send):
        self._conversation, self._receive, self._send = conversation, receive, send
        self._stalled = False

    async def receive(self) -> Message:
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return message
            text = self._conversation.hear(message.get("text"), time.monotonic())
            if self._conversation.over or self._stalled:
                await self.send({"type": "websocket.close", "code": 1008, "reason": "rate: too many messages"})
                return {"type": "websocket.disconnect", "code": 1008}
            if text is not None:
                return {"type": "websocket.receive", "text": text}
            await asyncio.sleep(0.001)  # read dropped messages slowly, and serve others first

    async def send(self, message: Message) -> None:
        if not self._stalled:
            try:
                async with asyncio.timeout(STALLED):
                    await self._send(message)
            except TimeoutError:
                self._stalled = True
                raise


def _full() -> bool:
    """Whether there are too many pages, after removing those that never opened their socket."""
    if len(Client.instances) >= PAGES:
        Client.prune_instances(client_age_threshold=UNCONNECTED)
    return len(Client.instances) >= PAGES


def _query(query: bytes) -> Mapping[str, str] | None:
    """Return the query of a page's socket, or None if it is invalid."""
    try:
        found = dict(parse_qsl(query.decode("ascii"), max_num_fields=16))
    except ValueError:
        return None
    names = ("client_id", "tab_id", "document_id")
    expected = {"EIO": "4", "transport": "websocket", "implicit_handshake": "true"}.items() <= found.items()
    number = re.fullmatch(r"\d{1,15}", found.get("next_message_id", ""), re.ASCII)
    return found if expected and number and all(_NAME.fullmatch(found.get(name, "")) for name in names) else None
