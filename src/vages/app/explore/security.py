"""Request filter of a server on the loopback interface: accepts its own page, and refuses other sites."""

from collections.abc import Iterable

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_FILE = 5_000_000  # bytes of an upload
_LARGEST_BODY = LARGEST_FILE + 10_000  # with the form around it

# Nothing is loaded from, sent to, or framed by another site. (NiceGUI compiles its templates in the browser.)
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Guard:
    """Middleware that accepts requests to 127.0.0.1 or localhost at this port, made by a page of this address.

    The Host header reveals DNS rebinding, that is, a name that an attacker points at 127.0.0.1. Origin reveals scripts,
    forms and sockets of other sites, and Sec-Fetch-Site their pictures and frames. A socket must send its origin. A
    body must declare its length, which is limited.
    """

    def __init__(self, app: ASGIApp, port: int):
        self.app = app
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)
        else:
            await refuse(scope, receive, _with_headers(send), *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused, else None."""
        headers = scope["headers"]
        host, origin = _values(headers, b"host"), _values(headers, b"origin")
        if len(host) != 1 or host[0] not in self._hosts:
            return 403, "host: expected 127.0.0.1 or localhost and the port of this server, got another"
        own = len(origin) == 1 and origin[0] == b"http://" + host[0]
        safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not own and (origin or not safe):
            return 403, "origin: expected this server's own page, got another"
        site, mode = _values(headers, b"sec-fetch-site"), _values(headers, b"sec-fetch-mode")
        if not own and site not in ([], [b"same-origin"], [b"none"]) and mode != [b"navigate"]:
            return 403, "site: expected this server's own page, got another"
        return None if scope["type"] == "websocket" else _refused_body(headers)


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    """Answer with one line; a socket is not opened, and its client gets status 403."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
    else:
        await PlainTextResponse(f"vages: {reason}\n", status)(scope, receive, send)


def _refused_body(headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    if _values(headers, b"transfer-encoding"):
        return 411, "body: expected a Content-Length header, got none"
    length = _values(headers, b"content-length") or [b"0"]
    if len(length) != 1 or not length[0].isdigit() or int(length[0]) > _LARGEST_BODY:
        return 413, f"body: expected at most {LARGEST_FILE} bytes, got more"
    return None


def _values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value.lower() for key, value in headers if key.lower() == name]


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_HEADERS]}
        await send(message)

    return sending
