"""Scalings over a real server, with agents that pretend: every kind, and every way back."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.scaling.queue import ENDED_KEPT, newest_ended
from deeprec_ext.aimaster.scaling.run import PAUSES_KEPT, pause_changes
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, SLOT_BYTES, World, world

Scenario = Callable[[World], Awaitable[None]]


def play(workdir: Path, scenario: Scenario, **spec: object) -> None:
    async def main() -> None:
        async with world(workdir, **spec) as it:
            await scenario(it)

    asyncio.run(main())


def test_scale_up_moves_the_fewest_slots_and_everybody_gets_the_new_view(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(ps=4)
        ended = await it.ended()
        assert (ended.outcome, ended.from_count, ended.to_count) == ("committed", 2, 4), ended
        status = await it.status()
        assert sorted(status.slot_map) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert ended.slots_moved == 4
        assert ended.bytes_moved == 2 * (900 + 100) and ended.bytes_resent >= 2 * (50 + 7)
        await it.heard("worker-0", "COMMITTED")
        told = [t for t in it.agent("worker-0").told if t != "publish"]
        assert told == ["BEGUN", "mark", "prepare", "pause", "commit", "COMMITTED"]
        assert it.agent("ps-2").told[:2] == ["ARM", "FIRST"]
        assert [what for what in it.agent("ps-2").told if what not in ("publish", "guard", "hold")][-1] == "FINAL"
        destroyed = it.agent("ps-0").command("destroy").destroy.variables
        assert sum(v.bytes for v in destroyed) == 2 * SLOT_BYTES
        assert it.agent("worker-0").view.epoch == status.epoch == it.agent("ps-0").view.epoch
        assert not it.agent("worker-0").view.marked_slots

    play(tmp_path, scenario)


@pytest.mark.parametrize("outcome", ["committed", "rolled_back"])
def test_what_a_scaling_moved_is_not_kept_when_it_has_ended(tmp_path: Path, outcome: str) -> None:
    """It is as large as the catalogue of the model, and a job of months has thousands of scalings."""

    async def scenario(it: World) -> None:
        store, kept = it.master.job.store, []
        save = store.save_scaling

        def noting(scaling: Any, moved: bytes | None = None) -> None:
            save(scaling, moved)
            kept.append(len(store.moved(scaling.id)))

        store.save_scaling = noting  # type: ignore[method-assign]
        if outcome == "rolled_back":
            it.agent("worker-0").fails["prepare"] = "no"
        await it.scale(ps=4)
        ended = await it.ended()
        assert ended.outcome == outcome
        assert max(kept) > 0, "while it was needed"
        assert store.moved(ended.id) == b""

    play(tmp_path, scenario)


def test_the_record_of_a_scaling_does_not_grow_with_the_number_of_workers() -> None:
    """With a thousand workers each report wrote a record of a thousand numbers again."""
    scaling = Scaling(7, "scale-up", "ps")
    reported = [0.1 + (number * 7919 % 2000) / 1e4 for number in range(2000)]
    reported[1234] = 9.0
    for seconds in reported:
        changes = pause_changes(scaling, pb.PauseReport(scaling_id=7, pause_seconds=seconds, gate_waits=1))
        scaling = dataclasses.replace(scaling, **changes)
    assert len(scaling.pause_seconds) == PAUSES_KEPT
    assert scaling.pauses_heard == scaling.gate_waits == 2000
    assert max(scaling.pause_seconds) == 9.0
    assert abs(statistics.median(scaling.pause_seconds) - statistics.median(reported)) < 0.02
    assert Scaling.from_json(scaling.to_json()) == scaling


def test_a_few_pauses_are_kept_as_they_are() -> None:
    scaling = Scaling(7, "scale-up", "ps")
    for seconds in (0.5, 0.1, 0.3):
        scaling = dataclasses.replace(scaling, **pause_changes(scaling, pb.PauseReport(pause_seconds=seconds)))
    assert scaling.pause_seconds == (0.5, 0.1, 0.3)


def test_the_cause_of_the_longest_pause_is_kept() -> None:
    scaling = Scaling(7, "scale-up", "ps")
    for seconds, cause in ((0.1, "a"), (0.5, "b"), (0.3, "c")):
        report = pb.PauseReport(pause_seconds=seconds, cause=cause)
        scaling = dataclasses.replace(scaling, **pause_changes(scaling, report))
    assert scaling.pause_cause == "b"
    assert Scaling.from_json(scaling.to_json()).pause_cause == "b"


def test_scale_down_drains_the_highest_ps_which_leave_by_themselves(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        agents = dict(it.backend.agents)
        await it.scale(ps=2)
        ended = await it.ended()
        assert ended.outcome == "committed" and (ended.from_count, ended.to_count) == (3, 2)
        assert it.backend.pods["ps-2"].exit_code == 0, "it exits by itself before its pod is deleted"
        assert agents["ps-2"].told[-1] == "leave"
        assert {r.name for r in (await it.status()).roles} == {"ps-0", "ps-1", "chief-0", "worker-0"}

    play(tmp_path, scenario, ps=3)


def test_a_change_in_a_job_that_is_stopped_does_not_blame_the_new_ps(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.stillborn = {"ps-2"}
        await it.scale(ps=3)
        await it.until(lambda: "ps-2" in it.backend.pods)
        it.backend.exit("ps-2", 143, deleted=True)  # as the launcher does at Ctrl-C
        ended = await it.ended()
        assert (ended.outcome, ended.reason) == ("rolled_back", "the job is being stopped")

    play(tmp_path, scenario)


def test_a_copy_in_a_job_that_is_stopped_does_not_blame_the_ps_that_ends_with_it(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.mute["ps-2"] = {"FIRST"}
        await it.scale(ps=3)
        await it.until(lambda: it.master.scalings.running is not None and it.master.scalings.running.scaling.armed)
        it.backend.exit("ps-0", 143, deleted=True)  # as the launcher does at Ctrl-C
        ended = await it.ended()
        assert (ended.outcome, ended.reason) == ("rolled_back", "the job is being stopped")

    play(tmp_path, scenario)


def test_a_new_ps_that_is_killed_while_it_copies_moves_no_slot_and_is_told_to_be_stopped(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.mute["ps-2"] = {"FIRST"}
        await it.scale(ps=3)
        await it.until(lambda: it.master.scalings.running is not None and it.master.scalings.running.scaling.armed)
        assert it.master.scalings.running is not None and it.master.scalings.running.scaling.slots_moved
        await it.backend.kill("ps-2")
        ended = await it.ended()
        assert (ended.outcome, ended.slots_moved, ended.bytes_moved) == ("rolled_back", 0, 0)
        await it.until(lambda: it.master.pods.exited("ps-2"))
        told = [json.loads(row[5]) for row in it.master.job.store.events(0, 1000) if row[2:4] == ("exited", "ps-2")]
        assert [(one["cause"], one["restarting"]) for one in told] == [
            ("killed by signal 9", True), ("stopped: it is not wanted any more", False)
        ]  # fmt: skip

    play(tmp_path, scenario)


def test_the_end_of_a_ps_that_left_is_told_once(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(ps=2)
        await it.ended()
        it.backend._report(
            dataclasses.replace(it.backend.pods["ps-2"], deleted=True)
        )  # as the launcher does afterwards
        await it.until(lambda: it.master.pods.seen["ps-2"].deleted)
        told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
        assert [event["cause"] for event in told if event["type"] == "exited"] == ["exited with code 0"]

    play(tmp_path, scenario, ps=3)


def test_replace_moves_exactly_the_slots_of_the_old_ps(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(replace="ps-1")
        ended = await it.ended()
        assert (ended.outcome, ended.kind, ended.slots_moved) == ("committed", "replace", 4), ended
        assert list((await it.status()).slot_map) == [0, 2] * 4
        assert "ps-2" in it.backend.agents and "ps-1" not in it.backend.agents

    play(tmp_path, scenario)


def test_a_rebalance_by_load_spreads_the_hot_slots_and_not_the_bytes(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        assert tuple((await it.status()).slot_map) == (0, 1, 0, 1, 0, 1, 0, 1)
        await it.master.scalings.request(
            pb.ScaleRequest(rebalance=True, reason="hot"), decision=3, weights=(0.4, 0.0, 0.4, 0.0, 0.1, 0.1, 0.0, 0.0)
        )
        ended = await it.ended()
        assert ended.outcome == "committed" and 0 < ended.slots_moved <= 2
        load: dict[int, float] = {}
        for slot, task in enumerate((await it.status()).slot_map):
            load[task] = load.get(task, 0.0) + (0.4, 0.0, 0.4, 0.0, 0.1, 0.1, 0.0, 0.0)[slot]
        assert max(load.values()) < 0.55
        scaling = it.master.job.store.scalings()[-1]
        assert scaling.decision == 3 and scaling.bytes_moved >= SLOT_BYTES

    play(tmp_path, scenario)


def test_weights_for_another_number_of_slots_are_refused(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        with pytest.raises(UsageError, match="2 weights for 8 slots"):
            await it.master.scalings.request(pb.ScaleRequest(rebalance=True), weights=(0.5, 0.5))

    play(tmp_path, scenario)


def test_rebalance_evens_out_bytes_and_is_a_no_op_when_balanced(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(rebalance=True)
        ended = await it.ended()
        assert ended.outcome == "committed" and ended.slots_moved == 0 and "balanced" in ended.reason
        assert "pause" not in it.agent("worker-0").told
        heavy = it.catalogue
        for variable in heavy.variables:
            variable.bytes *= 5 if variable.slot % 2 == 0 else 1
        heavy.fingerprint = "v2"
        await it.agent("chief-0").say(catalogue=heavy)
        await it.until(lambda: it.master.job.catalogue.fingerprint == "v2")
        await it.scale(rebalance=True)
        assert (await it.ended(2)).outcome == "committed"
        assert "pause" in it.agent("worker-0").told
        sizes = {role.name: role.bytes for role in (await it.status()).roles if role.task >= 0}
        assert max(sizes.values()) - min(sizes.values()) <= SLOT_BYTES

    play(tmp_path, scenario)


def test_workers_come_and_go_and_nobody_pauses(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(workers=3)
        assert (await it.ended()).outcome == "committed"
        assert len(it.master.job.view().workers) == 4
        await it.scale(workers=1)
        assert (await it.ended(2)).outcome == "committed"
        await it.scale(replace="worker-0")
        assert (await it.ended(3)).outcome == "committed"
        assert {r.name for r in (await it.status()).roles} == {"ps-0", "ps-1", "chief-0", "worker-1"}
        assert "pause" not in it.agent("chief-0").told

    play(tmp_path, scenario)


def test_a_ps_that_never_registers_rolls_the_scaling_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.stillborn.add("ps-2")
        it.backend.waiting["ps-2"] = "0/1 nodes are available"
        await it.scale(ps=3)
        ended = await it.ended()
        assert ended.outcome == "rolled_back"
        assert ended.reason == "ps-2 did not register within 3 s; ps-2: 0/1 nodes are available"
        assert "ps-2" in it.backend.deleted
        await it.heard("worker-0", "ROLLED_BACK")
        await it.scale(workers=2)
        assert (await it.ended(2)).outcome == "committed", "the next one goes on"

    play(tmp_path, scenario)


def test_a_trainer_that_never_acks_pause_rolls_the_scaling_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("worker-0").mute.add("pause")
        await it.scale(ps=3)
        ended = await it.ended()
        assert ended.outcome == "rolled_back" and "Pause: no answer from worker-0" in ended.reason
        await it.heard("worker-0", "ROLLED_BACK")
        assert it.agent("worker-0").told[-3:] == ["resume", "mark", "ROLLED_BACK"]
        assert not it.agent("worker-0").command("mark").mark.slots
        assert "ps-2" in it.backend.deleted and list((await it.status()).slot_map) == [0, 1] * 4

    play(tmp_path, scenario)


def test_trainers_hear_of_the_end_of_a_scaling_in_which_the_aimaster_itself_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("deeprec_ext.aimaster.scaling.workers.WorkerChange.go_forward", fails)

    async def scenario(it: World) -> None:
        await it.scale(workers=2)
        ended = await it.ended()
        assert "internal error" in ended.reason
        await it.heard("worker-0", "COMMITTED" if ended.outcome == "committed" else "ROLLED_BACK")

    play(tmp_path, scenario)


@pytest.mark.parametrize("phase", ["ARM", "FIRST", "DIRTY", "FINAL"])
def test_a_copy_that_fails_rolls_the_scaling_back_and_is_aborted(tmp_path: Path, phase: str) -> None:
    async def scenario(it: World) -> None:
        it.fails["ps-2"] = {phase: "disk on fire"}
        await it.scale(ps=3)
        ended = await it.ended()
        assert ended.outcome == "rolled_back" and "disk on fire" in ended.reason
        assert "ABORT" in it.backend.everybody["ps-2"].told
        await it.heard("chief-0", "ROLLED_BACK")

    play(tmp_path, scenario)


def test_a_trainer_that_dies_in_the_pause_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("worker-0").mute.add("pause")
        await it.scale(ps=3)
        await it.until(lambda: "pause" in it.agent("worker-0").told)
        await it.backend.kill("worker-0")
        ended = await it.ended()
        assert ended.outcome == "committed", ended.reason
        await it.until(lambda: it.agent("worker-0").view.epoch >= ended.epoch)
        assert len(it.agent("worker-0").view.ps) == 3, "it registered after COMMIT, with the new view"

    play(tmp_path, scenario)


def test_too_little_memory_is_refused_with_the_figures(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.memory = 100
        await it.scale(ps=3)
        ended = await it.ended()
        assert ended.outcome == "refused" and "MB" in ended.reason
        assert "ps-2" not in it.backend.pods and "BEGUN" not in it.agent("worker-0").told

    play(tmp_path, scenario)


def test_a_change_to_one_ps_needs_memory_for_the_copies_of_its_holder_too(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.memory = 5_000_000 + SETTINGS.copy_chunk_bytes  # enough for the eight kilobytes that move
        await it.scale(ps=1)
        ended = await it.ended()
        assert ended.outcome == "refused" and "MB" in ended.reason
        it.backend.memory = 50_000_000
        await it.scale(ps=1)
        assert (await it.ended(2)).outcome == "committed"

    play(tmp_path, scenario, settings=dataclasses.replace(SETTINGS, peer_backup="auto", peer_backup_seconds=0.2))


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"ps": 0}, "at least one"),
        ({"ps": 9}, "limits, 1 to 6"),
        ({"ps": 7}, "limits, 1 to 6"),
        ({"workers": 99}, "limits"),
        ({"replace": "ps-9"}, "not there"),
        ({"replace": "chief-0"}, "cannot be replaced"),
        ({"replace": "x"}, "no role"),
        ({}, "exactly one"),
    ],
)
def test_a_request_that_cannot_be_gets_one_clear_line(tmp_path: Path, request_: dict[str, object], text: str) -> None:
    async def scenario(it: World) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.scale(**request_)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert text in caught.value.details() and "\n" not in caught.value.details()

    play(tmp_path, scenario, max_ps=6, max_workers=10)


def test_slots_are_told_of_where_nothing_else_bounds_the_ps(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.scale(ps=9)
        assert "more than the 8 slots" in caught.value.details()

    play(tmp_path, scenario)


def test_requests_queue_no_ops_do_nothing_and_a_dry_run_shows_the_plan(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        assert (await it.scale(ps=2)).scaling_id == 0
        dry = await it.scale(ps=4, dry_run=True)
        assert dry.scaling_id == 0 and f'"bytes": {4 * SLOT_BYTES}' in dry.plan_json
        assert (await it.scale(ps=3)).scaling_id == 1
        assert (await it.scale(ps=3)).scaling_id == 0, "that is the size once the queue is done"
        assert (await it.scale(workers=2)).scaling_id == 2
        assert (await it.ended(1)).outcome == (await it.ended(2)).outcome == "committed"

    play(tmp_path, scenario)


def test_many_replacements_crowd_out_no_change_of_counts() -> None:
    grown = Scaling(1, "scale-up", "worker", from_count=1, to_count=2, outcome="committed")
    both = Scaling(2, "scale-up", "ps", from_count=2, to_count=2, workers_from=2, workers_to=3, outcome="committed")
    replaced = [Scaling(3 + at, "replace", "ps", from_count=2, to_count=2, outcome="committed") for at in range(50)]
    assert newest_ended([grown, both, *replaced]) == [grown, both, *replaced[-ENDED_KEPT:]]


def test_the_summary_comes_from_the_store(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(ps=3)
        await it.ended()
        await it.until(lambda: len(it.master.scalings.ended[-1].pause_seconds) == 2)
        it.master.job.members.flush()
        summary = summarize(it.master.job.store, status="succeeded", seconds=1.0, roles={})
        assert summary["scaling"][0]["pause_seconds"] == {"p50": 0.05, "max": 0.05}
        assert summary["scaling"][0]["outcome"] == "committed" and summary["steps"] > 0 and summary["examples"] > 0

    play(tmp_path, scenario)
    assert (tmp_path / "events.jsonl").read_text().count("scaling_state") == 6


def test_a_new_ps_that_dies_again_and_again_does_not_fail_the_job(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.stillborn.add("ps-2")
        await it.scale(ps=3)
        await it.until(lambda: "ps-2" in it.backend.pods)
        it.backend.exit("ps-2", 1)
        ended = await it.ended(seconds=2)
        assert ended.outcome == "rolled_back" and "ps-2 ended before it registered" in ended.reason
        assert (await it.status()).state == "training"

    play(tmp_path, scenario)


def test_the_late_end_of_a_pod_is_not_taken_for_that_of_its_successor(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.dying_seconds = 0.3
        it.fails["ps-2"] = {"FINAL": "disk on fire"}
        await it.scale(ps=3)
        assert (await it.ended()).outcome == "rolled_back"
        assert it.backend.pods["ps-2"].state == "running", "it takes its time"
        it.fails.clear()
        await it.scale(ps=3)
        assert (await it.ended(2)).outcome == "committed"

    play(tmp_path, scenario)
