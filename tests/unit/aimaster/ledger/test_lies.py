"""What a trainer says of its data is bounded by what it was given; and what is stored and cannot be is set aside."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sqlite3
from pathlib import Path

import pytest

from deeprec_ext.aimaster.ledger import dataset as dataset_module
from deeprec_ext.aimaster.ledger import leasing, report
from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.declaration import RECORDS_MAX, check
from deeprec_ext.aimaster.ledger.files import from_scan
from deeprec_ext.aimaster.ledger.leasing import HELD_LEASES_MAX, HELD_RECORDS_MAX, may_have
from deeprec_ext.aimaster.ledger.visits import Numbers
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import INT64_MAX, saturated
from tests.unit.aimaster.ledger.books import index_range
from tests.unit.aimaster.ledger.test_job import ask, events
from tests.unit.aimaster.world import world

DONE = pb.DataReply.END


def dataset(records: int = 100, **more: object) -> Dataset:
    return Dataset(index_range(records, **more), Numbers())  # type: ignore[arg-type]


def say(one: Dataset, who: str, now: float = 1.0, **fields: object) -> pb.DataReply:
    return one.answer(who, pb.DataRequest(dataset=one.name, **fields), now)  # type: ignore[arg-type]


def test_sums_saturate() -> None:
    assert saturated(2**63 - 1 + 2**63 - 1) == INT64_MAX and saturated(-(2**70)) == -INT64_MAX and saturated(7) == 7
    one = dataset()
    one.replayed = {"a": 2**63 - 1, "b": 2**63 - 1}
    one.counters.stale = one.counters.unsure = 2**63 - 1
    [told] = report.status({"train": one})
    assert (told.repeated, told.stale) == (INT64_MAX, INT64_MAX)
    numbers = report.numbers_of(one)
    totals = {"train": dict(numbers)}
    report.fold(totals, one)
    assert totals["train"]["repeated"] == numbers["repeated"] == INT64_MAX


def test_files_of_too_many_records_together_are_no_dataset() -> None:
    files = [pb.DataFile(path=f"{number}", records=2**62) for number in range(4)]
    declared = pb.Dataset(name="d", files=files, shard_records=1)
    assert f"at most {RECORDS_MAX}" in check(declared)
    with pytest.raises(UsageError, match="records in one file"):
        from_scan([0] * 5000, [2**40] * 5000, 10)


def test_a_process_has_not_trained_again_what_it_never_had() -> None:
    one = dataset()
    say(one, "a", replayed_records=2**50)
    assert one.repeated == 0
    [lease] = say(one, "a", want=1, sequence=1).leases
    say(one, "a", replayed_records=2**50)
    assert one.repeated == lease.records


def test_one_process_alone_condemns_no_shard_that_others_can_train() -> None:
    one = dataset(10)
    one.failures_max = 3
    say(one, "b")
    for sequence in range(1, 8):
        for lease in say(one, "a", want=1, sequence=sequence).leases:
            say(one, "a", failed=[pb.LeaseFailure(lease=lease.id, error="I say so")])
    assert not one.error and not one.troubles
    [lease] = say(one, "b", want=1, sequence=1).leases
    say(one, "b", failed=[pb.LeaseFailure(lease=lease.id, error="and so do I")])
    assert "failed 3 times" in one.error


def test_what_one_process_cannot_read_is_for_others_and_for_itself_when_nobody_comes() -> None:
    """Given back it was this one's again at once, for ever: a damaged record, and a job that never ended."""
    one = dataset(10)
    one.failures_max = 3
    say(one, "b")

    def fails(sequence: int, now: float) -> bool:
        leases = say(one, "a", now=now, want=1, sequence=sequence).leases
        say(one, "a", now=now, failed=[pb.LeaseFailure(lease=lease.id, error="damaged") for lease in leases])
        return bool(leases)

    assert [fails(sequence, 0.0) for sequence in range(1, 6)] == [True, True, True, False, False]
    assert not fails(6, dataset_module.OTHERS_SECONDS - 0.1) and not one.error
    assert fails(7, dataset_module.OTHERS_SECONDS)
    assert "failed 3 times: damaged" in one.error


def test_nobody_holds_more_than_it_may() -> None:
    assert may_have(5, 10) > 0 and may_have(HELD_LEASES_MAX, HELD_RECORDS_MAX) == 0
    one = dataset(10**9, shard_records=10**4)
    held = 0
    for sequence in range(1, 60):
        held += len(say(one, "a", want=2**31 - 1, sequence=sequence).leases)
    assert held <= HELD_LEASES_MAX
    assert say(one, "b", want=5, sequence=1).leases


def test_who_keeps_others_waiting_and_trains_nothing_loses_its_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dataset(20)
    [first] = say(one, "liar", want=1, sequence=1).leases
    while leases := say(one, "b", want=9, sequence=1 + len(one.visits.held("b"))).leases:
        say(one, "b", progress=[pb.LeaseProgress(lease=lease.id, done=lease.records) for lease in leases])
    assert say(one, "b", want=1, sequence=50).state == pb.DataReply.DRAINED
    assert one.take_back_stalled(10.0) == [] == one.take_back_stalled(10.0 + leasing.STALLED_SECONDS)
    busy = 10.0 + leasing.BUSY_SECONDS
    assert one.take_back_stalled(busy, {"liar"}) == [], "an evaluation, for as long"
    assert one.take_back_stalled(11.0 + leasing.STALLED_SECONDS) == ["liar"]
    [again] = say(one, "b", want=1, sequence=51).leases
    assert again.shard == first.shard
    reply = say(one, "liar", progress=[pb.LeaseProgress(lease=first.id, done=first.records)])
    assert list(reply.fenced) == [first.id]
    assert say(one, "b", progress=[pb.LeaseProgress(lease=again.id, done=again.records)]).state == DONE


def test_what_is_stored_and_cannot_be_read_is_set_aside_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await ask(it, it.agent("chief-0"), 2)
            await it.until(lambda: bool(it.master.job.store.rows("SELECT 1 FROM ledger_datasets")))
            await it.crash()
            broken = pb.Dataset(name="huge", files=[pb.DataFile(records=2**62)] * 4, shard_records=1)
            with sqlite3.connect(tmp_path / "aimaster.db") as db:
                db.execute(
                    "INSERT INTO ledger_datasets VALUES (NULL, 'huge', ?, '{}', x'')", (broken.SerializeToString(),)
                )
                db.execute("INSERT INTO ledger_datasets VALUES (NULL, 'torn', x'ff', '{', x'')")
                db.execute("INSERT OR REPLACE INTO meta VALUES ('metrics', '{\"auc\": ')")
                db.execute("INSERT INTO failures VALUES (77, '{\"no\": 1}')")
                variable = pb.Variable(name="wrong", slot=99, bytes=4)
                known = pb.Catalogue.FromString(
                    db.execute("SELECT value FROM blobs WHERE key='catalogue'").fetchone()[0]
                )
                known.variables.append(variable)
                db.execute("UPDATE blobs SET value=? WHERE key='catalogue'", (known.SerializeToString(),))
                db.execute("INSERT OR REPLACE INTO blobs VALUES ('backup_wish', ?)",
                           (pb.BackupWish(peer_seconds=-1).SerializeToString(),))  # fmt: skip
            db.close()
            await it.start()
            await it.until(lambda: it.master.job.settled)
            told = "".join(events(it, "stored_set_aside"))
            for what in ("dataset huge", "dataset torn", "variable wrong", "blob backup_wish"):
                assert what in told
            assert "wrong" not in {one.name for one in it.master.job.catalogue.variables}
            assert len(it.master.job.catalogue.variables) == 16
            assert [one.name for one in (await it.status()).data] == ["train"]
            assert it.master.job.store.failures() == [] and it.master.job.store.get("metrics", {}) == {}
            places = {row[0] for row in it.master.job.store.rows("SELECT place FROM set_aside")}
            assert places == {"dataset", "state of dataset", "variable", "blob", "meta", "failures"}
            before = len(events(it, "stored_set_aside"))
            await it.crash()
            await it.start()
            await it.until(lambda: it.master.job.settled)
            assert (
                len([one for one in events(it, "stored_set_aside") if "metrics" not in one and "failures" not in one])
                == before
            )
            assert not it.master.broken.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("key, wrong", [
    ("requests", {"ps_cpu": "many"}), ("requests", {"gpus": 1.0}), ("requests", [1]),
    ("suspects", [{"name": "worker-0"}]), ("suspects", {"worker-0": 1}),
    ("notices", [{"code": 1, "text": "x", "roles": None}]), ("notices", 7),
])  # fmt: skip
def test_what_is_no_value_of_its_key_is_set_aside_once(tmp_path: Path, key: str, wrong: object) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            with contextlib.closing(sqlite3.connect(tmp_path / "aimaster.db")) as db, db:
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(wrong)))
            await it.start()
            await it.until(lambda: it.master.job.settled)
            [told] = events(it, "stored_set_aside")
            assert json.loads(told)["what"].startswith(f"meta {key}: ")
            assert it.master.job.store.rows("SELECT key, value FROM set_aside") == [(key, json.dumps(wrong))]
            assert (await it.status()).live
            await it.crash()
            await it.start()
            await it.until(lambda: it.master.job.settled)
            assert len(events(it, "stored_set_aside")) == 1 and not it.master.broken.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("wrong", ["{", "7", '{"epoch": 3}', "torn"])
def test_a_store_whose_cluster_cannot_be_read_back_is_rebuilt_from_what_agents_know(tmp_path: Path, wrong: str) -> None:
    """An AIMaster that went on with another cluster, or with none, would begin the job anew over one that trains."""

    async def main() -> None:
        async with world(tmp_path) as it:
            before = await it.status()
            await it.crash()
            value = '"' if wrong == "torn" else json.dumps(wrong)
            with contextlib.closing(sqlite3.connect(tmp_path / "aimaster.db")) as db, db:
                db.execute("INSERT OR REPLACE INTO meta VALUES ('cluster', ?)", (value,))
            await it.start()
            await it.until(lambda: it.master.job.settled)
            status = await it.status()
            assert status.live and list(status.slot_map) == list(before.slot_map) and status.epoch >= before.epoch
            assert [one for one in events(it, "stored_set_aside") if "the cluster of it" in one]
            assert it.master.job.cluster.generation == 1 and (tmp_path / "aimaster.db.damaged").exists()
            await it.crash()
            await it.start()
            await it.until(lambda: it.master.job.settled)
            assert len(events(it, "stored_set_aside")) == 1

    asyncio.run(main())


def test_a_resumed_run_whose_cluster_cannot_be_read_back_begins_with_another(tmp_path: Path) -> None:
    """Nobody is left who would know it."""

    async def main() -> None:
        async with world(tmp_path) as it:
            await it.crash()
            for agent in list(it.backend.agents):
                it.backend.exit(agent, 137)
            it.backend.pods.clear()
            with contextlib.closing(sqlite3.connect(tmp_path / "aimaster.db")) as db, db:
                db.execute("INSERT OR REPLACE INTO meta VALUES ('cluster', '7')")
            it.spec = dataclasses.replace(it.spec, resume=True)
            await it.start()
            await it.training()
            assert [one for one in events(it, "stored_set_aside") if "meta cluster: " in one]
            assert len((await it.status()).slot_map) == 8

    asyncio.run(main())


@pytest.mark.parametrize("who, cpu_seconds, suspect", [
    ("chief-0", 0.0, False), ("worker-0", 1e6, False), ("worker-0", 0.0, True),
])  # fmt: skip
def test_who_is_busy_with_something_else_is_waited_for_longer_and_is_no_liar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, cpu_seconds: float, suspect: bool
) -> None:
    """An evaluation, or a checkpoint to a slow disk, in the middle of its leases."""
    monkeypatch.setattr(dataset_module, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(dataset_module, "BUSY_SECONDS", 1.0)

    async def main() -> None:
        async with world(tmp_path) as it:
            late, other = it.agent(who), it.agent("worker-0" if who == "chief-0" else "chief-0")
            job, spent = it.master.job, [0.0]
            beat, loop = job.members.beat, asyncio.get_running_loop()

            def beats(member: Member, heartbeat: pb.Heartbeat) -> None:
                if member.name == who:
                    spent[0] += cpu_seconds
                    heartbeat.cpu_seconds = spent[0]
                beat(member, heartbeat)

            monkeypatch.setattr(job.members, "beat", beats)
            await ask(it, late, 1)
            began = loop.time()
            reply = await ask(it, other, 9)
            while reply.leases:
                done = [pb.LeaseProgress(lease=lease.id, done=lease.records) for lease in reply.leases]
                reply = await ask(it, other, 9, progress=done)
            assert reply.state == pb.DataReply.DRAINED
            told = lambda: events(it, "suspect") or [one for one in events(it, "warning") if "is busy with" in one]  # noqa: E731
            await it.until(lambda: bool(told()))
            assert bool(job.suspects.of(who)) == suspect
            assert suspect or loop.time() - began > 1.0

    asyncio.run(main())


def test_a_dataset_of_a_liar_alone_goes_when_it_is_known_as_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            chief, worker = it.agent("chief-0"), it.agent("worker-0")
            await ask(it, chief, 1)
            declared = index_range(2**40)
            declared.name = "mine"
            await worker.say(data=pb.DataRequest(sequence=1, dataset="mine", declare=declared))
            await it.until(lambda: len(it.master.job.ledger.status()) == 2)
            it.master.job.suspects.note(it.master.job.members.get("worker-0"), "a lie")
            assert [one.name for one in it.master.job.ledger.status()] == ["train"]
            await worker.say(data=pb.DataRequest(sequence=2, dataset="mine", declare=declared))
            await it.until(lambda: bool(worker.replies) and "not taken in" in worker.replies[-1].error)
            await it.crash()
            await it.start()
            assert [one.name for one in it.master.job.ledger.status()] == ["train"]

    asyncio.run(main())
