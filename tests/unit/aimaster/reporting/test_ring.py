"""Of a job without PS: who sums with whom, and what is said of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import World, world

CHIEF, ONE, TWO = "chief-0", "worker-0", "worker-1"


def play(tmp_path: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with world(tmp_path, slots=0, ps=0, min_ps=0) as it:
            await scenario(it)

    asyncio.run(asyncio.wait_for(run(), 60))


async def until(it: World, condition: Callable[[pb.RingStatus], bool]) -> pb.RingStatus:
    for _ in range(1000):
        if condition(found := (await it.status()).ring):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(str(found))


def names(roles: object) -> list[str]:
    return [one.name for one in roles]  # type: ignore[attr-defined]


def test_members_stand_in_the_order_in_which_they_sum_and_a_newcomer_beside_them(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        found = await until(it, lambda ring: ring.members == [CHIEF, ONE])
        assert not (found.coming or found.leaving or found.waits or found.lost)
        await it.scale(workers=2)
        found = await until(it, lambda ring: "first step" in "".join(one.why for one in ring.coming))
        assert names(found.coming) == [TWO] and found.members == [CHIEF, ONE]
        await it.agent(TWO).say(ring=pb.Ring(address=f"{TWO}:7"))
        found = await until(it, lambda ring: ring.members == [CHIEF, ONE, TWO])
        assert not found.coming and found.seconds < 60

    play(tmp_path, scenario)


def test_who_was_lost_is_told_with_its_cause_and_that_it_comes_again(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.backend.kill(ONE)
        found = await until(it, lambda ring: ring.members == [CHIEF] and names(ring.coming) == [ONE])
        [lost] = found.lost
        assert lost.name == ONE and lost.why.startswith("killed by signal 9, ") and "back" in lost.why

    play(tmp_path, scenario)


def test_who_was_lost_and_is_scaled_away_then_is_not_said_to_be_missing(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await until(it, lambda ring: ring.members == [CHIEF, ONE])
        it.backend.exit(ONE, 137, restarting=True)  # and its next process does not come
        await until(it, lambda ring: ring.members == [CHIEF])
        (failure,) = it.master.job.store.failures()
        assert failure.recovered_seconds is None and not failure.recovered_by
        await it.scale(workers=0)
        await it.until(lambda: it.master.job.store.failures()[0].recovered_by == "scaled away")
        (failure,) = it.master.job.store.failures()
        assert failure.recovered_seconds is not None and failure.recovered_seconds > 0
        found = await until(it, lambda ring: bool(ring.lost))
        assert "scaled away after" in found.lost[0].why

    play(tmp_path, scenario)


def test_who_is_silent_or_has_not_heard_of_the_view_is_waited_for(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent(ONE).stuck_in = 0
        found = await until(it, lambda ring: bool(ring.waits))
        assert [(one.name, one.why) for one in found.waits] == [(ONE, "the first step in this view")]
        it.agent(ONE).stuck_in = None
        await until(it, lambda ring: not ring.waits)
        it.agent(ONE).mute.add("heartbeat")
        found = await until(it, lambda ring: bool(ring.waits))
        assert names(found.waits) == [ONE] and found.waits[0].why.startswith("silent for ")

    play(tmp_path, scenario)


def test_who_alone_is_in_no_sum_for_long_is_waited_for_by_name(tmp_path: Path) -> None:
    """Its agent talks: silence does not tell. Where another one is out, too, it is no sum that is waited for."""

    async def scenario(it: World) -> None:
        it.agent(ONE).out_seconds = 70.0
        found = await until(it, lambda ring: bool(ring.waits))
        assert [(one.name, one.why) for one in found.waits] == [
            (ONE, "in no sum for 1:10, in which all others wait for it")
        ]
        it.agent(CHIEF).out_seconds = 0.2  # it attends, or computes as well
        await until(it, lambda ring: not ring.waits)
        it.agent(CHIEF).out_seconds = 0.0
        await until(it, lambda ring: bool(ring.waits))
        it.agent(ONE).out_seconds = 30.0
        await until(it, lambda ring: not ring.waits)
        assert it.agent(ONE).view.workers == it.agent(CHIEF).view.workers, "it is told, and stays"

    play(tmp_path, scenario)


def test_who_leaves_is_no_newcomer(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent(ONE).mute.add("leave")
        await it.scale(workers=0)
        found = await until(it, lambda ring: bool(ring.leaving))
        assert names(found.leaving) == [ONE] and found.leaving[0].why == "it ends its step first" and not found.coming
        await it.agent(ONE).say(ring=pb.Ring())
        found = await until(it, lambda ring: ring.members == [CHIEF])
        assert names(found.leaving) == [ONE] and "sums no more" in found.leaving[0].why

    play(tmp_path, scenario)


def test_jobs_with_ps_have_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as it:
            assert not (await it.status()).HasField("ring")

    asyncio.run(asyncio.wait_for(run(), 60))
