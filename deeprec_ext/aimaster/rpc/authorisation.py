"""Which certificate may call which method. What is not in the table is refused."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from deeprec_ext.aimaster.rpc.wrapping import Call, wrapped
from deeprec_ext.security.credentials import peer_role

log = logging.getLogger(__name__)

_AGENTS = frozenset({"ps", "trainer"})
_ADMIN = frozenset({"admin", "launcher"})
_ANYBODY = frozenset({"ps", "trainer", "admin", "aimaster", "launcher"})
METHODS: dict[str, frozenset[str]] = {
    "/deeprec_ext.v1.Agents/Register": _AGENTS,
    "/deeprec_ext.v1.Agents/Stream": _AGENTS,
    "/deeprec_ext.v1.Agents/Missing": frozenset({"trainer"}),
    "/deeprec_ext.v1.Agents/Declare": frozenset({"trainer"}),
    "/deeprec_ext.v1.Agents/Position": frozenset({"trainer"}),
    "/deeprec_ext.v1.Agents/Epoch": frozenset({"trainer"}),
    "/deeprec_ext.v1.Admin/Status": _ADMIN,
    "/deeprec_ext.v1.Admin/Scale": _ADMIN,
    "/deeprec_ext.v1.Admin/Series": _ADMIN,
    "/deeprec_ext.v1.Admin/Hold": _ADMIN,
    "/deeprec_ext.v1.Admin/Decisions": _ADMIN,
    "/deeprec_ext.v1.Admin/Events": _ADMIN,
    "/deeprec_ext.v1.Admin/Graph": _ADMIN,
    "/deeprec_ext.v1.Admin/Finish": _ADMIN,
    "/grpc.health.v1.Health/Check": _ANYBODY,
    "/grpc.health.v1.Health/Watch": _ANYBODY,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _ADMIN,
}


class Authorisation(grpc.aio.ServerInterceptor):
    """Wraps every handler with a look at the peer's certificate."""

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or not self._tls:
            return handler
        method = handler_call_details.method
        allowed = METHODS.get(method, frozenset())

        def around(call: Call) -> Call:
            async def checked(request: Any, context: grpc.aio.ServicerContext) -> Any:
                role = peer_role(context)
                if role not in allowed:
                    log.warning("a caller with the certificate %r was refused %s", role, method)
                    line = f"the certificate {role!r} may not call {method}"
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, line)
                return await call(request, context)

            return checked

        return wrapped(handler, around)
