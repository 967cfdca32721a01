"""Every edge of every field of every message that a trainer may send, to an AIMaster whose other agents go on."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from benchmarks.lies.edges import UNARY, Lie, lies
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.proto import PROTOCOL_MAJOR, bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from tests.unit.aimaster.ledger.test_job import ask
from tests.unit.aimaster.world import World, world

AT_ONCE = 40
TOLD = 1500
CLIENT = "Internal error from Core"
"""Of the client itself, whose stream was closed while it wrote."""


class Liar:
    """In the name of worker-1, whose pod runs and never registers."""

    def __init__(self, stub: rpc.AgentsStub) -> None:
        self._stub, self.incarnation = stub, uuid.uuid4().hex
        self.codes: Counter[str] = Counter()
        self.internal: list[str | None] = []

    def _request(self) -> pb.RegisterRequest:
        return pb.RegisterRequest(
            protocol_major=PROTOCOL_MAJOR, job="job", role=pb.WORKER, index=1, incarnation=self.incarnation, known_task=-1
        )  # fmt: skip

    async def register(self) -> None:
        try:
            await self._stub.Register(self._request(), timeout=10)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                self.incarnation = uuid.uuid4().hex
                await self._stub.Register(self._request(), timeout=10)

    async def tell(self, told: list[Lie]) -> None:
        waiting = list(told)
        while waiting:
            if waiting[0].kind in UNARY:
                await self._ask(waiting.pop(0))
                continue
            batch: list[pb.AgentMessage] = []
            while waiting and waiting[0].kind not in UNARY and len(batch) < AT_ONCE:
                message = waiting.pop(0).message
                assert isinstance(message, pb.AgentMessage)
                batch.append(message)
                if bounds.check(message) is not None:
                    break
            await self._stream(batch)

    async def _ask(self, lie: Lie) -> None:
        message = lie.message
        try:
            if isinstance(message, pb.RegisterRequest):
                request = self._request()
                request.MergeFrom(message)
                request.role, request.index = pb.WORKER, 1  # here is no certificate that keeps it to that
                await self._stub.Register(request, timeout=0.5)
            else:
                asked = pb.MissingRequest(incarnation=self.incarnation)
                asked.MergeFrom(message)
                await self._stub.Missing(asked, timeout=5)
        except grpc.aio.AioRpcError as error:
            self.codes[error.code().name] += 1

    async def _stream(self, batch: list[pb.AgentMessage]) -> None:
        async def speak() -> AsyncIterator[pb.AgentMessage]:
            yield pb.AgentMessage(hello=pb.Hello(incarnation=self.incarnation))
            for message in batch:
                yield message

        try:
            async for _ in self._stub.Stream(speak(), timeout=10):
                pass
        except grpc.aio.AioRpcError as error:
            self.codes[error.code().name] += 1
            if error.code() == grpc.StatusCode.INTERNAL and error.details() != CLIENT:
                self.internal.append(error.details())
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
                await self.register()


def events(it: World, type_: str) -> list[dict[str, object]]:
    return [{"role": row[3], **json.loads(row[5])} for row in it.master.job.store.events(0, 100_000) if row[2] == type_]


@pytest.mark.parametrize("seed", [1, 2])
def test_all_edges_of_all_fields_break_nothing(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            await it.training()
            it.backend.stillborn = {"worker-1"}
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            await ask(it, chief, 2)
            await it.scale(workers=2)
            await it.until(lambda: "worker-1" in it.backend.pods)
            async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
                liar = Liar(rpc.AgentsStub(channel))
                await liar.register()
                await liar.tell(lies(TOLD, seed, "train"))
            job = it.master.job
            assert liar.codes["INVALID_ARGUMENT"] > 300 and not liar.internal and not liar.codes["UNKNOWN"]
            assert not events(it, "handler_failed")
            assert not it.master.broken.is_set() and not job.stale.is_set() and not job.ending
            for name in ("chief-0", "worker-0", "ps-0", "ps-1"):
                assert job.members.get(name) is not None and not job.suspects.of(name), name
                assert name not in it.backend.deleted
            assert it.agent("worker-0") is worker and worker.registered == 1
            status = await it.status()
            assert status.step < 10**6 and [one.name for one in status.data] == ["train"]
            [data] = status.data
            assert data.records == 200 and 0 <= data.trained <= 200 and data.repeated <= 10**4
            assert sum(role.bytes for role in status.roles) < 1 << 32
            reply = await ask(it, worker, 1)
            assert not reply.error
            before = (status.epoch, len(it.master.job.catalogue.variables))
            await it.crash()
            await it.start()  # what is stored can be read back
            await it.until(lambda: it.master.job.settled)
            assert not it.master.broken.is_set() and not events(it, "stored_set_aside")
            assert (await it.status()).epoch >= before[0]
            summary = summarize(it.master.job.store, status="", seconds=0.0, roles={})
            assert summary["steps"] < 10**6 and summary["examples"] < 10**9
            json.loads(json.dumps(summary), parse_constant=lambda word: pytest.fail(word))

    asyncio.run(asyncio.wait_for(main(), 240))
