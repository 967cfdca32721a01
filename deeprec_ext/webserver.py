"""A web application served on the event loop that is there: the AIMaster's page, the operator's probes and webhook. Of the
extras `dashboard` and `kubernetes`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

HEADERS_MAX_BYTES = 16 << 10
KEEP_ALIVE_SECONDS = 10


def bind(host: str, port: int) -> socket.socket:
    """A listener for `serve`; port 0: any. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def serve(app: ASGIApp, listener: socket.socket, *, tls: ssl.SSLContext | None = None, **options: Any) -> None:
    """Until cancelled; then no connection is left. Raises OSError where the server stops by itself.

    Args:
        tls: serves HTTPS; a certificate that is loaded into it later is that of connections to come.
        options: of `uvicorn.Config`.
    """
    given: dict[str, Any] = {"http": "h11", "backlog": 64, **options}
    config = uvicorn.Config(
        app, ws="none", lifespan="off", loop="none", log_config=None, log_level="error", access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=HEADERS_MAX_BYTES, **given,
    )  # fmt: skip
    config.load()
    config.ssl = tls
    server = Server(config)
    try:
        await server.serve([listener])
        raise OSError("the server has stopped by itself")
    finally:
        server.cut()


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the process's."""
        yield

    def cut(self) -> None:
        """Ends every connection at once."""
        for server in getattr(self, "servers", []):
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
