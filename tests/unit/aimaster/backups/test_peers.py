"""Who keeps the backup of which slot, and how the survivors take over."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprec_ext.aimaster.failover import failover, failures
from deeprec_ext.aimaster.placement.holder_plan import plan_holders, tell_slot
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, World, world

GUARDED = dataclasses.replace(SETTINGS, peer_backup="on", peer_backup_seconds=0.2)


def play(workdir: Path, scenario: Callable[[World], Awaitable[None]], **spec: object) -> None:
    async def main() -> None:
        async with world(workdir, **{"settings": GUARDED, **spec}) as it:
            await scenario(it)

    asyncio.run(main())


async def protected(it: World) -> None:
    await it.until(lambda: len(it.master.job.backup_map) == 8)
    await it.until(lambda: list(it.agent("chief-0").view.backup_map) == list(it.master.job.backup_map))


async def protected_for_the_next_aimaster(it: World) -> None:
    """What a PS holds it tells again when it registers again."""
    await protected(it)
    for agent in it.backend.agents.values():
        agent.again = pb.BackupReport(slots=[1, 3, 5, 7] if agent.name == "ps-0" else [0, 2, 4, 6])


# ------------------------------------------------------------------------------------------------ the plan, pure


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 3), st.randoms())
def test_no_ps_guards_its_own_slots_and_nobody_guards_much_more_than_its_share(sizes, count, hosts, random) -> None:
    slot_map = [random.randrange(count) for _ in sizes]
    where = {task: f"host{task % hosts}" for task in range(count)}
    plan = plan_holders(sizes, slot_map, where, {})
    if count == 1:
        assert plan == {}
        return
    assert plan.keys() == set(range(len(sizes)))
    assert all(plan[slot] != slot_map[slot] for slot in plan)
    for slot, task in plan.items():
        apart = [other for other in where if where[other] != where[slot_map[slot]]]
        assert not apart or where[task] != where[slot_map[slot]]
    assert plan_holders(sizes, slot_map, where, plan) == plan or count > 2  # it stays as it is, or is a little better


def test_a_guard_that_is_there_stays_when_another_ps_comes() -> None:
    before = plan_holders([10] * 8, [0, 1] * 4, {0: "", 1: ""}, {})
    after = plan_holders([10] * 8, [0, 1, 0, 1, 0, 2, 2, 2], {0: "", 1: "", 2: ""}, before)
    kept = [slot for slot in before if after[slot] == before[slot]]
    assert len(kept) >= 4


def test_who_has_a_copy_keeps_it_until_the_planned_guard_has_one_and_they_read_as_two() -> None:
    assert tell_slot(1, -1, "", {}).readers == {1: "peer"}
    assert tell_slot(1, 1, "next", {}).readers == {1: "next"}  # it goes on as it was
    assert tell_slot(2, 1, "peer", {1: "peer"}).readers == {1: "peer", 2: "next"}
    assert tell_slot(2, 1, "next", {1: "next"}).readers == {1: "next", 2: "peer"}
    assert tell_slot(2, 1, "peer", {1: "peer", 2: "next"}).readers == {1: "peer", 2: "next"}  # said again
    assert tell_slot(2, 1, "peer", {}).until_then == 1 and tell_slot(1, 1, "peer", {}).until_then == -1
    assert tell_slot(-1, 1, "peer", {1: "peer"}).readers == {1: "peer"}  # a single PS: until its holder has one
    assert tell_slot(-1, -1, "", {1: "peer"}).readers == {}


def test_a_set_of_dirty_rows_is_not_read_by_two_guards() -> None:
    """The one that is still copying as `next` is told to stop first."""
    assert tell_slot(3, 1, "peer", {1: "peer", 2: "next"}).readers == {1: "peer"}
    assert tell_slot(3, -1, "", {1: "peer", 2: "next"}).readers == {}
    assert tell_slot(3, 1, "peer", {1: "peer"}).readers == {1: "peer", 3: "next"}


# ------------------------------------------------------------------------------------------------ the job


def test_every_slot_gets_a_guard_and_every_table_is_marked_from_then_on(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        assert list(it.master.job.backup_map) == [1, 0] * 4
        assert [v.name for v in it.agent("ps-0").command("track").track.variables] == []  # no bitmaps in this catalogue
        assert len(it.agent("chief-0").command("mark").mark.slots) == 8
        status = await it.status()
        assert status.backup.peer and not status.backup.unprotected_slots and status.backup.bytes_sent == 14

    play(tmp_path, scenario)


def test_the_survivors_take_over_and_the_ps_gets_slots_again_when_it_is_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        await it.until(lambda: it.master.job.members.step > 20)
        it.agent("worker-0").step = 999  # it knows more than it has told
        await it.backend.kill("ps-1")
        await it.until(lambda: len(it.master.job.cluster.ps) == 1)
        assert it.master.job.cluster.generation == 1 and it.master.job.cluster.live
        promote = it.agent("ps-0").command("promote").promote
        assert list(promote.slots) == [1, 3, 5, 7] and promote.step >= 999
        await it.until(lambda: "commit" in it.agent("chief-0").told)
        assert it.agent("chief-0").told.index("lost") < it.agent("chief-0").told.index("commit")
        assert (await it.ended()).reason == "ps-1 is back after it was lost"
        assert len(set((await it.status()).slot_map)) == 2
        await it.until(lambda: it.master.job.store.failures()[0].recovered_seconds is not None)
        failure = it.master.job.store.failures()[0]
        assert failure.recovered_by == "promotion" and failure.steps_lost == 0
        assert failure.steps_missing > 0  # worker-0 had made so many more than it had told
        await protected(it)  # the backups are made anew

    play(tmp_path, scenario)


def test_no_change_begins_before_all_trainers_are_through_with_the_loss(tmp_path: Path) -> None:
    """Or its pause keeps those waiting who train again for one that still builds its session."""

    async def scenario(it: World) -> None:
        await protected(it)
        slow = it.agent("worker-0")
        slow.stuck_in = slow.view.epoch
        await it.backend.kill("ps-1")
        await it.until(lambda: len(it.master.job.cluster.ps) == 1)
        await it.until(lambda: it.master.scalings.coming_back("ps-1"))
        await it.scale(workers=2)
        await asyncio.sleep(1.5)
        assert len(it.master.scalings.queue) == 2 and it.master.scalings.running is None
        assert "prepare" not in it.agent("chief-0").told
        slow.stuck_in = None
        assert (await it.ended()).outcome == "committed"
        assert (await it.ended(2)).outcome == "committed"

    play(tmp_path, scenario)


def test_changes_do_not_wait_for_ever_for_a_trainer_that_does_not_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "RECOVERY_PATIENCE_SECONDS", 1.0)

    async def scenario(it: World) -> None:
        await protected(it)
        it.agent("worker-0").stuck_in = it.agent("worker-0").view.epoch
        await it.backend.kill("ps-1")
        assert (await it.ended()).outcome == "committed"
        assert it.master.job.store.failures()[0].recovered_seconds is None

    play(tmp_path, scenario)


def test_a_return_that_is_rolled_back_says_what_it_was_for(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        it.fails["ps-1"] = {"FIRST": "no room"}
        await it.backend.kill("ps-1")
        ended = await it.ended()
        assert ended.outcome == "rolled_back"
        assert ended.reason.startswith("ps-1 is back after it was lost, but: ") and "no room" in ended.reason

    play(tmp_path, scenario)


def test_a_ps_and_the_holder_of_its_backup_are_restored(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        await asyncio.gather(it.backend.kill("ps-0"), it.backend.kill("ps-1"))
        await it.until(lambda: it.master.job.cluster.generation >= 2 and it.master.job.cluster.live)
        assert {f.recovered_by for f in it.master.job.store.failures()} == {"checkpoint"}
        await protected(it)

    play(tmp_path, scenario)


def test_a_holder_that_cannot_promote_leads_to_a_restore(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        it.agent("ps-0").fails["promote"] = "there is no complete backup of the slots [1] here"
        await it.backend.kill("ps-1")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)

    play(tmp_path, scenario)


def test_a_refresh_may_come_by_steps_instead_of_by_time(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        guard = it.agent("ps-0").command("guard").guard
        assert guard.seconds == 0
        await it.until(lambda: it.agent("ps-0").told.count("refresh") >= 2)

    play(tmp_path, scenario, settings=dataclasses.replace(GUARDED, peer_backup_steps=3))


def test_backups_are_kept_up_while_a_change_of_workers_waits_for_a_pod(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        it.backend.stillborn.add("worker-1")
        await it.scale(ps=3)
        await it.scale(workers=2)
        assert (await it.ended()).outcome == "committed"
        await it.until(lambda: it.master.scalings.running is not None)
        await it.until(lambda: "guard" in it.agent("ps-2").told)
        await it.until(lambda: len(it.master.job.backup_map) == 8)
        before = it.agent("ps-2").told.count("refresh")
        await it.until(lambda: it.agent("ps-2").told.count("refresh") > before)
        running = it.master.scalings.running
        assert running is not None and (running.scaling.role, running.scaling.state) == ("worker", "ACQUIRE")

    play(tmp_path, scenario, settings=dataclasses.replace(GUARDED, peer_backup_steps=3))


def test_lost_ps_may_always_be_replaced_instead(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        await it.backend.kill("ps-1")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert "promote" not in it.agent("ps-0").told

    play(tmp_path, scenario, settings=dataclasses.replace(GUARDED, ps_failover="replace"))


def test_the_job_may_go_on_with_fewer_ps(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        await it.backend.kill("ps-1")
        await it.until(lambda: len(it.master.job.cluster.ps) == 1)
        await it.until(lambda: not it.master.job.members.records["ps-1"].wanted)
        await it.until(lambda: it.backend.pods["ps-1"].state == "exited")

    play(tmp_path, scenario, settings=dataclasses.replace(GUARDED, replace_lost_ps=False))


def test_a_scaling_finds_the_marks_there_and_keeps_backups_out_of_its_final_copy(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        await it.scale(ps=3)
        assert (await it.ended()).outcome == "committed"
        chief, target = it.agent("chief-0"), it.agent("ps-2")
        assert chief.told.count("mark") <= 2 and chief.command("commit").commit.keep_marks
        assert target.command("copy").copy.phase == pb.Copy.FINAL
        assert target.told.index("hold") < target.told.index("FINAL")
        await it.until(lambda: target.told.count("guard") >= 1)
        await it.until(lambda: not target.command("hold").hold.lease_seconds)  # and lets them in again
        await protected(it)

    play(tmp_path, scenario)


def nobody_makes_further_copies(it: World) -> None:
    for name in ("ps-0", "ps-1", "ps-2"):
        it.mute[name] = {"report"}
    for agent in it.backend.agents.values():
        if agent.role == pb.PS:
            agent.mute.add("report")


@pytest.mark.parametrize("name", ["ps-0", "ps-2"])
def test_a_ps_that_dies_right_after_a_commit_is_taken_over_by_those_who_had_its_slots(
    tmp_path: Path, name: str
) -> None:
    """New holders have no copies yet: slots that have stayed have theirs, and of those that moved the old owners."""

    async def scenario(it: World) -> None:
        await protected(it)
        nobody_makes_further_copies(it)
        await it.scale(ps=3)
        await it.until(lambda: "COMMITTED" in it.agent("chief-0").told)
        job = it.master.job
        assert len(job.backup_map) == 8 and list(it.agent("chief-0").view.backup_map) == list(job.backup_map)
        keep = it.agent("ps-0").command("destroy").destroy.keep
        assert keep.moves and {move.source_task for move in keep.moves} == {2}
        await it.backend.kill(name)
        await it.until(lambda: len(job.cluster.ps) == 2 and not job.cluster.lost)
        assert job.cluster.generation == 1
        assert {one.recovered_by for one in job.store.failures()} == {"promotion"}

    play(tmp_path, scenario)


def test_what_old_owners_keep_counts_also_with_an_aimaster_that_has_told_nobody_yet(tmp_path: Path) -> None:
    """It takes a change to its end before it plans any backups of its own."""

    async def scenario(it: World) -> None:
        await protected(it)
        nobody_makes_further_copies(it)
        peers = it.master.job.peer_backups
        told, old = peers.hand_over, tuple(it.master.job.cluster.slot_map)

        def as_a_new_one_would(old_map: Sequence[int]) -> dict[int, pb.Guard]:
            peers._told, peers._since, peers._told_in = {}, {}, 0
            return told(old_map)

        peers.hand_over = as_a_new_one_would  # type: ignore[method-assign]
        await it.scale(ps=3)
        await it.until(lambda: "COMMITTED" in it.agent("chief-0").told)
        moved = [slot for slot in range(8) if it.master.job.cluster.slot_map[slot] != old[slot]]
        await it.until(lambda: all(peers.copies.has(slot, old[slot]) for slot in moved))
        assert moved

    play(tmp_path, scenario)


def test_a_trainer_that_does_not_answer_the_commit_holds_up_no_promotion(tmp_path: Path) -> None:
    """It was waited for as long as the lease of a pause, and the others' runs end with the error of the lost PS meanwhile."""

    async def scenario(it: World) -> None:
        await protected(it)
        it.agent("worker-0").mute.add("commit")
        await it.scale(ps=3)
        await it.until(lambda: "commit" in it.agent("worker-0").told and "commit" in it.agent("chief-0").told)
        await it.backend.kill("ps-1")
        await it.until(lambda: bool(it.master.job.store.failures()), 5)
        it.agent("worker-0").mute.discard("commit")  # it answers what follows
        await it.until(lambda: "promote" in it.agent("ps-0").told + it.agent("ps-2").told, 10)
        assert (await it.ended()).outcome == "committed"
        assert it.master.job.cluster.generation == 1

    settings = dataclasses.replace(GUARDED, lease_seconds=60.0, worker_heartbeat_limit_seconds=60.0)
    play(tmp_path, scenario, settings=settings)


def test_a_ps_that_leaves_stays_until_others_have_its_copies_and_those_can_be_fetched(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        nobody_makes_further_copies(it)
        await it.scale(ps=2)
        job = it.master.job
        await it.until(lambda: it.master.scalings.running is not None
                       and it.master.scalings.running.scaling.detail == "backups are handed over")  # fmt: skip
        await asyncio.sleep(0.3)
        leaver = it.agent("ps-2")
        assert "leave" not in leaver.told and not it.master.scalings.coming_back("ps-2")
        await it.backend.kill("ps-0")
        await it.until(lambda: not job.cluster.lost and len(job.cluster.ps) == 1)
        assert job.cluster.generation == 1 and job.store.failures()[0].recovered_by == "promotion"
        fetch = it.agent("ps-1").command("fetch").fetch
        assert {move.source_task for move in fetch.moves} == {2} and [one.address for one in fetch.ps] == ["ps-2:1"]
        assert (await it.ended()).outcome == "committed"  # the holder of the single PS has copies
        assert "leave" in leaver.told

    play(tmp_path, scenario, ps=3)


def test_what_a_ps_told_before_it_heard_that_it_is_to_keep_nothing_does_not_count(tmp_path: Path) -> None:
    """Its copies of what never moved are the holder's by then: fetched from it, half of the model would not come."""

    async def scenario(it: World) -> None:
        await protected(it)
        leaver = it.agent("ps-1")
        leaver.mute.add("leave")
        await it.scale(ps=1)
        peers = it.master.job.peer_backups

        def kept() -> set[int]:
            copies = peers.copies
            return {slot for slot in range(8) if (held := copies.anywhere(slot)) is not None and held.task == 1}

        await it.until(lambda: "leave" in leaver.told and kept() < set(range(8)))
        before, refreshes, was = leaver.command("guard").guard.id - 1, peers.refreshes, kept()
        await leaver.say(backup=pb.BackupReport(guard=before, slots=range(8), bytes=7, age_seconds=0.01))
        await it.until(lambda: peers.refreshes > refreshes)
        assert kept() <= was
        leaver.stop()
        it.backend.exit("ps-1", 0)

    play(tmp_path, scenario, ps=2)


def test_copies_of_another_generation_are_none(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        nobody_makes_further_copies(it)
        it.agent("ps-0").fails["promote"] = "no"
        await it.backend.kill("ps-1")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        await it.until(lambda: it.agent("ps-0").command("guard").guard.generation == 2)
        job = it.master.job
        assert job.backup_map == ()
        late = pb.BackupReport(guard=1, slots=range(8), bytes=7, age_seconds=0.01)
        refreshes = job.peer_backups.refreshes
        await it.agent("ps-0").say(backup=late)
        await it.until(lambda: job.peer_backups.refreshes > refreshes)
        assert not any(job.peer_backups.copies.anywhere(slot) for slot in range(8))

    play(tmp_path, scenario)


def test_a_new_aimaster_promotes_what_died_while_none_was_there(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected_for_the_next_aimaster(it)
        await it.crash()
        it.backend.exit("ps-1", 137)
        await it.start()
        await it.until(lambda: len(it.master.job.cluster.ps) == 1 and not it.master.job.cluster.lost, 10)
        assert it.master.job.cluster.generation == 1

    play(tmp_path, scenario)


def test_a_new_aimaster_hears_every_trainer_before_it_sets_the_global_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the step of the slowest to come back goes back."""
    monkeypatch.setattr(failover, "TRAINERS_SECONDS", 30.0)
    monkeypatch.setattr(failover, "REPORTS_SECONDS", 30.0)

    async def scenario(it: World) -> None:
        await protected_for_the_next_aimaster(it)
        it.settle_seconds = 30.0
        late = it.agent("worker-0")
        late.away, late.step = True, 9999  # more than any other knows
        await it.crash()
        await it.start()
        await it.until(lambda: it.agent("ps-0").registered == 2 and it.agent("chief-0").registered == 2)
        await it.backend.kill("ps-1")
        await it.until(lambda: bool(it.master.job.cluster.lost))
        await asyncio.sleep(0.3)
        assert late.registered == 1 and "promote" not in it.agent("ps-0").told
        late.away = False
        await it.until(lambda: len(it.master.job.cluster.ps) == 1 and not it.master.job.cluster.lost, 20)
        assert it.agent("ps-0").command("promote").promote.step >= 9999

    play(tmp_path, scenario)


def test_a_new_aimaster_does_not_wait_for_ever_for_a_trainer_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "TRAINERS_SECONDS", 0.3)
    monkeypatch.setattr(failover, "REPORTS_SECONDS", 30.0)

    async def scenario(it: World) -> None:
        await protected_for_the_next_aimaster(it)
        it.settle_seconds = 30.0
        it.agent("worker-0").away = True
        await it.crash()
        it.backend.exit("ps-1", 137)
        await it.start()
        await it.until(lambda: "promote" in it.agent("ps-0").told, 20)
        assert it.agent("worker-0").registered == 1

    play(tmp_path, scenario)


def test_a_new_aimaster_creates_the_pod_that_the_last_one_had_only_deleted(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected_for_the_next_aimaster(it)
        await it.crash()
        it.backend.exit("ps-1", 137, deleted=True)
        await it.start()
        await it.until(lambda: it.backend.pods["ps-1"].state == "running", 10)
        await it.until(lambda: len(it.master.job.cluster.ps) == 2 and not it.master.job.cluster.lost, 10)
        assert not it.master.job.lock.held(Hold.STOPPING)

    play(tmp_path, scenario)


def armed(it: World) -> bool:
    return "ps-2" in it.backend.agents and "ARM" in it.agent("ps-2").told


def test_with_backups_trainers_prepare_while_targets_do_and_take_it_back_when_one_fails(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await protected(it)
        it.mute["ps-2"] = {"ARM"}
        it.agent("chief-0").mute.add("prepare")
        await it.scale(ps=3)
        await it.until(lambda: armed(it) and "prepare" in it.agent("chief-0").told)
        await it.backend.kill("ps-2")
        ended = await it.ended()
        assert ended.outcome == "rolled_back" and len((await it.status()).slot_map) == 8
        await it.heard("chief-0", "ROLLED_BACK")
        assert "resume" in it.agent("chief-0").told

    play(tmp_path, scenario)


def test_without_backups_trainers_do_nothing_before_targets_have_made_their_variables(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.mute["ps-2"] = {"ARM"}
        await it.scale(ps=3)
        await it.until(lambda: armed(it))
        await asyncio.sleep(0.3)
        assert not {"mark", "prepare"} & set(it.agent("chief-0").told)

    play(tmp_path, scenario, settings=SETTINGS)
