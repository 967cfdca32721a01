"""The service: an interface for AIMasters and administrators over mTLS, and a page for people that only reads.

| | over | who |
|---|---|---|
| `GET /api/jobs?namespace=&script=&before=&limit=` | mTLS | an AIMaster: jobs of its namespace; the administrator: all |
| `POST /api/jobs` `{"uid", "job"}` | mTLS | an AIMaster, into its own namespace; a job that is there already stays as it is |
| `GET /`, `/jobs/N`, `/healthz` | the page's address, where one is given | whoever reaches it |

Who asks is known by its certificate alone (`identities`). Requests, connections, bodies, pages and waits are bounded; what the
database cannot answer in time is 503, and AIMasters go on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from deeprec_ext import webserver
from deeprec_ext.autoscaler.history.history import HistoryError
from deeprec_ext.autoscaler.history.possible import TEXT_MAX
from deeprec_ext.history import identities, page
from deeprec_ext.history.database import PAGE_MAX, Database, Retention
from deeprec_ext.history.identities import ADMIN, WRITER, Caller
from deeprec_ext.history.record import BYTES_MAX, RecordError, from_values
from deeprec_ext.security.authority import CA_KEY
from deeprec_ext.security.renewing import Renewing
from deeprec_ext.webserver import HEADERS, Safe

log = logging.getLogger(__name__)

BODY_BYTES_MAX = BYTES_MAX + 4 * TEXT_MAX
LIMIT = 50
"""Jobs of one answer, where nobody says how many."""

FORGET_SECONDS = 600.0
BATCH_PAUSE_SECONDS = 0.1
"""Between batches of what is forgotten: others write, too."""

CERTIFICATES_SECONDS = 60.0
"""How often files of certificates are looked at."""

WHOSE = "the history service"
STOP_SECONDS = 5.0

Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class ServiceOptions:
    """`listen`, `http`: (host, port); no `http`: there is no page."""

    database: str
    listen: tuple[str, int]
    certificates: Path
    http: tuple[str, int] | None = None
    retention: Retention = field(default_factory=Retention)


class Refused(Exception):
    """Answered with this status and sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Service:
    """The two applications over one database."""

    def __init__(self, database: Database, jobs_of_namespace: int = Retention.jobs_of_namespace) -> None:
        self._database, self._most = database, jobs_of_namespace
        calls = [
            Route("/api/jobs", _answered(self._jobs), methods=["GET"]),
            Route("/api/jobs", _answered(self._add), methods=["POST"]),
        ]
        pages = [
            Route("/", _answered(self._list), methods=["GET"]),
            Route("/jobs/{number:int}", _answered(self._one), methods=["GET"]),
            Route("/healthz", self._health, methods=["GET"]),
        ]
        self.api = Safe(Starlette(routes=calls), WHOSE)
        self.pages = Safe(Starlette(routes=pages), WHOSE, {**HEADERS, **page.HEADERS})

    # ------------------------------------------------------------------------------------------------ over mTLS

    async def _jobs(self, request: Request) -> Response:
        caller, asked = _caller(request), request.query_params
        namespace = asked.get("namespace")
        if caller.role != ADMIN:
            if namespace not in (None, caller.namespace):
                raise Refused(403, f"a certificate of namespace {caller.namespace} reads the jobs of that one")
            namespace = caller.namespace
        limit = asked.get("limit", str(LIMIT))
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:6]) <= PAGE_MAX:
            raise Refused(400, f"limit: write a whole number from 1 to {PAGE_MAX}")
        found, following = await asyncio.to_thread(
            self._database.jobs, namespace=namespace, script=asked.get("script"), before=asked.get("before", ""),
            limit=int(limit),
        )  # fmt: skip
        jobs = [{"number": one.number, "namespace": one.namespace, "job": dataclasses.asdict(one.job)} for one in found]
        return JSONResponse({"jobs": jobs, "next": following})

    async def _add(self, request: Request) -> Response:
        caller = _caller(request)
        if caller.role != WRITER:
            raise Refused(403, "jobs are added by AIMasters, each into its own namespace")
        body = await webserver.body_of(request, BODY_BYTES_MAX)
        if body is None:
            raise Refused(413, f"a job has at most {BODY_BYTES_MAX:,} bytes")
        values = _parsed(body)
        uid = values.get("uid")
        if not isinstance(uid, str) or not 0 < len(uid) <= TEXT_MAX or not uid.isprintable():
            raise Refused(400, f"uid: the job's own, of 1 to {TEXT_MAX} characters")
        job = from_values(values.get("job"))
        job = dataclasses.replace(job, finished=min(job.finished, time.time()))  # else it would be the newest for ever
        added = await asyncio.to_thread(self._database.add, caller.namespace, uid, job, self._most)
        return JSONResponse({"added": added}, 201 if added else 200)

    # ------------------------------------------------------------------------------------------------ the page

    async def _list(self, request: Request) -> Response:
        asked = request.query_params
        namespace, script = asked.get("namespace", "")[:TEXT_MAX], asked.get("script", "")[:TEXT_MAX]
        found, following = await asyncio.to_thread(
            self._database.jobs, namespace=namespace or None, script=script or None, before=asked.get("before", ""),
            limit=LIMIT,
        )  # fmt: skip
        made = await asyncio.to_thread(page.of_jobs, found, namespace=namespace, script=script, following=following)
        return HTMLResponse(made)

    async def _one(self, request: Request) -> Response:
        number = request.path_params["number"]
        found = await asyncio.to_thread(self._database.job, number) if number < 1 << 62 else None
        if found is None:
            raise Refused(404, "there is no such job, or it was forgotten")
        return HTMLResponse(await asyncio.to_thread(page.of_job, found))

    async def _health(self, _: Request) -> Response:
        """Of this process: a database that does not answer is no reason to start it again."""
        return PlainTextResponse("ok\n")


def _answered(answer: Answer) -> Answer:
    """With what cannot be done as a status and a sentence."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as refused:
            return JSONResponse({"error": refused.why}, refused.status)
        except RecordError as error:
            return JSONResponse({"error": str(error)}, 400)
        except HistoryError as error:
            log.warning("%s", error)
            return JSONResponse({"error": "the database does not answer; try again"}, 503)

    return answered


def _caller(request: Request) -> Caller:
    caller = identities.caller_of(getattr(request.state, webserver.PEER_CERTIFICATE, None))
    if caller is None:
        raise Refused(403, "this certificate is neither an administrator's nor a namespace's")
    return caller


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "this is no JSON") from None
    if not isinstance(values, dict):
        raise Refused(400, 'write {"uid": …, "job": …}')
    return values


# ------------------------------------------------------------------------------------------------ the process


async def run(options: ServiceOptions) -> int:
    """Until SIGTERM or SIGINT (0), or until something breaks (1). Raises HistoryError, OSError before it serves."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    context = identities.server_context(options.certificates)
    database = await asyncio.to_thread(Database, options.database)
    with contextlib.ExitStack() as stack:
        stack.callback(database.close)
        listener = stack.enter_context(contextlib.closing(webserver.bind(*options.listen)))
        service = Service(database, options.retention.jobs_of_namespace)
        tasks = {
            loop.create_task(webserver.serve(service.api, listener, tls=context)): "it is not served",
            loop.create_task(_forget(database, options.retention)): "nothing is forgotten",
            loop.create_task(_follow(context, options.certificates)): "renewed certificates are not read",
        }
        if os.access(options.certificates / CA_KEY, os.R_OK) and os.access(options.certificates, os.W_OK):
            own = (identities.SERVER, ADMIN)  # writers' are of other directories; in a cluster the operator renews all
            renewing = Renewing(options.certificates, identities.NAME, log.warning, only=own)
            tasks[loop.create_task(renewing.run())] = "certificates are not renewed"
        if options.http is not None:
            open_page = stack.enter_context(contextlib.closing(webserver.bind(*options.http)))
            serving = webserver.serve(service.pages, open_page)
            tasks[loop.create_task(serving)] = "the page is not served"
            log.info("the page is at http://%s:%d/", *_shown(open_page))
        log.info("the history %s is served at https://%s:%d", database.shown, *_shown(listener))
        stopping = loop.create_task(stop.wait())
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        broken = [task for task in done if task is not stopping]
        for task in broken:
            log.error("%s: %s", tasks[task], task.exception() or "it has ended")  # type: ignore[index]
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.wait([*tasks, stopping], timeout=STOP_SECONDS)
    return 1 if broken else 0


def _shown(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return f"[{host}]" if ":" in host else host, port


async def _forget(database: Database, retention: Retention) -> None:
    while True:
        try:
            if gone := await forget_all(database, retention):
                log.info("%d old jobs were forgotten", gone)
        except HistoryError as error:
            log.warning("%s", error)
        await asyncio.sleep(FORGET_SECONDS)


async def forget_all(database: Database, retention: Retention) -> int:
    """What is too old or too much, batch by batch until nothing is; returns how many. Raises HistoryError."""
    total = 0
    while gone := await asyncio.to_thread(database.forget, retention, time.time()):
        total += gone
        await asyncio.sleep(BATCH_PAUSE_SECONDS)
    return total


async def _follow(context: ssl.SSLContext, certificates: Path) -> None:
    """Files that were replaced are those of connections to come."""
    seen = _stamp(certificates)
    while True:
        await asyncio.sleep(CERTIFICATES_SECONDS)
        try:
            if (now := _stamp(certificates)) != seen:
                identities.load(context, certificates)
                seen = now
        except OSError as error:  # being renamed into place, or damaged: the old ones are good until then
            log.warning("certificates in %s cannot be read: %s", certificates, error)


def _stamp(certificates: Path) -> list[int]:
    return [(certificates / name).stat().st_mtime_ns for name in ("ca.pem", "history.pem", "history-key.pem")]
