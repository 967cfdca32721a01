"""The AIMaster is killed and its store is gone: the next one rebuilds it from what the agents know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from deeprec_ext.aimaster.job import replicated
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.backups.test_peers import GUARDED
from tests.unit.aimaster.world import World, world


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def lose(it: World) -> None:
    """Kills the AIMaster, deletes its store, heals all agents, starts the next AIMaster."""
    await it.crash()
    it.lose_store()
    it.mute.clear()
    for agent in it.backend.agents.values():
        agent.mute.clear()
    await it.start()
    await back(it)


async def back(it: World) -> None:
    """Until all agents have registered again."""
    await it.until(lambda: all(a.known_aimaster == it.master.job.incarnation for a in it.backend.agents.values()))


def told(it: World, name: str, what: str) -> Callable[[], bool]:
    return lambda: name in it.backend.everybody and what in it.backend.everybody[name].told


async def kept(it: World, *outcomes: str) -> None:
    """Until the PS have been told of these scalings."""

    def scalings() -> list[str]:
        values = replicated.newest(
            [one for agent in it.backend.agents.values() for one in agent.memory.tell().remembered]
        )
        return [scaling.outcome for scaling in replicated.unpack(values.get(replicated.JOB, b"")).scalings]

    await it.until(lambda: scalings() == list(outcomes))


def events(it: World, type_: str) -> list[str]:
    return [row[5] for row in it.master.job.store.events(0, 10_000) if row[2] == type_]


def test_a_job_whose_store_is_lost_goes_on_as_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=2) as it:
            await it.scale(ps=3)
            assert (await it.ended()).outcome == "committed"
            await kept(it, "committed")
            before, agents, sequence = (
                await it.status(),
                dict(it.backend.agents),
                it.master.job.store.events(0, 10**4)[-1][0],
            )
            await lose(it)
            after = await it.status()
            assert after.live and list(after.slot_map) == list(before.slot_map) and after.step >= before.step > 0
            assert after.epoch >= before.epoch and after.aimaster_incarnation > before.aimaster_incarnation
            assert {r.name: r.incarnation for r in after.roles} == {r.name: r.incarnation for r in before.roles}
            assert it.backend.agents == agents and not it.backend.deleted, "no pod was started or stopped"
            assert it.master.job.cluster.generation == 1, "the chief restores nothing"
            assert it.master.job.store.events(0, 10**4)[0][0] == sequence + 1, "events go on being counted"
            assert [one.kind for one in after.scalings] == ["scale-up"], "the history is kept by the PS"
            await it.scale(ps=4)
            assert (await it.ended(2)).outcome == "committed"
            assert sorted(set((await it.status()).slot_map)) == [0, 1, 2, 3]

    run(main())


def test_what_is_kept_elsewhere_changes_with_what_it_tells_and_not_with_every_write(tmp_path: Path) -> None:
    """Else PS get it every few seconds, and a ConfigMap is written, for each sample of Gazer."""
    store = Store(tmp_path / "aimaster.db")
    store.put(started=1.0)
    kept = replicated.pack(store)
    store.add_event(1.0, "warning", "", 0, {})
    assert replicated.pack(store) == kept
    store.put(hold=True)
    assert replicated.pack(store) != kept
    store.close()


def test_the_store_may_be_lost_again_and_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            await it.start()  # with its store
            await back(it)
            for number in (3, 4):
                await lose(it)
                assert it.master.job.incarnation == number
            await it.scale(ps=3)
            assert (await it.ended()).outcome == "committed"

    run(main())


def test_a_task_number_is_never_used_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.scale(ps=3)
            await it.ended()
            await it.scale(ps=2)
            await it.ended(2)
            await kept(it, "committed", "committed")
            await lose(it)
            await it.scale(ps=3)
            assert (await it.ended(3)).outcome == "committed"
            assert sorted(set((await it.status()).slot_map)) == [0, 1, 3]

    run(main())


@pytest.mark.parametrize(
    ("name", "command"),
    [("ps-2", "ARM"), ("worker-0", "mark"), ("ps-2", "FIRST"), ("chief-0", "prepare"), ("worker-0", "pause"),
     ("ps-2", "FINAL")],
)  # fmt: skip
def test_a_scaling_before_the_decision_is_rolled_back(tmp_path: Path, name: str, command: str) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.mute["ps-2"] = {command}
            if name != "ps-2":
                it.agent(name).mute.add(command)
            await it.scale(ps=3)
            await it.until(told(it, name, command))
            await lose(it)
            ended = await it.ended()
            assert ended.outcome == "rolled_back" and ended.kind == "scale-up"
            await it.heard("worker-0", "ROLLED_BACK")
            assert "resume" in it.agent("worker-0").told
            assert "ps-2" in it.backend.deleted
            assert list((await it.status()).slot_map) == [0, 1] * 4
            await it.scale(ps=3)
            assert (await it.ended(2)).outcome == "committed", "training and scaling go on"
            epochs = it.agent("worker-0").view.epoch, (await it.status()).epoch
            assert epochs[0] == epochs[1]

    run(main())


def test_targets_that_stay_destroy_their_copies(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, ps=3) as it:
            it.agent("worker-0").mute.add("pause")
            await it.scale(ps=2)
            await it.until(told(it, "worker-0", "pause"))
            await lose(it)
            assert (await it.ended()).outcome == "rolled_back"
            aborts = [it.agent(name).command("copy") for name in ("ps-0", "ps-1")]
            assert all(abort.copy.moves for abort in aborts) and not it.backend.deleted
            assert sorted(set((await it.status()).slot_map)) == [0, 1, 2]

    run(main())


@pytest.mark.parametrize(("name", "command"), [("ps-0", "destroy"), ("worker-0", "commit"), ("chief-0", "commit")])
def test_a_scaling_that_was_decided_goes_forward(tmp_path: Path, name: str, command: str) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.agent(name).mute.add(command)
            await it.scale(ps=3)
            await it.until(told(it, name, command))
            await lose(it)
            assert (await it.ended()).outcome == "committed"
            assert sorted(set((await it.status()).slot_map)) == [0, 1, 2]
            await it.until(lambda: len(it.agent("worker-0").view.ps) == 3)
            assert "commit" in it.agent("worker-0").told and "commit" in it.agent("chief-0").told
            assert it.agent("ps-0").told.count("destroy") == 2, "destroyed again: it may not have happened"

    run(main())


def test_what_was_drained_is_still_released(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            it.agent("ps-1").mute.add("leave")
            await it.scale(ps=1)
            await it.until(told(it, "ps-1", "leave"))
            await lose(it)
            assert (await it.ended()).outcome == "committed"
            assert it.backend.pods["ps-1"].state == "exited"
            assert set((await it.status()).slot_map) == {0}

    run(main())


def test_a_ps_that_does_not_come_back_counts_as_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            old = it.backend.agents["ps-1"]
            await it.crash()
            it.lose_store()
            old.stop()  # hangs: the pod runs, but says nothing
            await it.start()
            await it.until(lambda: it.backend.agents.get("ps-1", old) is not old)
            await it.until(lambda: it.master.job.cluster.live and it.master.job.cluster.generation == 2)
            assert list((await it.status()).slot_map) == [0, 2] * 4

    run(main())


def test_a_ps_that_was_replaced_meanwhile_counts_as_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            it.lose_store()
            await it.backend.kill("ps-1")
            await it.start()
            await it.until(lambda: it.master.job.cluster.live and it.master.job.cluster.generation == 2)
            assert list((await it.status()).slot_map) == [0, 2] * 4
            [failure] = summarize(it.master.job.store, status="", seconds=0.0, roles={})["failures"]
            assert (failure["role"], failure["id"]) == ("ps", 1)

    run(main())


def test_a_ps_that_died_meanwhile_is_promoted_away_from_the_backups_that_others_hold(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, settings=GUARDED) as it:
            await it.until(lambda: bool(it.master.job.backup_map))
            await it.crash()
            it.lose_store()
            it.agent("ps-0").again = pb.BackupReport(slots=[1, 3, 5, 7])  # what a PS reports when it registers again
            it.backend.exit("ps-1", 137)
            await it.start()
            await it.until(lambda: len(it.master.job.cluster.ps) == 1 and not it.master.job.cluster.lost)
            assert it.master.job.cluster.generation == 1, "nothing is restored"
            assert list(it.agent("ps-0").command("promote").promote.slots) == [1, 3, 5, 7]
            chief = it.agent("chief-0")
            await it.until(lambda: any(c.WhichOneof("command") == "commit" for c in chief.commands))
            assert chief.command("commit").commit.keep_marks

    run(main())


def test_a_worker_that_was_replaced_meanwhile_joins(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            it.lose_store()
            await it.backend.kill("worker-0")
            await it.start()
            worker = it.agent("worker-0")
            await it.until(lambda: worker.registered == 1)
            await it.until(lambda: len(it.master.job.view().workers) == 2)
            assert worker.view.live and it.master.job.cluster.generation == 1

    run(main())


def test_a_job_in_which_nobody_has_taken_part_yet_begins(tmp_path: Path) -> None:
    async def main() -> None:
        it = World(tmp_path)
        it.backend.stillborn = {"ps-1"}
        await it.start()
        try:
            await it.until(lambda: "worker-0" in it.backend.agents)
            await it.crash()
            it.lose_store()
            it.backend.stillborn.clear()
            it.backend._spawn("ps-1")
            await it.start()
            await it.training()
            assert it.master.job.cluster.generation == 1 and not events(it, "store_rebuilt")
        finally:
            await it.stop()

    run(main())


def test_an_aimaster_that_began_anew_too_early_makes_room_for_one_that_asks(tmp_path: Path) -> None:
    """The backend told of no pod, and then agents of a running job come."""

    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            it.lose_store()
            pods, it.backend.pods = it.backend.pods, {}
            it.backend.stillborn = set(pods)
            await it.start()
            await it.until(it.master.job.stale.is_set)
            await it.crash()
            it.backend.pods, it.backend.stillborn = pods, set()
            await it.start()
            await back(it)
            assert it.master.job.cluster.live and list((await it.status()).slot_map) == [0, 1] * 4

    run(main())
