"""Arbiters that pretend: what they say is written by the test, what they are told is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from deeprec_ext.arbiter.observed import Bid
from tests.unit.aimaster.world import World

WHY = "a serving pod waits for 2 cores"


class Arbiter:
    def __init__(self, is_read: bool = True) -> None:
        self.said: asyncio.Queue[str | None] = asyncio.Queue()
        self.bids: list[Bid] = []
        self.is_read = is_read
        self.fails: Exception | None = None

    def allow(self, ps: int, workers: int, why: str = WHY, **more: Any) -> None:
        values = {"runs": True, "ps": ps, "workers": workers, "since": 1000.0, "why": why, **more}
        self.say(json.dumps(values))

    def say(self, text: str | None) -> None:
        self.said.put_nowait(text)

    async def publish(self, bid: Bid) -> None:
        if self.fails is not None:
            raise self.fails
        self.bids.append(bid)

    async def allowances(self) -> AsyncIterator[str | None]:
        while True:
            yield await self.said.get()


def play(
    tmp_path: Path,
    scenario: Callable[[World, Arbiter], Coroutine[Any, Any, None]],
    *,
    is_read: bool = True,
    **spec: Any,
) -> None:
    """A job that trains, with an arbiter."""

    async def main() -> None:
        it, arbiter = World(tmp_path, **spec), Arbiter(is_read)
        it.exchange = arbiter
        await it.start()
        try:
            await it.training()
            await asyncio.wait_for(scenario(it, arbiter), 30.0)
        finally:
            await it.stop()

    asyncio.run(main())


def events(it: World, type_: str) -> list[dict[str, Any]]:
    return [json.loads(row[5]) for row in it.master.job.store.events(0, 10_000) if row[2] == type_]


def size(it: World) -> tuple[int, int]:
    job = it.master.job
    return len(job.cluster.ps), len(job.view().workers) - 1


async def settled(it: World, ps: int, workers: int) -> None:
    """Until the job has this size, and nothing is under way."""
    await it.until(lambda: size(it) == (ps, workers) and not it.master.scalings.under_way())
