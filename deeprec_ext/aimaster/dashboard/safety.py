"""What every answer of the dashboard has in common: headers, a check of the Host, and no error that gets away."""

from __future__ import annotations

import asyncio
import ipaddress
import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

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
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if not host_is_ours(scope):
            refusal = JSONResponse({"error": "this address is not the dashboard's"}, 403)
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
            log.exception("the dashboard could not answer %s", scope.get("path"))
            if began:
                raise
            await JSONResponse({"error": "internal error; see the log of the AIMaster"}, 500)(
                scope, receive, send_with_headers
            )


def host_is_ours(scope: Scope) -> bool:
    """Against DNS rebinding: who reaches us at a loopback address must have asked for one by name.

    Otherwise a page from anywhere could read us through the user's browser, under a name that leads to 127.0.0.1.
    """
    server = scope.get("server")
    try:
        loopback = server is not None and ipaddress.ip_address(server[0]).is_loopback
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
