"""A handler of gRPC with something of ours around it, whatever kind of call it serves."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

Call = Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]


def wrapped(handler: Any, around: Callable[[Call], Call]) -> Any:
    """The handler that `around` makes of it. Raises TypeError for a stream of requests with one reply: there is none."""
    for kind in ("unary_unary", "unary_stream", "stream_stream"):
        if (behaviour := getattr(handler, kind)) is not None:
            call = around(_writing(behaviour) if inspect.isasyncgenfunction(behaviour) else behaviour)
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            return make(call, handler.request_deserializer, handler.response_serializer)
    raise TypeError("no method of this server has a stream of requests and one reply")


def _writing(generator: Callable[..., Any]) -> Call:
    """What it yields is written: around it is a call like any other."""

    async def call(request: Any, context: grpc.aio.ServicerContext) -> None:
        async for reply in generator(request, context):
            await context.write(reply)

    return call
