"""The ledger in a job: over real streams, through deaths of workers, PS and the AIMaster."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Coroutine
from pathlib import Path

import pytest

from deeprec_ext.aimaster.job.replicated import newest
from deeprec_ext.aimaster.ledger import ledger
from deeprec_ext.aimaster.ledger.replica import REPLICA, unpack_replica
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from tests.unit.aimaster.ledger.books import index_range, text_files
from tests.unit.aimaster.world import FakeAgent, World, world


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def ask(
    it: World, agent: FakeAgent, want: int = 0, declare: bool = True, content: str = "", **fields: object
) -> pb.DataReply:
    """One request of this agent and its answer; `sequence` is the number of its replies so far."""
    sequence = sum(reply.sequence > 0 for reply in agent.replies) + 1
    request = pb.DataRequest(sequence=sequence, dataset="train", want=want, **fields)  # type: ignore[arg-type]
    if declare:
        request.declare.CopyFrom(index_range(100, epochs=2))
        request.declare.content = content
    await agent.say(data=request)
    await it.until(lambda: any(reply.sequence == sequence for reply in agent.replies))
    return next(reply for reply in agent.replies if reply.sequence == sequence)


def done(lease: pb.Lease, records: int | None = None) -> list[pb.LeaseProgress]:
    return [pb.LeaseProgress(lease=lease.id, done=lease.records if records is None else records)]


async def position(it: World) -> bytes:
    async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
        return bytes((await rpc.AgentsStub(channel).Position(pb.PositionRequest(), timeout=5)).ledger)


def events(it: World, type_: str) -> list[str]:
    return [row[5] for row in it.master.job.store.events(0, 10_000) if row[2] == type_]


def test_leases_of_a_killed_worker_return_at_once_and_who_waits_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            first = await ask(it, worker, 1)
            while (reply := await ask(it, chief, 50)).leases:
                await ask(it, chief, progress=[one for lease in reply.leases for one in done(lease)])
            assert reply.state == pb.DataReply.DRAINED
            await it.backend.kill("worker-0")
            await it.until(lambda: chief.replies[-1].sequence == 0)
            assert chief.replies[-1].state == pb.DataReply.MORE
            reply = await ask(it, chief, 50)
            assert [lease.shard for lease in reply.leases] == [first.leases[0].shard]
            assert (await ask(it, chief, progress=done(reply.leases[0]))).state == pb.DataReply.END
            [data] = (await it.status()).data
            assert (data.records, data.trained, data.repeated) == (200, 200, 10)
            summary = summarize(it.master.job.store, status="", seconds=0.0, roles={})["data"]
            assert (summary["records"], summary["trained"], summary["lost"], summary["left"]) == (200, 200, 0, 0)

    run(main())


def test_who_has_other_records_than_others_of_this_run_is_told(tmp_path: Path) -> None:
    """Not than an earlier run, which may have had other ones."""

    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            for agent, content in ((it.agent("chief-0"), "a"), (it.agent("worker-0"), "a")):
                await ask(it, agent, content=content)
            assert not it.master.job.notices.all
            await ask(it, it.agent("worker-0"), content="b")
            [told] = it.master.job.notices.all
            assert (told.code, told.roles, told.mended) == ("other-records", ("worker-0",), False)
            await it.crash()
            await it.start()
            await it.until(lambda: all(it.agent(name).registered == 2 for name in ("chief-0", "worker-0")))
            for name in ("chief-0", "worker-0"):
                await ask(it, it.agent(name), content="c")
            assert it.master.job.notices.all == (told,)

    run(main())


def test_after_a_restart_of_the_aimaster_only_who_comes_back_keeps_its_leases(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=2) as it:
            kept, gone = it.agent("worker-0"), it.agent("worker-1")
            [mine] = (await ask(it, kept, 1)).leases
            [lost] = (await ask(it, gone, 1)).leases
            await it.crash()
            gone.stop()
            await it.start()
            await it.until(lambda: kept.registered == 2)
            await it.until(lambda: "leases_returned" in [row[2] for row in it.master.job.store.events(0, 10_000)])
            reply = await ask(it, kept, 2, progress=done(mine))
            assert not reply.fenced and lost.shard in [lease.shard for lease in reply.leases]
            assert (await it.status()).data[0].trained == mine.records

    run(main())


def test_a_chief_that_comes_back_to_a_live_model_rewinds_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            [lease] = (await ask(it, worker, 1)).leases
            await it.backend.kill("chief-0")
            await it.until(lambda: it.agent("chief-0").registered == 1)
            await it.agent("chief-0").say(live=pb.ModelLive(generation=1, fresh=True))
            reply = await ask(it, worker, progress=done(lease))
            assert reply.rewinds == 0 and not reply.fenced
            assert not events(it, "ledger_rewound")

    run(main())


def test_a_restored_checkpoint_takes_the_ledger_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            [lease] = (await ask(it, worker, 1)).leases
            await ask(it, worker, progress=done(lease, 4))
            stored = await position(it)
            await ask(it, worker, progress=done(lease))
            [held] = (await ask(it, worker, 1)).leases
            chief.restored = pb.ModelLive(ledger=stored)
            await it.backend.kill("ps-0")
            await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
            await it.until(lambda: worker.replies[-1].rewinds == 1)
            assert worker.replies[-1].sequence == 0, "it is told at once"
            assert (await it.status()).data[0].trained == 4
            [told] = map(json.loads, events(it, "restored"))
            assert told["data"] == {"train": {"epoch": 0, "trained": 4}}, (
                "of the model that is live, not of the one before"
            )
            assert not (await ask(it, worker, 5, progress=done(held))).leases, "it did not know yet"
            [again] = (await ask(it, worker, 1, rewinds=1)).leases
            assert (again.shard, again.done) == (lease.shard, 4)

    run(main())


def test_without_a_checkpoint_all_data_is_trained_again_but_not_at_the_first_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            assert not events(it, "ledger_rewound")
            [lease] = (await ask(it, worker, 1)).leases
            await ask(it, worker, progress=done(lease))
            chief.restored = pb.ModelLive(fresh=True)
            await it.backend.kill("ps-0")
            await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
            assert (await it.status()).data[0].trained == 0 and len(events(it, "ledger_rewound")) == 1

    run(main())


def test_nobody_hears_of_an_end_while_a_checkpoint_is_being_restored(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            stored = await position(it)
            while (reply := await ask(it, worker, 50)).leases:
                await ask(it, worker, progress=[one for lease in reply.leases for one in done(lease)])
            assert reply.state == pb.DataReply.END
            it.agent("chief-0").stop()  # it takes its time
            await it.backend.kill("ps-0")
            await it.until(lambda: it.master.job.cluster.generation == 2)
            reply = await ask(it, worker, 1)
            assert reply.state == pb.DataReply.MORE and not reply.leases and reply.retry_seconds > 0
            it.master.job.ledger.rewind(stored)
            await it.until(lambda: worker.replies[-1].sequence == 0)
            assert worker.replies[-1].state == pb.DataReply.MORE and worker.replies[-1].rewinds == 1

    run(main())


def test_a_promotion_counts_what_was_acknowledged_since_the_backup(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            for _ in range(3):
                [lease] = (await ask(it, worker, 1)).leases
                await ask(it, worker, progress=done(lease))
            assert it.master.job.ledger.forgotten(3600.0) == 30
            assert (await it.status()).data[0].stale == 30

    run(main())


def test_a_promotion_counts_what_trainers_tell_until_they_train_in_the_next_view(tmp_path: Path) -> None:
    """Some of it was trained before the loss: the PS it was trained on has forgotten it, too."""

    async def main() -> None:
        async with world(tmp_path) as it:
            chief, worker, job = it.agent("chief-0"), it.agent("worker-0"), it.master.job
            late: list[int] = []
            job.ledger.forgotten_late = late.append
            held = {one.incarnation: (await ask(it, one, 4)).leases for one in (chief, worker)}

            async def train(agent: FakeAgent, number: int) -> int:
                await ask(it, agent, progress=done(held[agent.incarnation][number]))
                return (await it.status()).data[0].stale

            worker.stuck_in = job.cluster.epoch - 1
            await it.until(lambda: job.members.get("worker-0").heartbeat.step_epoch == worker.stuck_in)
            assert job.ledger.forgotten(0.0) == 0
            assert [await train(worker, 0), await train(worker, 1)] == [10, 20]
            worker.stuck_in = None
            await it.until(lambda: job.members.get("worker-0").heartbeat.step_epoch == job.cluster.epoch)
            assert [await train(worker, 2), await train(worker, 3)] == [30, 30], "the first may hold some of before"
            assert [await train(chief, 0), await train(chief, 1)] == [40, 40]
            await it.until(lambda: sum(late) == 40)

    run(main())


def test_who_says_goodbye_gives_back_what_it_holds(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            await ask(it, worker, 1)
            await worker.say(finished=pb.Finished(left=True, had_session=True))
            await it.until(lambda: bool(events(it, "leases_returned")))
            [data] = (await it.status()).data
            assert data.leased == data.repeated == 0

    run(main())


def test_another_declaration_of_the_same_name_is_an_error_that_says_what_differs(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker = it.agent("worker-0")
            await ask(it, worker, 1)
            reply = await ask(it, worker, 1, declare=False)
            assert not reply.error
            await worker.say(data=pb.DataRequest(sequence=99, dataset="train", declare=index_range(101)))
            await it.until(lambda: worker.replies[-1].sequence == 99)
            assert "epochs=2 and now with 1" in worker.replies[-1].error

    run(main())


def test_of_old_evaluations_only_the_sums_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PASS_IDLE_SECONDS", 0.0)

    async def main() -> None:
        async with world(tmp_path) as it:
            worker, job = it.agent("worker-0"), it.master.job
            await ask(it, worker, 1)
            for number in range(ledger.PASSES_KEPT + 5):
                name = f"evaluate@worker-0-{number}"
                declared = index_range(10, name=name, purpose="evaluate")
                for sequence, want in ((2 * number + 2, 1), (2 * number + 3, 0)):
                    lease = worker.replies[-1].leases
                    request = pb.DataRequest(sequence=sequence, dataset=name, declare=declared, want=want)
                    request.progress.extend([] if want else done(lease[0]))
                    await worker.say(data=request)
                    await it.until(lambda sequence=sequence: worker.replies[-1].sequence == sequence)  # type: ignore[misc]
            assert len(job.ledger._datasets) == ledger.PASSES_KEPT + 2
            assert [one.name for one in (await it.status()).data] == ["train", "evaluate"]
            data = summarize(job.store, status="", seconds=0.0, roles={})["data"]
            total = 10 * (ledger.PASSES_KEPT + 5)
            evaluated = data["datasets"]["evaluate"]
            assert (evaluated["records"], evaluated["trained"], evaluated["lost"]) == (total, total, 0)
            assert data["records"] == 200, "evaluation is not training"
            await it.crash()
            await it.start()
            again = summarize(it.master.job.store, status="", seconds=0.0, roles={})["data"]
            assert again["datasets"]["evaluate"] == evaluated

    run(main())


async def lose_store(it: World, *known: tuple[FakeAgent, pb.DataKnown]) -> None:
    """The AIMaster dies, its store is deleted, and the next one asks the agents."""
    await it.crash()
    it.lose_store()
    for agent, data in known:
        agent.data = [data]
    await it.start()
    await it.until(lambda: all(a.known_aimaster == it.master.job.incarnation for a in it.backend.agents.values()))


def holding(*leases: tuple[pb.Lease, int], **fields: object) -> pb.DataKnown:
    known = pb.DataKnown(dataset="train", highest_lease=max(lease.id for lease, _ in leases), **fields)  # type: ignore[arg-type]
    for lease, trained in leases:
        known.held.add().CopyFrom(lease)
        known.held[-1].done = trained
    return known


def test_a_ledger_that_was_lost_goes_on_where_the_workers_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            [first] = (await ask(it, chief, 1)).leases
            mine, also = [*(await ask(it, worker, 1)).leases, *(await ask(it, worker, 1)).leases]
            await ask(it, chief, progress=done(first))
            trained = pb.Trained(epoch=0, first_rank=first.rank, count=1)
            await lose_store(
                it, (worker, holding((mine, 10), (also, 3))),
                (chief, pb.DataKnown(dataset="train", trained=[trained], highest_lease=first.id)),
            )  # fmt: skip
            reply = await ask(it, worker, 1, progress=[*done(mine), *done(also, 7)])
            assert list(reply.fenced) == [mine.id], "it is trained, as was told"
            [data] = (await it.status()).data
            assert (data.records, data.trained, data.repeated) == (200, 27, 0)
            assert reply.leases[0].id > also.id and reply.leases[0].shard not in (first.shard, mine.shard, also.shard)
            assert not (await ask(it, worker, progress=done(reply.leases[0]))).fenced
            while (more := await ask(it, chief, 50)).leases:
                await ask(it, chief, progress=[one for lease in more.leases for one in done(lease)])
            assert (await ask(it, worker, progress=done(also))).state == pb.DataReply.END
            summary = summarize(it.master.job.store, status="", seconds=0.0, roles={})["data"]
            assert (summary["trained"], summary["lost"], summary["left"], summary["repeated"]) == (200, 0, 0, 0)

    run(main())


def test_what_was_told_to_an_aimaster_that_does_not_know_the_dataset_is_told_again(tmp_path: Path) -> None:
    """A request that waited for the stream comes before anything is declared: it must not count as answered."""

    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            worker = it.agent("worker-0")
            [mine] = (await ask(it, worker, 1)).leases
            await lose_store(it, (worker, holding((mine, 4))))
            reply = await ask(it, worker, declare=False, progress=done(mine))
            assert reply.undeclared and not reply.leases
            assert not (await ask(it, worker, progress=done(mine))).fenced
            assert (await it.status()).data[0].trained == mine.records

    run(main())


def test_what_a_worker_trained_that_has_left_since_is_known_to_the_ps(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=2) as it:
            chief, leaver = it.agent("chief-0"), it.agent("worker-1")
            await ask(it, chief)
            [lease] = (await ask(it, leaver, 1)).leases
            await ask(it, leaver, progress=done(lease, 6))
            await it.scale(workers=1)
            assert (await it.ended()).outcome == "committed"

            def memo() -> int:
                values = newest([one for agent in it.backend.agents.values() for one in agent.memory.tell().remembered])
                memos, _, _ = unpack_replica(values.get(REPLICA, b""))
                return (
                    memos["train"].trained
                    if "train" in memos and not memos["train"].position.epochs[0].open[0].lease
                    else 0
                )

            await it.until(lambda: memo() == 6)
            await lose_store(it)
            [again] = (await ask(it, chief, 1)).leases
            assert (again.shard, again.done) == (lease.shard, 6) and again.id > lease.id
            [data] = (await it.status()).data
            assert (data.trained, data.repeated) == (6, 4), "whether somebody has trained the rest, nobody knows"

    run(main())


def test_leases_of_a_worker_that_told_and_then_died_return(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            [lease] = (await ask(it, worker, 1)).leases
            await lose_store(it, (worker, holding((lease, 2))))
            await it.backend.kill("worker-0")
            await it.until(lambda: "failure" in [row[2] for row in it.master.job.store.events(0, 10_000)])
            [again] = (await ask(it, chief, 1)).leases
            assert (again.shard, again.done) == (lease.shard, 2)

    run(main())


def test_files_that_not_all_were_counted_take_the_ledger_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, workers=1) as it:
            worker, declared = it.agent("worker-0"), text_files(2)
            await worker.say(data=pb.DataRequest(sequence=1, dataset="train", want=2, declare=declared))
            await it.until(lambda: len(worker.replies) == 1)
            scan = worker.replies[0].leases[0]
            scanned = [pb.Scanned(lease=scan.id, begins=[0], records=[10], end_byte=100)]
            await worker.say(data=pb.DataRequest(sequence=2, dataset="train", want=1, scanned=scanned))
            await it.until(lambda: len(worker.replies) == 2)
            [lease] = worker.replies[1].leases
            await lose_store(it, (worker, holding((lease, 4), trained_records=4)))
            await worker.say(
                data=pb.DataRequest(sequence=3, dataset="train", progress=done(lease, 6), declare=declared)
            )
            await it.until(lambda: len(worker.replies) == 3)
            assert worker.replies[2].rewinds == 1, "what it holds is void, and it learns so"
            [data] = (await it.status()).data
            assert (data.trained, data.repeated) == (0, 10)

    run(main())


def test_a_full_disk_holds_answers_back_until_it_is_not_full(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            worker, store = it.agent("worker-0"), it.master.job.store
            [pages] = store.rows("PRAGMA page_count")
            store.rows(f"PRAGMA max_page_count={pages[0]}")
            many = pb.DataRequest(sequence=1, dataset="train", want=200, declare=index_range(10**6))
            await worker.say(data=many)
            await it.until(lambda: bool(it.master.job.ledger._broken))
            assert not worker.replies
            store.rows("PRAGMA max_page_count=1000000")
            await it.until(lambda: len(worker.replies) == 1)
            assert len(worker.replies[0].leases) == 200

    run(main())


def test_a_model_that_was_kept_takes_the_ledger_back_in_a_job_without_ps_alone(tmp_path: Path) -> None:
    async def scenario(it: World, sums: bool) -> None:
        agent, worker = it.agent("chief-0"), it.agent("worker-0")
        await it.until(lambda: agent.call is not None and worker.call is not None)
        [lease] = (await ask(it, worker, 1)).leases
        await ask(it, worker, progress=done(lease, 4))
        stored = await position(it)
        await ask(it, worker, progress=done(lease))
        job = it.master.job

        def ask_of(name: str, restored: bytes, dataset: str = "train", sure: bool = False) -> pb.EpochReply:
            member = job.members.get(name)
            assert member is not None
            request = pb.EpochRequest(dataset=dataset, restored=restored, begins=sure)
            return job.ledger.end_of_epoch(member, request)

        def say(name: str, restored: bytes, dataset: str = "train") -> int:
            return ask_of(name, restored, dataset).rewinds

        ends = job.ledger._datasets["train"].ends
        ends.reached = 1
        assert say("worker-0", stored) == 0
        assert say("chief-0", stored) == (1 if sums else 0)
        assert (await it.status()).data[0].trained == (4 if sums else 10)
        assert ends.reached == (0 if sums else 1), "an epoch whose records are trained again is not over"
        if sums:
            await it.until(lambda: worker.replies[-1].rewinds == 1)
            assert worker.replies[-1].sequence == 0, "it is told at once"
            assert say("chief-0", b"") == 2 and (await it.status()).data[0].trained == 0, "nothing was kept"
            assert say("chief-0", stored, "") == 0, "somebody is there who has trained, and may have a newer model"
            for one in job.members.trainers().values():
                one.began = None
            trained = job.ledger._datasets["train"].visits
            assert say("worker-0", stored, "") == 0 and trained.trained == 0
            assert say("chief-0", stored, "") == 1 and trained.trained == 4
            [lease] = (await ask(it, worker, 1, rewinds=3)).leases
            await ask(it, worker, progress=done(lease), rewinds=3)
            assert trained.trained > 4
            job.members.save(dataclasses.replace(job.members.records["worker-0"], name="worker-7"))
            assert job.members.missing_trainers() == ["worker-7"], "it has not come back to this AIMaster"
            for one in job.members.trainers().values():
                one.began = None
            reply = ask_of("chief-0", stored, "")
            assert (reply.rewinds, reply.begun) == (0, False) and trained.trained > 4, "it is not known yet"
            for one in job.members.trainers().values():
                one.began = 1.0
            reply = ask_of("chief-0", stored, "")
            assert (reply.rewinds, reply.begun) == (0, True) and trained.trained > 4, "one is there who has trained"
            assert ask_of("chief-0", stored, "", True).rewinds == 1 and trained.trained == 4, "nobody has the model"

    async def main() -> None:
        for sums in (False, True):
            (tmp_path / str(sums)).mkdir()
        async with world(tmp_path / "False") as it:
            await scenario(it, sums=False)
        it = World(tmp_path / "True", slots=0, ps=0, min_ps=0, workers=1)
        it.catalogue = pb.Catalogue()
        await it.start()
        try:
            await it.until(lambda: len(it.master.job.members.trainers()) == 2)
            await scenario(it, sums=True)
        finally:
            await it.stop()

    run(main())
