"""Which certificate may call which method. What is not in the table is refused."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from deeprec_ext.security.credentials import peer_role

log = logging.getLogger(__name__)

_AGENTS = frozenset({"ps", "trainer"})
_ADMIN = frozenset({"admin", "launcher"})
_ANYBODY = frozenset({"ps", "trainer", "admin", "aimaster", "launcher"})
METHODS: dict[str, frozenset[str]] = {
    "/deeprec_ext.v1.Agents/Register": _AGENTS,
    "/deeprec_ext.v1.Agents/Stream": _AGENTS,
    "/deeprec_ext.v1.Agents/Missing": frozenset({"trainer"}),
    "/deeprec_ext.v1.Agents/Position": frozenset({"trainer"}),
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

        async def check(context: grpc.aio.ServicerContext) -> None:
            role = peer_role(context)
            if role not in allowed:
                log.warning("a caller with the certificate %r was refused %s", role, method)
                line = f"the certificate {role!r} may not call {method}"
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, line)

        return _guarded(handler, check)


def _guarded(handler: Any, check: Callable[[grpc.aio.ServicerContext], Awaitable[None]]) -> Any:
    serializers = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.unary_unary is not None:

        async def unary(request: Any, context: grpc.aio.ServicerContext) -> Any:
            await check(context)
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(unary, **serializers)
    if handler.unary_stream is not None:

        async def stream(request: Any, context: grpc.aio.ServicerContext) -> Any:
            await check(context)
            async for reply in handler.unary_stream(request, context):
                yield reply

        return grpc.unary_stream_rpc_method_handler(stream, **serializers)
    both = handler.stream_stream
    if both is None:
        raise TypeError("no method of this server has a stream of requests and one reply")
    if not _is_generator(both):

        async def reads_and_writes(requests: Any, context: grpc.aio.ServicerContext) -> None:
            await check(context)
            await both(requests, context)

        return grpc.stream_stream_rpc_method_handler(reads_and_writes, **serializers)

    async def yields(requests: Any, context: grpc.aio.ServicerContext) -> Any:
        await check(context)
        async for reply in both(requests, context):
            yield reply

    return grpc.stream_stream_rpc_method_handler(yields, **serializers)


def _is_generator(function: Any) -> bool:
    return inspect.isasyncgenfunction(function)
