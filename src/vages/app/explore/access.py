"""The secret token in the page's address. Requests without it get status 403."""

import secrets
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from hmac import compare_digest
from pathlib import Path
from threading import Thread

from starlette.types import ASGIApp, Receive, Scope, Send

from vages.app.explore.security import refuse

_REDIRECT = (
    '<!doctype html><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={}">\n'
)


def new_token() -> str:
    """Return 128 random bits in URL-safe characters."""
    return secrets.token_urlsafe(16)


class TokenGate:
    """Middleware that accepts only requests and sockets whose path begins with the token.

    The token is part of the path, and no cookie is set: browsers send the cookies of 127.0.0.1 to every port, so
    another user's server on this machine could collect them.
    """

    def __init__(self, app: ASGIApp, token: str):
        self.app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            given = scope["path"].removeprefix("/").partition("/")[0].encode(errors="replace")
            if not compare_digest(given, self._token):
                reason = "token: expected the whole address that vages explore printed, got another"
                await refuse(scope, receive, send, 403, reason)
                return
        await self.app(scope, receive, send)


@contextmanager
def browser_window(address: str) -> Iterator[None]:
    """Open a browser on the address, through a file that only this user can read and that is removed at the end.

    The arguments of the browser's process can be read by every user of the machine, so they must not hold the token.
    """
    with tempfile.TemporaryDirectory(prefix="vages-explore-") as folder:
        file = Path(folder) / "open.html"
        file.write_text(_REDIRECT.format(address))
        Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
        yield
