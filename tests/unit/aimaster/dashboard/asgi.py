"""A client of an ASGI application in the same process: no port, no further package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.types import ASGIApp

from deeprec_ext.aimaster.dashboard import routes
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.scaling.queue import ScalingQueue

HOST = "127.0.0.1:8080"
TOKEN = "sesame"


def application(job: Job, scalings: ScalingQueue, token: str = TOKEN) -> ASGIApp:
    return Starlette(routes=routes(job, scalings, token))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def scope(path: str, headers: Mapping[str, str], method: str = "GET", server: str = "127.0.0.1") -> dict[str, Any]:
    path, _, query = path.partition("?")
    given = {"host": HOST, **headers}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 9), "server": (server, 8080),
    }  # fmt: skip


async def ask(
    app: ASGIApp, path: str, *, method: str = "GET", body: bytes = b"", server: str = "127.0.0.1", **headers: str
) -> Answer:
    """Header names with `_` for `-`."""
    sent: list[dict[str, Any]] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    await app(scope(path, named, method, server), receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    whole = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return Answer(start["status"], found, whole)


async def scale(app: ASGIApp, wanted: object, *, token: str | None = TOKEN, **headers: str) -> Answer:
    given = {"content_type": "application/json", **({"authorization": f"Bearer {token}"} if token else {}), **headers}
    return await ask(app, "/api/scale", method="POST", body=json.dumps(wanted).encode(), **given)
