"""The `Launcher` service: what the AIMaster's pod backend calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.resources import Resources
from deeprec_ext.launch.roles.supervisor import Pods
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import peer_role

ROLES = {pb2.PS: "ps", pb2.CHIEF: "chief", pb2.WORKER: "worker", pb2.EVALUATOR: "evaluator"}

_ALLOWED = ("aimaster", "admin", None)  # None: no TLS, in tests


class LauncherService(rpc.LauncherServicer):
    """Pods by name. The AIMaster itself is a process of the launcher too, but none of its pods: it is not shown here."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    async def Create(self, request: pb2.Pod, context: Any) -> pb2.PodReply:
        await self._authorise(context)
        role = ROLES.get(request.role)
        if role is None or request.name != f"{role}-{request.index}" or request.index < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{request.name!r} is no name for role {request.role}, index {request.index}",
            )
        assert role is not None
        try:
            wanted = Resources.from_proto(request.resources) if request.HasField("resources") else None
            await self._pods.create(request.name, role, request.index, wanted)
        except UsageError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except OSError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{request.name} cannot be started: {error}")
        return pb2.PodReply()

    async def Delete(self, request: pb2.PodRequest, context: Any) -> pb2.PodReply:
        await self._authorise(context)
        if request.name == "aimaster":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the AIMaster is no pod")
        self._pods.delete(request.name, max(0.0, request.grace_seconds))
        return pb2.PodReply()

    async def End(self, request: pb2.PodEnd, context: Any) -> pb2.PodReply:
        await self._authorise(context)
        if request.name == "aimaster":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the AIMaster is no pod")
        self._pods.end(request.name, request.pid, request.exit_code)
        return pb2.PodReply()

    async def Resize(self, request: pb2.ResizeRequest, context: Any) -> pb2.PodReply:
        await self._authorise(context)
        try:
            self._pods.resize(request.name, Resources.from_proto(request.resources))
        except UsageError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb2.PodReply()

    async def Watch(self, request: pb2.WatchRequest, context: Any) -> AsyncIterator[pb2.PodStatus]:
        await self._authorise(context)
        async for status in self._pods.watch():
            if status.name != "aimaster":
                yield status

    async def List(self, request: pb2.WatchRequest, context: Any) -> pb2.PodsReply:
        await self._authorise(context)
        return pb2.PodsReply(pods=[status for status in self._pods.statuses() if status.name != "aimaster"])

    @staticmethod
    async def _authorise(context: Any) -> None:
        role = peer_role(context)
        if role not in _ALLOWED:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"certificate {role!r} may not start or stop processes"
            )
