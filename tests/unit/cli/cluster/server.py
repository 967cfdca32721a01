"""A Kubernetes API server over HTTP, in a thread: the fake one of the AIMaster's tests, with logs, and commands in pods."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.unit.aimaster.kubernetes.fake_api import FakeApi, merged
from tfjob.api.client import ApiError, ForbiddenError, NotFoundError
from tfjob.api.exec import PROTOCOL
from tfjob.model.kinds import Manifest, Resource

PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v1)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>exec|log|status))?$"
)
SUCCESS: Manifest = {"metadata": {}, "status": "Success"}


def failure(code: int) -> Manifest:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"exit code {code}",
        "details": {"causes": causes},
    }


@dataclass
class Answer:
    """What a command in a pod writes, as (channel, bytes), and its end. None: the connection breaks."""

    messages: Sequence[tuple[int, bytes]] = ()
    status: Manifest | None = field(default_factory=lambda: dict(SUCCESS))


Script = Callable[[list[str]], Answer]


class Server:
    """`api` is what there is; `script` runs commands; `logs` are lines by pod, with their times."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.crd = True
        self.script: Script = lambda command: Answer()
        self.commands: list[list[str]] = []
        self.logs: dict[str, list[tuple[str, str]]] = {}
        self.log_queries: list[dict[str, str]] = []
        self.cut_logs = 0  # so many streams end in the middle
        self.held_logs = 0  # streams end only when there are so many
        self.dry_runs: list[str] = []
        self.asked = threading.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.set()
        try:
            return await self._handle(request)
        except ApiError as error:
            body = {"kind": "Status", "reason": error.reason, "message": str(error), "code": error.status}
            return web.json_response(body, status=error.status)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/apis/kubeflow.org/v1", "/apis/policy/v1"):
            if "policy" in request.path or not self.crd:
                raise NotFoundError(404, "NotFound", "the server could not find the requested resource")
            return web.json_response({"resources": [{"name": "tfjobs"}]})
        match = PATH.match(request.path)
        assert match, request.path
        name, plural, sub = match["name"] or "", match["plural"], match["sub"]
        if plural == "tfjobs" and not self.crd:
            raise NotFoundError(404, "NotFound", "the server could not find the requested resource")
        resource = Resource(plural, match["version"], match["group"] or "")
        if sub == "exec":
            return await self._exec(request, name)
        if sub == "log":
            return await self._log(request, name)
        return web.json_response(await self._object(request, resource, match["namespace"], name))

    async def _object(self, request: web.Request, resource: Resource, namespace: str, name: str) -> Manifest:
        body = await request.json() if request.can_read_body else {}
        if request.method == "GET" and name:
            return await self.api.get(resource, namespace, name)
        if request.method == "GET":
            query = request.query
            items, version = await self.api.list_all(
                resource,
                namespace,
                labels=query.get("labelSelector", ""),
                fields=_names(query.get("fieldSelector", "")),
            )
            if about := _about(query.get("fieldSelector", "")):
                items = [one for one in items if one["involvedObject"]["name"] == about]
            if reason := _reason(query.get("fieldSelector", "")):
                items = [one for one in items if one["reason"] == reason]
            return {"items": items, "metadata": {"resourceVersion": version}}
        if request.method == "POST" and request.query.get("dryRun"):
            self.dry_runs.append(body["kind"])
            if ("create", resource.plural) in self.api.forbidden:
                raise ForbiddenError(403, "Forbidden", f'User "me" cannot create resource "{resource.plural}"')
            if (resource.plural, body["metadata"]["name"]) in self.api.objects:
                raise ApiErrorOf(409, "AlreadyExists")
            return dict(body)
        if request.method == "POST":
            return await self.api.create(resource, namespace, body)
        if request.method == "PATCH":
            return await self.api.patch(resource, namespace, name, body)
        assert request.method == "DELETE"
        uid = (body.get("preconditions") or {}).get("uid", "")
        if not await self.api.delete(resource, namespace, name, grace_seconds=body.get("gracePeriodSeconds"), uid=uid):
            raise NotFoundError(404, "NotFound", f"{resource.plural} {name} not found")
        return {}

    async def _exec(self, request: web.Request, pod: str) -> web.StreamResponse:
        if ("get", "pods/exec") in self.api.forbidden:
            raise ForbiddenError(
                403, "Forbidden", f'pods "{pod}" is forbidden: User "me" cannot get resource "pods/exec"'
            )
        if ("pods", pod) not in self.api.objects:
            raise NotFoundError(404, "NotFound", f'pods "{pod}" not found')
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise ApiError(400, "BadRequest", "Upgrade request required")
        if "*/*" not in request.headers.get("Accept", ""):
            return web.Response(status=406, text="only the following media types are accepted: …")  # as servers do
        opened = web.WebSocketResponse(protocols=(PROTOCOL,))
        await opened.prepare(request)
        containers = [one["name"] for one in self.api.objects["pods", pod]["spec"]["containers"]]
        assert opened.ws_protocol == PROTOCOL and request.query["container"] in containers
        command = request.query.getall("command")
        self.commands.append(command)
        answer = await asyncio.get_running_loop().run_in_executor(None, self.script, command)
        for channel in (1, 2, 3):
            await opened.send_bytes(bytes([channel]))  # as servers do
        for channel, data in answer.messages:
            await opened.send_bytes(bytes([channel]) + data)
        if answer.status is None:
            assert request.transport is not None
            request.transport.abort()
            return opened
        await opened.send_bytes(b"\x03" + json.dumps(answer.status).encode())
        await opened.close()
        return opened

    async def _log(self, request: web.Request, pod: str) -> web.StreamResponse:
        query = dict(request.query)
        self.log_queries.append(query)
        if ("get", "pods/log") in self.api.forbidden:
            raise ForbiddenError(
                403, "Forbidden", f'pods "{pod}" is forbidden: User "me" cannot get resource "pods/log"'
            )
        if ("pods", pod) not in self.api.objects:
            raise NotFoundError(404, "NotFound", f'pods "{pod}" not found')
        if pod not in self.logs:
            raise ApiError(400, "BadRequest", f'container "tensorflow" in pod "{pod}" is waiting to start')
        lines = self.logs[pod]
        since = query.get("sinceTime", "")[:19]  # the server knows seconds only
        lines = [one for one in lines if one[0][:19] >= since]
        if "tailLines" in query:
            lines = lines[-int(query["tailLines"]) :] if int(query["tailLines"]) else []
        response = web.StreamResponse()
        await response.prepare(request)
        cut = self.cut_logs > 0 and query["follow"] == "true"
        self.cut_logs -= cut
        for stamp, line in lines[: len(lines) // 2] if cut else lines:
            await response.write(f"{stamp} {line}\n".encode())
        while query["follow"] == "true" and len(self.log_queries) < self.held_logs:
            await asyncio.sleep(0.01)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response


def ApiErrorOf(status: int, reason: str) -> ApiError:
    return ApiError(status, reason, reason)


def _names(fields: str) -> str:
    return fields if "involvedObject" not in fields else ""


def _about(fields: str) -> str:
    return fields.partition("involvedObject.name=")[2]


def _reason(fields: str) -> str:
    return fields.partition(",reason=")[2]


@contextlib.contextmanager
def running(directory: Path, namespace: str = "team") -> Iterator[tuple[Server, Path]]:
    """The server, and a kubeconfig for it."""
    started: Future[tuple[Server, int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        server, end = Server(), asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        started.set_result((server, port, asyncio.get_running_loop(), end))
        await end.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    server, port, loop, end = started.result(20)
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{port}", namespace)))
    try:
        yield server, path
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(20)


def kubeconfig(host: str, namespace: str) -> Manifest:
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}},
        {"name": "plain", "context": {"cluster": "c", "user": "u"}},
    ]
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": host}}], "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- objects

TEMPLATE: Manifest = {"spec": {"containers": [{
    "name": "tensorflow", "image": "train:1", "command": ["python", "train.py"], "resources": {"requests": {"cpu": "1"}},
}]}}  # fmt: skip
ANNOTATION = "aimaster.deeprec.io/"
STARTED = "2026-01-01T00:00:00Z"


def tfjob(
    name: str = "ctr", *, elastic: bool = True, condition: str = "Running", annotations: Any = None, **replicas: int
) -> Manifest:
    counts = replicas or {"PS": 2, "Chief": 1, "Worker": 1}
    specs = {type_: {"replicas": count, "template": TEMPLATE} for type_, count in counts.items()}
    given = {**({f"{ANNOTATION}enabled": "true"} if elastic else {}), **(annotations or {})}
    conditions = [{
        "type": condition, "status": "True", "message": f"it is {condition}", "lastTransitionTime": STARTED,
    }] if condition else []  # fmt: skip
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": {"name": name, "namespace": "team", "annotations": given},
        "spec": {"tfReplicaSpecs": specs}, "status": {"conditions": conditions} if conditions else {},
    }  # fmt: skip


def pod(name: str, phase: str = "Running", *, job: str = "ctr", container: str = "tensorflow", **more: Any) -> Manifest:
    state: Manifest = {"running": {"startedAt": STARTED}}
    if phase == "Pending":
        state = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    elif phase != "Running":
        state = {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "reason": "Ended"}}
    labels = {"training.kubeflow.org/job-name": job}
    if container == "tensorflow":
        labels["training.kubeflow.org/replica-type"] = name.split("-")[-2]
    made = {
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": container, "command": COMMAND}]},
        "status": {"phase": phase, "containerStatuses": [{"name": container, "state": state, "restartCount": 0}]},
    }
    return merged(made, more)  # type: ignore[no-any-return]


DIRECTORY = "/var/lib/deeprec-ext/ctr-01234567"
COMMAND = ["python", "-m", "deeprec_ext.aimaster", "--workdir", DIRECTORY, "--job", "team.ctr"]


def aimaster(phase: str = "Running", **more: Any) -> Manifest:
    return pod("ctr-aimaster", phase, container="aimaster", **more)
