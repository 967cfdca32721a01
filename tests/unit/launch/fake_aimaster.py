"""An AIMaster that decides nothing: it asks the launcher for the first roles and reports what they write into files.

Takes the real one's arguments. Trainers (`fake_trainer.py`) write `progress-<role>.json` into the run directory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import grpc.aio

from deeprec_ext import env
from deeprec_ext.options import JobSpec, read_specification, rows
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import add_port, open_aio_channel, server_name

KINDS = {"ps": pb2.PS, "chief": pb2.CHIEF, "worker": pb2.WORKER, "evaluator": pb2.EVALUATOR}


class Fake(rpc.AdminServicer):
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.workdir = Path(arguments.workdir)
        self.pods: dict[str, pb2.PodStatus] = {}
        self.incarnation = time.time_ns()
        self.finished = asyncio.Event()
        self.scalings: list[pb2.ScalingStatus] = []
        channel = open_aio_channel(
            arguments.launcher, server_name("launcher", arguments.job), "aimaster", arguments.certs
        )
        self.launcher = rpc.LauncherStub(channel)

    def event(self, kind: str, **fields: object) -> None:
        with (self.workdir / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "type": kind, **fields}) + "\n")

    async def create(self, name: str) -> None:
        role, _, index = name.partition("-")
        await self.launcher.Create(pb2.Pod(name=name, role=KINDS[role], index=int(index)), timeout=10)

    async def watch(self) -> None:
        async for pod in self.launcher.Watch(pb2.WatchRequest()):
            self.pods[pod.name] = pod
            self.event("exited" if pod.state == "exited" else "running", role=pod.name)
            if pod.name == "chief-0" and pod.state == "exited" and pod.exit_code == 0:
                (self.workdir / "leave").touch()

    async def Status(self, request: pb2.StatusRequest, context: object) -> pb2.StatusReply:
        reply = pb2.StatusReply(
            job=self.arguments.job, state="training", epoch=1, slots=self.arguments.slots,
            steps_per_second=50, examples_per_second=6400,
            slot_map=[i % self.arguments.ps for i in range(self.arguments.slots)],
            aimaster_incarnation=self.incarnation, scalings=self.scalings, last_step=1_000,
        )  # fmt: skip
        if (self.workdir / "refuse").exists():
            reply.state, reply.failure = "failed", "the script was refused: use another"
        for name, pod in self.pods.items():
            role = reply.roles.add(name=name, role=KINDS[name.partition("-")[0]], state=pod.state, pid=pod.pid)
            try:
                progress = json.loads((self.workdir / f"progress-{name}.json").read_text())
            except (FileNotFoundError, ValueError):
                role.incarnation = f"{name}:{pod.pid}"
                continue
            role.incarnation = str(progress["incarnation"])
            if progress["incarnation"] == pod.pid:
                role.heartbeat.step, role.heartbeat.training = progress["step"], progress["step"] > 0
                role.heartbeat.rss_bytes, role.heartbeat.steps_per_second = 300 << 20, 48.3 * (progress["step"] > 0)
                role.cpu_percent = 33
            reply.step = max(reply.step, progress["step"])
        return reply

    async def Scale(self, request: pb2.ScaleRequest, context: grpc.aio.ServicerContext) -> pb2.ScaleReply:
        if request.replace:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"there is no {request.replace}")
        if request.workers == self.arguments.workers:
            return pb2.ScaleReply(message="already that size")
        index = len(self.scalings) + 1
        if request.workers and not request.dry_run:
            await self.create(f"worker-{request.workers - 1}")
        self.scalings.append(pb2.ScalingStatus(id=index, kind="scale-up", role="worker", to_count=request.workers,
                                               outcome="committed"))  # fmt: skip
        return pb2.ScaleReply(scaling_id=index, message="queued")

    async def Finish(self, request: pb2.FinishRequest, context: object) -> pb2.FinishReply:
        self.event("finished", status=request.status)
        self.finished.set()
        return pb2.FinishReply()


async def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("listen", "workdir", "launcher", "certs"):
        parser.add_argument(f"--{flag}")
    spec = read_specification(env.specification())
    told = argparse.Namespace(**{row.name: getattr(spec, row.name) for row in rows(JobSpec)}, job=spec.name)
    arguments = parser.parse_args(namespace=told)
    fake = Fake(arguments)
    server = grpc.aio.server()
    rpc.add_AdminServicer_to_server(fake, server)
    add_port(server, arguments.listen, "aimaster", arguments.certs)
    await server.start()
    first = not (fake.workdir / "aimaster.db").exists()
    sqlite3.connect(fake.workdir / "aimaster.db").close()
    (fake.workdir / "aimaster.db").touch()
    watch = asyncio.create_task(fake.watch())
    if first:
        roles = [f"ps-{i}" for i in range(arguments.ps)] + ["chief-0"]
        roles += [f"worker-{i}" for i in range(arguments.workers)] + ["evaluator-0"] * arguments.evaluator
        for name in roles:
            await fake.create(name)
    fake.event("job_started", pid=os.getpid())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    watch.cancel()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
