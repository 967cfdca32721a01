"""What dies, hangs or comes back, and what is written down about it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from deeprec_ext.aimaster.core.records import Failure
from deeprec_ext.layout.names import FLAGS_HINT
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from tests.unit.aimaster.world import SETTINGS, World, world


def play(workdir: Path, scenario: Callable[[World], Awaitable[None]], **spec: object) -> None:
    async def main() -> None:
        async with world(workdir, **spec) as it:
            await scenario(it)

    asyncio.run(main())


def test_a_killed_ps_comes_back_with_a_new_task_and_the_next_generation(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.until(lambda: it.master.job.members.step > 5)  # where the chief restores
        await it.backend.kill("ps-1")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        status = await it.status()
        assert list(status.slot_map) == [0, 2] * 4
        assert it.agent("worker-0").view.generation == 2
        await it.until(lambda: it.master.job.store.failures()[0].recovered_seconds is not None)
        failure = it.master.job.store.failures()[0]
        assert (failure.name, failure.cause) == ("ps-1", "killed by signal 9") and failure.steps_lost > 0
        assert len(it.master.job.store.failures()) == 1
        [told] = restores(it)
        expected = {"source": "checkpoint", "step": 5, "steps_lost": failure.steps_lost, "generation": 2, "data": {}}
        assert {key: told[key] for key in expected} == expected

    play(tmp_path, scenario)


def restores(it: World) -> list[dict[str, Any]]:
    return [json.loads(row[0]) for row in it.master.job.store.rows("SELECT json FROM events WHERE type = 'restored'")]


def test_before_trainers_come_there_is_one_view_and_no_second(tmp_path: Path) -> None:
    """On a busy machine they come long after it."""

    async def main() -> None:
        it = World(tmp_path)
        it.backend.stillborn |= {"chief-0", "worker-0"}
        await it.start()
        try:
            await it.until(lambda: it.master.job.cluster.formed)
            await asyncio.sleep(0.5)
            assert it.master.job.cluster.epoch == 1
            it.backend.stillborn.clear()
            for name in ("chief-0", "worker-0"):
                await it.backend.kill(name)
            await it.training()
            assert it.master.job.cluster.epoch > 1
        finally:
            await it.stop()

    asyncio.run(main())


@pytest.mark.parametrize("fresh", [False, True])
def test_the_first_start_of_a_job_goes_back_from_nothing(tmp_path: Path, fresh: bool) -> None:
    async def scenario(it: World) -> None:
        await it.until(lambda: it.master.job.cluster.live)
        assert not restores(it)
        it.agent("chief-0").restored = pb.ModelLive(fresh=fresh)
        await it.backend.kill("ps-1")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert [one["source"] for one in restores(it)] == ["nothing" if fresh else "checkpoint"]

    play(tmp_path, scenario)


def test_what_a_chief_has_cut_is_as_it_says_last_and_is_taken_from_who_says_it_again(tmp_path: Path) -> None:
    """Each role cuts by that alone: what a model before had does not stay, and an AIMaster may have lost what it heard."""

    async def scenario(it: World) -> None:
        await it.until(lambda: it.master.job.cluster.live)
        chief, generation = it.agent("chief-0"), it.master.job.cluster.generation
        for said, kept in ((["a@4"], ("a@4",)), (["b@8"], ("a@4",)), ([], ("a@4",))):
            await chief.say(live=pb.ModelLive(generation=generation, cut=said))
            await it.until(lambda kept=kept: it.master.job.cluster.cut == kept)
            await it.until(lambda kept=kept: tuple(it.agent("worker-0").view.cut) == kept)
        chief.restored = pb.ModelLive(fresh=True)
        await it.backend.kill("ps-1")
        await it.until(lambda: it.master.job.cluster.generation == generation + 1 and it.master.job.cluster.live)
        assert it.master.job.cluster.cut == ()

    play(tmp_path, scenario)


def test_a_recovery_that_an_aimaster_does_not_live_to_see_is_seen_by_the_next(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.until(lambda: it.master.job.cluster.live)
        store, died = it.master.job.store, it.master.job.clock.wall() - 5
        store.save_failure(Failure(0, "ps-1", "hung", died, 3.0, recovered_by="promotion"))
        store.save_failure(Failure(0, "worker-0", "killed by signal 9", died, 0.1))
        await it.crash()
        await it.start()
        await it.until(lambda: all(one.recovered_seconds is not None for one in it.master.job.store.failures()))
        assert all(one.recovered_seconds >= 5 for one in it.master.job.store.failures())

    play(tmp_path, scenario)


def test_two_ps_that_die_at_once_come_back_in_one_view(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await asyncio.gather(it.backend.kill("ps-0"), it.backend.kill("ps-1"))
        await it.until(lambda: it.master.job.cluster.live and not it.master.job.cluster.lost)
        await it.until(lambda: it.master.job.cluster.generation >= 2)
        status = await it.status()
        assert len(set(status.slot_map)) == 2 and min(status.slot_map) >= 2

    play(tmp_path, scenario)


def test_a_ps_lost_in_a_scaling_rolls_it_back_first(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.mute["ps-2"] = {"FIRST"}
        await it.scale(ps=3)
        await it.until(lambda: "ps-2" in it.backend.agents and "FIRST" in it.agent("ps-2").told)
        await it.backend.kill("ps-0")
        ended = await it.ended()
        assert ended.outcome == "rolled_back" and "ps-0 killed by signal 9" in ended.reason
        await it.until(lambda: it.master.job.cluster.live and it.master.job.cluster.generation == 2)
        assert len((await it.status()).slot_map) == 8 and "ps-2" in it.backend.deleted

    play(tmp_path, scenario)


def test_the_pause_of_a_loss_is_told_with_the_failure_and_not_with_a_scaling(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(ps=3)
        ended = await it.ended()
        await it.until(lambda: len(it.master.scalings.ended[-1].pause_seconds) == 2)
        await it.backend.kill("ps-0")
        await it.until(lambda: bool(it.master.job.store.failures()))
        for seconds in (0.7, 2.5):
            await it.agent("worker-0").say(pause=pb.PauseReport(pause_seconds=seconds, loss=True))
        await it.until(lambda: it.master.job.store.failures()[0].pause_seconds == (2.5, 0.7))
        assert it.master.scalings.ended[-1].pause_seconds == (0.05, 0.05) and ended.outcome == "committed"

    play(tmp_path, scenario)
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [one["seconds"] for one in told if one["type"] == "loss_pause"] == [0.7, 2.5]


def test_a_silent_ps_is_killed_and_replaced(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("ps-1").mute.add("heartbeat")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert it.backend.deleted == ["ps-1"]
        failure = it.master.job.store.failures()[0]
        assert failure.cause == "hung" and failure.detected_seconds >= 0.7

    play(tmp_path, scenario, settings=dataclasses.replace(SETTINGS, ps_heartbeat_limit_seconds=0.8))


def test_a_killed_worker_is_noticed_and_nobody_else(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.backend.kill("worker-0")
        await it.until(lambda: bool(it.master.job.store.failures()))
        await it.until(lambda: it.master.job.store.failures()[0].recovered_seconds is not None)
        assert it.master.job.cluster.generation == 1 and it.master.job.cluster.live
        assert (await it.status()).roles[3].restarts == 1

    play(tmp_path, scenario)


def test_a_fenced_incarnation_may_not_come_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        old = it.agent("worker-0")
        await it.backend.kill("worker-0")
        await it.until(lambda: it.agent("worker-0").registered > 0)
        async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rpc.AgentsStub(channel).Register(old.request(), timeout=3)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "replaced" in caught.value.details()

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"protocol_major": 9}, "protocol 9"), ({"job": "other"}, "'other'"), ({"index": 7}, "was not asked for")],
)
def test_a_registration_that_cannot_be_is_refused_by_name(
    tmp_path: Path, changes: dict[str, object], text: str
) -> None:
    async def scenario(it: World) -> None:
        request = it.agent("worker-0").request()
        request.incarnation = "fresh"
        for name, value in changes.items():
            setattr(request, name, value)
        async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rpc.AgentsStub(channel).Register(request, timeout=3)
        assert text in caught.value.details()

    play(tmp_path, scenario)


def test_when_the_chief_has_finished_the_workers_leave(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        worker = it.agent("worker-0")
        it.backend.exit("chief-0", 0)
        await it.until(lambda: "leave" in worker.told)
        assert (await it.status()).state == "finishing"
        with pytest.raises(grpc.aio.AioRpcError):
            await it.scale(ps=3)
        assert not it.master.job.store.failures()

    play(tmp_path, scenario)


def test_a_refused_script_fails_the_job_with_its_line(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.agent("chief-0").say(refusal=pb.Refusal(reason="SyncReplicasOptimizer: use another"))
        await it.until(lambda: it.master.job.ending == "failed")
        assert (await it.status()).failure == "SyncReplicasOptimizer: use another"

    play(tmp_path, scenario)


def test_the_refusal_that_names_the_flags_is_the_reason_and_not_what_the_chief_met_of_it(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.agent("worker-0").say(refusal=pb.Refusal(reason=f"it takes itself for another: {FLAGS_HINT}"))
        await it.until(lambda: any(one[2] == "refusal" for one in it.master.job.store.events(0, 1000)))
        await it.agent("chief-0").say(refusal=pb.Refusal(reason="/job:/task:0 is no place of this process"))
        await it.until(lambda: it.master.job.ending == "failed")
        assert (await it.status()).failure == f"it takes itself for another: {FLAGS_HINT}"

    play(tmp_path, scenario)


def test_a_role_that_is_not_started_again_fails_the_job(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.exit("ps-1", 1)
        await it.until(lambda: it.master.job.ending == "failed")
        assert "ps-1 exited with code 1" in (await it.status()).failure

    play(tmp_path, scenario)


def test_a_broken_stream_loses_no_command(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        worker = it.agent("worker-0")
        worker.mute.add("prepare")
        await it.scale(ps=3)
        await it.until(lambda: "prepare" in worker.told)
        worker.mute.clear()
        worker.break_stream()
        assert (await it.ended()).outcome == "committed"
        assert worker.told.count("prepare") == 2

    play(tmp_path, scenario)
