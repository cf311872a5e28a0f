"""The server. It listens on the loopback interface only, until it is interrupted."""

import socket
from collections.abc import Callable
from contextlib import nullcontext

import uvicorn
from fastapi import FastAPI
from nicegui import app, ui
from starlette.types import ASGIApp

from vages.app.explore.access import TokenGate, browser_window, new_token
from vages.app.explore.messages import LARGEST_MESSAGE
from vages.app.explore.page import page
from vages.app.explore.security import Guard
from vages.app.explore.visitors import Visitors
from vages.app.explore.worker_pool import Turns
from vages.app.runs.playground import Playground
from vages.app.runs.vectors import Vectors

CONNECTIONS = 256  # open at a time, including those of other users, which get status 403
_ICON = (
    '<svg viewBox="0 0 8 8" xmlns="http://www.w3.org/2000/svg"><rect width="8" height="8" rx="1.5" fill="#1d5c63"/>'
    '<path d="M2 2h1v2h1v1h1V4h1V2h1" fill="none" stroke="#fff"/></svg>'
)


def serve(
    ready: Playground | Vectors, port: int = 0, *, browser: bool = True, say: Callable[[str], object] = print
) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C, which raises KeyboardInterrupt; port 0 selects a free one.

    `say` is called with the address, which holds a secret token. With `browser`, the address is opened in a browser.
    """
    with listening(port) as own:
        port = own.getsockname()[1]
        turns, token = Turns(), new_token()
        server = uvicorn.Server(
            uvicorn.Config(
                application(ready, turns, port, token),
                http="h11",  # limits the size of headers, unlike httptools
                log_level="error",
                limit_concurrency=CONNECTIONS,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=1,
                ws_max_size=LARGEST_MESSAGE,
                ws_per_message_deflate=False,
            )
        )
        address = f"http://127.0.0.1:{port}/{token}/"
        say(f"{address} (press Ctrl-C to stop)")
        with browser_window(address) if browser else nullcontext():
            try:
                server.run(sockets=[own])
            finally:
                turns.close()


def application(ready: Playground | Vectors, turns: Turns, port: int, token: str) -> ASGIApp:
    """Return the page behind its guard, under a path that begins with the token."""
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        outer,
        root=lambda: page(ready, turns),
        title=f"{ready.run.path.resolve().name} · vages",
        favicon=_ICON,
        mount_path=f"/{token}",
        dark=None,
        language="en-GB",
        binding_refresh_interval=None,
        tailwind=False,
        show_welcome_message=False,
    )
    app.on_shutdown(turns.close)
    app.config.socket_io_js_transports = ["websocket"]
    return Guard(TokenGate(Visitors(outer, f"/{token}"), token), port)


def listening(port: int) -> socket.socket:
    """Return a socket on 127.0.0.1 that accepts connections."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port: expected 0 to {2**16 - 1}, got {port}; 0 chooses a free port")
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind(("127.0.0.1", port))
    except OSError as error:
        own.close()
        raise OSError(
            f"port: expected one that is free, got {port} ({error.strerror}); choose another, or 0 for a free port"
        ) from None
    own.listen(128)
    return own
