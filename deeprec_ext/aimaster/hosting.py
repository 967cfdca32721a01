"""An AIMaster as a process, wherever its pods come from: it listens, shows its page, and knows when it has to end."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

from deeprec_ext.aimaster.rpc.server import AIMaster

log = logging.getLogger("deeprec_ext.aimaster")

EXIT_FAILED, EXIT_USAGE = 1, 2
WEB_STOP_SECONDS = 5.0


class Hosted:
    """From its making on SIGTERM and SIGINT end it in order. `close` it, whatever happens."""

    def __init__(self, master: AIMaster) -> None:
        self._master, self._stop = master, asyncio.Event()
        self._tasks: list[asyncio.Future[Any]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)

    @property
    def stopped(self) -> bool:
        """By a signal."""
        return self._stop.is_set()

    async def begin(self, listen: str, http: str | None, certs: str | None) -> None:
        port = await self._master.start(listen)
        job = self._master.job
        log.info("AIMaster %d of job %s listens at port %d", job.incarnation, job.spec.name, port)
        if http:
            self._tasks.append(asyncio.ensure_future(self._serve_web(http, certs)))

    async def until_over(self, *others: asyncio.Future[Any]) -> None:
        """A signal, a newer AIMaster, an error, or one of the others."""
        job = self._master.job
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stop, job.stale, self._master.broken)]
        self._tasks += [*waits, *others]
        await asyncio.wait([*waits, *others], return_when=asyncio.FIRST_COMPLETED)
        if job.stale.is_set():
            log.error("agents know a newer AIMaster than %d: this one is stale and ends", job.incarnation)

    async def close(self, *others: asyncio.Future[Any]) -> None:
        """Of itself, of what was waited for, and of the others."""
        tasks = [*self._tasks, *others]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=WEB_STOP_SECONDS)
        await self._master.stop()

    async def _serve_web(self, address: str, certs: str | None) -> None:
        """Metrics and dashboard, until cancelled. Whatever happens there is no reason to end the AIMaster."""
        try:
            from deeprec_ext.aimaster.dashboard.http import HttpServer

            await HttpServer(self._master.job, self._master.scalings, address, certs).run()
        except Exception:
            log.exception("metrics and dashboard are not served")
            self._master.job.event("warning", text="metrics and dashboard are not served; see the log of the AIMaster")
