"""A thousand agents that are not there: what an AIMaster sees of a large job, without its processes.

An agent registers over mTLS, heartbeats, reports what it uses, and acks every command, as a PS or a trainer of a job does; a
PS says that it holds the backups that it is told to hold, a trainer how long a change has paused it. Nothing is trained.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials

JOB = "control"
PS = 4
START_SECONDS = 600.0
TRACE_SECONDS = 30.0
REFRESH_SECONDS = 5.0
SLOTS = 16
VARIABLES, VARIABLE_BYTES = 64, 1 << 20


class Agent:
    """Registers, heartbeats, acks, and notes when it got which epoch."""

    def __init__(self, name: str, address: str, certs: str, heartbeat_seconds: float, gazer_seconds: float) -> None:
        self.name, self.address, self.certs = name, address, certs
        self.heartbeat_seconds, self.gazer_seconds = heartbeat_seconds, gazer_seconds
        self.role, self.index = parse_name(name)
        self.incarnation = uuid.uuid4().hex
        self.epochs: dict[int, float] = {}
        self.epoch, self.guard = 0, pb.Guard()
        self.bytes: Counter[str] = Counter()
        """By kind of message, what was sent and received, before gRPC and TLS; and `n:kind`, how many."""
        self.errors: Counter[str] = Counter()
        self.left = asyncio.Event()
        self._writing = asyncio.Lock()

    async def live(self) -> None:
        certificate = "ps" if self.role == pb.PS else "trainer"
        while not self.left.is_set():
            try:
                name = credentials.server_name("aimaster", JOB)
                async with credentials.open_aio_channel(self.address, name, certificate, self.certs) as channel:
                    await self._session(rpc.AgentsStub(channel))
            except grpc.aio.AioRpcError as error:
                if self.epoch:  # before, the AIMaster may not be there yet
                    self.errors[error.code().name] += 1
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                    return
                await asyncio.sleep(1)

    async def _session(self, stub: rpc.AgentsStub) -> None:
        request = pb.RegisterRequest(
            protocol_major=PROTOCOL_MAJOR, job=JOB, role=self.role, index=self.index, known_task=-1,
            incarnation=self.incarnation, address=f"127.0.0.1:{10000 + self.index}", pid=os.getpid(),
        )  # fmt: skip
        reply = await stub.Register(request, timeout=START_SECONDS)
        self.epoch = reply.view.epoch
        call = stub.Stream()
        await self._say(call, hello=pb.Hello(incarnation=request.incarnation))
        if self.role == pb.CHIEF:
            await self._say(call, live=pb.ModelLive(generation=reply.view.generation))
            variables = [
                pb.Variable(name=f"v{n}", dtype=1, shape=[1 << 14, 16], slot=n % SLOTS, bytes=VARIABLE_BYTES,
                            update=pb.Variable.ROWS, bitmap=f"b{n}") for n in range(VARIABLES)
            ]  # fmt: skip
            await self._say(call, catalogue=pb.Catalogue(variables=variables, fingerprint="1"))
        talking = [asyncio.ensure_future(self._beat(call)), asyncio.ensure_future(self._report(call)),
                   asyncio.ensure_future(self._refresh(call))]  # fmt: skip
        try:
            async for message in call:
                kind = message.WhichOneof("message")
                if kind == "command":
                    kind = message.command.WhichOneof("command")
                self.bytes[f"down {kind}"] += message.ByteSize()
                self.bytes[f"n:down {kind}"] += 1
                if message.HasField("publish"):
                    self._sees(message.publish.view)
                elif message.HasField("scaling") and self.role != pb.PS:
                    if message.scaling.phase == pb.ScalingNotice.COMMITTED:
                        told = pb.PauseReport(scaling_id=message.scaling.scaling_id, pause_seconds=0.1,
                                              median_step_seconds=0.05, steps=40)  # fmt: skip
                        await self._say(call, pause=told)
                elif message.HasField("command"):
                    if message.command.HasField("leave"):
                        self.left.set()
                        return
                    await self._obey(call, message.command)
        finally:
            for task in talking:
                task.cancel()

    def _sees(self, view: pb.View) -> None:
        self.epochs.setdefault(view.epoch, time.time())
        self.epoch = view.epoch

    async def _obey(self, call: grpc.aio.StreamStreamCall, command: pb.Command) -> None:
        ack = pb.Ack(command_id=command.id, ok=True)
        if command.HasField("commit"):
            self._sees(command.commit.view)
        elif command.HasField("copy") and command.copy.phase == pb.Copy.FIRST:
            ack.copy.bytes, ack.copy.variables = VARIABLES * VARIABLE_BYTES // PS, VARIABLES // PS
        await self._say(call, ack=ack)
        if command.HasField("guard"):
            self.guard = command.guard
            await self._say(call, backup=self._refreshed(first=True))

    def _refreshed(self, first: bool = False) -> pb.BackupReport:
        slots = sorted({move.variable.slot for move in self.guard.moves})
        size = sum(move.variable.bytes for move in self.guard.moves)
        return pb.BackupReport(guard=self.guard.id, slots=slots, bytes=size // 10, full_bytes=size, seconds=0.1,
                               age_seconds=0.1, first=first)  # fmt: skip

    async def _refresh(self, call: grpc.aio.StreamStreamCall) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            if self.guard.moves:
                await self._say(call, backup=self._refreshed())

    async def _say(self, call: grpc.aio.StreamStreamCall, **message: Any) -> None:
        built = pb.AgentMessage(**message)
        kind = f"up {next(iter(message))}"
        self.bytes[kind] += built.ByteSize()
        self.bytes[f"n:{kind}"] += 1
        async with self._writing:
            await call.write(built)

    async def _beat(self, call: grpc.aio.StreamStreamCall) -> None:
        step = 0
        await asyncio.sleep(self.heartbeat_seconds * (hash(self.name) % 1000) / 1000)
        while True:
            step += 40
            beat = pb.Heartbeat(
                step=step, steps_per_second=20, examples_per_second=2560, step_seconds=0.05, rss_bytes=1 << 30,
                cpu_seconds=step / 20, training=True, examples=128 * step, epoch=self.epoch,
                step_epoch=self.epoch, step_age_seconds=1,
            )  # fmt: skip
            await self._say(call, heartbeat=beat)
            await asyncio.sleep(self.heartbeat_seconds)

    async def _report(self, call: grpc.aio.StreamStreamCall) -> None:
        """As a process of a job does, a traced step now and then."""
        number, every = 0, self.gazer_seconds
        await asyncio.sleep(every * (hash(self.name) % 1000) / 1000)
        while every:
            number += 1
            sample = pb.ProcessSample(
                cpu_seconds=number * every, rss_bytes=1 << 30, working_set_bytes=1 << 30, memory_limit_bytes=2 << 30,
                cpu_limit_cores=1, received_bytes=number << 20, sent_bytes=number << 20, open_files=40, threads=90,
            )  # fmt: skip
            report = pb.GazerReport(interval_seconds=every, process=sample)
            if self.role != pb.PS:
                report.steps.CopyFrom(pb.StepSample(
                    steps=round(20 * every), examples=round(2560 * every), median_seconds=0.05, p95_seconds=0.06,
                    longest_seconds=0.1, histogram=[0, 0, 0, 0, 0, 0, round(20 * every), *[0] * 10],
                    histogram_seconds=every, training=True,
                ))  # fmt: skip
                if number % round(TRACE_SECONDS / every + 1) == 1:
                    report.traces.append(_trace(self.name))
            await self._say(call, gazer=report)
            await asyncio.sleep(every)


def _trace(trainer: str) -> pb.Trace:
    ps = [f"ps-{i}" for i in range(PS)]
    return pb.Trace(
        step=1, epoch=1, seconds=0.05, usual_seconds=0.05,
        devices=[pb.DeviceTime(role=name, busy_seconds=0.01, op_seconds=0.02, ops=100) for name in [*ps, trainer]],
        edges=[pb.EdgeUse(source=name, target=trainer, bytes=1 << 20, tensors=10, seconds=0.01) for name in ps],
        ops=[pb.OpTime(name=f"deep/layer_{i}/MatMul", type="MatMul", role=trainer, seconds=0.001, slot=-1) for i in range(40)],
        slots=[
            pb.SlotUse(slot=i, lookup_seconds=0.001, update_seconds=0.001, lookup_rows=100, bytes=3200) for i in range(SLOTS)
        ],
    )  # fmt: skip


def told(agents: list[Agent]) -> dict[str, Any]:
    """What they saw, sent and suffered."""
    sent: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for agent in agents:
        sent += agent.bytes
        errors += agent.errors
    return {"epochs": [agent.epochs for agent in agents], "bytes": sent, "errors": errors}


async def client(options: argparse.Namespace) -> None:
    """One process full of agents; writes what they saw when it is told to end."""
    names = options.names.split(",")
    agents = [Agent(name, options.address, options.certs, options.heartbeat, options.gazer) for name in names]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = [asyncio.ensure_future(agent.live()) for agent in agents]
    await stop.wait()
    Path(options.output).write_text(json.dumps(told(agents)))
    for task in tasks:
        task.cancel()
    os._exit(0)  # a thousand channels close slowly, and nobody needs them to


# ------------------------------------------------------------------------------------------------------- the launcher


class FakeLauncher(rpc.LauncherServicer):
    """Says that every pod runs. Those that come by scaling get an agent in this very process."""

    def __init__(self, elsewhere: set[str]) -> None:
        self._elsewhere = elsewhere
        self._pods: dict[str, pb.PodStatus] = {}
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._watchers: set[asyncio.Queue[pb.PodStatus]] = set()
        self.make_agent: Any = None
        self.made: list[Any] = []

    def _report(self, status: pb.PodStatus) -> None:
        self._pods[status.name] = status
        for queue in self._watchers:
            queue.put_nowait(status)

    async def Create(self, request: pb.Pod, context: grpc.aio.ServicerContext) -> pb.PodReply:
        if request.name not in self._pods or self._pods[request.name].state == "exited":
            self._report(pb.PodStatus(name=request.name, state="running", pid=10_000 + len(self._pods)))
            if request.name not in self._elsewhere:
                self._agents[request.name] = asyncio.ensure_future(self._run(request.name))
        return pb.PodReply()

    async def _run(self, name: str) -> None:
        agent = self.make_agent(name)
        self.made.append(agent)
        await agent.live()
        self._report(pb.PodStatus(name=name, state="exited"))

    async def Delete(self, request: pb.PodRequest, context: grpc.aio.ServicerContext) -> pb.PodReply:
        if (task := self._agents.pop(request.name, None)) is not None:
            task.cancel()
        return pb.PodReply()

    async def List(self, request: pb.WatchRequest, context: grpc.aio.ServicerContext) -> pb.PodsReply:
        return pb.PodsReply(pods=list(self._pods.values()))

    async def Watch(self, request: pb.WatchRequest, context: grpc.aio.ServicerContext) -> AsyncIterator[pb.PodStatus]:
        queue: asyncio.Queue[pb.PodStatus] = asyncio.Queue()
        for status in list(self._pods.values()):
            queue.put_nowait(status)
        self._watchers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)
