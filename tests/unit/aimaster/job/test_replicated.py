"""What PS keep of the store: when it is sent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deeprec_ext.aimaster.job import replicated
from deeprec_ext.aimaster.job.replicated import ReplicatedState


def test_what_was_decided_before_the_model_is_live_is_sent_as_soon_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AIMaster lost in the five seconds after it would have had no table of shards: all data were trained again."""
    monkeypatch.setattr(replicated, "SECONDS", 3600.0)
    monkeypatch.setattr(replicated, "PAUSE_SECONDS", 0.0)
    sent: list[bool] = []

    class Watched(ReplicatedState):
        def send(self) -> None:
            sent.append(job.cluster.live)

    job: Any = SimpleNamespace(incarnation=1, unreplicated=asyncio.Event(), cluster=SimpleNamespace(live=False))

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def main() -> None:
        job.unreplicated = asyncio.Event()
        running = asyncio.ensure_future(Watched(job, None).run())  # type: ignore[arg-type]
        job.unreplicated.set()
        await turns()
        assert not sent, "nobody has anything to keep yet"
        job.cluster.live = True
        await turns()
        assert sent == [True]
        await turns()
        assert sent == [True], "once"
        running.cancel()

    asyncio.run(asyncio.wait_for(main(), 10))
