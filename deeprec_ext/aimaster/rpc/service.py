"""The gRPC service `Agents`: a thin shell around admission and inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.rpc.admission import Admission
from deeprec_ext.aimaster.rpc.inbox import Inbox
from deeprec_ext.aimaster.rpc.missing import Missing
from deeprec_ext.errors import DeepRecError, ProtocolError, StaleError, UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import Speakers, peer_certificate

log = logging.getLogger(__name__)
HELLO_SECONDS = 10.0
WRITE_SECONDS = 1.0

CODES: tuple[tuple[type[BaseException], grpc.StatusCode], ...] = (
    (PermissionError, grpc.StatusCode.PERMISSION_DENIED),
    (StaleError, grpc.StatusCode.FAILED_PRECONDITION),
    (ProtocolError, grpc.StatusCode.FAILED_PRECONDITION),
    (UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (DeepRecError, grpc.StatusCode.INTERNAL),
)


async def refuse(context: grpc.aio.ServicerContext, error: BaseException) -> NoReturn:
    """Ends the call with the code for this error and its one line."""
    code = next((code for kind, code in CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    await context.abort(code, str(error))
    raise AssertionError("abort raises")


class AgentsService(rpc.AgentsServicer):
    def __init__(self, job: Job, admission: Admission, inbox: Inbox, missing: Missing, speakers: Speakers) -> None:
        self._job, self._admission, self._inbox, self._missing = job, admission, inbox, missing
        self._speakers = speakers

    async def Register(self, request: pb.RegisterRequest, context: grpc.aio.ServicerContext) -> pb.RegisterReply:
        try:
            return await self._admission.register(request, peer_certificate(context))
        except (DeepRecError, PermissionError) as error:
            log.warning("registration refused: %s", error)
            await refuse(context, error)

    async def Stream(self, _: object, context: grpc.aio.ServicerContext) -> None:
        member = await self._hello(context)
        generation = member.outbox.attach()
        member.stream_lost = None
        self._job.members.sign_of_life(member)
        self._job.changed.notify()
        reader = asyncio.ensure_future(self._read(member, generation, context))
        writer = asyncio.ensure_future(self._write(member, generation, context))
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            if member.outbox.generation == generation:
                member.stream_lost = self._job.clock.monotonic()
                member.outbox.detach()
            await asyncio.wait((writer,), timeout=WRITE_SECONDS)  # what is being written must be, before a status is
            writer.cancel()
        for task in (reader, writer):
            if task.done() and not task.cancelled() and task.exception() is not None:
                log.warning("the stream of %s broke: %r", member.name, task.exception())
        if member.outbox.closed:
            await refuse(context, StaleError(f"{member.name}: {member.outbox.closed}"))

    async def _compare(self, member: Member, context: grpc.aio.ServicerContext) -> None:
        """The certificate must be that of the process it wants to speak for."""
        certificate = peer_certificate(context)
        if not self._speakers.may(certificate, member.name):
            line = f"the certificate {certificate!r} may not speak for {member.name}"
            log.warning("a caller was refused: %s", line)
            self._job.event("impostor", member.name, certificate=certificate or "")
            await refuse(context, PermissionError(line))

    async def Missing(self, request: pb.MissingRequest, context: grpc.aio.ServicerContext) -> pb.MissingReply:
        if (member := self._job.members.by_incarnation(request.incarnation)) is not None:
            await self._compare(member, context)
        return await self._missing.judge(request)

    async def Declare(self, request: pb.DeclareRequest, context: grpc.aio.ServicerContext) -> pb.DeclareReply:
        if (member := self._job.members.by_incarnation(request.incarnation)) is None:
            return pb.DeclareReply(heard=False)
        await self._compare(member, context)
        self._inbox.declared(member, request)
        return pb.DeclareReply(heard=True)

    async def Position(self, request: pb.PositionRequest, context: grpc.aio.ServicerContext) -> pb.PositionReply:
        return pb.PositionReply(ledger=self._job.ledger.position())

    async def Epoch(self, request: pb.EpochRequest, context: grpc.aio.ServicerContext) -> pb.EpochReply:
        if (member := self._job.members.by_incarnation(request.incarnation)) is None:
            return pb.EpochReply()
        await self._compare(member, context)
        return self._job.ledger.end_of_epoch(member, request)

    async def _hello(self, context: grpc.aio.ServicerContext) -> Member:
        try:
            first = await asyncio.wait_for(context.read(), HELLO_SECONDS)
        except asyncio.TimeoutError:
            await refuse(context, ProtocolError("the stream did not begin with Hello"))
        if first is grpc.aio.EOF or first.WhichOneof("message") != "hello":
            await refuse(context, ProtocolError("the stream did not begin with Hello"))
        member = self._job.members.by_incarnation(first.hello.incarnation)
        if member is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"{first.hello.incarnation[:8]} is not registered here: register first"
            )
        assert member is not None  # abort raises
        await self._compare(member, context)
        return member

    async def _read(self, member: Member, generation: int, context: grpc.aio.ServicerContext) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            if member.outbox.closed or member.outbox.generation != generation:
                return  # fenced, or the agent has a newer stream
            began = self._job.clock.monotonic()
            try:
                self._inbox.receive(member, message)
            except Exception as error:
                kind = message.WhichOneof("message")
                log.exception("a message of %s (%s) could not be handled", member.name, kind)
                self._job.handler_failed(f"{kind} of {member.name}", error, member.name)
            now = self._job.clock.monotonic()
            if (wait := member.allowance.spend(message.ByteSize(), now - began, now)) > 0:
                await self._slow_down(member, wait)

    async def _slow_down(self, member: Member, seconds: float) -> None:
        if not member.slowed:
            member.slowed = True
            text = f"{member.name} says more than is taken from one process, and is read more slowly: what it says comes late"
            log.warning("%s", text)
            self._job.event("warning", member.name, text=text)
        await asyncio.sleep(seconds)

    async def _write(self, member: Member, generation: int, context: grpc.aio.ServicerContext) -> None:
        while (message := await member.outbox.next(generation)) is not None:
            await context.write(message)


def serialize(message: Message | bytes) -> bytes:
    """Messages to thousands are serialised once, by whoever makes them."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def agents_handlers(service: AgentsService) -> grpc.GenericRpcHandler:
    """The handlers of `Agents`; as the generated ones, but they also send what is serialised already."""
    unary: tuple[tuple[Callable[..., Any], type[Message]], ...] = (
        (service.Register, pb.RegisterRequest), (service.Missing, pb.MissingRequest), (service.Declare, pb.DeclareRequest),
        (service.Position, pb.PositionRequest), (service.Epoch, pb.EpochRequest),
    )  # fmt: skip
    handlers: dict[str, Callable[..., object]] = {
        method.__name__: grpc.unary_unary_rpc_method_handler(method, request.FromString, serialize)
        for method, request in unary
    }
    handlers["Stream"] = grpc.stream_stream_rpc_method_handler(service.Stream, pb.AgentMessage.FromString, serialize)
    return grpc.method_handlers_generic_handler("deeprec_ext.v1.Agents", handlers)
