"""The data ledger of a job (`job.ledger`): which records are trained, and who holds which.

Requests are answered from memory. What they changed is written by one transaction for all requests of a few milliseconds
(group commit), and only then the answers leave: what an agent knows is in the store. When the store cannot be written (a full
disk), answers wait; agents train on what they hold.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger import report
from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.declaration import check, differences
from deeprec_ext.aimaster.ledger.position import Position, PositionError
from deeprec_ext.aimaster.ledger.rebuild import pack_table, rebuild, replica_of
from deeprec_ext.aimaster.ledger.replica import REPLICA, TABLE, RebuiltDatasets, pack_replica
from deeprec_ext.aimaster.ledger.tables import Tables
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

GROUP_SECONDS = 0.01
"""How long answers are collected for one transaction."""

WRITE_AGAIN_SECONDS = 1.0
"""After a failed transaction."""

RESTORING_SECONDS = 120.0
"""How long the end of the data is kept back while no model is live."""

CHECKPOINT_SECONDS = 2.0
"""How often the store's log is copied into its database, in a thread: on a busy disk that takes a good part of a second."""

HISTORY_SECONDS = 0.1
HISTORY_MAX = 6000
"""Ten minutes of how many records were acknowledged when, for the records that a promotion forgets."""

PASSES_KEPT = 16
PASS_IDLE_SECONDS = 60.0
"""So many evaluations are kept whole, and those in which somebody holds something or has asked lately."""

ANSWERS_MAX = 20_000
"""That wait for the disk; who does not get one asks again."""

_HISTORY_KEY, UNUSED_KEY = "ledger_history", "ledger_unused"
_STORED_HISTORY = 60


class Ledger:
    """All datasets of one job. On the job's event loop, like everything of it."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self.notice: Callable[[str, pb.Notice, str], None] = lambda role, said, incarnation: None
        job.suspects.distrusted = self.distrust
        self._tables = Tables(job.store)
        self._numbers = self._tables.numbers()
        self._datasets = self._tables.load(self._numbers, job.settings.shard_failures_max)
        self._declared_by: dict[str, set[str]] = {}  # dataset -> names of roles, of this AIMaster's time
        self._contents: dict[str, str] = {}  # dataset -> what stands for its records, as was said first, likewise
        self._unused: dict[str, Position] = {}  # restored, of datasets that nobody has declared yet
        if unused := job.store.blob(UNUSED_KEY):
            self._unused = positions.unpack(unused)
        self._rebuilt = RebuiltDatasets(job.store)
        self._tables_packed: dict[str, bytes] = {}
        self._answers: list[tuple[Member, pb.DataReply]] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._dirty = False
        self._broken = ""
        self._not_live_since: float | None = None
        self._went_back = False  # the chief of a job without PS has said with which model it begins
        self._checkpointed = job.clock.monotonic()
        self._checkpointing: asyncio.Future[None] | None = None
        self._saved_lease = self._numbers.last
        # (monotonic seconds, records acknowledged ever); in the store the seconds are wall time
        behind = job.clock.monotonic() - job.clock.wall()
        stored = [(float(time) + behind, int(total)) for time, total in job.store.get(_HISTORY_KEY, [])]
        self._history: deque[tuple[float, int]] = deque(stored, HISTORY_MAX)
        self._history_saved = 0.0
        self._forgotten_late = 0
        self.forgotten_late: Callable[[int], None] = lambda records: None  # so many more than `forgotten` has said

    # ------------------------------------------------------------------------------------------------ requests

    def receive(self, member: Member, request: pb.DataRequest) -> None:
        """One request; its answer goes to the member's outbox after the next commit."""
        dataset, error = self._find(member, request)
        if dataset is not None and not error:
            dataset.restoring = self._restoring()
            counting = not dataset.table.complete
            stale, left_out = dataset.counters.stale, dataset.counters.skipped
            now, step_epoch = self._job.clock.monotonic(), member.heartbeat.step_epoch
            reply = dataset.answer(member.incarnation, request, now, step_epoch)
            self._forgotten_late += dataset.counters.stale - stale
            if dataset.lost_leases:
                why = "it holds none of them: an answer was lost, or what it told of them"
                self._job.event(
                    "leases_returned", member.name, dataset=dataset.name, leases=dataset.lost_leases, reason=why
                )
                dataset.lost_leases = 0
            if (
                dataset.counters.skipped.bit_length() > left_out.bit_length()
            ):  # the first, and whenever there are twice as many
                self._job.event("records_skipped", member.name, dataset=dataset.name, records=dataset.counters.skipped)
            if counting and dataset.table.complete:
                self._job.replicate_soon()  # without the table nobody could tell what the trainers' leases mean
        else:
            reply = pb.DataReply(
                sequence=request.sequence,
                dataset=request.dataset,
                error=error,
                state=pb.DataReply.MORE,
                retry_seconds=1.0,
                undeclared=not error,
            )
        self._answers.append((member, reply))
        del self._answers[:-ANSWERS_MAX]
        self._soon()

    def _restoring(self) -> bool:
        """A run that was resumed, or lost PS: the chief has not said yet which checkpoint it restores.

        What is trained to the end now may not be then, and a worker that hears of an end goes home. Not for ever: a script
        may have no model at all.
        """
        job = self._job
        if job.cluster.live or self._went_back or not (job.resumed or job.cluster.generation > 1):
            self._not_live_since = None
            return False
        now = job.clock.monotonic()
        if self._not_live_since is None:
            self._not_live_since = now
        return now - self._not_live_since < RESTORING_SECONDS

    def _find(self, member: Member, request: pb.DataRequest) -> tuple[Dataset | None, str]:
        """The dataset, declared by this very request if need be; and what is wrong."""
        dataset = self._datasets.get(request.dataset)
        if not request.HasField("declare"):
            if dataset is None:
                log.warning("%s asks for dataset %r, which nobody has declared", member.name, request.dataset)
            return dataset, ""
        declared = request.declare
        self._declared_by.setdefault(request.dataset, set()).add(member.name)
        self._contents.setdefault(request.dataset, declared.content)
        if dataset is not None:
            if self._job.spec.resume and dataset.lengthen(declared):
                self._tables.redeclare(dataset)
                self._job.event("dataset", member.name, dataset=dataset.name, epochs=declared.epochs)
            self._compare_content(member, dataset, declared)
            return dataset, differences(dataset.declaration, declared)
        if request.dataset != declared.name:
            return None, f"the request is for dataset {request.dataset!r}, but declares {declared.name!r}"
        if error := check(declared):
            return None, error
        if self._job.suspects.has(member):
            return None, f"{member.name} has said what cannot be true: what it alone declares is not taken in"
        self._fold_old_passes()
        dataset = Dataset(declared, self._numbers, self._job.settings.shard_failures_max)
        self._datasets[dataset.name] = dataset
        self._job.event("dataset", member.name, dataset=dataset.name, files=len(declared.files), epochs=declared.epochs,
                        shuffle=declared.shuffle, purpose=declared.purpose or "train")  # fmt: skip
        if (sources := self._rebuilt.take(dataset.name)) is not None:
            whole = rebuild(dataset, sources)
            self._job.event("ledger_recalled", dataset=dataset.name, leases=whole, trained=dataset.visits.trained,
                            repeated=dataset.repeated)  # fmt: skip
        elif (start := self._unused.pop(dataset.name, None)) is not None:
            self._warn(dataset.name, dataset.start_at(start))
            self._save_unused()
        return dataset, ""

    def _compare_content(self, member: Member, dataset: Dataset, declared: pb.Dataset) -> None:
        """Each process reads the records that it leases in its own copy of them."""
        if declared.content == self._contents[dataset.name]:
            return
        text = (
            "gives fit other records than the process that did so first: each number is trained once an epoch, by one process, "
            "as it stands there, so some records are trained several times, others never, and what the chief "
            "holds back for a test may be trained elsewhere"
        )
        remedy = (
            "load the same records everywhere (seed what is random: train_test_split(random_state=...), and "
            "do not divide them by worker), or give fit a tf.data.Dataset of each process's "
            "own that ends with .take(-1)"
        )
        self.notice(member.name, pb.Notice(code="other-records", text=text, remedy=remedy), member.incarnation)

    def end_of_epoch(self, member: Member, request: pb.EpochRequest) -> pb.EpochReply:
        """Of a dataset that is read in turn. What the chief says an epoch came to is in the store when this returns."""
        chief = member.role == pb.CHIEF
        if request.HasField("restored") and not request.dataset and chief and self._job.spec.sums:
            back = self._all_go_back(request.restored, sure=request.begins)
            return pb.EpochReply(rewinds=int(bool(back)), begun=back is not None)
        dataset = self._datasets.get(request.dataset)
        if dataset is None or (self._job.resumed and not self._job.spec.sums and self._restoring()):
            # What is over is not known before the chief has restored; without PS it is, and the chief asks before it does.
            return pb.EpochReply()
        if request.came_to and not chief:
            self._job.suspects.note(member, "it says what an epoch came to, which is the chief's to say")
        if request.begins and not chief:
            self._job.suspects.note(member, "it says that the chief begins, which is the chief's to say")
        if request.HasField("restored") and chief and self._job.spec.sums:
            self._go_back(dataset, request.restored)
            return pb.EpochReply(rewinds=dataset.counters.rewinds)
        before, begun, now = len(dataset.ends.came_to), dataset.ends.begun, self._job.clock.monotonic()
        reply = dataset.end_of_epoch(member.incarnation, request, chief, now)
        if dataset.ends.late:
            names = [one.name for one in self._job.members if one.incarnation in dataset.ends.late]
            text = f"dataset {dataset.name!r}: epoch {request.epoch} ends without the figures of {', '.join(sorted(names))}"
            self._job.event("warning", member.name, text=text)
            dataset.ends.late.clear()
        if len(dataset.ends.came_to) != before:
            self._job.event("epoch_ended", member.name, dataset=dataset.name, number=len(dataset.ends.came_to) - 1)
            self._job.replicate_soon()
            self._flush_now()
        elif dataset.ends.begun != begun:
            self._flush_now()
        return reply

    def distrust(self, name: str) -> None:
        """This role has said what cannot be true: a dataset that it alone has declared, and that nobody trains, goes."""
        store = self._job.store
        for dataset in list(self._datasets.values()):
            if self._declared_by.get(dataset.name) == {name} and not dataset.counters.acknowledged:
                try:
                    with store.transaction():
                        self._tables.remove(dataset.name)
                except sqlite3.Error as error:
                    log.warning("dataset %r of a suspect stays for now: %s", dataset.name, error)
                    self._tables.rolled_back()
                    continue
                del self._datasets[dataset.name]
                self._job.event("dataset_dropped", name, dataset=dataset.name)

    def _fold_old_passes(self) -> None:
        """Each evaluation is a dataset of its own: of those that are over, only the sums are kept."""
        now = self._job.clock.monotonic()
        passes = [dataset for dataset in self._datasets.values() if not dataset.trains]
        over = [one for one in passes[:-PASSES_KEPT] if one.idle_seconds(now) > PASS_IDLE_SECONDS]
        if not over:
            return
        store = self._job.store
        totals = store.get(report.FOLDED_KEY, {})
        try:
            with store.transaction():
                for dataset in over:
                    report.fold(totals, dataset)
                    self._tables.remove(dataset.name)
                store.put(**{report.FOLDED_KEY: totals})
        except sqlite3.Error as error:
            log.warning("old evaluations stay in the data ledger for now: %s", error)
            self._tables.rolled_back()
            return
        for dataset in over:
            del self._datasets[dataset.name]

    # ------------------------------------------------------------------------------------------------ group commit

    def _soon(self, seconds: float = GROUP_SECONDS) -> None:
        self._dirty = True
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(seconds, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        try:
            self._save()
        except sqlite3.Error as error:
            if not self._broken:
                log.error("the data ledger cannot be written: %s; agents go on with what they hold", error)
            self._broken = str(error)
            self._tables.rolled_back()
            self._soon(WRITE_AGAIN_SECONDS)
            return
        self._broken = ""
        self._job.store.after_commit(self._is_saved)

    def _is_saved(self) -> None:
        """It is on the disk: now they may hear of it."""
        if self._forgotten_late:
            self.forgotten_late(self._forgotten_late)
            self._forgotten_late = 0
        self._checkpoint()
        self._hint()
        answers, self._answers = self._answers, []
        for member, reply in answers:
            member.outbox.put(pb.MasterMessage(aimaster_incarnation=self._job.incarnation, data=reply))
        self._troubles()

    def _save(self) -> None:
        """Raises sqlite3.Error; then nothing is written, and what has changed is still known."""
        store = self._job.store
        changed = [dataset for dataset in self._datasets.values() if dataset.is_changed]
        with store.transaction():
            for dataset in changed:
                self._tables.save(dataset)
            if self._saved_lease != self._numbers.last:
                self._tables.save_numbers(self._numbers)
            self._rebuilt.save()
            self._remember()
        for dataset in changed:
            dataset.saved()
        self._saved_lease = self._numbers.last
        self._dirty = False

    def _checkpoint(self) -> None:
        now = self._job.clock.monotonic()
        if now - self._checkpointed < CHECKPOINT_SECONDS or (self._checkpointing and not self._checkpointing.done()):
            return
        self._checkpointed = now
        self._checkpointing = asyncio.get_running_loop().run_in_executor(None, self._job.store.checkpoint)
        self._checkpointing.add_done_callback(
            lambda future: future.cancelled() or future.exception()
        )  # it is tried again

    def _hint(self) -> None:
        """Tells those who wait that there is something."""
        restoring = self._restoring()
        self.look()
        for dataset in self._datasets.values():
            dataset.restoring = restoring
            if waiting := dataset.waiting():
                self._push(dataset, waiting)

    def look(self) -> None:
        """Call it now and then: who waits for leases says nothing meanwhile, and who sits on them neither."""
        if not self._job.cluster.live or self._job.cluster.lost:
            return
        now = self._job.clock.monotonic()
        busy = {member.incarnation for member in self._job.members if member.is_busy(now)}
        for dataset in self._datasets.values():
            if stalled := dataset.take_back_stalled(now, busy):
                self._take_back(dataset, stalled, busy)

    def _take_back(self, dataset: Dataset, stalled: Iterable[str], busy: Collection[str]) -> None:
        """Who is busy is late, and no liar."""
        members = {member.incarnation: member for member in self._job.members}
        for who in stalled:
            what = f"it holds records of dataset {dataset.name!r}, trains nothing of them, and others wait for them"
            if (member := members.get(who)) is None:
                continue
            if who in busy:
                self._job.event("warning", member.name, text=f"{what}: it is busy with something else, and loses them")
            else:
                self._job.suspects.note(member, what)
        self._soon()

    def _push(self, dataset: Dataset, incarnations: Iterable[str]) -> None:
        members = {member.incarnation: member for member in self._job.members}
        hint = dataset.hint()
        for incarnation in incarnations:
            if (member := members.get(incarnation)) is not None:
                self._answers.append((member, hint))

    def _troubles(self) -> None:
        for dataset in self._datasets.values():
            while dataset.troubles:
                trouble = dataset.troubles.pop(0)
                if trouble.fatal:
                    self._job.end("failed", trouble.error)
                else:
                    self._job.event("set_aside", dataset=dataset.name, what=trouble.what, error=trouble.error)

    # ------------------------------------------------------------------------------------------------ positions

    def position(self) -> bytes:
        """What is trained for sure, of all datasets that are trained on; for checkpoints and backups. Never empty."""
        trained = {name: dataset.position() for name, dataset in self._datasets.items() if dataset.trains}
        return positions.pack({**self._rebuilt.positions(), **self._unused, **trained})

    def rewind(self, position: bytes, resumed: bool = False) -> None:
        """The model was restored from a checkpoint or backup with this position: what was trained since is forgotten.

        Empty: nothing is trained. All leases of datasets that are trained on are void, and their holders are told. Bytes
        that are no position: training begins anew with the data, and a warning says so, since that loses nothing.

        Args:
          resumed: it is the first model of a run that was resumed.
        """
        job = self._job
        try:
            found = positions.unpack(position)
        except PositionError as error:
            job.event("warning", text=f"{error}; all data is trained again")
            found = {}
        self._rebuilt.clear()
        trained = [dataset for dataset in self._datasets.values() if dataset.trains]
        for dataset in trained:
            self._rewind(dataset, found.pop(dataset.name, None))
            if resumed:
                dataset.resume()
        self._unused = found
        self._save_unused()
        self._rewound(trained)

    def _go_back(self, dataset: Dataset, position: bytes) -> None:
        """The model of a job without PS is as its chief kept it with this position, or, without one, as its script has it. An
        epoch that is to be trained again is over only where the chief has said what it came to."""
        try:
            found = positions.unpack(position) if position else {}
        except PositionError as error:
            self._job.event("warning", text=f"{error}; all data is trained again")
            found = {}
        there = [one for one in self._datasets.values() if one.trains and (one is dataset or one.name in found)]
        for one in there:
            self._rewind(one, found.get(one.name))
            one.not_reached()
        self._rewound(there)

    def _all_go_back(self, position: bytes, *, sure: bool) -> bool | None:
        """The model of a job without PS is as its chief has kept it with this position, unless somebody is there who has
        trained, and so has a newer one: whether it is. None: that is not known yet, for some are still to come back.

        Args:
          sure: it has summed with who is there, and nobody has.
        """
        members = self._job.members
        if members.are_training and not sure:
            return False if members.one_has_trained else None
        self.rewind(position)
        self._went_back = True
        return True

    def _rewind(self, dataset: Dataset, position: Position | None) -> None:
        before = dataset.visits.trained
        self._warn(dataset.name, dataset.rewind(position, self._job.clock.monotonic()))
        self._job.event("ledger_rewound", dataset=dataset.name, trained=dataset.visits.trained, before=before)

    def _rewound(self, datasets: Sequence[Dataset]) -> None:
        for dataset in datasets:
            self._push(dataset, list(dataset.holders))
        self._soon()
        self._flush_now()
        self._job.replicate_soon()

    def model_is_live(self) -> None:
        """Those who were kept waiting for it are told."""
        self._soon()

    def _save_unused(self) -> None:
        self._job.store.put_blob(UNUSED_KEY, positions.pack(self._unused) if self._unused else b"")

    def _warn(self, name: str, problem: str) -> None:
        if problem:
            self._job.event("warning", text=f"dataset {name!r}: the position that was stored with the model cannot be used "
                            f"({problem}); all of its data is trained again")  # fmt: skip

    def _flush_now(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flush()

    # ------------------------------------------------------------------------------------------------ deaths

    def release(self, incarnation: str, why: str = "", *, clean: bool = False) -> None:
        """This incarnation trains no more: its leases return at once. `clean`: it said goodbye, after its last progress."""
        if not incarnation:
            return
        now = self._job.clock.monotonic()
        self._rebuilt.release(incarnation)
        self._job.replicate_soon()  # who goes takes its knowledge along
        for dataset in self._datasets.values():
            count = dataset.release(incarnation, now, clean=clean)
            if count:
                self._job.event("leases_returned", dataset=dataset.name, leases=count, reason=why)
                self._soon()

    def keep_only(self, incarnations: Iterable[str]) -> None:
        """After a restart of the AIMaster: leases of those who did not come back return."""
        kept = set(incarnations)
        held = {
            one for dataset in self._datasets.values() for one in dataset.visits.holders()
        } | self._rebuilt.holders()
        for incarnation in sorted(held - kept):
            self.release(incarnation, "it did not come back after the AIMaster's restart")

    def forgotten(self, seconds_ago: float) -> int:
        """A promotion went back in time by so much: all records acknowledged since are stale. Returns how many.

        Progress comes about every half second. So what trainers tell until they have made a step in the view after the
        promotion, and once more, is stale as well (`forgotten_late`): some of it was trained before the loss. An AIMaster
        that dies in that half second forgets to count it.
        """
        moment, total = self._job.clock.monotonic() - seconds_ago - HISTORY_SECONDS, self._acknowledged
        before = [acknowledged for time, acknowledged in self._history if time <= moment]
        known = before[-1] if before else self._history[0][1] if self._history else total
        count = max(0, total - known)
        rest = count
        for dataset in self._datasets.values():  # mostly there is one
            if dataset.trains:
                share = min(rest, dataset.counters.acknowledged)
                dataset.forget(share)
                dataset.forget_late(self._job.cluster.epoch)
                rest -= share
        self._soon()
        return count

    @property
    def _acknowledged(self) -> int:
        return sum(dataset.counters.acknowledged for dataset in self._datasets.values() if dataset.trains)

    def _remember(self) -> None:
        """A point of the history; now and then all of the last minute into the store."""
        now = self._job.clock.monotonic()
        if self._history and now - self._history[-1][0] < HISTORY_SECONDS:
            return
        self._history.append((round(now, 3), self._acknowledged))
        if now - self._history_saved >= 1.0:
            self._history_saved = now
            behind = self._job.clock.wall() - now
            recent = [(time + behind, total) for time, total in list(self._history)[-10 * _STORED_HISTORY :: 10]]
            self._job.store.put(**{_HISTORY_KEY: recent})

    # ------------------------------------------------------------------------------------------------ for lost stores

    def replica(self) -> dict[str, bytes]:
        """What a few PS keep for an AIMaster that has lost its store: see `rebuild`."""
        replicas, tables = self._rebuilt.replicas(), self._rebuilt.tables()
        for name, dataset in self._datasets.items():
            if dataset.trains:
                replicas[name] = replica_of(dataset)
                if dataset.table.complete and name not in self._tables_packed:
                    self._tables_packed[name] = pack_table(dataset)
                tables[name] = self._tables_packed.get(name, b"")
        found = {REPLICA: pack_replica(replicas, self._unused, self._numbers.last)} if replicas or self._unused else {}
        return {**found, **{TABLE + name: table for name, table in tables.items() if table}}

    # ------------------------------------------------------------------------------------------------ the rest

    def status(self) -> list[pb.DataStatus]:
        return report.status(self._datasets)

    def close(self) -> None:
        """Writes what is not written; answers that were not sent are asked for again."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._dirty:
            try:
                self._save()
            except sqlite3.Error:
                log.exception("the last changes of the data ledger could not be written")
