"""A client of the job's AIMaster with the administrator's certificate; for the launcher and for the command line."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import grpc

from deeprec_ext.errors import JobFailedError, UnreachableError, UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.security import lifetimes
from deeprec_ext.security.credentials import open_aio_channel, server_name, stamp

_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_USAGE = (
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.NOT_FOUND,
)  # fmt: skip


ADMIN = "admin"

T = TypeVar("T")


class JobClient:
    """Async context manager. Every call has a deadline; errors are ours: unreachable, usage (refused), or failed."""

    def __init__(self, address: str, job: str, certificates: Path | None) -> None:
        self._address, self._job, self._certificates = address, job, certificates
        self._calls = 0  # under way
        self._open()

    def _open(self) -> None:
        """Raises OSError."""
        seen, name = stamp(self._certificates, ADMIN), server_name("aimaster", self._job)
        self._channel = open_aio_channel(self._address, name, ADMIN, self._certificates)
        self._stamp = seen
        self._admin = rpc.AdminStub(self._channel)

    @classmethod
    def of(cls, directory: RunDirectory) -> JobClient:
        """The job of a run directory. Raises UsageError if there is none, or nobody can talk to it from here."""
        description = directory.read_description()
        try:
            return cls(description["aimaster"], description["job"], directory.certificates)
        except OSError as error:
            raise UsageError(
                f"{error.filename or directory.certificates}: cannot be read ({error.strerror or error}); without the job's "
                "certificates nobody can ask it: give the run directory itself, whole, as `deeprec-ext run` printed it"
            ) from None

    async def __aenter__(self) -> JobClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def status(self, timeout_seconds: float = 2.0) -> pb2.StatusReply:
        return await self._answer(self._admin.Status(pb2.StatusRequest(), timeout=timeout_seconds))

    async def scale(self, request: pb2.ScaleRequest, timeout_seconds: float = 5.0) -> pb2.ScaleReply:
        return await self._answer(self._admin.Scale(request, timeout=timeout_seconds))

    async def hold(self, held: bool, reason: str, timeout_seconds: float = 5.0) -> pb2.HoldReply:
        return await self._answer(self._admin.Hold(pb2.HoldRequest(hold=held, reason=reason), timeout=timeout_seconds))

    async def preview(self, timeout_seconds: float = 20.0) -> tuple[str, str]:
        """What the autoscaler would decide now, and from what: JSON of a Decision and of an Observed. Nothing is done."""
        reply = await self._answer(self._admin.Decisions(pb2.DecisionsRequest(preview=True), timeout=timeout_seconds))
        decision, observed = reply.decisions
        return decision, observed

    async def graph(self, timeout_seconds: float = 10.0) -> pb2.GraphReply:
        return await self._answer(self._admin.Graph(pb2.CatalogueRequest(), timeout=timeout_seconds))

    async def finish(self, status: str, reason: str, timeout_seconds: float = 5.0) -> None:
        await self._answer(self._admin.Finish(pb2.FinishRequest(status=status, reason=reason), timeout=timeout_seconds))

    async def events(self, after: int = 0) -> AsyncIterator[pb2.Event]:
        """Events as they happen, until the AIMaster goes away (then UnreachableError)."""
        self._calls += 1
        try:
            async for event in self._admin.Events(pb2.EventsRequest(after=after, follow=True)):
                yield event
        except grpc.aio.AioRpcError as error:
            raise self._ours(error) from error
        finally:
            self._calls -= 1

    async def _answer(self, call: Awaitable[T]) -> T:
        self._calls += 1
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            if self._calls == 1 and error.code() in _GONE:
                await self._open_again()
            raise self._ours(error) from error
        finally:
            self._calls -= 1

    async def _open_again(self) -> None:
        """With certificates that were renewed since: a channel that connects again does so with those that it began with. Only
        where it has no other call: those would end with it."""
        with contextlib.suppress(OSError):  # being replaced
            if stamp(self._certificates, ADMIN) != self._stamp:
                before = self._channel
                self._open()
                await before.close()

    def _ours(self, error: grpc.aio.AioRpcError) -> Exception:
        if error.code() in _GONE:
            expired = lifetimes.expired(self._certificates, ("ca", ADMIN, "aimaster"), time.time())
            return UnreachableError(f"the AIMaster at {self._address} does not answer: {expired or error.details()}")
        if error.code() in _USAGE:
            return UsageError(error.details() or "refused by the AIMaster")
        return JobFailedError(f"the AIMaster answered {error.code().name}: {error.details()}")
