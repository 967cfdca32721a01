"""A dashboard for a browser without a job of TensorFlow: a real AIMaster and its web server, with agents that pretend."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from deeprec_ext.aimaster.dashboard.http import HttpServer
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.security.tokens import make_token
from tests.unit.aimaster.collected import steps, tell
from tests.unit.aimaster.world import SETTINGS, World

SECONDS = 60.0
T = TypeVar("T")


class Page:
    """Context manager; the loop of the AIMaster runs in a thread of its own."""

    def __init__(self, workdir: Path, **spec: object) -> None:
        self._workdir, self._spec = workdir, spec
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.token = ""
        self.speed = {"chief-0": 20.0}  # steps per second of trainers; others make 10
        self.world: World = None  # type: ignore[assignment]
        self._web: asyncio.Task[None] | None = None
        self._reports: asyncio.Task[None] | None = None

    def __enter__(self) -> Page:
        self._thread.start()
        try:
            self.do(self._start())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.do(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS)
        self._loop.close()

    def do(self, work: Awaitable[T]) -> T:
        """Awaits it on the AIMaster's loop."""

        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(SECONDS)

    @property
    def job(self) -> Any:
        return self.world.master.job

    @property
    def url(self) -> str:
        return self.job.dashboard

    # ------------------------------------------------------------------------------------------------ on the loop

    async def _start(self) -> None:
        (self._workdir / "logs").mkdir()
        for name in ("ps-0", "chief-0", "aimaster"):
            (self._workdir / "logs" / f"{name}.log").write_text(f"this is {name} <b>bold</b>\n")
        settings = dataclasses.replace(SETTINGS, gazer_seconds=0.2)
        self.world = World(self._workdir, **{"settings": settings, **self._spec})
        self.token = make_token(self._workdir)
        await self.world.start()
        await self.world.training()
        await self.serve()
        self._reports = asyncio.ensure_future(self._report())

    async def serve(self, address: str = "127.0.0.1:0") -> None:
        server = HttpServer(self.job, self.world.master.scalings, address, str(self._workdir))
        self._web = asyncio.ensure_future(server.run())
        await self.world.until(lambda: bool(self.job.dashboard), SECONDS)

    async def unserve(self) -> str:
        """As when the AIMaster dies; the address for its successor."""
        address = self.url.removeprefix("http://").rstrip("/")
        assert self._web is not None
        self._web.cancel()
        await asyncio.wait([self._web])
        self.job.dashboard = ""
        return address

    async def _report(self) -> None:
        """What the processes of a real job tell."""
        slots = self.job.spec.slots
        number = 0
        while True:
            number += 1
            for member in self.job.members:
                sample = pb.ProcessSample(cpu_seconds=0.2 * number, rss_bytes=300_000_000, memory_limit_bytes=10**9)
                if not member.is_trainer:
                    tell(self.job, member.name, interval_seconds=1, process=sample)
                    continue
                speed = self.speed.get(member.name, 10.0)
                uses = [pb.SlotUse(slot=slot, lookup_seconds=1e-3 * (9 if slot == 3 else 1), lookup_rows=100)
                        for slot in range(slots)]  # fmt: skip
                edges = [pb.EdgeUse(source=ps.name, target=member.name, bytes=10_000, seconds=1e-3)
                         for ps in self.job.cluster.ps]  # fmt: skip
                devices = [pb.DeviceTime(role=ps.name, busy_seconds=0.01) for ps in self.job.cluster.ps]
                traced = pb.Trace(
                    step=number, epoch=self.job.cluster.epoch, seconds=0.1, slots=uses, edges=edges, devices=devices
                )
                told = steps(speed, 1.0, examples=round(512 * speed), p95_seconds=1.5 / speed)
                tell(self.job, member.name, process=sample, traces=[traced], **told)
            await asyncio.sleep(0.2)

    async def _stop(self) -> None:
        for task in (self._web, self._reports):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self.world.stop()
