"""One dataset of the ledger: the answer to a request, deaths, rewinds, and the counters. Pure: time is an argument.

Everything a request says is cumulative or idempotent, so a request that is sent again (its answer was lost with a stream, or
with an AIMaster) does no harm: progress is a maximum, and leases of the same sequence number are given again as they are. An
agent sends a request until it is answered before it sends the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger.ends import Ends
from deeprec_ext.aimaster.ledger.files import ShardTable, from_scan
from deeprec_ext.aimaster.ledger.leasing import BUSY_SECONDS, SCANS_MAX, STALLED_SECONDS, Holder, may_have, share
from deeprec_ext.aimaster.ledger.position import Position
from deeprec_ext.aimaster.ledger.visits import SCAN, Changes, Numbers, Visit, Visits
from deeprec_ext.errors import UsageError
from deeprec_ext.order import shard_seed
from deeprec_ext.proto import deeprec_ext_pb2 as pb

RETRY_SECONDS = 1.0
OTHERS_SECONDS = 10.0
"""What one process alone cannot read is for the others so long; they ask every second when they have nothing else."""

ERROR_MAX = 2000


@dataclass
class Counters:
    """Records; persistent. What is not counted here is computed from the visits."""

    acknowledged: int = 0  # ever, also again after a rewind
    unsure: int = 0  # perhaps trained by processes that died, after their last acknowledgement
    rewound: int = 0  # trained again after a rewind took them back
    to_repeat: int = 0  # taken back by a rewind and not trained again yet
    stale: int = 0
    rewinds: int = 0
    skipped: int = 0  # of what counts as done: damaged and left out
    unsure_least: int = 0  # of `unsure`: surely trained


@dataclass(frozen=True)
class Trouble:
    """A shard or a file that kept failing."""

    what: str
    error: str
    fatal: bool


@dataclass
class Dataset:
    """State of one dataset; whoever changes it persists `visits.changes` and the rest."""

    declaration: pb.Dataset
    numbers: Numbers
    failures_max: int = 3
    counters: Counters = field(default_factory=Counters)
    replayed: dict[str, int] = field(default_factory=dict)  # incarnation -> records, told by it
    replayed_changes: set[str] = field(default_factory=set)
    failures: dict[str, int] = field(default_factory=dict)  # shard or file -> how often
    failed_by: dict[str, set[str]] = field(default_factory=dict)  # the same -> incarnations; of this AIMaster's time
    kept_back: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # of these, what is for others than who has failed
    others_until: dict[str, float] = field(default_factory=dict)  # monotonic; until when
    error: str = ""
    told_end: bool = False  # somebody was told that everything is trained
    restoring: bool = False  # the model may go back, and the data with it: nobody is told of an end
    pending: Position | None = None  # applied when all files are counted
    troubles: list[Trouble] = field(default_factory=list)  # not yet told
    lost_leases: int = 0  # not yet told: taken back from who said that it holds none

    def __post_init__(self) -> None:
        self.table = ShardTable(self.declaration)
        self.visits = Visits(self.declaration, self.table, self.numbers)
        self.fingerprint = positions.fingerprint(self.declaration)
        self.holders: dict[str, Holder] = {}
        self.ends = Ends()
        self.changed = True  # anything but visits and files

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def trains(self) -> bool:
        return self.declaration.purpose in ("", "train")

    @property
    def is_changed(self) -> bool:
        """Whether something is not in the store."""
        return self.changed or bool(self.visits.changes) or bool(self.replayed_changes)

    def saved(self) -> None:
        """All of it is in the store, for good."""
        self.changed = False
        self.visits.changes = Changes()
        self.replayed_changes.clear()

    @property
    def ended(self) -> bool:
        return not self.error and not self.pending and self.visits.ended

    @property
    def trained(self) -> int:
        """Records of distinct visits that are trained: what was left out for damage is done, and not trained."""
        return self.visits.trained - self.counters.skipped

    @property
    def repeated_at_least(self) -> int:
        """Lower bound of them. Of steps that failed nobody knows whether they had trained."""
        return self.counters.unsure_least + self.counters.rewound

    @property
    def repeated(self) -> int:
        """Upper bound of the records that were trained more than once."""
        return sum(self.replayed.values()) + self.counters.unsure + self.counters.rewound

    def idle_seconds(self, now: float) -> float:
        """Since the last request; 0 while somebody holds a lease."""
        if self.visits.holders():
            return 0.0
        return now - max((holder.asked_at for holder in self.holders.values()), default=0.0)

    def lengthen(self, declared: pb.Dataset) -> bool:
        """A run that is resumed may have more epochs than before; nothing else may be different."""
        longer, before = pb.Dataset(), self.declaration.epochs
        longer.CopyFrom(self.declaration)
        longer.epochs, longer.content = declared.epochs, declared.content
        if longer != declared or before == 0 or 0 < declared.epochs <= before:
            return False
        self.declaration.epochs = self.visits.epochs_wanted = declared.epochs
        self.told_end, self.changed = False, True
        return True

    # ------------------------------------------------------------------------------------------------ requests

    def answer(self, incarnation: str, request: pb.DataRequest, now: float, step_epoch: int = 0) -> pb.DataReply:
        """Args:
        step_epoch: view in which this incarnation has begun the last step that it completed, as it said before.
        """
        holder = self.holders.get(incarnation)
        if holder is None:
            held = sum(visit.records for visit in self.visits.held(incarnation))
            holder = self.holders[incarnation] = Holder(incarnation, given=held + self.replayed.get(incarnation, 0))
        beyond = holder.beyond
        holder.asked(now, request.composed_seconds)
        holder.waiting, holder.beyond = False, request.beyond_records
        holder.handed = max(0, request.handed_records) if request.HasField("handed_records") else None
        if request.records_per_second > holder.rate_max:
            holder.rate_max = request.records_per_second
        reply = pb.DataReply(sequence=request.sequence, dataset=self.name)
        replayed = min(
            request.replayed_records, holder.given
        )  # more than it ever had in its hands it has not trained again
        if replayed > self.replayed.get(incarnation, 0):
            self.replayed[incarnation] = replayed
            self.replayed_changes.add(incarnation)
        if request.rewinds >= self.counters.rewinds:  # else it speaks of leases that are void, and learns so
            before = self.counters.acknowledged
            self._take_in(incarnation, request, reply, now)
            if holder.forgets_before:
                self.forget(self.counters.acknowledged - before)
                if step_epoch >= holder.forgets_before:
                    holder.forgets_before = 0
            if self.counters.acknowledged != before or request.beyond_records != beyond:
                holder.active_at = now
            if request.holds_none and request.sequence >= holder.sequence:
                self._take_back_lost(incarnation, request.sequence)
            if request.want > 0 and not self.error:
                self._hand_out(holder, request, reply, now)
        elif request.want > 0:
            reply.retry_seconds = 0.01
        holder.sequence = max(holder.sequence, request.sequence)
        self._say_state(holder, request, reply)
        return reply

    def _take_back_lost(self, incarnation: str, sequence: int) -> None:
        """It holds no lease, and has had the answers to all requests but this one: what is in its hands here was lost on the
        way, or it trained that and nobody heard of it."""
        visits = self.visits
        for visit in reversed(visits.held(incarnation)):
            if visit.sequence != sequence:
                self.counters.unsure += visit.left if visit.epoch != SCAN else 0
                visits.give_back(visit)
                self.lost_leases += 1
                self.changed = True

    def _take_in(self, incarnation: str, request: pb.DataRequest, reply: pb.DataReply, now: float) -> None:
        visits, counters = self.visits, self.counters
        for progress in request.progress:
            visit = visits.find(incarnation, progress.lease)
            if visit is None:
                reply.fenced.append(progress.lease)
                continue
            left_out = {place for place in progress.skipped if visit.done <= place < min(progress.done, visit.records)}
            gained = visits.acknowledge(visit, progress.done)
            if gained:
                counters.skipped += len(left_out)
                counters.acknowledged += gained
                again = min(gained, counters.to_repeat)
                counters.to_repeat -= again
                counters.rewound += again
                self.changed = True
        for lease in request.returned:
            if (visit := visits.find(incarnation, lease)) is not None:
                visits.give_back(visit)
            else:
                reply.fenced.append(lease)
        for scanned in request.scanned:
            if (visit := visits.find(incarnation, scanned.lease)) is not None and visit.epoch == SCAN:
                self._counted(visit, scanned, incarnation, now)
        for failure in request.failed:
            if (visit := visits.find(incarnation, failure.lease)) is not None:
                self._failed(visit, failure.error, incarnation, now)

    def _counted(self, visit: Visit, scanned: pb.Scanned, who: str, now: float) -> None:
        try:
            shards = from_scan(scanned.begins, scanned.records, scanned.end_byte)
        except UsageError as error:
            self._failed(visit, f"the file was counted wrongly: {error}", who, now)
            return
        self.table.set(visit.rank, shards)
        self.visits.counted(visit)
        if self.pending is not None and self.table.complete:
            self._apply(self.pending)

    def _failed(self, visit: Visit, error: str, who: str, now: float) -> None:
        """Somebody else may have better luck; but not for ever. Where others come for it in time, one process alone condemns
        nothing: it is kept back for them."""
        if visit.epoch == SCAN:
            key, what = f"file {visit.rank}", f"file {self._path(visit.rank)}"
        else:
            shard = self.visits.shard(visit.epoch, visit.rank)
            extent = self.table.extent(shard)
            first, last = extent.first_record, extent.first_record + extent.records - 1
            key, what = f"shard {shard}", f"shard {shard} (records {first} to {last} of {self._path(extent.file)})"
        failed = self.failed_by.setdefault(key, set())
        last = self.failures.get(key, 0) + 1 >= self.failures_max
        if last and failed == {who} and now < self._others_until(key, who, now):
            self.kept_back[key] = self.visits.keep_back(visit)
            return
        failed.add(who)
        self.failures[key] = self.failures.get(key, 0) + 1
        self.changed = True
        if self.failures[key] < self.failures_max:
            self.visits.give_back(visit, last=True)
            return
        text = f"dataset {self.name!r}: {what} failed {self.failures[key]} times: {error[:ERROR_MAX]}"
        if not self.declaration.set_aside:
            self.visits.give_back(visit, last=True)
            self.error = self.error or text
        elif visit.epoch == SCAN:
            self.table.set(visit.rank, from_scan([], [], 0))
            self.visits.counted(visit)
        else:
            self.visits.put_aside(visit)
        self.troubles.append(Trouble(what, text, not self.declaration.set_aside))

    def _others_until(self, key: str, who: str, now: float) -> float:
        """Until when it is for others than `who`: not at all where there are none."""
        others = any(one != who for one in self.holders)
        return self.others_until.setdefault(key, now + OTHERS_SECONDS) if others else now

    def _offer_kept_back(self, who: str, now: float) -> None:
        """What another process alone has failed at; and to that one as well once nobody else has come for it."""
        for key in list(self.kept_back):
            if any(one != who for one in self.failed_by[key]) or now >= self._others_until(key, who, now):
                self.visits.offer(self.kept_back.pop(key))

    def _path(self, file: int) -> str:
        return self.declaration.files[file].path or "the index range"

    # ------------------------------------------------------------------------------------------------ leases

    def _hand_out(self, holder: Holder, request: pb.DataRequest, reply: pb.DataReply, now: float) -> None:
        visits, who, sequence = self.visits, holder.incarnation, request.sequence
        again = []
        self._offer_kept_back(who, now)
        if sequence and (sequence <= holder.sequence or not holder.sequence):  # sent again, perhaps to another AIMaster
            again = [visit for visit in visits.held(who) if visit.sequence == sequence]
        held = visits.held(who)
        room = may_have(len(held), sum(visit.records for visit in held))
        wanted = min(request.want, room)
        need = request.need if request.HasField("need") else None
        of_data = sum(visit.epoch != SCAN for visit in held)
        fair = share(wanted, visits.todo(), len(self.holders), held=of_data, need=need)
        given = again or visits.lease(who, sequence, fair)
        holder.given += 0 if again else sum(visit.records for visit in given)
        if visits.counting and not again and len(given) < request.want:
            scanning = sum(visit.epoch == SCAN for visit in visits.held(who))
            files = share(request.want - len(given), self.table.uncounted, len(self.holders), SCANS_MAX)
            given += visits.lease_files(who, sequence, files - scanning)
        for visit in given:
            self._fill(reply.leases.add(), visit)

    def _fill(self, lease: pb.Lease, visit: Visit) -> None:
        lease.id = visit.lease
        if visit.epoch == SCAN:
            lease.kind, lease.file, lease.shard = pb.Lease.SCAN, visit.rank, -1
            return
        shard = self.visits.shard(visit.epoch, visit.rank)
        extent = self.table.extent(shard)
        lease.kind, lease.file, lease.shard, lease.epoch = pb.Lease.DATA, extent.file, shard, visit.epoch
        lease.rank = visit.rank
        lease.first_record, lease.records = extent.first_record, extent.records
        lease.begin_byte, lease.end_byte, lease.done = extent.begin_byte, extent.end_byte, visit.done
        if self.declaration.shuffle:
            lease.seed = shard_seed(self.declaration.seed, visit.epoch, shard)

    def _say_state(self, holder: Holder, request: pb.DataRequest, reply: pb.DataReply) -> None:
        reply.rewinds, reply.error, reply.complete = self.counters.rewinds, self.error, self.visits.complete
        self._note_reached()
        reply.state = self.state()
        if reply.state == pb.DataReply.END and not self.told_end:
            self.told_end = self.changed = True
        if reply.leases or reply.state == pb.DataReply.END or self.error or reply.retry_seconds:
            return
        if request.want > 0:
            holder.waiting = not request.HasField("need") or request.need > 0
            reply.retry_seconds = RETRY_SECONDS

    def state(self) -> pb.DataReply.State:
        """Without leases, MORE means: wait, files are being counted or a model is being restored."""
        if self.ended:
            return pb.DataReply.MORE if self.restoring and self.trains else pb.DataReply.END
        more = self.error or self.visits.counting or self.visits.available()
        return pb.DataReply.MORE if more else pb.DataReply.DRAINED

    def hint(self) -> pb.DataReply:
        """Pushed to those who wait: ask again."""
        return pb.DataReply(
            dataset=self.name, state=self.state(), error=self.error, rewinds=self.counters.rewinds,
            complete=self.visits.complete,
        )  # fmt: skip

    def waiting(self) -> list[str]:
        """Who is to be told now; once."""
        found = [holder for holder in self.holders.values() if holder.waiting]
        end = self.state() == pb.DataReply.END
        if not found or not (self.error or end or self.visits.available()):
            return []
        for holder in found:
            holder.waiting = False
        return [holder.incarnation for holder in found]

    def end_of_epoch(self, incarnation: str, request: pb.EpochRequest, chief: bool, now: float) -> pb.EpochReply:
        """What is known of an epoch that has ended for this process; see `ends`. `ends.late` are who was not waited for."""
        self._note_reached()
        before = len(self.ends.came_to), self.ends.begun, self.ends.passes
        reply = self.ends.answer(incarnation, request, chief, self.holders, now)
        self.changed = self.changed or (len(self.ends.came_to), self.ends.begun, self.ends.passes) != before
        return reply

    def _note_reached(self) -> None:
        if self.visits.complete > self.ends.reached:
            self.ends.reached, self.changed = self.visits.complete, True

    # ------------------------------------------------------------------------------------------------ deaths, rewinds

    def release(self, incarnation: str, now: float, *, clean: bool) -> int:
        """Its leases return, from their last progress on; returns how many. `clean`: it told its progress before it went."""
        if not clean:
            self._count_unsure(incarnation, now)
        self.holders.pop(incarnation, None)
        self.ends.gone(incarnation)
        return len(self.visits.release(incarnation))

    def take_back_stalled(self, now: float, busy: Collection[str] = ()) -> list[str]:
        """Leases of who trains nothing of them, while others wait for nothing else; whose they were.

        `busy`: incarnations that do something else, and come back to their leases.
        """
        if not any(holder.waiting for holder in self.holders.values()) or self.visits.available():
            return []
        found = []
        for who in self.visits.holders():
            holder = self.holders.setdefault(who, Holder(who))
            if holder.active_at is None:
                holder.active_at = now
            elif now - holder.active_at > (BUSY_SECONDS if who in busy else STALLED_SECONDS):
                self._count_unsure(who, now)
                self.visits.release(who)
                holder.active_at, self.changed = None, True
                found.append(who)
        return found

    def _count_unsure(self, incarnation: str, now: float) -> None:
        """Bounds of the records it has trained and not acknowledged."""
        holder = self.holders.get(incarnation) or Holder(incarnation)
        held = sum(visit.left for visit in self.visits.held(incarnation))
        others = max((one.rate_max for one in self.holders.values()), default=0.0)
        self.counters.unsure += holder.maybe_trained(held, now, others)
        self.counters.unsure_least += holder.surely_trained(held)
        self.changed = True

    def forget(self, records: int) -> None:
        """So many of the records acknowledged last were trained on slots that went back in time."""
        self.counters.stale += records
        self.changed = True

    def forget_late(self, epoch: int) -> None:
        """Who trains will tell of more such records: of all until it has made a step in this view and told again."""
        for holder in self.holders.values():
            holder.forgets_before = epoch

    def position(self) -> Position:
        if self.pending is not None:
            return dataclasses.replace(self.pending, fingerprint=self.fingerprint)
        return dataclasses.replace(positions.of_visits(self.visits, self.fingerprint), skipped=self.counters.skipped)

    def rewind(self, position: Position | None, now: float = 0.0) -> str:
        """Back to that, or to the beginning; returns why it could not be used (then to the beginning), or "".

        All leases are void; progress that comes for them is fenced.
        """
        problem = ""
        if position is not None and position.fingerprint != self.fingerprint:
            problem = "its files, shards or seed were others"
            position = None
        for holder in self.holders.values():
            holder.forgets_before = 0  # what is told of void leases does not count
        for incarnation in self.visits.holders():
            self._count_unsure(incarnation, now)
        before, self.pending, self.counters.skipped = self.visits.trained, None, 0
        self.visits.blocked = False
        self.visits.restore(0, 0, ())
        if position is not None and self._known(position):
            problem = self._apply(position)
        elif position is not None:
            self._wait(position)
        forgotten = max(0, before - self.visits.trained) if self.pending is None else 0
        self.counters.to_repeat += forgotten
        self.counters.rewinds += 1
        self.told_end, self.changed = False, True
        return problem

    def resume(self) -> None:
        """After a rewind, in a run whose processes are all new: the epochs of before that are trained again are not over."""
        passes = self.visits.complete if self.pending is None else self.pending.complete
        self.ends.back_to(passes, self.ends.begun and (self.pending is not None or self.visits.trained > 0))
        self.changed = True

    def not_reached(self) -> None:
        """After a rewind: an epoch that nobody has told of yet is over when its records are trained again."""
        passes = self.visits.complete if self.pending is None else self.pending.complete
        self.ends.reached = min(self.ends.reached, max(passes, self.ends.passes * len(self.ends.came_to)))
        self.changed = True

    def start_at(self, position: Position) -> str:
        """A dataset that nobody has leased from yet begins there. As `rewind`, but no lease can be void."""
        problem = self.rewind(position)
        self.counters.rewinds = 0
        return problem

    def _wait(self, position: Position) -> None:
        self.pending, self.visits.blocked = position, True
        self.visits.changes.everything = True

    def _known(self, position: Position) -> bool:
        """Whether its ranks mean the same shards now as they did: all files are counted, or those before the shards in it."""
        if self.table.complete or (position.complete == 0 and position.last_rank == 0):
            return True
        return not self.declaration.shuffle and position.complete == 0 and position.last_rank <= self.table.count

    def _apply(self, position: Position) -> str:
        self.pending, self.visits.blocked = None, False
        self.changed = True
        if position.last_rank > self.table.count:
            return f"it knows {position.last_rank} shards, there are {self.table.count}"
        self.visits.restore(position.complete, position.complete_aside, position.epochs)
        self.counters.skipped = min(position.skipped, self.visits.trained)
        return ""
