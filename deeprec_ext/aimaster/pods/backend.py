"""Where pods come from. One Protocol; on one machine a client of the launcher, in a cluster `kubernetes.backend`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.decoding import alike
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.gazer.host import free_memory_bytes
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.retries import pauses, retried
from deeprec_ext.security import credentials

log = logging.getLogger(__name__)
T = TypeVar("T")

CALL_SECONDS = 10.0
TRY_SECONDS = 30.0
"""How long a create or delete is tried again while the launcher cannot be reached."""

TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""The last one: its machine has no room (a full disk has none for a certificate), no processes or no files left, at present."""


@dataclass(frozen=True)
class PodState:
    """What the backend knows about one pod. Exit codes are 128 + signal for a signal."""

    name: str
    state: str  # running, exited
    pid: int = 0
    exit_code: int = 0
    restarting: bool = False
    restarts: int = 0
    deleted: bool = False
    last_line: str = ""
    cause: str = ""  # of the exit, where the code does not tell: oom, evicted, preempted, node lost, deleted, and more
    cpu: float = 0.0  # cores it is held to; 0: no limit
    memory_bytes: int = 0


class PodBackend(Protocol):
    """Called by the AIMaster only, from its event loop. Everything is idempotent by name."""

    resizes_in_place: bool
    """Whether `resize` changes pods that run; else only those to come."""

    one_host: bool
    """Whether all pods, those to come too, share one machine."""

    async def create(self, name: str) -> None:
        """Starts the pod unless it runs. Raises UnreachableError when the backend does not answer."""

    async def delete(self, name: str, grace_seconds: float) -> None:
        """Stops the pod, which is not started again by itself; grace 0 kills at once. Does not wait for the exit."""

    async def end(self, name: str, pid: int, exit_code: int) -> None:
        """The script of process `pid` has ended with this code, the process has not: it is killed, and if it is the pod's own,
        the pod ends with that code. Does not wait for the exit. Raises UnreachableError."""

    async def resize(self, name: str, cpu: float, memory_bytes: int) -> None:
        """Gives one pod (`ps-1`), or a role (`ps`, `worker`: those that run, if they can, and those to come), other limits.

        0: as they are.

        Raises UnreachableError when the backend does not answer, UsageError when it cannot.
        """

    def watch(self) -> AsyncIterator[PodState]:
        """All pods first, then each change, for ever; after a broken connection all pods again."""

    async def existing(self) -> list[PodState]:
        """All there are at the moment. Raises UnreachableError."""

    def available_memory(self) -> int | None:
        """Bytes that new copies of variables may take in all, None when unknown."""

    def waiting_reason(self, name: str) -> str:
        """Why a pod that was asked for does not run yet (no node has room, no such image); empty: there is nothing to say."""

    async def close(self) -> None: ...


class LauncherBackend:
    """Pods are processes of this machine, or jobs of a scheduler (`elsewhere`), kept by the launcher."""

    def __init__(self, address: str, job: str, certs: str | None, *, elsewhere: bool = False) -> None:
        self._address, self._certs = address, certs
        self._elsewhere = elsewhere
        self.resizes_in_place = self.one_host = not elsewhere
        self._waiting: dict[str, str] = {}
        self._name = credentials.server_name("launcher", job)
        self._channel: grpc.aio.Channel | None = None

    def _stub(self) -> rpc.LauncherStub:
        if self._channel is None:
            self._channel = credentials.open_aio_channel(self._address, self._name, "aimaster", self._certs)
        return rpc.LauncherStub(self._channel)  # type: ignore[no-untyped-call]

    async def _reopen(self) -> None:
        """A new channel reads renewed certificates."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _call(self, what: str, call: Callable[[rpc.LauncherStub], Awaitable[T]]) -> T:
        try:
            return await retried(lambda: call(self._stub()), _is_transient, TRY_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise UnreachableError(f"the launcher could not {what}: {error.details()}") from error

    async def create(self, name: str) -> None:
        role, index = parse_name(name)
        pod = pb.Pod(name=name, role=role, index=index)
        await self._call(f"create {name}", lambda stub: stub.Create(pod, timeout=CALL_SECONDS))

    async def delete(self, name: str, grace_seconds: float) -> None:
        request = pb.PodRequest(name=name, grace_seconds=grace_seconds)
        await self._call(f"delete {name}", lambda stub: stub.Delete(request, timeout=CALL_SECONDS + grace_seconds))

    async def end(self, name: str, pid: int, exit_code: int) -> None:
        request = pb.PodEnd(name=name, pid=pid, exit_code=exit_code)
        await self._call(f"end {name}", lambda stub: stub.End(request, timeout=CALL_SECONDS))

    async def resize(self, name: str, cpu: float, memory_bytes: int) -> None:
        request = pb.ResizeRequest(name=name, resources=pb.Resources(cpu=cpu, memory_bytes=memory_bytes))
        try:
            await self._call(f"resize {name}", lambda stub: stub.Resize(request, timeout=CALL_SECONDS))
        except UnreachableError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.aio.AioRpcError) and cause.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise UsageError(cause.details() or f"{name} cannot be resized") from error
            raise

    async def watch(self) -> AsyncIterator[PodState]:
        waits = pauses(0.1, 2.0)
        while True:
            try:
                async for status in self._stub().Watch(pb.WatchRequest()):
                    waits = pauses(0.1, 2.0)
                    if self._placed(status):
                        yield _state(status)
            except grpc.aio.AioRpcError as error:
                log.warning("the launcher at %s cannot be watched: %s", self._address, error.details())
            pause = next(waits)
            await asyncio.sleep(pause)
            if pause > 0.5:
                await self._reopen()

    async def existing(self) -> list[PodState]:
        reply = await self._call("list its pods", lambda stub: stub.List(pb.WatchRequest(), timeout=CALL_SECONDS))
        return [_state(status) for status in reply.pods if self._placed(status)]

    def _placed(self, status: pb.PodStatus) -> bool:
        """Whether it runs or has ended; else why not is noted."""
        if status.state == "waiting":
            self._waiting[status.name] = status.cause
        else:
            self._waiting.pop(status.name, None)
        return status.state != "waiting"

    def available_memory(self) -> int | None:
        return None if self._elsewhere else free_memory_bytes()

    def waiting_reason(self, name: str) -> str:
        return self._waiting.get(name, "")

    async def close(self) -> None:
        await self._reopen()


def _is_transient(error: Exception) -> bool:
    return isinstance(error, grpc.aio.AioRpcError) and error.code() in TRANSIENT


def _state(status: pb.PodStatus) -> PodState:
    return alike(PodState, status, cpu=status.resources.cpu, memory_bytes=status.resources.memory_bytes)
