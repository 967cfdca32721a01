"""The agent: one thread and one stream between a process of the job and its AIMaster.

Down come views and commands, up go acks, heartbeats and reports. When the stream breaks, the process goes on with what it
has; the agent registers again, with the same incarnation, until an AIMaster answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from deeprec_ext import env, options, proto
from deeprec_ext.elastic import sent_away
from deeprec_ext.elastic.agent.leaving import left
from deeprec_ext.elastic.agent.memory import Memory
from deeprec_ext.errors import ProtocolError, StaleError, UnreachableError
from deeprec_ext.gazer import host, hostload
from deeprec_ext.gazer.process import process_sample
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import incarnations, lifetimes
from deeprec_ext.security.credentials import certificate_for, open_channel, server_name

log = logging.getLogger("deeprec_ext")

REGISTER_LIMIT_SECONDS = 900.0
"""How long a process waits to be let in: the first PS may still pull their image."""

RETRY_SECONDS = (0.1, 1.0)
"""First and longest wait between two attempts to reach the AIMaster again."""

OUTBOX_MESSAGES = 10_000
"""Bound of the queue to the AIMaster; when it is unreachable for so long that it fills, the oldest go."""

CONGESTED_MESSAGES = 20
"""More waiting than ever do while the AIMaster listens."""

COMMANDS_REMEMBERED = 256
"""Commands whose acks can be repeated; a scaling has about ten."""


class NotNowError(UnreachableError):
    """The AIMaster dies, starts, or rebuilds its store: it is worth asking again."""


class Handler(Protocol):
    """The process behind an agent: a trainer or a PS. Called in the agent's thread; must not block."""

    def registered(self, reply: pb.RegisterReply) -> None:
        """At the first registration and after each reconnection."""

    def receive(self, message: pb.MasterMessage) -> None:
        """A view, a notice or a command."""

    def beat(self) -> pb.Heartbeat:
        """What this process reports; the agent adds memory and CPU."""

    def tell(self, known: pb.Known) -> None:
        """Adds what this process knows, beside what its agent has heard. For an AIMaster that has lost its store."""

    def fenced(self, reason: str) -> None:
        """This process has been replaced and must not touch the model any more."""


@dataclass(frozen=True)
class Identity:
    """Who this process is: name, incarnation (a secret that only its AIMaster hears), address of its TensorFlow server."""

    role: str
    index: int
    address: str
    incarnation: str

    @classmethod
    def of_this_process(cls, address: str) -> Identity:
        return cls(env.role(), env.index(), address, uuid.uuid4().hex)

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def public(self) -> str:
        """How views and others call this incarnation."""
        return incarnations.public(self.incarnation)


STANDING = ("live", "catalogue", "passes", "ring")
"""Kinds of messages that are said once: said again whenever the connection is made anew. To whoever has heard them they are
no news."""


class Agent:
    """Owns the thread and the channel; `close` joins it."""

    def __init__(self, identity: Identity, handler: Handler, tensorflow_version: str = "") -> None:
        self.identity = identity
        self._handler = handler
        self._tensorflow_version = tensorflow_version
        self._outbox: queue.Queue[pb.AgentMessage | None] = queue.Queue(OUTBOX_MESSAGES)
        self._closing = threading.Event()
        self._commands: OrderedDict[int, pb.AgentMessage | None] = OrderedDict()  # with the ack, once there is one
        self._standing: dict[str, pb.AgentMessage] = {}  # the last of each kind that is said once and counts for good
        self._crowd, self._lateness = hostload.Crowd(), hostload.Lateness()
        self._thread: threading.Thread | None = None
        self._reply: pb.RegisterReply | None = None
        self.memory = Memory(identity.public)
        self.heartbeat_seconds = options.Settings.heartbeat_seconds

    # -- called by the process

    @property
    def known_epoch(self) -> int:
        """Of the newest view that was heard of; 0: none yet."""
        return self.memory.view.epoch

    def start(self) -> pb.RegisterReply:
        """Registers (waits until the job lets this process in) and starts the thread.

        Raises ProtocolError when the AIMaster speaks another version, StaleError when this process has been replaced,
        UnreachableError when nobody answers.
        """
        reply = self._register_patiently(REGISTER_LIMIT_SECONDS)
        self._handler.registered(reply)
        thread = threading.Thread(target=self._work, name="deeprec-agent", daemon=True)
        thread.start()
        self._thread = thread  # only now: the end of the script joins it
        return reply

    def send(self, message: pb.AgentMessage) -> None:
        """Queues a message; never blocks. Until it is in the stream it may be dropped, and there it may be lost."""
        kind = message.WhichOneof("message")
        if kind in STANDING:
            self._standing[kind] = message
        while True:
            try:
                return self._outbox.put_nowait(message)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._outbox.get_nowait()

    @property
    def congested(self) -> bool:
        """Whether messages wait: the AIMaster is away, or cannot keep up."""
        return self._outbox.qsize() > CONGESTED_MESSAGES

    def ack(self, command_id: int, error: str = "", **more: Any) -> None:
        """`more`: further fields of the Ack."""
        message = pb.AgentMessage(ack=pb.Ack(command_id=command_id, ok=not error, error=error, **more))
        self._commands[command_id] = message
        self.send(message)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Sends what is queued, within the time, and ends the thread."""
        left()
        deadline = time.monotonic() + timeout_seconds
        while not self._outbox.empty() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._closing.set()
        self.send(pb.AgentMessage())  # wakes the writer
        if self._thread is not None:
            self._thread.join(max(0.1, deadline - time.monotonic()))

    # -- the thread

    def _work(self) -> None:
        wait = RETRY_SECONDS[0]
        while not self._closing.is_set():
            started = time.monotonic()
            try:
                self._converse()
            except grpc.RpcError as error:
                log.debug("the stream to the AIMaster broke: %s", error)
            except Exception:
                log.exception("the agent of %s failed; it connects again", self.identity.name)
            if self._closing.is_set():
                return
            if time.monotonic() - started > 5:
                wait = RETRY_SECONDS[0]
            self._closing.wait(wait)
            wait = min(RETRY_SECONDS[1], 2 * wait)
            try:
                self._handler.registered(self._register(10.0))
            except (StaleError, ProtocolError) as error:
                self._handler.fenced(str(error))
                return
            except UnreachableError:
                continue

    def _converse(self) -> None:
        channel = self.channel()
        ended = threading.Event()
        try:
            for message in rpc.AgentsStub(channel).Stream(self._speak(ended)):
                if self._reply is not None and message.aimaster_incarnation < self._reply.aimaster_incarnation:
                    log.warning("ignored a message of a stale AIMaster (incarnation %d)", message.aimaster_incarnation)
                    continue
                if not self._known(message):
                    self.memory.heard(message)
                    self._handler.receive(message)
                if self._closing.is_set():
                    return
        finally:
            ended.set()
            channel.close()

    def _known(self, message: pb.MasterMessage) -> bool:
        """A command that came before, over a stream that broke, is not carried out again; only its ack is sent again."""
        if message.WhichOneof("message") != "command":
            return False
        command_id = message.command.id
        if command_id not in self._commands:
            self._commands[command_id] = None
            if len(self._commands) > COMMANDS_REMEMBERED:
                self._commands.popitem(last=False)
            return False
        ack = self._commands[command_id]
        if ack is not None:
            self.send(ack)
        return True

    def _speak(self, ended: threading.Event) -> Iterator[pb.AgentMessage]:
        """What goes up the stream: hello, what counts for good, then queued messages, and a heartbeat whenever one is due."""
        yield pb.AgentMessage(hello=pb.Hello(incarnation=self.identity.incarnation))
        for kind in STANDING:  # a stream that broke may have lost it
            if kind in self._standing:
                yield self._standing[kind]
        due = time.monotonic()
        while not ended.is_set():
            now = time.monotonic()
            if now >= due:
                late, due = self._lateness.add(now, now - due), now + self.heartbeat_seconds
                yield pb.AgentMessage(heartbeat=self._heartbeat(late))
            try:
                message = self._outbox.get(timeout=max(0.0, due - now))
            except queue.Empty:
                continue
            if ended.is_set():  # nobody reads this stream any more
                if message is not None:
                    self.send(message)
                return
            if message is not None and message.WhichOneof("message"):
                yield message
            if self._closing.is_set() and self._outbox.empty():
                return

    def _heartbeat(self, late_seconds: float) -> pb.Heartbeat:
        beat = self._handler.beat()
        beat.late_seconds = late_seconds
        sample = process_sample()
        beat.rss_bytes, beat.cpu_seconds, beat.crowd = sample.rss_bytes, sample.cpu_seconds, self._crowd.sample()
        return beat

    # -- registration

    def channel(self) -> grpc.Channel:
        """To the AIMaster; the caller closes it."""
        address = env.aimaster_address()
        if address is None:
            raise UnreachableError("DEEPREC_EXT_AIMASTER is not set")
        return open_channel(address, server_name("aimaster", env.job()), self._certificate(), env.certificates())

    def _certificate(self) -> str:
        return certificate_for(env.certificates(), self.identity.role, self.identity.index)

    def _register_patiently(self, limit_seconds: float) -> pb.RegisterReply:
        """The first time: an AIMaster that dies or rebuilds its store meanwhile is no reason to give up."""
        deadline = time.monotonic() + limit_seconds
        while True:
            try:
                return self._register(max(1.0, deadline - time.monotonic()))
            except NotNowError:
                if time.monotonic() > deadline or self._closing.wait(RETRY_SECONDS[1]):
                    raise

    def _register(self, limit_seconds: float) -> pb.RegisterReply:
        known, deadline = self._reply, time.monotonic() + limit_seconds
        task = known.task if known is not None else -1
        request = pb.RegisterRequest(
            protocol_major=proto.PROTOCOL_MAJOR,
            protocol_minor=proto.PROTOCOL_MINOR,
            job=env.job(),
            role=self.identity.role.upper(),
            index=self.identity.index,
            incarnation=self.identity.incarnation,
            address=self.identity.address,
            pid=os.getpid(),
            host=socket.gethostname(),
            machine=hostload.machine(),
            machine_kind=host.machine(),
            pid_namespace=hostload.pid_namespace(),
            known_epoch=self.known_epoch,
            known_task=task,
            known_aimaster=known.aimaster_incarnation if known is not None else 0,
            aimaster_proof=known.aimaster_proof if known is not None else b"",
            tensorflow_version=self._tensorflow_version,
            resident_slots=self.memory.resident_slots(task) if task >= 0 else (),
        )
        channel = self.channel()
        try:
            stub = rpc.AgentsStub(channel)
            reply = stub.Register(request, timeout=limit_seconds, wait_for_ready=True)
            if reply.tell:
                log.info("the AIMaster has lost its store; %s tells it what it knows", self.identity.name)
                request.known.CopyFrom(self.memory.tell())
                self._handler.tell(request.known)
                reply = stub.Register(request, timeout=max(1.0, deadline - time.monotonic()))
        except grpc.RpcError as error:
            raise _registration_error(self.identity.name, error, self._certificate()) from error
        finally:
            channel.close()
        if reply.tell:
            raise NotNowError("the AIMaster asks again what this process knows")
        if known is not None and reply.aimaster_incarnation < known.aimaster_incarnation:
            raise UnreachableError("a stale AIMaster answered")
        if known is not None and reply.aimaster_incarnation > known.aimaster_incarnation:
            self._commands.clear()  # it repeats none of those
        self._reply = reply
        sent_away.is_known()
        self.memory.registered(reply)
        if reply.settings.heartbeat_seconds > 0:
            self.heartbeat_seconds = reply.settings.heartbeat_seconds
        return reply


def _registration_error(name: str, error: grpc.RpcError, certificate: str) -> Exception:
    code, details = error.code(), error.details()
    if code == grpc.StatusCode.FAILED_PRECONDITION:
        return ProtocolError(f"the AIMaster refused {name}: {details}")
    if code in (grpc.StatusCode.ABORTED, grpc.StatusCode.PERMISSION_DENIED):
        return StaleError(f"the AIMaster does not want {name} any more: {details}")
    kind = NotNowError if code == grpc.StatusCode.UNAVAILABLE else UnreachableError
    expired = lifetimes.expired(env.certificates(), ("ca", certificate), time.time())
    return kind(f"{name} could not register with the AIMaster: {code.name}: {expired or details}")
