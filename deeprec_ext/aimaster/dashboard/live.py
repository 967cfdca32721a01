"""Server-Sent Events: one message a second, made once and sent to everybody who looks.

Nothing is queued for a client: whoever is slow gets the newest message when the one before has gone out, and whoever
does not take one for `SLOW_SECONDS` is dropped. Without clients nothing is made.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger(__name__)
EVERY_SECONDS, SOONEST_SECONDS = 1.0, 0.2
"""Between two messages; and where something has changed that nobody wants to wait for."""
SLOW_SECONDS = 10.0
CLIENTS_MAX = 32
BUSY_SHARE, BYTES_PER_SECOND = 0.05, 64_000
"""Making messages takes at most this share of the AIMaster's time, and they are at most so many bytes a second for each
client: a huge job is shown less often."""
RETRY = b"retry: 2000\n\n"


class Live:
    """An ASGI application for `/api/live`.

    Args:
      make: gives the picture of this moment.
      change: returns when something important has changed, at the latest after so many seconds.
    """

    def __init__(self, make: Callable[[], dict[str, Any]], change: Callable[[float], Awaitable[object]]) -> None:
        self._make, self._change = make, change
        self._message = b""
        self._next: asyncio.Future[None] | None = None  # done when there is another message
        self._ticker: asyncio.Task[None] | None = None
        self.clients = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.clients >= CLIENTS_MAX:
            full = JSONResponse({"error": f"{CLIENTS_MAX} pages are open already; close one"}, 503)
            await full(scope, receive, send)
            return
        self.clients += 1
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await self._serve(send, leaving)
        except asyncio.CancelledError:  # the server is being stopped, and we are the whole of its task
            await self._send(send, b"", more=False)
        finally:
            self.clients -= 1
            leaving.cancel()
            if not self.clients and self._ticker is not None:
                self._ticker.cancel()

    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send(send, RETRY)
        if self._ticker is None or self._ticker.done():
            self._message = b""  # of a time when somebody looked
            self._ticker = asyncio.get_running_loop().create_task(self._tick())
        sent = b""
        while not leaving.done():
            if self._message is not sent:
                sent = self._message
                await self._send(send, sent)
                continue
            await asyncio.wait([leaving, self._coming()], return_when=asyncio.FIRST_COMPLETED)

    async def _send(self, send: Send, body: bytes, more: bool = True) -> None:
        """Raises TimeoutError: the server then closes the connection."""
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        await asyncio.wait_for(send(message), SLOW_SECONDS)

    def _coming(self) -> asyncio.Future[None]:
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    async def _tick(self) -> None:
        """Cancelled when nobody looks any more."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self._message = b"data: " + json.dumps(self._make(), separators=(",", ":")).encode() + b"\n\n"
            except Exception:
                log.exception("the dashboard's picture could not be made")
            if self._next is not None and not self._next.done():
                self._next.set_result(None)
            least = rest_seconds(loop.time() - began, len(self._message))
            await asyncio.sleep(least)
            await self._change(max(0.0, EVERY_SECONDS - least))


def rest_seconds(took_seconds: float, size: int) -> float:
    """From one message to the next, at least: where it took so long to make and has so many bytes."""
    return max(SOONEST_SECONDS, took_seconds / BUSY_SHARE, size / BYTES_PER_SECOND)


async def _left(receive: Receive) -> None:
    """Until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
