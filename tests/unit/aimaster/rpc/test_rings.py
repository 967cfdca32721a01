"""A job without PS: who is in its views, and when another one comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import pytest

from deeprec_ext.aimaster.core.clock import SystemClock
from deeprec_ext.aimaster.membership.members import Members
from deeprec_ext.aimaster.rpc import inbox
from deeprec_ext.aimaster.state import shared
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import World

CHIEF, ONE, TWO = "chief-0", "worker-0", "worker-1"


def play(
    tmp_path: Path, scenario: Callable[[World], Awaitable[None]], workers: int = 1, mute: Sequence[str] = ()
) -> None:
    """`mute`: who tells of no step."""

    async def run() -> None:
        it = World(tmp_path, slots=0, ps=0, min_ps=0, workers=workers)
        it.mute = {name: {"heartbeat"} for name in mute}
        it.catalogue = pb.Catalogue()  # nothing lies on PS
        await it.start()
        try:
            await it.until(lambda: len(it.master.job.members.trainers()) == 1 + workers)
            await scenario(it)
        finally:
            await it.stop()

    asyncio.run(run())


def seen(it: World, name: str = CHIEF) -> list[tuple[str, str]]:
    """Names and addresses of the members of the view that this one has."""
    return [(worker.name, worker.address) for worker in it.agent(name).view.workers]


async def ready(it: World, *names: str) -> None:
    for name in names:
        await it.until(lambda name=name: it.agent(name).call is not None)  # its stream is there
        await it.agent(name).say(ring=pb.Ring(address=f"{name}:7"))
    await it.until(lambda: {name for name, _ in seen(it)} >= set(names))


def test_who_can_sum_is_in_the_view_with_its_address_and_nobody_else(tmp_path):
    async def scenario(it: World) -> None:
        assert it.master.job.cluster.formed and not it.master.job.view().workers
        await ready(it, CHIEF)
        assert seen(it) == [(CHIEF, "chief-0:7")] and it.master.job.cluster.live
        await ready(it, ONE)
        assert seen(it) == [(CHIEF, "chief-0:7"), (ONE, "worker-0:7")]
        assert it.master.job.view().slot_map == [] and not it.master.job.view().ps

    play(tmp_path, scenario)


def test_who_dies_is_in_no_view_and_comes_back_when_it_can_sum(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        await it.backend.kill(ONE)
        await it.until(lambda: seen(it) == [(CHIEF, "chief-0:7")])
        await it.until(lambda: ONE in it.master.job.members.trainers())
        await asyncio.sleep(0.3)
        assert seen(it) == [(CHIEF, "chief-0:7")]
        await ready(it, ONE)

    play(tmp_path, scenario)


def test_workers_are_scaled_and_ps_cannot_be(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        epoch = it.agent(CHIEF).view.epoch
        reply = await it.scale(workers=2)
        assert (await it.ended(reply.scaling_id)).outcome == "committed"
        await asyncio.sleep(0.5)  # it has not computed its first step:
        assert it.agent(CHIEF).view.epoch == epoch, "the ring is the same, and none breaks off a sum for it"
        await ready(it, TWO)
        reply = await it.scale(workers=0)
        assert (await it.ended(reply.scaling_id)).outcome == "committed"
        await it.until(lambda: seen(it) == [(CHIEF, "chief-0:7")])
        for request in ({"ps": 1}, {"rebalance": True}, {"ps": 1, "workers": 1}):
            with pytest.raises(grpc.aio.AioRpcError, match="this job has no PS"):
                await it.scale(**request)

    play(tmp_path, scenario)


def test_nobody_leaves_with_the_model_before_somebody_who_stays_has_it(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)  # the chief has made no step: it came back, perhaps
        reply = await it.scale(workers=0)
        await asyncio.sleep(1.0)
        (under_way,) = [one for one in (await it.status()).scalings if one.id == reply.scaling_id]
        assert under_way.detail == "waiting until somebody who stays has the model"
        assert seen(it) == [(CHIEF, "chief-0:7"), (ONE, "worker-0:7")]
        it.agent(CHIEF).mute.clear()
        assert (await it.ended(reply.scaling_id)).outcome == "committed"
        await it.until(lambda: seen(it) == [(CHIEF, "chief-0:7")])

    play(tmp_path, scenario, mute=(CHIEF,))


def test_a_ring_that_is_lost_is_made_again_of_the_same_members(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        for _ in range(3):
            lost = it.agent(CHIEF).view.epoch
            for name in (CHIEF, ONE):
                await it.agent(name).say(ring=pb.Ring(address=f"{name}:7", lost=lost, trouble="reset by peer"))
            await it.until(lambda lost=lost: it.agent(CHIEF).view.epoch > lost)
            assert len(seen(it)) == 2
            await asyncio.sleep(0.5)
            assert it.agent(CHIEF).view.epoch == lost + 1, "once for all who say it"
        await it.agent(CHIEF).say(ring=pb.Ring(address="chief-0:7", lost=lost, trouble="said late"))
        await asyncio.sleep(0.5)
        assert it.agent(CHIEF).view.epoch == lost + 1

    play(tmp_path, scenario)


def test_for_a_ring_that_is_lost_nobody_waits_longer_than_until_somebody_is_missed(tmp_path, monkeypatch):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        monkeypatch.setattr(shared, "PUBLISH_DELAY_SECONDS", 1000.0)
        monkeypatch.setattr(shared, "RING_AGAIN_SECONDS", 1000.0)
        lost = it.agent(CHIEF).view.epoch
        await it.agent(CHIEF).say(ring=pb.Ring(address="chief-0:7", lost=lost, trouble="reset by peer"))
        await it.backend.kill(ONE)
        await it.until(lambda: seen(it) == [(CHIEF, "chief-0:7")])

    play(tmp_path, scenario)


def test_who_is_at_two_places_or_at_none_is_in_no_ring(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF)
        for address in ("nonsense", "h:x", ":7", "h:0", "h:70000", f"{'h' * 300}:7"):
            await it.agent(ONE).say(ring=pb.Ring(address=address))
        await it.until(lambda: it.master.job.suspects.of(ONE).count("cannot be reached") > 0)
        await ready(it, ONE)
        epoch = it.agent(CHIEF).view.epoch
        for number in range(20):
            await it.agent(ONE).say(ring=pb.Ring(address=f"elsewhere:{number + 1}"))
        await asyncio.sleep(0.4)
        assert seen(it) == [(CHIEF, "chief-0:7"), (ONE, "worker-0:7")] and it.agent(CHIEF).view.epoch == epoch

    play(tmp_path, scenario)


def test_who_sums_no_more_is_in_no_view_and_may_come_back_so_often(tmp_path, monkeypatch):
    monkeypatch.setattr(inbox, "RETURNS_MAX", 1)

    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        for back in (True, True, False):
            await it.agent(ONE).say(ring=pb.Ring())
            await it.until(lambda: seen(it) == [(CHIEF, "chief-0:7")])
            await it.agent(ONE).say(ring=pb.Ring(address="worker-0:7", lost=it.agent(CHIEF).view.epoch))
            if back:
                await it.until(lambda: len(seen(it)) == 2)
        await asyncio.sleep(0.4)
        assert seen(it) == [(CHIEF, "chief-0:7")]

    play(tmp_path, scenario)


def test_it_is_told_where_nobody_is_left_who_has_the_model(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF)
        await it.backend.kill(CHIEF)
        await it.until(lambda: CHIEF in it.master.job.members.trainers())
        await ready(it, CHIEF)
        lines = (it.spec.workdir / "events.jsonl").read_text()
        assert "nobody is there any more who had the model" in lines

    play(tmp_path, scenario, workers=0)


def test_an_aimaster_that_comes_back_leaves_nobody_out_who_is_on_its_way(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        agents = [it.agent(name) for name in (CHIEF, ONE)]
        views = []
        agents[1].away = True
        await it.crash()
        await it.start()
        await it.until(lambda: CHIEF in it.master.job.members.trainers())
        await agents[0].say(ring=pb.Ring(address="chief-0:7"))
        for _ in range(50):
            views.append(seen(it))
            await asyncio.sleep(0.01)
        agents[1].away = False
        await it.until(lambda: ONE in it.master.job.members.trainers())
        await agents[1].say(ring=pb.Ring(address="worker-0:7"))
        await it.until(lambda: len(seen(it)) == 2)
        assert all(len(view) in (0, 2) for view in views), "a view without the one that was on its way"

    play(tmp_path, scenario)


def test_an_aimaster_that_has_lost_its_store_goes_on_with_who_is_there(tmp_path):
    async def scenario(it: World) -> None:
        await ready(it, CHIEF, ONE)
        epoch, agents = it.agent(CHIEF).view.epoch, [it.agent(name) for name in (CHIEF, ONE)]
        await it.crash()
        it.lose_store()
        await it.start()
        await it.until(lambda: len(it.master.job.members.trainers()) == 2)
        for agent in agents:
            await agent.say(ring=pb.Ring(address=f"{agent.name}:7"))
        await it.until(lambda: it.agent(CHIEF).view.epoch > epoch and len(seen(it)) == 2)
        assert [it.agent(name) for name in (CHIEF, ONE)] == agents
        reply = await it.scale(workers=0)
        assert (await it.ended(reply.scaling_id)).outcome == "committed"
        await it.until(lambda: seen(it) == [(CHIEF, "chief-0:7")])

    play(tmp_path, scenario)


def test_the_secret_is_the_jobs_and_outlives_the_aimaster(tmp_path):
    async def scenario(it: World) -> None:
        secret = it.master.job.ring_secret
        assert len(secret) == 32
        await it.crash()
        await it.start()
        assert it.master.job.ring_secret == secret

    play(tmp_path, scenario)


def test_in_step_the_silence_of_a_trainer_is_as_short_as_that_of_a_ps(tmp_path):
    settings = Settings()
    for in_step, limit in (
        (False, settings.worker_heartbeat_limit_seconds),
        (True, settings.ps_heartbeat_limit_seconds),
    ):
        clock = SystemClock()
        members = Members(Store(tmp_path / f"{in_step}.db"), settings, clock, in_step=in_step)
        members.request(ONE)
        member = members.arrive(pb.RegisterRequest(role=pb.WORKER, index=0, incarnation="one"), ONE)
        members.admit(member)
        member.seen -= limit - 1
        assert not members.silent()
        member.seen -= 2
        assert [one.name for one, _, _ in members.silent()] == [ONE]


def test_a_ring_in_a_job_with_ps_is_not_believed(tmp_path):
    async def run() -> None:
        it = World(tmp_path)
        await it.start()
        try:
            await it.training()
            await it.agent(ONE).say(ring=pb.Ring(address="worker-0:7"))
            await it.until(lambda: "tells of a ring" in it.master.job.suspects.of(ONE))
            assert not it.master.job.members.get(ONE).ring
        finally:
            await it.stop()

    asyncio.run(run())


def test_who_refuses_before_anybody_has_trained_is_no_suspect(tmp_path):
    async def scenario(it: World) -> None:
        job, why = it.master.job, pb.Refusal(reason="train_on_batch in a job without PS")
        for name in (ONE, CHIEF):
            await it.until(lambda name=name: it.agent(name).call is not None)
            await it.agent(name).say(refusal=why)
            await it.until(lambda name=name: name in told(it, "refusal"))
        await it.until(lambda: job.ending == "failed")
        assert job.failure == why.reason and not job.suspects.all and not told(it, "suspect")

    play(tmp_path, scenario, mute=(CHIEF, ONE))


def test_who_refuses_what_all_refuse_is_no_suspect_whoever_says_it_first(tmp_path):
    async def scenario(it: World) -> None:
        job, why = it.master.job, pb.Refusal(reason="train_on_batch in a job without PS")
        await it.until(lambda: {CHIEF, ONE} <= job.members.trained)
        await it.agent(ONE).say(refusal=why)
        await it.until(lambda: bool(job.suspects.of(ONE)))  # as far as is known
        await it.agent(CHIEF).say(refusal=why)
        await it.until(lambda: job.ending == "failed")
        assert job.failure == why.reason and not job.suspects.all and not job.store.get("suspects")

    play(tmp_path, scenario)


def test_who_refuses_something_else_than_the_chief_stays_suspect(tmp_path):
    async def scenario(it: World) -> None:
        job = it.master.job
        await it.until(lambda: {CHIEF, ONE} <= job.members.trained)
        await it.agent(ONE).say(refusal=pb.Refusal(reason="a lie"))
        await it.until(lambda: bool(job.suspects.of(ONE)))
        await it.agent(CHIEF).say(refusal=pb.Refusal(reason="train_on_batch in a job without PS"))
        await it.until(lambda: job.ending == "failed")
        assert "a lie" in job.suspects.of(ONE)

    play(tmp_path, scenario)


def told(it: World, type_: str) -> list[str]:
    """Roles of the events of this type."""
    return [role for _, _, kind, role, _, _ in it.master.job.store.events(0, 1000) if kind == type_]


def test_who_registers_hears_with_how_many_the_job_begins(tmp_path):
    async def scenario(it: World) -> None:
        await it.until(lambda: it.agent(ONE).registered > 0)
        assert it.agent(ONE).begins_with == 3

    play(tmp_path, scenario, workers=2)


def test_where_a_run_is_resumed_all_hear_it_too_until_one_of_them_makes_steps(tmp_path):
    async def scenario(it: World) -> None:
        members = it.master.job.members
        members.reached(150, members.trainers()[ONE])  # by the processes before
        assert members.has_trained and not members.are_training
        for count, who in ((2, ONE), (0, CHIEF)):
            if not count:
                await it.agent(ONE).say(heartbeat=pb.Heartbeat(step=151, training=True))
                await it.until(lambda: members.are_training)
            before = it.agent(who)
            await it.backend.kill(who)
            await it.until(lambda who=who, before=before: it.agent(who) is not before and it.agent(who).registered)
            assert it.agent(who).begins_with == count

    play(tmp_path, scenario, mute=(CHIEF, ONE))
