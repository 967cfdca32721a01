"""The routes: the page's own files, and the JSON that it reads."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from deeprec_ext.aimaster.dashboard import control
from deeprec_ext.aimaster.dashboard.live import Live
from deeprec_ext.aimaster.dashboard.source import Source
from deeprec_ext.aimaster.dashboard.tails import TAIL_MAX, read_tail
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.metrics import metrics_of
from deeprec_ext.webserver import Safe

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
EVENTS_MAX = 500
LINES_MAX = 64
POINTS_MAX = 1_000
TAIL_DEFAULT = 16 << 10


def routes(job: Job, scalings: ScalingQueue, token: str) -> list[BaseRoute]:
    """What the AIMaster's web server mounts last, at `/`.

    Args:
      token: whoever shows it may scale; empty: nobody may.
    """
    api = _Api(Source(job, scalings), scalings, token)
    files = sorted(path for path in STATIC.iterdir() if path.suffix in TYPES)
    pages = [Route("/" if path.name == "index.html" else f"/static/{path.name}", _file(path)) for path in files]
    calls = [
        Route("/api/status", api.status),
        Route("/api/series", api.series),
        Route("/api/events", api.events),
        Route("/api/history", api.history),
        Route("/api/decisions", api.decisions),
        Route("/api/edges", api.edges),
        Route("/api/slots/{slot:int}", api.slot),
        Route("/api/logs/{role}", api.log),
        Route("/api/access", api.access),
        Route("/api/live", Live(api.source.picture, api.source.change), methods=["GET"]),
        Route("/api/scale", api.scale, methods=["POST"]),
    ]
    return [Mount("/", app=Safe(Router([*pages, *calls]), "the AIMaster"), name="dashboard")]


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    """One file of the page, read now; the browser asks each time whether it has changed."""
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=TYPES[path.suffix], headers=headers)

    return answer


def _answers_usage_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def answer(self: Any, request: Request) -> Response:
        try:
            return await function(self, request)
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 400)

    return answer


class _Api:
    """The answers. Nothing here waits, except for a file and for the client."""

    def __init__(self, source: Source, scalings: ScalingQueue, token: str) -> None:
        self.source, self._scalings, self._token = source, scalings, token

    async def status(self, request: Request) -> Response:
        """StatusReply, whole."""
        status = self.source.status()
        return JSONResponse(await asyncio.to_thread(MessageToDict, status, preserving_proto_field_name=True))

    @_answers_usage_errors
    async def series(self, request: Request) -> Response:
        """`subject` and `metric`, each once or more; `since`, `until` in Unix seconds; `points` per line."""
        query = request.query_params
        subjects, metrics = query.getlist("subject"), query.getlist("metric")
        if not subjects or not metrics or len(subjects) * len(metrics) > LINES_MAX:
            raise UsageError(f"name subject and metric, at most {LINES_MAX} lines")
        for subject in subjects:
            if not metrics_of(subject):
                raise UsageError(f"{subject[:40]!r} is no subject: write for example ps-0, slot-3 or job")
        points = min(int(_number(request, "points", 500)), POINTS_MAX)
        lines = await self.source.job.metrics.query(
            subjects,
            metrics,
            since=_number(request, "since", 0.0),
            until=_number(request, "until", 0.0),
            points=max(2, points),
        )
        return JSONResponse({"lines": [
            {"subject": line.subject, "metric": line.metric, "times": line.times, "means": line.means, "highest": line.highest}
            for line in lines
        ]})  # fmt: skip

    @_answers_usage_errors
    async def events(self, request: Request) -> Response:
        """`after`: sequence of the last event known; without it the newest ones."""
        after = int(_number(request, "after", 0)) if "after" in request.query_params else None
        limit = max(1, min(int(_number(request, "limit", 200)), EVENTS_MAX))
        return JSONResponse({"events": self.source.events(after, limit)})

    async def history(self, request: Request) -> Response:
        return JSONResponse(await self.source.history())

    async def decisions(self, request: Request) -> Response:
        decided, estimate = await asyncio.gather(self.source.decisions(), self.source.estimate())
        return JSONResponse({"autoscale": self.source.status().autoscale, "decisions": decided, "estimate": estimate})

    async def edges(self, request: Request) -> Response:
        return JSONResponse({"edges": await self.source.edges()})

    async def slot(self, request: Request) -> Response:
        found = self.source.slot(request.path_params["slot"])
        return JSONResponse(found) if found is not None else JSONResponse({"error": "no such slot"}, 404)

    @_answers_usage_errors
    async def log(self, request: Request) -> Response:
        """`tail`: bytes; `after`: what was added since this offset."""
        path = self.source.log(request.path_params["role"])
        if path is None:
            return JSONResponse({"error": "this job has no such role"}, 404)
        after = int(_number(request, "after", 0)) if "after" in request.query_params else None
        count = int(_number(request, "tail", TAIL_DEFAULT if after is None else TAIL_MAX))
        try:
            tail = await asyncio.to_thread(read_tail, path, count, after)
        except OSError:
            return JSONResponse({"error": f"there is no log of {path.stem} here (in Kubernetes: kubectl logs)"}, 404)
        return JSONResponse({"role": path.stem, **vars(tail)})

    async def access(self, request: Request) -> Response:
        return JSONResponse({"scale": control.may_scale(request, self._token)})

    async def scale(self, request: Request) -> Response:
        return await control.scale(request, self._scalings, self._token)


def _number(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e15:
        raise UsageError(f"{name}={text[:40]}: must be a number from 0 on")
    return value
