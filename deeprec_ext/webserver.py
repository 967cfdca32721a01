"""A web application served on the event loop that is there: the AIMaster's page, the operator's probes and webhook, the history
of jobs. Of the extras `dashboard`, `kubernetes` and `history`.

Clients may be many, slow or hostile: connections are few, from the moment on that they are there; one that stands still is
cut, also in the middle of its TLS handshake; headers and bodies have a largest size.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

REQUESTS_MAX = 64
"""Above it the answer is 503."""

CONNECTIONS_MORE = 32
"""Above the requests and these, connections are cut: others in the process need the files, too."""

WAITING_MAX = 128
"""Connections that wait to be accepted."""

HEADERS_MAX_BYTES = 16 << 10
KEEP_ALIVE_SECONDS = 10

PATIENCE_SECONDS = 15.0
"""How long a client may take for its handshake, to send its request, or stop reading the answer, before it is cut."""

LOOK_SECONDS = 5.0
AGAIN_SECONDS = 1.0
"""Where no connection can be accepted: there is no file left."""

EVERYWHERE = "::"
"""To listen on: see `bind`."""

PEER_CERTIFICATE = "peer_certificate"
"""In `request.state`, over TLS: what `SSLSocket.getpeercert` says of the client; None: it has shown none."""


def bind(host: str, port: int) -> socket.socket:
    """A listener for `serve`; port 0: any. Who connects from now on waits for it, and is not refused. Raises OSError.

    Args:
      host: `::` is every address of this machine, of IPv4 as well, and of that alone where there is no IPv6.
    """
    if host != EVERYWHERE:
        return _bound(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)
    try:
        return _bound(socket.AF_INET6, host, port)
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _bound(socket.AF_INET, "0.0.0.0", port)  # nosec B104 # as asked for


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if host == EVERYWHERE:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # whatever the machine's default is
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(WAITING_MAX)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def body_of(request: Request, most_bytes: int) -> bytes | None:
    """None: it is longer than that."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            return None
    return bytes(body)


async def serve(
    app: ASGIApp, listener: socket.socket, *, tls: ssl.SSLContext | None = None, requests_max: int = REQUESTS_MAX
) -> None:
    """Until cancelled; then no connection is left. Raises OSError where the server stops by itself.

    Args:
        tls: serves HTTPS; a certificate that is loaded into it later is that of connections to come.
        requests_max: at a time; see `REQUESTS_MAX`.
    """
    config = uvicorn.Config(
        app, http=PatientProtocol, ws="none", lifespan="off", loop="none", log_config=None, log_level="error",
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1, h11_max_incomplete_event_size=HEADERS_MAX_BYTES, limit_concurrency=requests_max,
        backlog=requests_max,
    )  # fmt: skip
    config.load()
    config.ssl = tls
    server = Server(config)
    try:
        await server.serve([listener])
        raise OSError("the server has stopped by itself")
    finally:
        await server.cut()


class Server(uvicorn.Server):
    """Accepts by itself: uvicorn does not know of a connection before its handshake has ended."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._connections_max = (config.limit_concurrency or REQUESTS_MAX) + CONNECTIONS_MORE
        self._begun: dict[asyncio.Task[None], asyncio.Protocol] = {}
        self._accepting: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the process's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        (listener,) = sockets
        listener.listen(self.config.backlog)
        self.servers = []
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listener))
        self._accepting.add_done_callback(self._ended)
        self.started = True

    def _ended(self, _: object) -> None:
        self.should_exit = True

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except ConnectionError:  # it was gone before it was accepted
                continue
            except OSError as error:
                log.warning("a web server cannot accept connections: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if len({*self._begun.values(), *self.server_state.connections}) >= self._connections_max:
                connection.close()
            else:
                protocol = PatientProtocol(self.config, self.server_state, self.lifespan.state)
                task = loop.create_task(self._begin(connection, protocol))
                self._begun[task] = protocol
                task.add_done_callback(self._begun.pop)
            await asyncio.sleep(0)  # whoever comes in crowds must not keep the others waiting

    async def _begin(self, connection: socket.socket, protocol: asyncio.Protocol) -> None:
        tls = self.config.ssl
        patience = PATIENCE_SECONDS if tls is not None else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=patience)
        except OSError as error:  # TLS errors are, too
            log.debug("a connection did not come about: %s", error)

    async def cut(self) -> None:
        """Ends every connection at once."""
        ending = [*self._begun, *([self._accepting] if self._accepting is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for request in list(self.server_state.tasks):
            request.cancel()


class PatientProtocol(H11Protocol):
    """Cuts who does not finish the request, or stops reading the answer; uvicorn waits for those for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waited, self._seen = 0.0, self.cycle
        self.app_state = {**self.app_state, PEER_CERTIFICATE: transport.get_extra_info("peercert")}
        self._look = self.loop.call_later(LOOK_SECONDS, self._looks)

    def _looks(self) -> None:
        if self.transport.is_closing():
            self.transport.abort()  # what is left in the buffer waits for the client, too
            return
        stands = self._stands_still() and self._seen is self.cycle  # else it has asked once more, and was answered
        self._waited, self._seen = self._waited + LOOK_SECONDS if stands else 0.0, self.cycle
        if self._waited >= PATIENCE_SECONDS:
            self.transport.abort()
            return
        self._look = self.loop.call_later(LOOK_SECONDS, self._looks)

    def _stands_still(self) -> bool:
        """Whether it is the client that everything waits for."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return True
        return self.flow.write_paused

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if (look := getattr(self, "_look", None)) is not None:
            look.cancel()


# ---------------------------------------------------------------------------------- what every answer has in common

HEADERS = {
    # Everything comes from here; nothing is written into the page, loaded from elsewhere, or shown in a frame.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the address may have the token in it
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Safe:
    """ASGI middleware around all routes.

    Args:
        whose: process it is, for messages.
        headers: that go with every answer, beside what the route itself gives.
    """

    def __init__(self, app: ASGIApp, whose: str, headers: Mapping[str, str] = HEADERS) -> None:
        self._app, self._whose, self._headers = app, whose, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def send_with_headers(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if not host_is_ours(scope):
            refusal = JSONResponse({"error": "this address is not the page's"}, 403)
            await refusal(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except HTTPException as error:
            await JSONResponse({"error": error.detail}, error.status_code)(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            return  # the server is being stopped, and this is the whole of its task: not worth a traceback in the log
        except (asyncio.TimeoutError, OSError):
            raise  # the client: the server closes the connection
        except Exception:
            log.exception("%s could not answer %s", self._whose, scope.get("path"))
            if began:
                raise
            answer = JSONResponse({"error": f"internal error; see the log of {self._whose}"}, 500)
            await answer(scope, receive, send_with_headers)


def host_is_ours(scope: Scope) -> bool:
    """Against DNS rebinding: who reaches us at a loopback address must have asked for one by name.

    Otherwise a page from anywhere could read us through the user's browser, under a name that leads to 127.0.0.1.
    """
    server = scope.get("server")
    try:
        address = ipaddress.ip_address(server[0]) if server is not None else None
        mapped = getattr(address, "ipv4_mapped", None)  # IPv4, as a listener for both sees it
        loopback = address is not None and (mapped or address).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        return True
    host = Headers(scope=scope).get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
