"""One process that says more than is taken from it: read more slowly, beside others who do not notice."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from deeprec_ext.aimaster.membership import allowance as module
from deeprec_ext.aimaster.membership.allowance import BURST, PER_SECOND, SHARE, UNIT_BYTES, WAIT_MAX_SECONDS, Allowance
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.ledger.test_job import ask, events
from tests.unit.aimaster.world import world


def taken(one: Allowance, seconds: float, size: int = 0, handling: float = 0.0) -> int:
    """Messages that are read in so many seconds of one that always has another."""
    now, count = 0.0, 0
    while now < seconds:
        count += 1
        now += handling
        now += one.spend(size, handling, now)
    return count


def test_what_is_said_in_the_long_run_is_bounded_by_messages_bytes_and_time() -> None:
    assert taken(Allowance(), 100.0) <= BURST + 100.0 * PER_SECOND + 2
    assert taken(Allowance(), 100.0, size=99 * UNIT_BYTES) <= (BURST + 100.0 * PER_SECOND) / 100 + 2
    assert 0.01 * taken(Allowance(), 100.0, handling=0.01) <= SHARE * (100.0 + BURST / PER_SECOND) + 0.1


def test_who_says_what_processes_say_never_waits_and_nobody_waits_for_long() -> None:
    one = Allowance()
    assert not any(one.spend(5000, 0.001, 0.01 * number) for number in range(10_000))
    assert all(one.spend(1 << 30, 60.0, 100.0 + number) <= WAIT_MAX_SECONDS for number in range(10))


def test_a_machine_that_stands_still_while_a_message_is_handled_is_not_held_against_its_sender() -> None:
    one = Allowance()
    assert [one.spend(100, 30.0, 40.0 * number) for number in range(3)] == [0.0] * 3


def test_who_floods_is_read_slowly_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_SECOND", 50.0)
    monkeypatch.setattr(module, "BURST", 100.0)

    async def main() -> None:
        async with world(tmp_path) as it:
            job, flooder = it.master.job, it.agent("worker-0")
            member = job.members.get("worker-0")
            assert member is not None
            member.allowance = Allowance(100.0)
            handled, beat, began = [0], job.members.beat, time.monotonic()

            def counting(who: object, heartbeat: pb.Heartbeat) -> None:
                handled[0] += who is member
                beat(who, heartbeat)  # type: ignore[arg-type]

            monkeypatch.setattr(job.members, "beat", counting)

            async def flood() -> None:
                while True:
                    await flooder.say(heartbeat=pb.Heartbeat(step=10, training=True))

            flooding = asyncio.ensure_future(flood())
            await it.until(lambda: member.slowed)
            for _ in range(20):
                await ask(it, it.agent("chief-0"), 1)
            flooding.cancel()
            seconds = time.monotonic() - began
            assert handled[0] + 2 >= 100 and handled[0] <= 100 + 50 * (seconds + 1)
            assert len([text for text in events(it, "warning") if "is read more slowly" in text]) == 1
            assert not job.suspects.all and it.agent("worker-0") is flooder

    asyncio.run(asyncio.wait_for(main(), 120))
