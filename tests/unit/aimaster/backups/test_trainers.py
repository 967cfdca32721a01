"""Which trainer holds the backups of a single PS, and how the PS that replaces it goes on from them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deeprec_ext.aimaster.backups import trainers as trainers_module
from deeprec_ext.aimaster.backups.trainers import TASKS_FROM, Candidate, choose_holder, task_of
from deeprec_ext.aimaster.failover import failover, fetching
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, World, world

HELD = dataclasses.replace(SETTINGS, peer_backup="auto", peer_backup_seconds=0.2)
ALL = list(range(8))


def play(workdir: Path, scenario: Callable[[World], Awaitable[None]], **spec: object) -> None:
    async def main() -> None:
        async with world(workdir, **{"settings": HELD, "ps": 1, **spec}) as it:
            await scenario(it)

    asyncio.run(main())


async def held(it: World, by: str = "chief-0") -> None:
    backups = it.master.job.trainer_backups
    await it.until(lambda: backups.alone and backups.complete() and {c.holder for c in backups.copies.values()} == {by})


# ------------------------------------------------------------------------------------------------ who, pure


def test_another_host_comes_before_the_copies_that_are_there_and_those_before_the_chief() -> None:
    chief, near, far = Candidate("chief-0", "a"), Candidate("worker-0", "a"), Candidate("worker-10", "b")
    assert choose_holder([near, chief], {"a"}, 10, "") == "chief-0"
    assert choose_holder([near, chief], {"a"}, 10, "worker-0") == "worker-0"
    assert choose_holder([near, chief, far], {"a"}, 10, "worker-0") == "worker-10"
    assert choose_holder([Candidate("worker-10", "a"), Candidate("worker-9", "a")], {"a"}, 10, "") == "worker-9"
    assert choose_holder([], {"a"}, 10, "") == ""


def test_whoever_has_no_room_is_passed_over_unless_it_has_the_copies_already() -> None:
    full, roomy = Candidate("chief-0", "a", 9), Candidate("worker-0", "a", 10)
    assert choose_holder([full, roomy], set(), 10, "") == "worker-0"
    assert choose_holder([full, roomy], set(), 10, "chief-0") == "chief-0"
    assert choose_holder([full], set(), 10, "") == ""
    assert (
        choose_holder([Candidate("chief-0", "a", -1), roomy], set(), 10, "chief-0") == "worker-0"
    )  # soon killed for it


def test_holders_go_by_task_numbers_that_no_ps_has() -> None:
    assert [task_of(name) - TASKS_FROM for name in ("chief-0", "worker-0", "worker-7")] == [0, 1, 8]


# ------------------------------------------------------------------------------------------------ the job


def test_the_chief_holds_the_backups_of_a_single_ps(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        guard = it.agent("chief-0").command("guard").guard
        assert guard.own_task == TASKS_FROM and len(guard.moves) == 16 and guard.seconds == 0.2
        assert "guard" not in it.agent("worker-0").told
        assert len(it.agent("chief-0").command("mark").mark.slots) == 8
        status = await it.status()
        assert status.backup.peer and status.backup.holder == "chief-0" and not status.backup.unprotected_slots
        assert list(it.master.job.backup_map) == []  # nobody can take over at once

    play(tmp_path, scenario)


def test_nobody_does_where_it_is_off(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await asyncio.sleep(0.8)
        assert all("guard" not in agent.told[1:] or not agent.command("guard").guard.moves
                   for agent in it.backend.agents.values())  # fmt: skip
        assert not (await it.status()).backup.peer

    play(tmp_path, scenario, settings=dataclasses.replace(HELD, peer_backup_holder="off"))


def test_the_ps_that_replaces_it_fetches_the_copies_and_nothing_is_restored(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        it.agent("worker-0").step = 999  # it knows more than it has told
        await it.backend.kill("ps-0")
        await it.until(lambda: not it.master.job.cluster.lost and it.master.job.cluster.ps[0].task == 1)
        cluster = it.master.job.cluster
        assert cluster.generation == 1 and cluster.live and set(cluster.slot_map) == {1} and len(cluster.marked) == 8
        fetch = it.agent("ps-0").command("fetch").fetch
        assert {move.source_task for move in fetch.moves} == {TASKS_FROM} and len(fetch.moves) == 16
        assert [(one.task, one.address) for one in fetch.ps] == [(TASKS_FROM, "chief-0:1")] and fetch.step >= 999
        await it.until(lambda: "commit" in it.agent("chief-0").told and "commit" in it.agent("worker-0").told)
        told = it.agent("chief-0").told
        assert told.index("lost") < told.index("freeze") < told.index("commit") and "prepare" in told
        await it.until(lambda: it.master.job.store.failures()[0].recovered_seconds is not None)
        failure = it.master.job.store.failures()[0]
        assert failure.recovered_by == "holder" and failure.steps_lost == 0
        await it.until(lambda: {move.source_task for move in it.agent("chief-0").command("guard").guard.moves} == {1})
        await held(it)

    play(tmp_path, scenario)


def test_copies_from_which_a_ps_was_made_are_as_young_as_it(tmp_path: Path) -> None:
    """Lost again before the holder has read anything from it: what is told to be missing is of that time alone."""

    async def scenario(it: World) -> None:
        await held(it)
        backups, clock = it.master.job.trainer_backups, it.master.job.clock
        it.agent("chief-0").mute.add("guard")
        old = clock.monotonic() - 1000.0
        backups.copies = {slot: dataclasses.replace(copy, since=old) for slot, copy in backups.copies.items()}
        await it.backend.kill("ps-0")
        await it.until(lambda: not it.master.job.cluster.lost and it.master.job.cluster.ps[0].task == 1)
        assert backups.complete() and backups.age_seconds(range(8)) < 500.0
        lines = (tmp_path / "events.jsonl").read_text().splitlines()
        fetched = next(one for one in map(json.loads, lines) if one["type"] == "fetched")
        assert fetched["backup_age_seconds"] > 500.0

    play(tmp_path, scenario)


def test_copies_that_cannot_be_fetched_lead_to_a_restore(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        it.fails["ps-0"] = {"fetch": "the holder has no copy of dense1"}
        await it.backend.kill("ps-0")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert it.master.job.store.failures()[0].recovered_by == "checkpoint"

    play(tmp_path, scenario)


def test_a_fetch_that_outlives_its_limit_is_called_off_before_anything_older_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "FETCHES_MAX", 1)

    async def scenario(it: World) -> None:
        await held(it)
        it.mute["ps-0"] = {"fetch", "call_off"}  # it is still copying
        await it.backend.kill("ps-0")
        replacement = it.agent("ps-0")
        await it.until(lambda: "call_off" in replacement.told)
        await asyncio.sleep(0.3)
        assert it.master.job.cluster.generation == 1, "it may be writing"
        replacement.mute.clear()
        for number in [c.id for c in replacement.commands if c.WhichOneof("command") == "call_off"]:
            await replacement.say(ack=pb.Ack(command_id=number, ok=True))
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert it.agent("ps-0") is replacement and replacement.told.index("fetch") < replacement.told.index("call_off")
        assert it.master.job.store.failures()[0].recovered_by == "checkpoint"

    play(tmp_path, scenario, settings=dataclasses.replace(HELD, prepare_limit_seconds=0.5))


def test_a_ps_that_does_not_stop_writing_is_killed_before_anything_older_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "FETCHES_MAX", 1)
    monkeypatch.setattr(fetching, "CALL_OFF_SECONDS", 0.3)

    async def scenario(it: World) -> None:
        await held(it)
        it.mute["ps-0"] = {"fetch", "call_off"}
        await it.backend.kill("ps-0")
        writing = it.agent("ps-0")
        await it.until(lambda: "call_off" in writing.told)
        it.mute.clear()
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert it.agent("ps-0") is not writing
        assert it.master.job.cluster.ps[0].incarnation == it.agent("ps-0").incarnation
        assert it.master.job.store.failures()[1].cause == "did not stop writing"

    play(tmp_path, scenario, settings=dataclasses.replace(HELD, prepare_limit_seconds=0.5))


def test_the_next_aimaster_calls_off_what_the_one_before_it_had_begun(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        it.mute["ps-0"] = {"fetch"}
        await it.backend.kill("ps-0")
        replacement = it.agent("ps-0")
        await it.until(lambda: "fetch" in replacement.told)
        chief = it.agent("chief-0")
        chief.away = True
        await it.crash()
        it.backend.stillborn.add("chief-0")
        it.backend.exit("chief-0", 137, restarting=True)  # with the copies
        await it.start()
        await it.until(lambda: "call_off" in replacement.told)
        it.backend.stillborn.clear()
        await it.backend.kill("chief-0")
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert it.agent("ps-0") is replacement

    play(tmp_path, scenario)


def test_a_holder_that_dies_is_followed_by_another_trainer(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        it.backend.stillborn.add("chief-0")
        it.backend.restarts_by_itself = False
        it.backend.exit("chief-0", 137, restarting=True)
        await held(it, "worker-0")
        assert it.agent("worker-0").command("guard").guard.own_task == TASKS_FROM + 1

    play(tmp_path, scenario)


def test_a_trainer_that_cannot_is_not_asked_again(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.fails["chief-0"] = {"guard": "no memory"}
        it.agent("chief-0").fails["guard"] = "no memory"
        it.agent("chief-0").mute.add("report")
        await held(it, "worker-0")
        told = [c.guard for c in it.agent("chief-0").commands if c.WhichOneof("command") == "guard"]
        assert [bool(guard.moves) for guard in told] == [True, False]  # and told to stop what it may have begun

    play(tmp_path, scenario)


def test_a_holder_that_is_scaled_away_leaves_when_another_has_the_copies(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.master.job.members.get("worker-0").machine = "another"  # type: ignore[union-attr]
        for name in ("chief-0", "ps-0"):
            it.master.job.members.get(name).machine = "one"  # type: ignore[union-attr]
        await held(it, "worker-0")
        chief = it.agent("chief-0")
        chief.mute.add("report")
        worker = it.agent("worker-0")
        await it.scale(workers=0)
        await it.until(lambda: "guard" in chief.told)
        await asyncio.sleep(0.3)
        assert "leave" not in worker.told
        await chief.say(backup=pb.BackupReport(slots=ALL, age_seconds=0.0))
        assert (await it.ended()).outcome == "committed"
        await held(it)
        assert "leave" in worker.told

    play(tmp_path, scenario, max_workers=1)


def test_the_ps_that_leaves_keeps_its_copies_until_the_holder_reads_from_the_one_that_stays(tmp_path: Path) -> None:
    """The holder's are of before the change until then, and grow older: right after it they were all that there was."""

    async def scenario(it: World) -> None:
        await it.until(lambda: len(it.master.job.backup_map) == 8)
        job, chief, leaver = it.master.job, it.agent("chief-0"), it.agent("ps-1")
        await it.scale(ps=1)
        await it.until(lambda: "COMMITTED" in chief.told or "commit" in chief.told)
        chief.mute.add("report")  # it has not read anything under its new assignment
        await it.until(lambda: len({m.source_task for m in chief.command("guard").guard.moves}) == 1)
        await it.until(lambda: it.master.scalings.running is not None
                       and it.master.scalings.running.scaling.detail == "backups are handed over")  # fmt: skip
        await asyncio.sleep(0.3)
        kept = {move.variable.slot for move in leaver.command("guard").guard.moves}
        assert kept == set(ALL) and "leave" not in leaver.told
        assert {held.task for slot in ALL if (held := job.peer_backups.copies.anywhere(slot)) is not None} == {1}
        await chief.say(backup=pb.BackupReport(guard=chief.command("guard").guard.id, slots=ALL, age_seconds=0.01))
        assert (await it.ended()).outcome == "committed" and "leave" in leaver.told

    play(tmp_path, scenario, ps=2)


def test_with_a_second_ps_the_guards_take_over_and_the_holder_is_dismissed(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        await it.scale(ps=2)
        assert (await it.ended()).outcome == "committed"
        assert "hold" in it.agent("chief-0").told  # no collection of its beside the final copy
        await it.until(lambda: not it.agent("chief-0").command("guard").guard.moves)
        await it.until(lambda: len(it.master.job.backup_map) == 8 and not it.master.job.trainer_backups.copies)

    play(tmp_path, scenario, max_ps=2)


def test_a_holder_that_dies_while_a_change_is_being_prepared_is_followed_at_once(tmp_path: Path) -> None:
    """Preparing the sessions of large graphs takes minutes."""

    async def scenario(it: World) -> None:
        await held(it)
        it.agent("worker-0").mute.add("prepare")
        await it.scale(ps=2)
        await it.until(lambda: "prepare" in it.agent("worker-0").told)
        it.backend.exit("chief-0", 137, restarting=True)
        await held(it, "worker-0")
        assert it.master.job.lock.held(Hold.VIEWS), "the change is still being prepared"
        worker = it.agent("worker-0")
        await worker.say(ack=pb.Ack(command_id=worker.command("prepare").id, ok=True))
        assert (await it.ended()).outcome == "committed"

    play(tmp_path, scenario, settings=dataclasses.replace(HELD, prepare_limit_seconds=30), max_ps=2)


def test_a_change_to_one_ps_begins_with_its_holder(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.until(lambda: len(it.master.job.backup_map) == 8)
        assert "guard" not in it.agent("chief-0").told
        await it.scale(ps=1)
        assert (await it.ended()).outcome == "committed"
        told = it.agent("chief-0").told
        assert told.index("guard") < told.index("prepare")
        await held(it)

    play(tmp_path, scenario, ps=2)


def test_a_worker_that_comes_while_a_change_waits_for_the_holder_makes_no_older_view_of_the_change(
    tmp_path: Path,
) -> None:
    """The change took its epoch before it waited: its commit was then older than the worker's view, and nobody followed."""

    async def scenario(it: World) -> None:
        await it.until(lambda: len(it.master.job.backup_map) == 8)
        it.agent("chief-0").mute.add("report")
        await it.scale(ps=1)
        await it.until(lambda: "guard" in it.agent("chief-0").told)
        before = it.master.job.cluster.epoch
        it.backend.exit("worker-0", 1, restarting=True)
        await it.until(lambda: it.master.job.cluster.epoch > before)
        await it.backend.kill("worker-0")
        await it.until(lambda: it.agent("worker-0").view.epoch > before + 1)
        between = it.master.job.cluster.epoch
        chief = it.agent("chief-0")
        chief.mute.clear()
        await chief.say(backup=pb.BackupReport(guard=chief.command("guard").guard.id, slots=ALL, age_seconds=0.01))
        assert (await it.ended()).outcome == "committed"
        committed = it.agent("worker-0").command("commit").commit.view
        assert len(committed.ps) == 1 and committed.epoch > between

    play(tmp_path, scenario, ps=2)


def test_the_next_aimaster_learns_from_the_holder_what_it_has(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        it.agent("chief-0").again = pb.BackupReport(slots=ALL, age_seconds=1.0)
        ps = it.agent("ps-0")
        ps.away = True
        await it.crash()
        it.backend.exit("ps-0", 137, restarting=True)
        await it.start()
        await it.backend.kill("ps-0")
        await it.until(lambda: it.master.job.cluster.live and not it.master.job.cluster.lost)
        await it.until(lambda: it.master.job.cluster.ps[0].task == 1)
        assert it.master.job.cluster.generation == 1

    play(tmp_path, scenario)


def test_a_replacement_that_dies_while_it_fetches_is_replaced_and_nothing_is_restored(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        it.mute["ps-0"] = {"fetch"}  # who replaces it hangs in it ...
        await it.backend.kill("ps-0")
        await it.until(lambda: "fetch" in it.agent("ps-0").told)
        it.mute.clear()
        await it.backend.kill("ps-0")  # ... and dies
        await it.until(lambda: it.master.job.cluster.live and not it.master.job.cluster.lost)
        assert it.master.job.cluster.generation == 1
        await it.until(lambda: it.master.job.store.failures()[0].recovered_seconds is not None)
        assert it.master.job.store.failures()[0].recovered_by == "holder"

    play(tmp_path, scenario)


def test_the_next_aimaster_waits_for_the_holder_and_chooses_no_other_beside_it(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        chief = it.agent("chief-0")
        chief.again = pb.BackupReport(slots=ALL, age_seconds=1.0)
        chief.away = True
        await it.crash()
        await it.start()
        await it.until(lambda: it.master.job.members.get("worker-0") is not None)
        await asyncio.sleep(0.7)  # time enough to choose
        assert "guard" not in it.agent("worker-0").told
        chief.away = False
        await held(it)
        assert "guard" not in it.agent("worker-0").told

    play(tmp_path, scenario)


def test_a_holder_that_does_not_answer_is_told_to_stop_and_none_is_chosen_before_it_has(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        chief = it.agent("chief-0")
        chief.mute |= {"freeze", "guard"}
        backups, member = it.master.job.trainer_backups, it.master.job.members.get("chief-0")
        assert member is not None
        backups._unfit[chief.incarnation] = math.inf
        backups._tell_to_stop(member)
        await it.until(lambda: not chief.command("guard").guard.moves)
        await asyncio.sleep(0.7)
        assert "guard" not in it.agent("worker-0").told  # the chief may be reading
        assert "chief-0" in backups.members()  # and has to hold when a final copy is made
        chief.mute.clear()
        await chief.say(ack=pb.Ack(command_id=chief.command("guard").id, ok=True))
        await held(it, "worker-0")
        assert backups.members().keys() == {"worker-0"}

    play(tmp_path, scenario)


def test_who_is_not_the_holder_and_tells_of_copies_is_told_to_stop(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await held(it)
        worker = it.agent("worker-0")
        await worker.say(backup=pb.BackupReport(slots=ALL, age_seconds=0.0))
        await it.until(lambda: "guard" in worker.told)
        assert not worker.command("guard").guard.moves
        assert {copy.holder for copy in it.master.job.trainer_backups.copies.values()} == {"chief-0"}

    play(tmp_path, scenario)


def test_a_trainer_that_answers_late_is_a_holder_again_after_a_while_and_what_it_dropped_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainers_module, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(trainers_module, "UNFIT_SECONDS", 2.0)

    async def scenario(it: World) -> None:
        chief = it.agent("chief-0")
        await held(it)
        backups, member = it.master.job.trainer_backups, it.master.job.members.get("chief-0")
        assert member is not None
        await it.until(lambda: backups._sent_for is not None)  # the assignment has been answered, too
        late = pb.BackupReport(guard=chief.command("guard").guard.id, slots=ALL, age_seconds=0.0)
        chief.mute.add("guard")
        backups._sent_for = None  # another assignment is due, which it does not answer in time
        await it.until(lambda: chief.incarnation in backups._unfit)
        await chief.say(backup=late)  # of the assignment before, which it drops just now
        await it.until(lambda: not chief.command("guard").guard.moves)
        assert not {slot for slot, copy in backups.copies.items() if copy.holder == "chief-0"}
        chief.mute.clear()
        for command in [one for one in chief.commands if one.WhichOneof("command") == "guard"]:
            await chief.say(ack=pb.Ack(command_id=command.id, ok=True))
        await held(it, "worker-0")
        await it.until(lambda: {one.name for one in backups._candidates()} == {"chief-0", "worker-0"})

    play(tmp_path, scenario)


def test_a_holder_that_is_back_before_the_replacement_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "REPORTS_SECONDS", 0.3)
    monkeypatch.setattr(failover, "TRAINERS_SECONDS", 0.1)

    async def scenario(it: World) -> None:
        await held(it)
        chief = it.agent("chief-0")
        chief.again = pb.BackupReport(slots=ALL, age_seconds=0.1)
        chief.away = True
        it.settle_seconds = 30.0
        await it.crash()
        it.backend.exit("ps-0", 137, restarting=True)
        await it.start()
        job = it.master.job
        await asyncio.sleep(1.5)  # nobody tells of copies
        chief.away = False
        await it.until(job.trainer_backups.complete)
        await it.backend.kill("ps-0")
        await it.until(lambda: job.cluster.live and not job.cluster.lost)
        assert job.cluster.generation == 1
        assert {failure.recovered_by for failure in job.store.failures() if failure.name == "ps-0"} == {"holder"}

    limits = {"worker_heartbeat_limit_seconds": 60, "prepare_limit_seconds": 10}
    play(tmp_path, scenario, settings=dataclasses.replace(HELD, **limits))
