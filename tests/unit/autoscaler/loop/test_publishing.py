"""Bids of a running job, with an autoscaler and without, as an arbiter gets them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from pathlib import Path

import pytest

from deeprec_ext.arbiter.observed import Bid, Count
from deeprec_ext.autoscaler.loop import bidding, measuring, publishing
from deeprec_ext.autoscaler.observe.windows import Windows
from deeprec_ext.decoding import built
from tests.unit.aimaster.world import SETTINGS, World
from tests.unit.autoscaler.loop.arbiters import Arbiter, events, play, settled

QUICK = dataclasses.replace(SETTINGS, window_seconds=0.3)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(publishing, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(bidding, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(measuring, "Windows", functools.partial(Windows, settle_seconds=0.1))


def measured(arbiter: Arbiter, workers: int) -> list[Bid]:
    """Bids that tell of this size what was measured there: fake trainers make 200 examples/s each, and no less than half."""
    return [
        one for one in arbiter.bids
        for size in one.worth if (size.workers, one.size.workers) == (workers, workers) and size.examples_per_second > 100
    ]  # fmt: skip


def test_a_job_without_an_autoscaler_bids_from_what_it_measures(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        await it.until(lambda: bool(arbiter.bids))
        first = arbiter.bids[0]
        assert (first.worth, first.size, first.wanted) == ((), Count(2, 1), Count(2, 1)), "nothing is made up"
        await it.until(lambda: bool(measured(arbiter, 1)))
        told = arbiter.bids[-1]
        assert told.training and {(2, 1), (1, 0), (4, 4)} <= {(w.ps, w.workers) for w in told.worth}
        await it.scale(workers=2)
        await it.until(lambda: any(one.size == one.wanted == Count(2, 2) and not one.busy for one in arbiter.bids))
        assert it.master.autoscaler is None and not events(it, "decision")

    play(tmp_path, scenario, settings=QUICK, max_ps=4, max_workers=4)


def test_what_it_wants_is_told_whatever_is_allowed(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        await it.until(lambda: bool(measured(arbiter, 2)))
        arbiter.allow(1, 1)
        await settled(it, 1, 1)
        await it.until(lambda: arbiter.bids[-1].size == Count(1, 1))
        assert arbiter.bids[-1].wanted == Count(2, 2)
        assert max(one.workers for one in arbiter.bids[-1].worth) == 4, "sizes beyond the allowance are told as well"

    play(tmp_path, scenario, workers=2, settings=QUICK, max_ps=4, max_workers=4)


def test_the_autoscaler_s_windows_are_the_bid_s(tmp_path: Path) -> None:
    settings = dataclasses.replace(QUICK, autoscale=True, decide_seconds=3600.0)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        assert it.master.autoscaler is not None
        it.master.job.hold(True, "the size stays")
        await it.until(lambda: bool(measured(arbiter, 1)))
        assert arbiter.bids[-1].wanted.workers >= 1

    play(tmp_path, scenario, settings=settings, max_ps=4, max_workers=4)


def test_what_says_the_same_is_not_published_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bidding, "SHARE", 0.9)  # of fake trainers on a busy machine

    async def scenario(it: World, arbiter: Arbiter) -> None:
        await it.until(lambda: bool(measured(arbiter, 1)))
        known = len(arbiter.bids)
        await asyncio.sleep(1.0)
        assert len(arbiter.bids) <= known + 1

    play(tmp_path, scenario, settings=QUICK, max_ps=4, max_workers=4)


def test_where_nobody_reads_bids_nothing_is_measured_for_them(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        await asyncio.sleep(0.7)
        assert not arbiter.bids and it.master.job.store.get("autoscaler") is None
        arbiter.is_read = True
        await it.until(lambda: bool(arbiter.bids))
        assert not arbiter.bids[0].worth, "so far nobody has looked"
        await it.until(lambda: bool(measured(arbiter, 1)))

    play(tmp_path, scenario, is_read=False, settings=QUICK)


def test_a_bid_that_cannot_be_published_is_told_once_and_tried_again(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.fails = OSError("the pool's disk is full")
        await it.scale(workers=2)
        await it.until(lambda: any("the pool's disk is full" in one["text"] for one in events(it, "warning")))
        await asyncio.sleep(0.3)
        assert len([one for one in events(it, "warning") if "disk is full" in one["text"]]) == 1
        arbiter.fails = None
        await it.until(lambda: bool(arbiter.bids) and arbiter.bids[-1].size == Count(2, 2))

    play(tmp_path, scenario, settings=QUICK)


def test_a_successor_knows_what_was_measured(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        await it.until(lambda: bool(measured(arbiter, 1)))
        await it.until(lambda: it.master.job.store.get("autoscaler") is not None)
        await it.crash()
        arbiter.bids.clear()
        await it.start()
        await it.until(lambda: bool(arbiter.bids))
        assert arbiter.bids[0].worth, "its first bid has them already"

    play(tmp_path, scenario, settings=QUICK)


def test_a_pool_gets_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bid.json"

    async def main() -> None:
        it = World(tmp_path, settings=dataclasses.replace(QUICK, bid_file=str(file)))
        await it.start()
        try:
            await it.training()
            await it.until(file.exists)
            assert built(Bid, json.loads(file.read_text())).size == Count(2, 1)
        finally:
            await it.stop()

    asyncio.run(asyncio.wait_for(main(), 30))
