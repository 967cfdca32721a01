"""Whatever happens in whatever order: nothing is lost, nothing is in two hands, and the numbers add up."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger import report
from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.rebuild import DatasetSources, pack_table, rebuild, replica_of
from deeprec_ext.aimaster.ledger.replica import REPLICA, TABLE, dataset_sources, pack_replica
from deeprec_ext.data.trained import TrainedVisits
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.ledger.books import Book, text_files

WORKERS = st.sampled_from(["a", "b", "c"])
FILES = 2
Visit = tuple[int, int]  # epoch, shard


@dataclass
class Worker:
    """What a process believes, and has done to the model."""

    incarnation: str
    leases: dict[int, pb.Lease] = field(default_factory=dict)
    trained: dict[int, int] = field(default_factory=dict)  # lease -> prefix, perhaps not told yet
    rewinds: int = 0
    visits: TrainedVisits = field(default_factory=TrainedVisits)
    records: int = 0  # trained since the last rewind
    highest: int = 0  # lease

    def void(self) -> None:
        self.leases.clear()
        self.trained.clear()
        self.visits.clear()
        self.records = 0

    def tell(self) -> pb.DataKnown:
        """To an AIMaster that has lost its store."""
        known = pb.DataKnown(
            dataset="train", rewinds=self.rewinds, complete=self.visits.complete, trained=self.visits.tell(),
            highest_lease=self.highest, trained_records=self.records,
        )  # fmt: skip
        for identifier, done in self.trained.items():
            known.held.add().CopyFrom(self.leases[identifier])
            known.held[-1].done = done
        return known


class Interleaving(RuleBasedStateMachine):
    """Workers lease, train, tell, return, fail and die; answers and AIMasters are lost; checkpoints are restored."""

    @initialize(
        shuffle=st.booleans(), epochs=st.integers(1, 3), set_aside=st.booleans(), counted=st.integers(0, 3),
        shards=st.lists(st.lists(st.integers(1, 12), max_size=6), min_size=FILES, max_size=FILES),
    )  # fmt: skip
    def begin(self, shuffle: bool, epochs: int, set_aside: bool, counted: int, shards: list[list[int]]) -> None:
        self.directory = tempfile.mkdtemp()
        declaration = text_files(FILES, shuffle=shuffle, epochs=epochs, set_aside=set_aside, seed=3)
        self.book = Book(Path(self.directory) / "aimaster.db", declaration)
        self.shards, self.epochs = shards, epochs
        self.model: dict[Visit, int] = {}  # records of each visit that the model has learnt
        self.snapshots: list[tuple[bytes, dict[Visit, int]]] = []
        self.incarnations = self.jobs = 0
        self.workers: dict[str, Worker] = {}
        self.ghosts: list[Worker] = []
        self.ever: dict[Visit, int] = {}  # records of each visit that were ever trained
        self.steps = 0  # records trained, each time anew
        self.kept: dict[str, bytes] = {}  # by the PS
        for name in ("a", "b", "c"):
            self._spawn(name)
        for _ in range(counted):
            self._send(self.workers["a"], 2)
            self.counts_files("a")

    def teardown(self) -> None:
        if hasattr(self, "book"):
            self._finish()
            self.book.store.close()
            shutil.rmtree(self.directory)

    # ------------------------------------------------------------------------------------------------ workers

    def _spawn(self, name: str) -> None:
        self.incarnations += 1
        self.workers[name] = Worker(f"{name}{self.incarnations}")

    def _send(self, worker: Worker, want: int = 0, **fields: object) -> pb.DataReply:
        """One request; the answer is taken in."""
        progress = [pb.LeaseProgress(lease=lease, done=done) for lease, done in worker.trained.items()]
        reply = self.book.ask(worker.incarnation, want, progress=progress, rewinds=worker.rewinds, **fields)
        self._receive(worker, reply)
        return reply

    def _receive(self, worker: Worker, reply: pb.DataReply) -> None:
        if reply.rewinds > worker.rewinds:
            worker.void()
            worker.rewinds = reply.rewinds
            return
        for identifier, done in list(worker.trained.items()):
            lease = worker.leases[identifier]
            if done >= lease.records:
                del worker.leases[identifier], worker.trained[identifier]
                worker.visits.add(lease.epoch, lease.rank)
        worker.visits.completed(reply.complete)
        for fenced in reply.fenced:
            worker.leases.pop(fenced, None)
            worker.trained.pop(fenced, None)
        for lease in reply.leases:
            worker.leases[lease.id] = lease
            worker.highest = max(worker.highest, lease.id)
            if lease.kind == pb.Lease.DATA:
                learnt = self.model.get((lease.epoch, lease.shard), 0)
                assert lease.done <= learnt, "records would be skipped that the model has never seen"
                worker.trained[lease.id] = lease.done

    def _train(self, worker: Worker, share: float) -> None:
        """The first leases it holds, some of each; the ledger is not told."""
        for identifier, lease in worker.leases.items():
            if lease.kind == pb.Lease.DATA:
                visit, before = (lease.epoch, lease.shard), worker.trained[identifier]
                done = before + round(share * (lease.records - before))
                self.steps += done - before
                worker.records += done - before
                self.ever[visit] = max(done, self.ever.get(visit, 0))
                self.model[visit] = max(done, self.model.get(visit, 0))
                worker.trained[identifier] = done

    # ------------------------------------------------------------------------------------------------ what happens

    @rule(name=WORKERS, want=st.integers(1, 6), count=st.booleans(), share=st.sampled_from([0, 0.5, 1]))
    def asks(self, name: str, want: int, count: bool, share: float) -> None:
        self._send(self.workers[name], want)
        if count:
            self.counts_files(name)
        self._train(self.workers[name], share)

    @rule(name=WORKERS, want=st.integers(0, 6))
    def the_answer_is_lost_and_the_request_sent_again(self, name: str, want: int) -> None:
        worker = self.workers[name]
        progress = [pb.LeaseProgress(lease=lease, done=done) for lease, done in worker.trained.items()]
        first = self.book.ask(worker.incarnation, want, progress=progress, rewinds=worker.rewinds)
        again = self.book.ask(
            worker.incarnation, want, progress=progress, rewinds=worker.rewinds, sequence=first.sequence
        )
        assert [lease.id for lease in first.leases] == [lease.id for lease in again.leases]
        self._receive(worker, again)

    @rule(name=WORKERS, want=st.integers(0, 6))
    def the_aimaster_dies_before_it_has_written(self, name: str, want: int) -> None:
        worker = self.workers[name]
        progress = [pb.LeaseProgress(lease=lease, done=done) for lease, done in worker.trained.items()]
        request = pb.DataRequest(sequence=10**6, dataset="train", want=want, progress=progress, rewinds=worker.rewinds)
        self.book.dataset.answer(worker.incarnation, request, 0.0)
        self.book.restart()

    @rule(name=WORKERS, share=st.floats(0, 1))
    def trains(self, name: str, share: float) -> None:
        self._train(self.workers[name], share)

    @rule(name=WORKERS)
    def tells(self, name: str) -> None:
        self._send(self.workers[name])

    def counts_files(self, name: str) -> None:
        worker = self.workers[name]
        scans = [lease for lease in worker.leases.values() if lease.kind == pb.Lease.SCAN]
        self._send(worker, scanned=[self._scan(lease) for lease in scans])
        for lease in scans:
            worker.leases.pop(lease.id, None)

    def _scan(self, lease: pb.Lease) -> pb.Scanned:
        records = self.shards[lease.file]
        return pb.Scanned(lease=lease.id, begins=[5 * i for i in range(len(records))], records=records, end_byte=100)

    @rule(name=WORKERS)
    def returns_everything(self, name: str) -> None:
        worker = self.workers[name]
        self._send(worker, returned=list(worker.leases))
        worker.leases.clear()
        worker.trained.clear()
        self.the_ps_keep_the_ledger()

    @rule(name=WORKERS)
    def cannot_read(self, name: str) -> None:
        worker = self.workers[name]
        if not self.book.dataset.declaration.set_aside or not worker.leases:
            return
        lease = next(iter(worker.leases))
        self._send(worker, failed=[pb.LeaseFailure(lease=lease, error="torn")])
        worker.leases.pop(lease, None)
        worker.trained.pop(lease, None)
        self.the_ps_keep_the_ledger()

    @rule(name=WORKERS)
    def dies(self, name: str) -> None:
        worker = self.workers[name]
        self.book.dataset.release(worker.incarnation, 1.0, clean=False)
        self.book.save()
        self.the_ps_keep_the_ledger()  # the AIMaster sends it when somebody goes
        self.ghosts.append(worker)
        self._spawn(name)

    @rule(share=st.floats(0, 1))
    def the_dead_still_speak(self, share: float) -> None:
        """Fenced: what they hold is in other hands. (Their process may hang for a while before it is killed.)"""
        if self.ghosts:
            ghost = self.ghosts.pop()
            before = self.book.dataset.visits.trained
            progress = [pb.LeaseProgress(lease=lease.id, done=lease.records) for lease in ghost.leases.values()]
            reply = self.book.ask(ghost.incarnation, progress=progress, rewinds=ghost.rewinds)
            assert self.book.dataset.visits.trained == before and not reply.leases
            self.book.dataset.release(ghost.incarnation, 1.0, clean=False)

    @rule()
    def the_aimaster_is_killed(self) -> None:
        self.book.restart()

    @rule()
    def the_ps_keep_the_ledger(self) -> None:
        dataset = self.book.dataset
        self.kept = {REPLICA: pack_replica({"train": replica_of(dataset)}, {}, self.book.numbers.last)}
        if dataset.table.complete:
            self.kept[TABLE + "train"] = pack_table(dataset)

    @rule()
    def the_store_is_lost(self) -> None:
        """The workers tell what they know, and the PS what the ledger was when somebody went, or later."""
        declaration = self.book.dataset.declaration
        told = {worker.incarnation: [worker.tell()] for worker in self.workers.values()}
        found, _, last = dataset_sources(self.kept, told)
        self.book.store.close()
        self.jobs += 1
        self.book = Book(Path(self.directory) / f"{self.jobs}.db", declaration)
        self.book.numbers.last = last
        rebuild(self.book.dataset, DatasetSources.from_plain(json.loads(json.dumps(found["train"].plain()))))
        self.book.save()
        self.the_ps_keep_the_ledger()

    @rule()
    def a_checkpoint_is_written(self) -> None:
        dataset = self.book.dataset
        self.snapshots.append((positions.pack({"train": dataset.position()}), dict(self.model)))

    @rule(which=st.integers(0, 9), fresh=st.booleans())
    def a_checkpoint_is_restored(self, which: int, fresh: bool) -> None:
        packed, model = (b"", {}) if fresh or not self.snapshots else self.snapshots[which % len(self.snapshots)]
        assert self.book.dataset.rewind(positions.unpack(packed).get("train")) == ""
        self.book.save()
        self.model = dict(model)
        self.the_ps_keep_the_ledger()

    @rule(which=st.integers(0, 9))
    def another_job_begins_from_the_checkpoint(self, which: int) -> None:
        """It knows no file yet."""
        if self.snapshots:
            packed, model = self.snapshots[which % len(self.snapshots)]
            declaration = self.book.dataset.declaration
            self.book.store.close()
            self.jobs += 1
            self.book = Book(Path(self.directory) / f"{self.jobs}.db", declaration)
            assert self.book.dataset.start_at(positions.unpack(packed)["train"]) == ""
            self.book.save()
            self.model, self.ever, self.steps = dict(model), {}, 0
            self.snapshots, self.ghosts = [(packed, model)], []
            for name in self.workers:
                self._spawn(name)
            self.the_ps_keep_the_ledger()

    # ------------------------------------------------------------------------------------------------ what must hold

    @invariant()
    def no_lease_is_in_two_hands(self) -> None:
        if not hasattr(self, "book"):
            return
        rewinds = self.book.dataset.counters.rewinds
        hands: dict[tuple[int, int, int], str] = {}
        for worker in self.workers.values():
            for lease in worker.leases.values():
                if worker.rewinds == rewinds and self.book.dataset.visits.find(worker.incarnation, lease.id):
                    key = (lease.epoch, lease.shard, lease.file if lease.kind == pb.Lease.SCAN else -1)
                    assert key not in hands, f"{key} is in the hands of {hands[key]} and {worker.incarnation}"
                    hands[key] = worker.incarnation

    @invariant()
    def the_ledger_never_counts_more_than_the_model_has_learnt(self) -> None:
        if hasattr(self, "book"):
            dataset = self.book.dataset
            assert 0 <= dataset.visits.trained <= sum(self.model.values())
            values = report.numbers_of(dataset)
            assert values["trained"] + values["lost"] + values["left"] + values["set_aside"] == values["records"]
            assert self.jobs or dataset.counters.acknowledged >= dataset.visits.trained

    @invariant()
    def the_store_says_the_same(self) -> None:
        if hasattr(self, "book"):
            stored = self.book.tables.load(self.book.numbers, 3)["train"]
            for get in (report.numbers_of, lambda d: d.position(), lambda d: sorted(d.visits.holders())):
                assert get(stored) == get(self.book.dataset)

    def _finish(self) -> None:
        """All but one die, and it trains to the end."""
        for worker in self.workers.values():
            self.book.dataset.release(worker.incarnation, 1.0, clean=False)
        last = Worker("last")
        for _ in range(400):
            reply = self._send(last, 5)
            if reply.state == pb.DataReply.END:
                break
            self._train(last, 1.0)
            scans = [lease for lease in last.leases.values() if lease.kind == pb.Lease.SCAN]
            self._send(last, scanned=[self._scan(lease) for lease in scans])
            for lease in scans:
                last.leases.pop(lease.id, None)
        else:
            raise AssertionError(f"the data never ends: {report.numbers_of(self.book.dataset)}")
        self._check_end(self.book.dataset)

    def _check_end(self, dataset: Dataset) -> None:
        values = report.numbers_of(dataset)
        assert values["lost"] == values["left"] == 0
        assert values["trained"] + values["set_aside"] == values["records"]
        assert dataset.counters.to_repeat == 0
        assert values["repeated"] >= self.steps - sum(self.ever.values()), "repeated is an upper bound"
        if values["set_aside"] or dataset.failures:
            return
        assert values["records"] == self.epochs * sum(sum(records) for records in self.shards)
        expected = {(epoch, shard): records for epoch in range(self.epochs)
                    for shard, records in enumerate([r for file in self.shards for r in file])}  # fmt: skip
        assert self.model == expected, "every record of every visit was trained"


Interleaving.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestInterleaving = Interleaving.TestCase
