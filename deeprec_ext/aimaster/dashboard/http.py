"""The AIMaster's web server: `/metrics` for Prometheus, `/healthz`, and the dashboard. Only with `--http`.

It runs on the job's event loop and never ends it: when it fails, that is a warning and it is started again. A page that takes
long is made in a thread, once for all who ask; what clients may take is `webserver`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from deeprec_ext import webserver
from deeprec_ext.aimaster.core.extras import parse_address
from deeprec_ext.aimaster.dashboard import routes
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.reporting import exporting
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.gazer.prometheus import CONTENT_TYPE, exposition
from deeprec_ext.security.tokens import read_token

log = logging.getLogger(__name__)

PAGE_SECONDS = 1.0
"""How long a page of metrics stays good: who asks meanwhile gets the same."""

RETRY_SECONDS = 5.0
CHUNK_BYTES = 64 << 10


class HttpServer:
    """Call `run` once, on the job's event loop."""

    def __init__(self, job: Job, scalings: ScalingQueue, address: str, certs: str | None) -> None:
        """Raises UsageError for an address that is none.

        Args:
          certs: directory of the job's certificates, where the launcher or operator has left the token of the page.
        """
        self._job = job
        self._host, self._port = parse_address(address)
        self._metrics = Metrics(job, scalings)
        token = read_token(Path(certs)) if certs else ""
        found = [
            Route("/metrics", self._metrics.answer, methods=["GET"]),
            Route("/healthz", self._health, methods=["GET"]),
            *routes(job, scalings, token),
        ]
        self._app = webserver.Safe(Starlette(routes=found), "the AIMaster")
        self._warned = False

    async def run(self) -> None:
        """Until cancelled; never raises."""
        while True:
            try:
                with contextlib.closing(self._bind()) as listener:
                    await self._serve(listener)
            except (Exception, SystemExit) as error:  # uvicorn ends the process where it cannot start
                self._warn(f"the web page at {self._host}:{self._port} is not served: {error}")
            await asyncio.sleep(RETRY_SECONDS)

    def _bind(self) -> socket.socket:
        """Raises OSError. A port that was chosen once is kept."""
        listener = webserver.bind(self._host, self._port)
        self._port = listener.getsockname()[1]
        return listener

    async def _serve(self, listener: socket.socket) -> None:
        self._job.dashboard = self.url()
        log.info("the web page is at %s", self._job.dashboard)
        self._warned = False
        try:
            await webserver.serve(self._app, listener)
        finally:
            self._job.dashboard = ""

    def url(self) -> str:
        """As a browser on this machine, or one that can reach the pod, finds it."""
        host = socket.gethostname() if ipaddress_is_any(self._host) else self._host
        return f"http://[{host}]:{self._port}/" if ":" in host else f"http://{host}:{self._port}/"

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        if not self._warned:
            self._warned = True
            with contextlib.suppress(sqlite3.Error):
                self._job.event("warning", text=text[:500])

    async def _health(self, _: Request) -> Response:
        """200 while this AIMaster is the job's."""
        stale = self._job.stale.is_set()
        return PlainTextResponse("stale\n" if stale else "ok\n", 503 if stale else 200)


class Metrics:
    """The page for Prometheus."""

    def __init__(self, job: Job, scalings: ScalingQueue) -> None:
        self._job, self._scalings = job, scalings
        self._page = b""
        self._made = 0.0
        self._making: asyncio.Task[bytes] | None = None

    async def page(self) -> bytes:
        """Made at most once a second, and once for all who wait."""
        now = asyncio.get_running_loop().time()
        if self._page and now - self._made < PAGE_SECONDS:
            return self._page
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        facts = await exporting.collect(self._job, self._scalings)
        self._page = await asyncio.to_thread(exposition, facts)
        self._made = asyncio.get_running_loop().time()
        return self._page

    async def answer(self, _: Request) -> Response:
        page = await self.page()
        headers = {"content-length": str(len(page))}
        return StreamingResponse(_chunks(page), media_type=CONTENT_TYPE, headers=headers)


async def _chunks(page: bytes) -> AsyncIterator[bytes]:
    """So that a slow client keeps one chunk in memory, not a copy of the page."""
    for begin in range(0, len(page), CHUNK_BYTES):
        yield page[begin : begin + CHUNK_BYTES]


def ipaddress_is_any(host: str) -> bool:
    """Whether it stands for every address of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
