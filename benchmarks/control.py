"""The AIMaster under load: a real process with mTLS, and a thousand agents that heartbeat and send Gazer's reports.

    python benchmarks/control.py [--agents 1000] [--heartbeat 2] [--gazer 2] [--seconds 30] [--views 10] [--json]

Measured: the AIMaster's CPU as a fraction of one core while nothing happens, and the time from the moment it decides to
publish a view until each agent has it (p50 and p99 over agents and views). Views are caused by worker scaling, which is
what causes them in a job. Agents, their launcher and the AIMaster share this host's cores, so the figures are upper
bounds. Targets: at most 0.5 core, p99 at most 2 s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import grpc
import grpc.aio
import psutil

from deeprec_ext.aimaster.facts import parse_name
from deeprec_ext.aimaster.main import raise_file_limit
from deeprec_ext.launch.ports import free_port
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import authority, credentials
from deeprec_ext.settings import PROTOCOL_MAJOR

JOB = "control"
PS = 4
CLIENTS = 2
TARGET_CORES, TARGET_P99_SECONDS = 0.5, 2.0
START_SECONDS = 180.0
TRACE_SECONDS = 30.0


# --------------------------------------------------------------------------------------------------------- the agents


class Agent:
    """Registers, heartbeats, acks, and notes when it got which epoch."""

    def __init__(self, name: str, address: str, certs: str, heartbeat_seconds: float, gazer_seconds: float) -> None:
        self.name, self.address, self.certs = name, address, certs
        self.heartbeat_seconds, self.gazer_seconds = heartbeat_seconds, gazer_seconds
        self.role, self.index = parse_name(name)
        self.incarnation = uuid.uuid4().hex
        self.epochs: dict[int, float] = {}
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
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                    return
                await asyncio.sleep(1)

    async def _session(self, stub: rpc.AgentsStub) -> None:
        request = pb.RegisterRequest(
            protocol_major=PROTOCOL_MAJOR, job=JOB, role=self.role, index=self.index, known_task=-1,
            incarnation=self.incarnation, address=f"127.0.0.1:{10000 + self.index}", pid=os.getpid(),
        )  # fmt: skip
        reply = await stub.Register(request, timeout=START_SECONDS)
        call = stub.Stream()
        await self._say(call, hello=pb.Hello(incarnation=request.incarnation))
        if self.role == pb.CHIEF:
            await self._say(call, live=pb.ModelLive(generation=reply.view.generation))
            variables = [pb.Variable(name=f"v{slot}", slot=slot, bytes=1 << 20) for slot in range(8)]
            await self._say(call, catalogue=pb.Catalogue(variables=variables, fingerprint="1"))
        talking = [asyncio.ensure_future(self._beat(call)), asyncio.ensure_future(self._report(call))]
        try:
            async for message in call:
                if message.HasField("publish"):
                    self.epochs.setdefault(message.publish.view.epoch, time.time())
                elif message.HasField("command"):
                    if message.command.HasField("leave"):
                        self.left.set()
                        return
                    await self._say(call, ack=pb.Ack(command_id=message.command.id, ok=True))
        finally:
            for task in talking:
                task.cancel()

    async def _say(self, call: grpc.aio.StreamStreamCall, **message: Any) -> None:
        async with self._writing:
            await call.write(pb.AgentMessage(**message))

    async def _beat(self, call: grpc.aio.StreamStreamCall) -> None:
        step = 0
        await asyncio.sleep(self.heartbeat_seconds * (hash(self.name) % 1000) / 1000)
        while True:
            step += 40
            beat = pb.Heartbeat(
                step=step, steps_per_second=20, examples_per_second=2560, step_seconds=0.05, rss_bytes=1 << 30,
                cpu_seconds=step / 20, training=True, examples=128 * step,
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
        slots=[pb.SlotUse(slot=i, lookup_seconds=0.001, update_seconds=0.001, lookup_rows=100, bytes=3200) for i in range(8)],
    )  # fmt: skip


async def client(options: argparse.Namespace) -> None:
    """One process full of agents; writes what they saw when it is told to end."""
    names = options.names.split(",")
    agents = [Agent(name, options.address, options.certs, options.heartbeat, options.gazer) for name in names]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = [asyncio.ensure_future(agent.live()) for agent in agents]
    await stop.wait()
    Path(options.output).write_text(json.dumps([agent.epochs for agent in agents]))
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
        await self.make_agent(name).live()
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


# ------------------------------------------------------------------------------------------------------ the measurement


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextlib.contextmanager
def process(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        child = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


async def wait_for(what: str, condition: Any, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen within {seconds:.0f} s")
        await asyncio.sleep(0.25)


async def measure(options: argparse.Namespace, workdir: Path) -> dict[str, Any]:
    certs = str(authority.create_certificates(workdir / "certs", JOB))
    names = [f"ps-{i}" for i in range(PS)] + ["chief-0"] + [f"worker-{i}" for i in range(options.agents - PS - 1)]
    workers = options.agents - PS - 1
    launcher = FakeLauncher(set(names))
    server = grpc.aio.server(options=credentials.SERVER_OPTIONS)
    rpc.add_LauncherServicer_to_server(launcher, server)
    launcher_port = credentials.add_port(server, "127.0.0.1:0", "launcher", certs)
    await server.start()
    address = f"127.0.0.1:{free_port()}"
    launcher.make_agent = lambda name: Agent(name, address, certs, options.heartbeat, options.gazer)
    master = [
        sys.executable, "-m", "deeprec_ext.aimaster", "--job", JOB, "--listen", address, "--workdir", str(workdir),
        "--launcher", f"127.0.0.1:{launcher_port}", "--certs", certs, "--ps", str(PS), "--workers", str(workers),
        "--slots", "8", "--max-workers", str(workers + 10), "--setting", f"heartbeat_seconds={options.heartbeat}",
        "--setting", "ps_heartbeat_limit_seconds=30", "--setting", "worker_heartbeat_limit_seconds=60",
        "--setting", f"gazer_seconds={options.gazer}",
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        aimaster = stack.enter_context(process(master, workdir / "aimaster.log"))
        outputs = []
        for number in range(CLIENTS):
            outputs.append(workdir / f"client-{number}.json")
            arguments = [
                sys.executable, __file__, "--client", "--address", address, "--certs", certs, "--output",
                str(outputs[-1]), "--names", ",".join(names[number::CLIENTS]), "--heartbeat", str(options.heartbeat),
                "--gazer", str(options.gazer),
            ]  # fmt: skip
            stack.enter_context(process(arguments, workdir / f"client-{number}.log"))
        started = time.monotonic()
        result = await _observe(options, address, certs, aimaster.pid, started, len(names), workers)
    seen = [seen for output in outputs for seen in json.loads(output.read_text())]
    await server.stop(None)
    return {**result, **_views(workdir / "events.jsonl", seen, result.pop("after_epoch"))}


async def _observe(
    options: argparse.Namespace, address: str, certs: str, pid: int, started: float, agents: int, workers: int
) -> dict[str, Any]:
    name = credentials.server_name("aimaster", JOB)
    async with credentials.open_aio_channel(address, name, "admin", certs) as channel:
        admin = rpc.AdminStub(channel)

        async def status() -> pb.StatusReply:
            return await admin.Status(pb.StatusRequest(), wait_for_ready=True, timeout=60)

        async def all_here() -> bool:
            roles = (await status()).roles
            return sum(role.heartbeat.step > 0 for role in roles) >= agents

        await wait_for("the start of all agents", all_here)
        startup = time.monotonic() - started
        await asyncio.sleep(2 * options.heartbeat)
        master = psutil.Process(pid)
        before, began = master.cpu_times(), time.monotonic()
        await asyncio.sleep(options.seconds)
        after, elapsed = master.cpu_times(), time.monotonic() - began
        cores = (after.user + after.system - before.user - before.system) / elapsed
        memory = master.memory_info().rss
        epoch = (await status()).epoch
        for number in range(options.views):
            reply = await admin.Scale(pb.ScaleRequest(workers=workers + (number + 1) % 2), timeout=30)

            async def ended(identifier: int = reply.scaling_id) -> bool:
                records = (await status()).scalings
                return any(record.id == identifier and record.outcome for record in records)

            await wait_for(f"scaling {reply.scaling_id}", ended, 60)
        await asyncio.sleep(3)
    return {
        "agents": agents, "heartbeat_seconds": options.heartbeat, "gazer_seconds": options.gazer,
        "startup_seconds": round(startup, 1),
        "aimaster_cores": round(cores, 3), "aimaster_rss_mb": round(memory / 1e6, 1), "after_epoch": epoch,
    }  # fmt: skip


def _views(events: Path, seen: list[dict[str, float]], after_epoch: int) -> dict[str, Any]:
    """Delays of every view after `after_epoch` that was not overtaken by the next before it could be sent."""
    published = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "view_published" and event["epoch"] > after_epoch:
            published[str(event["epoch"])] = event["time"]
    delays, missing = [], 0
    for epoch, moment in published.items():
        got = [epochs[epoch] - moment for epochs in seen if epoch in epochs]
        delays += got
        missing += len(seen) - len(got)
    return {
        "views": len(published), "deliveries": len(delays), "not_delivered_or_overtaken": missing,
        "view_p50_seconds": round(percentile(delays, 0.5), 4), "view_p99_seconds": round(percentile(delays, 0.99), 4),
        "view_max_seconds": round(max(delays), 4),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--heartbeat", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument(
        "--gazer", type=float, default=2.0, metavar="SECONDS", help="between two reports of Gazer; 0: none"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the steady window")
    parser.add_argument("--views", type=int, default=10, help="worker scalings, each publishes a view")
    parser.add_argument("--workdir", help="keeps the logs there; default: a temporary directory")
    parser.add_argument("--json", action="store_true")
    for name in ("--address", "--certs", "--output", "--names"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_file_limit()
    if options.client:
        asyncio.run(client(options))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the children are ended
    with contextlib.ExitStack() as stack:
        workdir = options.workdir or stack.enter_context(tempfile.TemporaryDirectory(prefix="deeprec-control-"))
        result = asyncio.run(measure(options, Path(workdir)))
    result["targets"] = {
        f"AIMaster at most {TARGET_CORES} core": result["aimaster_cores"] <= TARGET_CORES,
        f"p99 of a view at most {TARGET_P99_SECONDS:g} s": result["view_p99_seconds"] <= TARGET_P99_SECONDS,
    }
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{result['agents']} agents, heartbeat {result['heartbeat_seconds']:g} s, mTLS")
    print(f"  AIMaster          {result['aimaster_cores']:.3f} core, {result['aimaster_rss_mb']:.0f} MB")
    print(f"  all registered in {result['startup_seconds']:.1f} s")
    print(f"  a view reaches    p50 {result['view_p50_seconds']:.3f} s, p99 {result['view_p99_seconds']:.3f} s,"
          f" max {result['view_max_seconds']:.3f} s ({result['views']} views, {result['deliveries']} deliveries)")  # fmt: skip
    for target, reached in result["targets"].items():
        print(f"  {'reached' if reached else 'MISSED '}  {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
