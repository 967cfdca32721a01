"""The border: nothing passes that is out of its range, no secret comes further, and no error of a handler ends the AIMaster.

One interceptor for unary calls and streams. A message is compared with the ranges of its fields; one that is out of it ends
that call or stream with INVALID_ARGUMENT, and its sender is named to whoever keeps the suspects. The incarnation in what passes
is replaced by its public form: behind the border nobody knows what an agent could be impersonated with.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from deeprec_ext.aimaster.rpc.wrapping import Call, wrapped
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto.bounds import Violation
from deeprec_ext.security.credentials import peer_certificate
from deeprec_ext.security.incarnations import public

log = logging.getLogger(__name__)

OURS = f"/{pb.DESCRIPTOR.package}."
ERROR_MAX = 300

Offended = Callable[[str, str, Violation], str]
"""Called with the certificate (empty without TLS), the public incarnation (empty: unknown) and what was wrong. Returns who
it was."""

Failed = Callable[[str, BaseException], None]
"""Called with the method and the error of its handler."""

SPEAKING = (pb.RegisterRequest, pb.MissingRequest, pb.DeclareRequest, pb.EpochRequest)
"""Requests with the incarnation of who makes them."""


class Border(grpc.aio.ServerInterceptor):
    """Comes after `Authorisation`: who may not call is not listened to."""

    def __init__(
        self, offended: Offended = lambda certificate, *_: certificate or "somebody", failed: Failed = lambda *_: None
    ) -> None:
        self._offended, self._failed = offended, failed

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(OURS):
            return handler
        method = handler_call_details.method
        reads = handler.request_streaming
        if reads and inspect.isasyncgenfunction(handler.stream_stream):
            raise TypeError(f"{method} reads in a way that the border does not know")

        def around(call: Call) -> Call:
            async def bordered(request: Any, context: grpc.aio.ServicerContext) -> Any:
                watched = _Watched(context, self._offended)
                if not reads and not await watched.admits(request):
                    return None
                with _Guard(self, method) as guard:
                    reply = await call(request, watched)
                    if reads:
                        await watched.end()
                    return reply
                if guard.error is not None:
                    await guard.abort(context)
                return None

            return bordered

        return wrapped(handler, around)

    def failed(self, method: str, error: BaseException) -> None:
        log.error("the handler of %s failed", method, exc_info=error)
        try:
            self._failed(method, error)
        except Exception:
            log.exception("that could not be told")


class _Guard:
    """Keeps what a handler raises, unless it is meant for gRPC."""

    def __init__(self, border: Border, method: str) -> None:
        self._border, self._method = border, method
        self.error: BaseException | None = None

    def __enter__(self) -> _Guard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None or not isinstance(error, Exception) or isinstance(error, grpc.aio.AbortError):
            return False
        if isinstance(
            error, grpc.aio.InternalError
        ):  # of gRPC: the caller is gone, and hears neither answer nor refusal
            log.debug("%s ended under its handler: %s", self._method, error)
            return True
        self.error = error
        self._border.failed(self._method, error)
        return True

    async def abort(self, context: grpc.aio.ServicerContext) -> None:
        line = f"{self._method.rpartition('/')[2]} failed: {type(self.error).__name__}: {self.error}"
        await _abort(context, grpc.StatusCode.INTERNAL, line[:ERROR_MAX])


async def _abort(context: grpc.aio.ServicerContext, code: grpc.StatusCode, details: str) -> None:
    """Ends the call. One that has ended by itself meanwhile, or whose caller reads nothing any more, is left alone."""
    try:
        await context.abort(code, details)
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        log.debug("a call could not be ended with %s (%s): %s", code.name, details, error)


class _Watched:
    """The context of one call, as its handler sees it: a stream ends where a message is out of range."""

    def __init__(self, context: grpc.aio.ServicerContext, offended: Offended) -> None:
        self._context, self._offended = context, offended
        self._incarnation = ""
        self._refusal = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        if self._refusal:
            return grpc.aio.EOF
        message = await self._context.read()
        if message is grpc.aio.EOF or self._admit(message):
            return message
        return grpc.aio.EOF

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        """What was out of range is the reason, whatever the handler makes of the end of the stream."""
        if self._refusal:
            code, details = grpc.StatusCode.INVALID_ARGUMENT, self._refusal
        await self._context.abort(code, details, trailing_metadata)

    async def end(self) -> None:
        if self._refusal:
            await _abort(self._context, grpc.StatusCode.INVALID_ARGUMENT, self._refusal)

    async def admits(self, request: Any) -> bool:
        """Else the call is ended, or has ended by itself meanwhile: either way no handler sees the request."""
        if self._admit(request):
            return True
        await self.end()
        return False

    def _admit(self, message: Message) -> bool:
        violation = bounds.check(message)
        if violation is None:
            self._hide(message)
            return True
        if isinstance(message, SPEAKING):
            self._incarnation = public(message.incarnation)
        who = self._offended(peer_certificate(self._context) or "", self._incarnation, violation)
        self._refusal = f"{who}: {violation}"
        return False

    def _hide(self, message: Message) -> None:
        """The secret becomes what others may know of it."""
        if isinstance(message, pb.AgentMessage):
            if not message.HasField("hello"):
                return
            message = message.hello
        if isinstance(message, (*SPEAKING, pb.Hello)):
            message.incarnation = self._incarnation = public(message.incarnation)
