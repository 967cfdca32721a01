"""The arbiter's allowance, obeyed by a real AIMaster with agents that pretend."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.core.records import ARBITER
from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.autoscaler.loop import obeying as module
from deeprec_ext.autoscaler.observe.changes import changes_of
from deeprec_ext.errors import UsageError
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, World
from tests.unit.autoscaler.loop.arbiters import WHY, Arbiter, events, play, settled, size


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)


async def lose_hosts(it: World, why: str, *names: str) -> None:
    """They are told so, and the first of them waits for the pod that is to replace it."""
    job, queue = it.master.job, it.master.scalings
    for name in names:
        member = job.members.get(name)
        assert member is not None
        job.reclaimed[name] = member.incarnation
        await queue.request(pb.ScaleRequest(replace=name, reason=why))
    await it.until(lambda: queue.running is not None and queue.running.state is State.ACQUIRE)


def scalings(it: World) -> list[tuple[str, str, int, int]]:
    return [(one.role, one.outcome, one.from_count, one.to_count) for one in it.master.job.store.scalings()]


def test_what_is_beyond_the_allowance_is_given_back_at_once_and_taken_again_when_it_is_allowed(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        [one] = it.master.job.store.scalings()
        assert (one.requested_by, one.reason, one.asked_reason, one.outcome) == (ARBITER, WHY, WHY, "committed")
        assert one.drained == ("worker-1", "worker-2") and not one.asked
        told = await it.status()
        assert told.allowance == f"the arbiter allows 2 PS, 1 worker at present ({WHY})"
        assert [(one.requested_by, one.reason) for one in told.scalings] == [(ARBITER, WHY)]
        [queued], [ended] = events(it, "scaling_queued"), events(it, "scaling_ended")
        assert queued["requested_by"] == ended["requested_by"] == ARBITER and ended["reason"] == WHY
        assert [(one["ps"], one["workers"], one["reason"]) for one in events(it, "allowance")] == [(2, 1, WHY)]
        arbiter.allow(4, 8, "there is room again")
        await settled(it, 2, 3)
        assert scalings(it) == [("worker", "committed", 3, 1), ("worker", "committed", 1, 3)]

    play(tmp_path, scenario, workers=3)


def test_workers_are_given_back_before_ps_and_both_come_back_together(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(1, 1)
        await settled(it, 1, 1)
        assert scalings(it) == [("worker", "committed", 3, 1), ("ps", "committed", 2, 1)]
        arbiter.allow(2, 2)
        await settled(it, 2, 2)
        arbiter.allow(9, 9)
        await settled(it, 2, 3)
        third, last = it.master.job.store.scalings()[2:]
        assert (third.role, third.to_count, third.workers_from, third.workers_to) == ("ps", 2, 1, 2)
        assert (last.role, last.to_count, last.both) == ("worker", 3, False)

    play(tmp_path, scenario, workers=3)


@pytest.mark.parametrize("own_pods", [False, True])
def test_beside_kubeflow_a_job_that_may_have_nothing_is_kept_at_its_least(tmp_path: Path, own_pods: bool) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(0, 0, runs=False)
        if own_pods:
            arbiter.allow(2, 2)  # of its end, and of what it may have then, nothing is ours to say
            await settled(it, 2, 2)
            assert [(one["ps"], one["workers"]) for one in events(it, "allowance")] == [(2, 2)]
            return
        await settled(it, 1, 1)
        assert scalings(it) == [("worker", "committed", 3, 1), ("ps", "committed", 2, 1)]
        with pytest.raises(UsageError, match="the arbiter allows 1 PS, 1 worker"):
            await it.master.scalings.request(pb.ScaleRequest(workers=3), decision=1)
        arbiter.allow(2, 3)
        await settled(it, 2, 3)

    play(tmp_path, scenario, workers=3, own_pods=own_pods, min_ps=1, min_workers=1)


def test_a_job_without_ps_obeys_as_well(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(0, 1)
        await it.until(lambda: len(it.master.job.view().workers) == 2 and not it.master.scalings.under_way())
        assert it.master.job.allowed.told() == f"the arbiter allows 1 worker at present ({WHY})"
        it.backend.deleted.clear()
        arbiter.allow(0, 5)
        await it.until(lambda: "worker-2" in it.backend.agents)
        for name in ("worker-1", "worker-2"):
            await it.until(lambda name=name: it.agent(name).call is not None)  # type: ignore[misc]
            await it.agent(name).say(ring=pb.Ring(address=f"{name}:7"))
        await it.until(lambda: len(it.master.job.view().workers) == 4)

    play(tmp_path, scenario, slots=0, ps=0, min_ps=0, workers=3)


def test_a_scaling_under_way_ends_first_and_then_the_newest_allowance_counts(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        it.mute["ps-2"] = {"FIRST"}  # it never has its first copy
        await it.scale(ps=3)
        await it.until(lambda: (one := it.master.scalings.running) is not None and one.scaling.state == "PREPARE")
        for workers in (2, 0, 1):
            arbiter.allow(2, workers)
        await it.until(lambda: len(events(it, "allowance")) == 3)
        await asyncio.sleep(0.2)
        assert it.master.scalings.running is not None and size(it) == (2, 3)
        await settled(it, 2, 1)
        assert scalings(it) == [("ps", "rolled_back", 2, 3), ("worker", "committed", 3, 1)]

    play(tmp_path, scenario, workers=3)


def test_one_that_waits_for_pods_that_are_not_allowed_any_more_is_cut_short(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, acquire_limit_seconds=300)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        it.backend.queued.add("worker-3")
        await it.scale(workers=4)
        await it.until(lambda: it.master.scalings.running is not None)
        arbiter.allow(2, 4)
        await asyncio.sleep(0.1)
        assert it.master.scalings.running is not None, "it may have them"
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        first, last = it.master.job.store.scalings()
        assert (first.outcome, last.outcome) == ("rolled_back", "committed")
        assert first.reason.startswith("the arbiter allows 2 PS, 1 worker at present")

    play(tmp_path, scenario, workers=3, settings=settings)


def test_who_loses_its_host_leaves_first_and_nobody_is_replaced_who_may_not_be_there(tmp_path: Path) -> None:
    """A scheduler preempts while the arbiter gives way: the replacements would wait for what both have been told to give."""
    settings = dataclasses.replace(SETTINGS, acquire_limit_seconds=300)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        job = it.master.job
        it.backend.queued |= {"worker-3", "worker-4"}
        await lose_hosts(it, "preempted", "worker-0", "worker-1")
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        first, second, last = job.store.scalings()
        assert (first.outcome, second.outcome, last.outcome) == ("rolled_back", "refused", "committed")
        assert first.reason.startswith("the arbiter allows 2 PS, 1 worker") and second.reason == first.reason
        assert last.drained == ("worker-0", "worker-1"), "not the highest"

    play(tmp_path, scenario, workers=3, settings=settings)


def test_a_ps_is_replaced_once_the_workers_that_have_to_leave_have_left(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, acquire_limit_seconds=300)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        job, scalings_ = it.master.job, it.master.scalings
        it.backend.queued.add("ps-2")
        await lose_hosts(it, "node n is drained", "ps-1")
        arbiter.allow(2, 1)
        await it.until(lambda: size(it) == (2, 1))
        it.backend.queued.clear()
        await it.until(lambda: len(job.store.scalings()) == 3 and not scalings_.under_way())
        first, second, third = job.store.scalings()
        assert (first.outcome, second.outcome, third.outcome) == ("rolled_back", "committed", "committed")
        assert (third.replace, third.asked_reason) == ("ps-1", "node n is drained")

    play(tmp_path, scenario, workers=3, settings=settings)


def test_of_several_that_lose_their_hosts_those_that_stay_are_replaced(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, acquire_limit_seconds=300)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        job, scalings_ = it.master.job, it.master.scalings
        it.backend.queued |= {"worker-3", "worker-4"}
        await lose_hosts(it, "its node goes", "worker-0", "worker-1")
        arbiter.allow(2, 2)
        await it.until(lambda: size(it) == (2, 2))
        it.backend.queued.clear()
        await it.until(lambda: len(job.store.scalings()) == 4 and not scalings_.under_way())
        third, fourth = job.store.scalings()[2:]
        assert third.drained == ("worker-1",)
        assert (fourth.replace, fourth.outcome, fourth.asked_reason) == ("worker-0", "committed", "its node goes")

    play(tmp_path, scenario, workers=3, settings=settings)


def test_while_nobody_is_asked_to_leave_replacements_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scaling that was to make way has failed, and is tried again later."""
    monkeypatch.setattr(module.Obeying, "_due", lambda self: self._fail() or {})
    settings = dataclasses.replace(SETTINGS, acquire_limit_seconds=300)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        job, scalings_ = it.master.job, it.master.scalings
        arbiter.allow(2, 1)
        await it.until(lambda: bool(events(it, "allowance")))
        await asyncio.sleep(0.1)
        it.backend.queued.add("ps-2")
        await lose_hosts(it, "its node goes", "ps-1")
        await asyncio.sleep(0.3)
        assert scalings_.running is not None and len(job.store.scalings()) == 1
        it.backend.queued.clear()

    play(tmp_path, scenario, workers=3, settings=settings)


def test_what_waits_in_the_queue_is_refused_when_its_turn_comes_and_it_is_not_allowed_any_more(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(8, 8)
        await it.until(lambda: bool(events(it, "allowance")))
        it.backend.stillborn.add("worker-2")
        await it.scale(workers=3)
        await it.until(lambda: it.master.scalings.running is not None)
        await it.scale(ps=3)
        arbiter.allow(2, 3)
        refused = await it.ended(2)
        assert (refused.outcome, "the arbiter allows 2 PS, 3 workers" in refused.reason) == ("refused", True)
        it.backend.stillborn.clear()
        arbiter.allow(8, 8)
        await settled(it, 3, 3)  # both were asked for

    play(tmp_path, scenario, workers=2)


def test_what_a_user_asks_for_beyond_it_waits_until_it_is_allowed(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 2)
        await it.until(lambda: bool(events(it, "allowance")))
        reply = await it.scale(workers=4, dry_run=True)
        assert "more comes when it allows more" in reply.message
        reply = await it.scale(workers=4)
        assert reply.scaling_id and f"the arbiter allows 2 PS, 2 workers at present ({WHY})" in reply.message
        await settled(it, 2, 2)
        reply = await it.scale(workers=5, ps=3)
        assert not reply.scaling_id and "more comes when it allows more" in reply.message
        assert [one["asked"] for one in events(it, "request_waits")] == ["4 workers", "3 PS, 5 workers"]
        with pytest.raises(Exception, match="outside of this job's limits"):
            await it.scale(workers=99)
        arbiter.allow(8, 3)
        await settled(it, 3, 3)
        await it.scale(workers=2)
        arbiter.allow(8, 8)
        await settled(it, 3, 2)
        await asyncio.sleep(0.2)
        assert size(it) == (3, 2), "what was asked for last counts"

    play(tmp_path, scenario, workers=1, max_workers=8)


def test_a_decision_beyond_it_is_refused(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 1)
        await it.until(lambda: bool(events(it, "allowance")))
        with pytest.raises(UsageError, match="the arbiter allows 2 PS, 1 worker"):
            await it.master.scalings.request(pb.ScaleRequest(workers=3), decision=7)
        assert not it.master.job.store.scalings()

    play(tmp_path, scenario, workers=1)


@pytest.mark.parametrize("lie", [
    "no JSON", "{}", '{"runs": true, "ps": 0, "workers": 1, "since": 1, "why": ""}',
    '{"runs": true, "ps": 2, "workers": 0, "since": 1, "why": ""}',
    '{"runs": true, "ps": 2, "workers": -7, "since": 1, "why": ""}',
])  # fmt: skip
def test_lies_are_ignored_and_told_once(tmp_path: Path, lie: str) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        for _ in range(3):
            arbiter.say(lie)
        arbiter.allow(2, 2)
        await settled(it, 2, 2)
        arbiter.say(lie)
        await asyncio.sleep(0.1)
        assert size(it) == (2, 2) and len(events(it, "allowance_ignored")) == 1
        assert len(it.master.job.store.scalings()) == 1

    play(tmp_path, scenario, workers=3, min_workers=1)


def test_who_may_not_run_at_all_is_left_to_others(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(0, 0, runs=False)
        await asyncio.sleep(0.1)
        assert size(it) == (2, 3) and it.master.job.allowed.allowance is None and not events(it, "allowance_ignored")

    play(tmp_path, scenario, workers=3)


def test_an_aimaster_that_restarts_goes_on_with_the_last_allowance_whether_the_arbiter_is_silent_or_not(
    tmp_path: Path,
) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        await it.crash()
        await it.start()  # and the arbiter says nothing
        await it.until(lambda: it.master.job.settled)
        assert it.master.job.allowed.most("worker") == 1
        reply = await it.scale(workers=2)
        assert not reply.scaling_id and "the arbiter allows" in reply.message
        arbiter.allow(2, 3)
        await settled(it, 2, 2)

    play(tmp_path, scenario, workers=3)


def test_an_aimaster_that_dies_in_the_middle_gives_back_what_is_left(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        for name in ("ps-0", "ps-1"):
            it.agent(name).mute.update(("FIRST", "DIRTY", "FINAL"))
        arbiter.allow(1, 1)
        await it.until(lambda: (one := it.master.scalings.running) is not None and one.scaling.state == "PREPARE")
        await it.crash()
        for name in ("ps-0", "ps-1"):
            it.agent(name).mute.clear()
        await it.start()
        await settled(it, 1, 1)
        assert [one[1] for one in scalings(it)] == ["committed", "rolled_back", "committed"]

    play(tmp_path, scenario, workers=2)


def test_a_hold_does_not_keep_what_others_need(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        it.master.job.hold(True, "a test")
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        [one] = it.master.job.store.scalings()
        assert one.reason == f"{WHY}{module.HELD}" and it.master.job.held

    play(tmp_path, scenario, workers=2)


def test_without_an_allowance_any_more_the_job_has_what_it_wants_again(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(1, 0)
        await settled(it, 1, 0)
        arbiter.say(None)
        await settled(it, 2, 2)
        allowed = it.master.job.allowed
        await it.until(lambda: allowed.back("ps") is allowed.back("worker") is None)
        assert (allowed.allowance, allowed.told()) == (None, "")
        assert (await it.scale(workers=4)).message == "queued"

    play(tmp_path, scenario, workers=2)


def test_a_scaling_that_fails_is_tried_again_and_at_once_under_another_allowance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 30.0)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        it.backend.stillborn.add("worker-1")
        arbiter.allow(2, 2)
        assert (await it.ended(2)).outcome == "rolled_back"
        await asyncio.sleep(0.2)
        assert len(it.master.job.store.scalings()) == 2, "not before it is due"
        it.backend.stillborn.clear()
        arbiter.allow(2, 3)
        await settled(it, 2, 3)

    play(tmp_path, scenario, workers=3)


def test_who_was_given_up_is_not_brought_back(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 3)
        await it.until(lambda: bool(events(it, "allowance")))
        it.master.job.members.update("worker-2", wanted=False)
        it.master.scalings.given_up("its restarts are used up")
        await asyncio.sleep(0.2)
        assert it.master.job.allowed.back("worker") == 2 and it.backend.pods.keys() >= {"worker-0", "worker-1"}
        assert [one.kind for one in it.master.job.store.scalings()] == ["given-up"]

    play(tmp_path, scenario, workers=3)


def test_a_worker_that_has_ended_by_itself_is_not_missing(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        it.backend.exit("worker-0", 0)
        await it.until(lambda: it.master.job.members.records["worker-0"].ended)
        arbiter.allow(2, 3)
        await asyncio.sleep(0.2)
        assert len(it.master.job.store.scalings()) == 1

    play(tmp_path, scenario, workers=2)


def test_the_arbiter_s_change_is_neither_by_hand_nor_counted_as_a_change_of_mind(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        [change] = changes_of(it.master.scalings.records(), it.master.job.started, {})
        assert (change.manual, change.arbiter, change.kind) == (False, True, "scale-down")

    play(tmp_path, scenario, workers=2)


def test_with_an_autoscaler_what_was_taken_comes_back_and_the_rest_is_its_own(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, autoscale=True, decide_seconds=3600.0, window_seconds=3600.0)

    async def scenario(it: World, arbiter: Arbiter) -> None:
        scaler = it.master.autoscaler
        assert scaler is not None
        await it.master.scalings.request(pb.ScaleRequest(workers=3), decision=1)
        await settled(it, 2, 3)
        arbiter.allow(2, 1)
        await settled(it, 2, 1)
        assert (scaler.observed().limits.max_workers, scaler.observed().limits.max_ps) == (1, 2)
        arbiter.allow(8, 2)
        await settled(it, 2, 2)
        await it.master.scalings.request(pb.ScaleRequest(ps=1), decision=2)
        await settled(it, 1, 2)
        arbiter.allow(8, 8)
        await settled(it, 1, 3)
        await it.until(lambda: it.master.job.allowed.back("worker") is None)
        await it.master.scalings.request(pb.ScaleRequest(workers=1), decision=3)
        await settled(it, 1, 1)
        await asyncio.sleep(0.1)
        assert size(it) == (1, 1), "what it has decided since is not undone"

    play(tmp_path, scenario, workers=1, settings=settings)


def test_a_job_begins_with_what_its_pool_allows_already_and_grows_to_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "allowance.json"

    def allow(ps: int, workers: int) -> None:
        file.write_text(json.dumps({"runs": True, "ps": ps, "workers": workers, "since": 1.0, "why": WHY}))

    async def main() -> None:
        allow(1, 1)
        it = World(tmp_path, workers=3, settings=dataclasses.replace(SETTINGS, allowance_file=str(file)))
        await it.start()
        try:
            await it.until(lambda: it.master.job.cluster.live and size(it) == (1, 1))
            assert "worker-1" not in it.backend.pods and not it.master.job.store.scalings()
            allow(4, 4)
            await settled(it, 2, 3)
        finally:
            await it.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_without_an_arbiter_nothing_is_limited_kept_or_measured(tmp_path: Path) -> None:
    async def main() -> None:
        it = World(tmp_path, workers=3)
        await it.start()
        try:
            await it.training()
            job = it.master.job
            assert it.master.exchange is None and job.allowed.most("worker") == job.spec.max_workers
            await it.scale(workers=2)
            await it.ended()
            assert {"goes_back_to", "autoscaler"}.isdisjoint(job.store.everything()) and not (
                await it.status()
            ).allowance
            job.store.put(allowance={"job": "x", "runs": True, "ps": 1, "workers": 1, "since": 1.0, "why": "of a pool"})
            await it.crash()
            await it.start()
            assert it.master.job.allowed.most("worker") == job.spec.max_workers, (
                "a resumed run may be in no pool any more"
            )
        finally:
            await it.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_settings_are_empty_unless_a_pool_gives_them() -> None:
    assert (Settings().bid_file, Settings().allowance_file) == ("", "")


def test_what_the_store_has_of_it_may_be_damaged(tmp_path: Path) -> None:
    async def scenario(it: World, arbiter: Arbiter) -> None:
        values: dict[str, Any] = {"allowance": {"ps": "many"}, "goes_back_to": [1]}
        it.master.job.store.put(**values)
        await it.crash()
        await it.start()
        await it.until(lambda: it.master.job.settled)
        assert it.master.job.allowed.allowance is None
        arbiter.allow(2, 1)
        await settled(it, 2, 1)

    play(tmp_path, scenario, workers=2)
