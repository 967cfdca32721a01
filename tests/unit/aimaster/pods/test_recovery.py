"""The AIMaster is killed in every state of a scaling; the next one, over the same store, resumes or rolls back."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.security.proofs import Proofs
from tests.unit.aimaster.world import World, world


async def interrupt(it: World, seen: Callable[[], bool]) -> None:
    """Kills the AIMaster once `seen`, heals all agents, starts the next AIMaster."""
    await it.until(seen)
    await it.crash()
    it.mute.clear()
    for agent in it.backend.agents.values():
        agent.mute.clear()
    await it.start()


def told(it: World, name: str, what: str) -> Callable[[], bool]:
    return lambda: name in it.backend.everybody and what in it.backend.everybody[name].told


@pytest.mark.parametrize(
    ("state", "name", "command"),
    [
        ("PREPARE", "ps-2", "ARM"),
        ("PREPARE", "worker-0", "mark"),
        ("PREPARE", "ps-2", "FIRST"),
        ("PREPARE", "chief-0", "prepare"),
        ("PAUSE", "worker-0", "pause"),
        ("FINAL_COPY", "ps-2", "FINAL"),
    ],
)
def test_before_the_decision_it_is_rolled_back(tmp_path: Path, state: str, name: str, command: str) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.mute["ps-2"] = {command}
            if name != "ps-2":
                it.agent(name).mute.add(command)
            await it.scale(ps=3)
            epoch = it.agent("worker-0").view.epoch
            await interrupt(it, told(it, name, command))
            ended = await it.ended()
            assert ended.outcome == "rolled_back" and ended.reason == f"the AIMaster was restarted in {state}"
            worker = it.agent("worker-0")
            await it.heard("worker-0", "ROLLED_BACK")
            assert "resume" in worker.told
            await it.until(lambda: "ABORT" in it.backend.everybody["ps-2"].told and "ps-2" in it.backend.deleted)
            status = await it.status()
            assert list(status.slot_map) == [0, 1] * 4 and status.aimaster_incarnation == 2
            assert worker.view.epoch >= epoch and len(worker.view.ps) == 2
            assert it.agent("ps-0").task_number == 0, "the same incarnation keeps its task"
            await it.scale(ps=3)
            assert (await it.ended(2)).outcome == "committed", "training and scaling go on"
            epochs = [it.agent("worker-0").view.epoch, (await it.status()).epoch]
            assert epochs[0] == epochs[1] > ended.epoch, "the epoch of a rolled-back view is never used again"

    asyncio.run(main())


def test_in_acquire_it_is_resumed(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.backend.stillborn.add("ps-2")
            await it.scale(ps=3)
            await it.until(lambda: "ps-2" in it.backend.pods)
            await it.crash()
            it.backend.stillborn.clear()
            it.backend.exit("ps-2", 1)
            await it.backend.create("ps-2")
            await it.start()
            ended = await it.ended()
            assert ended.outcome == "committed", ended.reason
            assert len((await it.status()).slot_map) == 8

    asyncio.run(main())


def test_in_acquire_it_is_taken_back_where_the_run_was_stopped_and_is_resumed(tmp_path: Path) -> None:
    """Who would prepare for it waits for a model, and the chief restores none while a change goes on."""

    async def main() -> None:
        async with world(tmp_path) as it:
            it.backend.stillborn.add("ps-2")
            await it.scale(ps=3)
            await it.until(lambda: "ps-2" in it.backend.pods)
            await it.crash()
            for name in list(it.backend.agents):
                it.backend.exit(name, 137)
            it.backend.pods.clear()
            it.backend.stillborn.clear()
            it.spec = dataclasses.replace(it.spec, resume=True)
            await it.start()
            ended = await it.ended()
            assert (ended.outcome, ended.reason) == ("rolled_back", "the job was stopped in ACQUIRE")
            await it.training()
            assert "ps-2" in it.backend.deleted and len((await it.status()).slot_map) == 8
            await it.scale(ps=3)
            assert (await it.ended(2)).outcome == "committed"

    asyncio.run(main())


@pytest.mark.parametrize(("name", "command"), [("ps-0", "destroy"), ("worker-0", "commit")])
def test_after_the_decision_it_goes_forward(tmp_path: Path, name: str, command: str) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.agent(name).mute.add(command)
            await it.scale(ps=3)
            await interrupt(it, told(it, name, command))
            ended = await it.ended()
            assert ended.outcome == "committed", ended.reason
            assert it.agent("ps-0").told.count("destroy") == 2, "destroyed again: it may not have happened"
            assert sorted(set((await it.status()).slot_map)) == [0, 1, 2]
            assert len(it.agent("worker-0").view.ps) == 3

    asyncio.run(main())


async def decided_and_told_nobody(it: World, ps: int) -> None:
    """The AIMaster dies between a decision and its first effect."""
    it.master.job.keep_elsewhere = asyncio.Event().wait  # type: ignore[assignment]
    await it.scale(ps=ps)
    running = lambda: it.master.scalings.running  # noqa: E731
    await it.until(lambda: (run := running()) is not None and run.state is State.COMMIT)
    await it.crash()
    assert not any("destroy" in agent.told or "commit" in agent.told for agent in it.backend.agents.values())


@pytest.mark.parametrize("ps", [1, 3])
def test_a_decision_that_nobody_has_heard_is_taken_back(tmp_path: Path, ps: int) -> None:
    """The trainers go on with the old view when their pause has lasted for its lease: what they train would be lost."""

    async def main() -> None:
        async with world(tmp_path) as it:
            before = await it.status()
            await decided_and_told_nobody(it, ps)
            await it.start()
            ended = await it.ended()
            assert ended.outcome == "rolled_back", ended
            status = await it.status()
            assert list(status.slot_map) == list(before.slot_map) and status.epoch > ended.epoch
            assert not any("destroy" in agent.told for agent in it.backend.everybody.values())
            await it.until(lambda: it.agent("worker-0").view.epoch == status.epoch)
            assert len(it.agent("worker-0").view.ps) == 2
            await it.scale(ps=3)
            assert (await it.ended(2)).outcome == "committed"

    asyncio.run(main())


def test_a_decision_goes_forward_when_a_ps_that_gave_slots_away_is_gone(tmp_path: Path) -> None:
    """What it had is on its successor alone."""

    async def main() -> None:
        async with world(tmp_path) as it:
            await decided_and_told_nobody(it, 3)
            it.backend.exit("ps-0", 137)
            await it.start()
            await it.until(lambda: len(it.master.job.cluster.ps) == 3 or bool(it.master.job.cluster.lost))
            assert (await it.ended(seconds=15)).outcome == "committed"

    asyncio.run(main())


def test_in_release_the_drained_are_still_released(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.agent("ps-1").mute.add("leave")
            await it.scale(ps=1)
            await interrupt(it, told(it, "ps-1", "leave"))
            assert (await it.ended()).outcome == "committed"
            assert it.backend.pods["ps-1"].state == "exited"
            assert set((await it.status()).slot_map) == {0}

    asyncio.run(main())


def test_a_restart_without_a_scaling_keeps_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=2) as it:
            before = await it.status()
            await it.crash()
            await it.start()
            await it.until(lambda: len(it.master.job.members.trainers()) == 3)
            await it.until(lambda: it.master.job.members.step >= before.step)  # they tell it with their next heartbeat
            after = await it.status()
            assert after.live and list(after.slot_map) == list(before.slot_map)
            assert [r.incarnation for r in after.roles] == [r.incarnation for r in before.roles]
            assert before.step > 0 and not it.backend.deleted
            events = (tmp_path / "events.jsonl").read_text().splitlines()
            assert len(events) == it.master.job.store.events(0, 10_000)[-1][0]

    asyncio.run(main())


def test_queued_scalings_survive(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.backend.stillborn.add("ps-2")
            await it.scale(ps=3)
            await it.scale(workers=2)
            await it.until(lambda: "ps-2" in it.backend.pods)
            await it.crash()
            await it.start()
            assert (await it.ended(1)).outcome == "rolled_back"
            assert (await it.ended(2)).outcome == "committed"

    asyncio.run(main())


def test_what_does_not_come_back_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            it.backend.agents["ps-1"].stop()  # hangs: the pod runs, but says nothing
            old = it.backend.agents["ps-1"]
            await it.start()
            await it.until(lambda: it.backend.agents.get("ps-1", old) is not old)
            await it.until(lambda: it.master.job.cluster.live and it.master.job.cluster.generation == 2)
            assert list((await it.status()).slot_map) == [0, 2] * 4

    asyncio.run(main())


def test_whose_script_had_ended_is_not_missed_by_the_next_and_does_not_run_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            await worker.say(finished=pb.Finished(exit_code=0, had_session=True))
            await it.until(lambda: bool(it.master.job.members.get("worker-0").said_goodbye))  # type: ignore[union-attr]
            worker.stop()  # its process is still being taken apart
            await it.crash()
            await it.start()
            await it.until(lambda: it.master.job.settled)
            assert "worker-0" not in it.backend.deleted and it.backend.agents["worker-0"] is worker
            it.backend.exit("worker-0", 0)
            await it.until(lambda: it.master.job.members.records["worker-0"].state == "exited")
            assert not it.master.job.store.failures()

    asyncio.run(scenario())


def test_a_stale_aimaster_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            worker.known_aimaster, worker.proof = 7, Proofs("job", None).make(7)
            worker.break_stream()
            await it.until(lambda: it.master.job.stale.is_set())

    asyncio.run(main())


def test_a_stopped_run_is_resumed_with_its_present_size_and_the_next_generation(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.scale(ps=3)
            await it.ended()
            it.master.job.end("failed", "stopped")
            await it.crash()
            for name in list(it.backend.agents):
                it.backend.exit(name, 137)
            it.backend.pods.clear()
            await it.start()
            await it.until(lambda: it.master.job.cluster.live and it.master.job.cluster.generation == 2)
            status = await it.status()
            assert sorted(set(status.slot_map)) == [3, 4, 5] and status.state == "training" and not status.failure

    asyncio.run(main())
