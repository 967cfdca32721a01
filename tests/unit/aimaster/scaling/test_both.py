"""PS and workers in one scaling: they start together, one commit, and whatever goes wrong takes both back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import World, world


def play(workdir: Path, scenario: Callable[[World], Awaitable[None]], **spec: object) -> None:
    async def main() -> None:
        async with world(workdir, **spec) as it:
            await scenario(it)

    asyncio.run(asyncio.wait_for(main(), 60))


async def names(it: World) -> set[str]:
    return {role.name for role in (await it.status()).roles}


def told(it: World, name: str, what: str) -> Callable[[], bool]:
    return lambda: name in it.backend.everybody and what in it.backend.everybody[name].told


async def restart(it: World, *, store: bool) -> None:
    """Kills the AIMaster, with its store or not, heals all agents, starts the next one."""
    await it.crash()
    if not store:
        it.lose_store()
    it.mute.clear()
    for agent in it.backend.agents.values():
        agent.mute.clear()
    await it.start()


# ----------------------------------------------------------------------------------------------------- one scaling


@pytest.mark.parametrize(
    ("ps", "workers", "kind", "view"),
    [
        (3, 3, "scale-up", {"ps-0", "ps-1", "ps-2", "chief-0", "worker-0", "worker-1", "worker-2"}),
        (3, 0, "scale-up", {"ps-0", "ps-1", "ps-2", "chief-0"}),
        (1, 2, "scale-down", {"ps-0", "chief-0", "worker-0", "worker-1"}),
        (1, 0, "scale-down", {"ps-0", "chief-0"}),
    ],
)
def test_both_change_in_one_scaling_with_one_pause(
    tmp_path: Path, ps: int, workers: int, kind: str, view: set[str]
) -> None:
    async def scenario(it: World) -> None:
        reply = await it.scale(ps=ps, workers=workers)
        ended = await it.ended(reply.scaling_id)
        assert (ended.outcome, ended.role, ended.kind) == ("committed", "ps", kind), ended
        assert (ended.from_count, ended.to_count, ended.workers_from, ended.workers_to) == (2, ps, 1, workers)
        assert len((await it.status()).scalings) == 1
        told = [what for what in it.agent("chief-0").told if what != "publish"]
        assert [told.count(what) for what in ("prepare", "pause", "commit", "COMMITTED")] == [1, 1, 1, 1]
        await it.until(
            lambda: {one.name for one in it.agent("chief-0").view.workers} == {n for n in view if "ps" not in n}
        )
        assert await names(it) == view
        [scaling] = summarize(it.master.job.store, status="", seconds=0.0, roles={})["scaling"]
        assert (scaling["from"], scaling["to"], scaling["workers"]) == (2, ps, {"from": 1, "to": workers})

    play(tmp_path, scenario)


def test_new_processes_of_both_kinds_start_at_the_same_time(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.stillborn = {"ps-2", "worker-1"}
        await it.scale(ps=3, workers=2)
        await it.until(lambda: {"ps-2", "worker-1"} <= it.backend.pods.keys())
        for name in ("worker-1", "ps-2"):
            it.backend._spawn(name)
        assert (await it.ended()).outcome == "committed"

    play(tmp_path, scenario)


def test_a_new_worker_begins_with_the_new_view_and_makes_no_session_for_the_old_one(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("chief-0").mute.add("prepare")
        await it.scale(ps=3, workers=2)
        await it.until(told(it, "chief-0", "prepare"))
        await it.until(lambda: it.master.job.members.get("worker-1") is not None)
        newcomer = it.agent("worker-1")
        assert newcomer.registered == 0 and not newcomer.told
        await it.agent("chief-0").say(ack=pb.Ack(command_id=it.agent("chief-0").command("prepare").id, ok=True))
        ended = await it.ended()
        assert ended.outcome == "committed"
        await it.until(lambda: newcomer.registered == 1)
        assert newcomer.view.epoch >= ended.epoch and len(newcomer.view.ps) == 3
        assert not {"prepare", "pause", "commit"} & set(newcomer.told)

    play(tmp_path, scenario)


def test_those_that_leave_are_not_in_the_view_that_is_committed(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        leaving = it.agent("worker-0")
        await it.scale(ps=3, workers=0)
        assert (await it.ended()).outcome == "committed"
        commit = it.agent("chief-0").command("commit").commit
        assert [one.name for one in commit.view.workers] == ["chief-0"]
        assert leaving.told[-1] == "leave" and it.backend.pods["worker-0"].exit_code == 0

    play(tmp_path, scenario)


def test_who_gives_slots_away_is_told_in_time_what_to_compile_for_it(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(ps=3)
        assert (await it.ended()).outcome == "committed"
        source = it.agent("ps-0")
        assert source.told.index("compile") < source.told.index("hold" if "hold" in source.told else "destroy")
        compiled, destroy = source.command("compile").compile, source.command("destroy").destroy
        assert list(compiled.variables) == list(destroy.variables) != []
        assert compiled.keep == bool(destroy.keep.moves)

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("request_", "role", "counts", "paused"),
    [({"ps": 2, "workers": 3}, "worker", (1, 3), False), ({"ps": 3, "workers": 1}, "ps", (2, 3), True)],
)
def test_what_has_its_size_already_is_not_changed(
    tmp_path: Path, request_: dict[str, int], role: str, counts: tuple[int, int], paused: bool
) -> None:
    async def scenario(it: World) -> None:
        await it.scale(**request_)
        ended = await it.ended()
        assert (ended.outcome, ended.role, (ended.from_count, ended.to_count)) == ("committed", role, counts)
        assert ended.workers_from == ended.workers_to
        assert ("pause" in it.agent("chief-0").told) == paused
        assert (await it.scale(**request_)).scaling_id == 0

    play(tmp_path, scenario)


def test_a_request_counts_with_what_is_queued_before_it(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("chief-0").mute.add("prepare")
        await it.scale(ps=3, workers=2)
        assert (await it.scale(workers=2)).scaling_id == 0
        assert (await it.scale(ps=3)).scaling_id == 0
        await it.scale(ps=3, workers=3)  # of workers alone, once the first is done
        assert (await it.ended(1)).outcome == "rolled_back"  # the chief never answers
        ended = await it.ended(2)
        assert (ended.outcome, ended.role, ended.from_count, ended.to_count) == ("committed", "worker", 1, 3)

    play(tmp_path, scenario)


def test_a_dry_run_names_both_and_what_would_move(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        reply = await it.scale(ps=3, workers=0, dry_run=True)
        assert reply.message.startswith("scale-up of PS, workers 1 → 0 with it; new: ps-2; drained: worker-0; ")
        assert '"moves"' in reply.plan_json and reply.scaling_id == 0
        assert await names(it) == {"ps-0", "ps-1", "chief-0", "worker-0"}

    play(tmp_path, scenario)


def test_an_older_record_changes_no_workers() -> None:
    text = Scaling(3, "scale-up", "ps", want=3, from_count=2, to_count=3, added=("ps-2",)).to_json()
    text = text.replace('"workers_from": 0, "workers_to": 0, ', "")
    assert "workers" not in text
    scaling = Scaling.from_json(text)
    assert not scaling.both and scaling.joining == () and scaling.added_ps == ("ps-2",)


# ------------------------------------------------------------------------------------------------------- taken back


async def as_before(it: World) -> None:
    """Nothing of a change from 2 PS and 1 worker to 3 and 2 is left, and the next one succeeds."""
    await it.until(lambda: {"ps-2", "worker-1"} <= set(it.backend.deleted))
    assert await names(it) == {"ps-0", "ps-1", "chief-0", "worker-0"}
    assert list((await it.status()).slot_map) == [0, 1] * 4
    await it.scale(ps=3, workers=2)
    assert (await it.ended(2)).outcome == "committed"
    await it.until(lambda: len(it.master.job.view().workers) == 3)


@pytest.mark.parametrize("late", ["ps-2", "worker-1"])
def test_one_that_never_registers_takes_both_back(tmp_path: Path, late: str) -> None:
    async def scenario(it: World) -> None:
        it.backend.stillborn.add(late)
        await it.scale(ps=3, workers=2)
        ended = await it.ended()
        assert (ended.outcome, ended.reason) == ("rolled_back", f"{late} did not register within 3 s")
        it.backend.stillborn.clear()
        await as_before(it)

    play(tmp_path, scenario)


@pytest.mark.parametrize("phase", ["ARM", "FIRST", "FINAL"])
def test_a_copy_that_fails_takes_both_back(tmp_path: Path, phase: str) -> None:
    async def scenario(it: World) -> None:
        it.fails["ps-2"] = {phase: "disk on fire"}
        await it.scale(ps=3, workers=2)
        ended = await it.ended()
        assert ended.outcome == "rolled_back" and "disk on fire" in ended.reason
        assert it.backend.everybody["worker-1"].registered == 0
        it.fails.clear()
        await as_before(it)

    play(tmp_path, scenario)


def test_a_new_worker_that_ends_before_the_decision_takes_both_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("chief-0").mute.add("pause")
        await it.scale(ps=3, workers=2)
        await it.until(told(it, "chief-0", "pause"))
        it.backend.exit("worker-1", 1)
        await it.until(lambda: it.master.pods.exited("worker-1"))
        it.agent("chief-0").mute.clear()
        await it.agent("chief-0").say(ack=pb.Ack(command_id=it.agent("chief-0").command("pause").id, ok=True))
        ended = await it.ended()
        assert (ended.outcome, ended.reason) == ("rolled_back", "worker-1 ended before it took part; see its log")
        assert (await it.status()).state == "training", "it is not the job's failure"
        await as_before(it)

    play(tmp_path, scenario)


def test_a_worker_that_was_to_leave_stays_when_it_is_taken_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.fails["ps-2"] = {"FINAL": "disk on fire"}
        await it.scale(ps=3, workers=0)
        assert (await it.ended()).outcome == "rolled_back"
        await it.heard("worker-0", "ROLLED_BACK")
        assert it.backend.pods["worker-0"].state == "running" and "worker-0" not in it.backend.deleted
        assert [one.name for one in it.master.job.view().workers] == ["chief-0", "worker-0"]

    play(tmp_path, scenario)


# ------------------------------------------------------------------------------------- the AIMaster, or its store, dies

BEFORE = [("ps-2", "ARM"), ("worker-0", "mark"), ("chief-0", "prepare"), ("worker-0", "pause"), ("ps-2", "FINAL")]


@pytest.mark.parametrize("store", [True, False], ids=["dies", "loses its store"])
@pytest.mark.parametrize(("name", "command"), BEFORE)
def test_before_the_decision_the_next_aimaster_takes_both_back(
    tmp_path: Path, name: str, command: str, store: bool
) -> None:
    async def scenario(it: World) -> None:
        it.mute["ps-2"] = {command}
        if name != "ps-2":
            it.agent(name).mute.add(command)
        await it.scale(ps=3, workers=2)
        await it.until(told(it, name, command))
        await restart(it, store=store)
        ended = await it.ended()
        assert ended.outcome == "rolled_back" and ended.workers_to == 2, ended
        await as_before(it)

    play(tmp_path, scenario)


def test_while_new_processes_are_awaited_the_next_aimaster_goes_on(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.backend.stillborn.add("ps-2")
        await it.scale(ps=3, workers=2)
        await it.until(lambda: it.master.job.members.get("worker-1") is not None)
        await it.crash()
        it.backend.stillborn.clear()
        it.backend.exit("ps-2", 1)
        await it.backend.create("ps-2")
        await it.start()
        ended = await it.ended()
        assert ended.outcome == "committed", ended.reason
        await it.until(lambda: it.agent("worker-1").registered == 1)
        assert it.agent("worker-1").view.epoch >= ended.epoch, "it had no other view"

    play(tmp_path, scenario)


@pytest.mark.parametrize("store", [True, False], ids=["dies", "loses its store"])
@pytest.mark.parametrize(("name", "command"), [("ps-0", "destroy"), ("chief-0", "commit")])
def test_after_the_decision_the_next_aimaster_takes_both_forward(
    tmp_path: Path, name: str, command: str, store: bool
) -> None:
    async def scenario(it: World) -> None:
        it.agent(name).mute.add(command)
        await it.scale(ps=3, workers=2)
        await it.until(told(it, name, command))
        await restart(it, store=store)
        assert (await it.ended()).outcome == "committed"
        await it.until(lambda: len(it.master.job.view().workers) == 3)
        assert sorted(set((await it.status()).slot_map)) == [0, 1, 2]

    play(tmp_path, scenario)


@pytest.mark.parametrize("store", [True, False], ids=["dies", "loses its store"])
def test_after_the_decision_those_that_were_to_leave_do(tmp_path: Path, store: bool) -> None:
    async def scenario(it: World) -> None:
        it.agent("chief-0").mute.add("commit")
        await it.scale(ps=3, workers=0)
        await it.until(told(it, "chief-0", "commit"))
        await restart(it, store=store)
        assert (await it.ended()).outcome == "committed"
        assert it.backend.pods["worker-0"].state == "exited"
        assert await names(it) == {"ps-0", "ps-1", "ps-2", "chief-0"}

    play(tmp_path, scenario)


def test_a_decision_that_nobody_has_heard_is_taken_back_with_the_workers(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.master.job.keep_elsewhere = asyncio.Event().wait  # type: ignore[assignment]
        await it.scale(ps=3, workers=2)
        running = lambda: it.master.scalings.running  # noqa: E731
        await it.until(lambda: (run := running()) is not None and run.state is State.COMMIT)
        await it.crash()
        await it.start()
        assert (await it.ended()).outcome == "rolled_back"
        await as_before(it)

    play(tmp_path, scenario)
