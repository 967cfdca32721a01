"""Who keeps the peer backup of which slot, and how old each is.

The holder of a slot's backup is a PS that is not its owner, on another host where there is one. The plan changes as little as
it can: a holder that stays has only dirty rows to fetch (`holder_plan`). What PS report is what counts (`copies`): who has a
complete copy, and since when updates are missing in it. Who has one keeps it until the planned holder has one as well, and a PS
that leaves stays as long.

A change of PS commits together with its backups: slots that stay keep theirs, and of one that moves the old owner keeps what it
has, which is exact at that moment (`hand_over`). From then on the copies of before do not count.

Marks. Peer and disk backups read dirty rows all the time, so while either is on, all tables are marked always: bitmaps are
made on every PS (`Track`), then the trainers get sessions that mark (`Mark`). A migration finds the marks there.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from deeprec_ext.aimaster.backups.copies import Copies, Held
from deeprec_ext.aimaster.backups.holders import TICK_SECONDS, Holders
from deeprec_ext.aimaster.backups.trainers import TrainerBackups
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.placement.holder_plan import plan_holders, tell_slot
from deeprec_ext.aimaster.placement.slots import slot_bytes, tracked
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

HOLDER = "peer backups"
RETRY_SECONDS = 5.0
TRACK_SECONDS = 60.0
AGAIN_SECONDS = 1.0
"""A holder that could not be told yet, because two others have read the slot, is told so much later: they have stopped."""


class PeerBackups(Holders):
    """`job.peer_backups`. Changes nothing while slots are being moved."""

    def __init__(self, job: JobState, copies: Copies, trainers: TrainerBackups) -> None:
        super().__init__(job)
        self.copies, self._trainers = copies, trainers
        self.assigned: dict[int, int] = {}
        """slot -> task of the planned holder."""
        self._sent_for: object = None  # what the present assignment was made for
        self._told: dict[int, tuple[int, dict[int, str]]] = {}  # slot -> its owner, and who reads it as whom
        self._told_in = 0  # the generation of which that is
        self._since: dict[tuple[int, int], int] = {}  # (slot, task) told -> id of the first Guard whose reports count
        self._until_then: dict[int, int] = {}  # slot -> who keeps its copy only until the planned holder has one
        self._again_at = math.inf  # somebody could not be told
        self._marked = False  # trainers have answered this AIMaster that they mark
        self._news = False  # reports came since the view was last looked at

    # ------------------------------------------------------------------------------------------------ what others ask

    @property
    def wanted(self) -> bool:
        """Whether there shall be peer backups now."""
        return self._job.choices.peer and len(self._job.cluster.ps) > 1

    @property
    def marks_wanted(self) -> bool:
        """Whether somebody reads dirty rows all the time."""
        return self.wanted or bool(self._job.choices.disk_path) or self._trainers.alone

    def usable(self, slot: int) -> Held | None:
        """The copy from which this slot can be promoted now."""
        return self.copies.usable(slot, self.assigned.get(slot, -1))

    def anywhere(self, slot: int) -> Held | None:
        """The same, unless a PS that leaves has a much fresher one, which can be fetched."""
        held, best = self.usable(slot), self.copies.anywhere(slot)
        return held if held is not None and best is not None and self.copies.as_good(held.since, best) else best

    def needed(self) -> set[int]:
        """Slots that have variables: the others need no backup."""
        return self._job.variable_slots()

    def backup_map(self) -> tuple[int, ...]:
        """[S] who would take over each slot; empty while a slot with variables has no copy, or nobody could."""
        job = self._job
        rest = [ps.task for ps in job.cluster.ps if ps.name not in job.cluster.lost]
        needed = self.needed()
        if len(rest) < 2 or not needed or any(self._covered_by(slot) is None for slot in needed):
            return ()
        takers = []
        for slot, owner in enumerate(job.cluster.slot_map):
            held, planned = self.usable(slot), self.assigned.get(slot, -1)
            if held is not None and planned not in self._telling(slot):
                planned = held.task
            takers.append(planned if planned in rest and planned != owner else next(t for t in rest if t != owner))
        return tuple(takers)

    def _telling(self, slot: int) -> Collection[int]:
        """Who has been told to have a copy of this slot."""
        return self._told.get(slot, (-1, {}))[1]

    def _covered_by(self, slot: int) -> float | None:
        """monotonic, of the freshest copy that anybody has, a holder as well."""
        held, copy = self.anywhere(slot), self._trainers.usable(slot)
        return max((one.since for one in (held, copy) if one is not None), default=None)

    def held_only_by(self, tasks: Collection[int]) -> list[int]:
        """Slots of which these PS alone have a fresh copy: they must not go yet."""
        found = []
        for slot in self.needed():
            best = self.anywhere(slot)
            if best is None or best.task not in tasks:
                continue
            copy = self._trainers.steady(slot)
            if copy is None or not self.copies.as_good(copy.since, best):
                found.append(slot)
        return sorted(found)

    def published(self, slot: int) -> int:
        """Who would take this slot over, as trainers know it; -1 unknown."""
        known = self._job.backup_map
        return known[slot] if slot < len(known) else -1

    def age_seconds(self, slots: Iterable[int]) -> float:
        """How old the oldest of these copies is."""
        now = self._job.clock.monotonic()
        return max((now - held.since for slot in slots if (held := self.anywhere(slot)) is not None), default=0.0)

    def status(self, message: pb.BackupStatus) -> None:
        message.peer = self.wanted or self._trainers.alone
        if message.peer:
            message.unprotected_slots.extend(sorted(slot for slot in self.needed() if self._covered_by(slot) is None))
            now = self._job.clock.monotonic()
            since = [moment for slot in self.needed() if (moment := self._covered_by(slot)) is not None]
            message.oldest_seconds = now - min(since, default=now)
        message.error = message.error or self.error
        message.bytes_sent, message.refreshes = self.bytes_sent, self.refreshes
        self._trainers.status(message)

    # ------------------------------------------------------------------------------------------------ what PS report

    def report(self, member: Member, report: pb.BackupReport) -> None:
        job = self._job
        if member.role != pb.PS:
            return
        expected = self._situation() != self._sent_for or bool(job.cluster.lost)  # its owner is gone, or has moved
        if not self._is_refreshed(member, report, "a peer backup", expected=expected):
            return
        told = [slot for slot in report.slots if self._counts(slot, member.task, report.guard)]
        self.copies.reported(member, told, report)
        self._news = True
        if job.cluster.lost:
            job.changed.notify()  # a promotion may be waiting for it

    def _counts(self, slot: int, task: int, guard: int) -> bool:
        """Whether a copy that is told of is there: who was told to keep none any more may have said so before it heard."""
        if slot not in self._told:  # nobody has been told yet by this AIMaster
            return True
        if self._told_in != self._job.cluster.generation:
            return False
        return task in self._telling(slot) and guard >= self._since.get((slot, task), 0)

    def _tell(self) -> None:
        """Events, and the view with who would take over, when that changed."""
        job, slots = self._job, range(len(self._job.cluster.slot_map))
        complete = bool(self.backup_map()) and self.wanted
        self._tell_figures(complete, self.wanted, lambda: self.age_seconds(slots))
        if self.backup_map() != job.backup_map and not job.lock.held(Hold.VIEWS) and not job.cluster.lost:
            job.backup_map = self.backup_map()
            job.publish()

    # ------------------------------------------------------------------------------------------------ keeping them up

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            if self._news:
                self._news = False
                self._tell()
            try:
                await self._once()
            except CommandError as error:
                self.error = str(error)
                log.warning("peer backups: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self._job.lock.give_back(HOLDER, Hold.MARKS)
            await asyncio.sleep(TICK_SECONDS)

    def _situation(self) -> object:
        """Another one needs another assignment."""
        job = self._job
        cluster = job.cluster
        placed = cluster.ps, cluster.slot_map, cluster.generation, job.catalogue.fingerprint
        chosen = job.choices.disk_path, job.choices.peer_seconds, job.choices.peer_steps > 0
        return placed, self.wanted, self.marks_wanted, chosen

    def _ready(self) -> bool:
        job = self._job
        if not job.quiet(Hold.VIEWS, Hold.GATE, Hold.SLOTS):
            return False
        everybody = len(self._ps()) == len(
            job.cluster.ps
        )  # after its restart this AIMaster waits until they have registered
        return bool(job.catalogue.fingerprint) and everybody

    async def _once(self) -> None:
        job = self._job
        situation = self._situation()
        if situation != self._sent_for:
            if not self._ready() or (not job.marks_on and job.lock.held(Hold.CHANGE)):
                return
            if self.marks_wanted and not (job.marks_on and self._marked):
                job.lock.take(HOLDER, Hold.MARKS)
                await self._mark()
                self._marked = True
            if not self._ready() or situation != self._situation():
                return
            self.assign()
        elif self._ready() and (self._replaced() or job.clock.monotonic() >= self._again_at):
            self.assign()
        elif not self.wanted or job.lock.held(Hold.GATE) or job.cluster.lost or job.ending:
            return
        elif self._is_due():
            job.send({member.name: member for member in self._ps().values()}, refresh=pb.Refresh())

    def _replaced(self) -> bool:
        """Whether somebody need not keep a copy any more: the planned holder, or the holder of a single PS, has it as well."""
        for slot, task in self._until_then.items():
            held, copy = self.copies.anywhere(slot), self._trainers.steady(slot)
            planned = self.assigned.get(slot, -1)
            by_holder = (
                planned == -1 and held is not None and copy is not None and self.copies.as_good(copy.since, held)
            )
            if held is None or by_holder or (planned not in (-1, task) and self.copies.fresh(slot, planned)):
                return True
        return False

    def _ps(self) -> dict[int, Member]:
        """task -> PS of the view that are there."""
        found = {}
        for ps in self._job.cluster.ps:
            member = self._job.members.get(ps.name)
            if member is not None and member.admitted and member.task == ps.task:
                found[ps.task] = member
        return found

    async def _mark(self) -> None:
        """Bitmaps everywhere, then sessions that mark. Cheap when both are there."""
        job, catalogue = self._job, self._job.catalogue
        slots = range(len(job.cluster.slot_map))
        track = {}
        for task, member in self._ps().items():
            mine = [v for v in catalogue.variables if v.bitmap and job.cluster.slot_map[v.slot] == task]
            track[member.name] = job.commander.send(member.outbox, track=pb.Track(variables=mine))
        await commands.gather(track, TRACK_SECONDS, "Track")
        job.set_marked(tuple(slots))  # who registers from now on marks from the start
        mark = pb.Mark(slots=slots, tracked=tracked(catalogue.variables, slots))
        trainers = job.members.trainers()
        await commands.gather(
            job.send(trainers, mark=mark), job.settings.prepare_limit_seconds, "Mark", may_die=trainers
        )
        if not job.marks_on:
            job.marks_are_on(catalogue)
            job.event("marks_on", slots=len(job.cluster.slot_map))

    def assign(self) -> None:
        """Plans, and tells everybody."""
        self.plan()
        self.tell()

    def plan(self) -> None:
        """For the present view; a change that commits tells trainers of it before it tells the holders."""
        job, present = self._job, self._ps()
        self.copies.follow()
        cluster, alive = job.cluster, {**present, **self.copies.leaving()}
        sizes = slot_bytes(job.catalogue.variables, len(cluster.slot_map))
        hosts = {task: member.place for task, member in present.items()}
        if len(set(hosts.values())) == 1:
            hosts = dict.fromkeys(hosts, "")
        best = {slot: held for slot in range(len(sizes)) if (held := self.copies.anywhere(slot)) is not None}
        now = {slot: task for slot, task in self.assigned.items() if self._reads(slot, task) and task in present}
        now |= {slot: one.task for slot, held in best.items() if (one := self.usable(slot) or held).task in present}
        self.assigned = plan_holders(sizes, cluster.slot_map, hosts, now) if self.wanted else {}
        told: dict[int, tuple[int, dict[int, str]]] = {}
        since: dict[tuple[int, int], int] = {}
        self._until_then, self._again_at = {}, math.inf
        for slot in self.needed():
            owner, planned = cluster.slot_map[slot], self.assigned.get(slot, -1)
            kept = self._kept(slot, planned, best.get(slot))
            before = {task: reader for task, reader in self._told.get(slot, (-1, {}))[1].items()
                      if self._told[slot][0] == owner and task in alive}  # fmt: skip
            to_tell = tell_slot(planned, kept, self.copies.reader(slot, kept), before)
            told[slot] = owner, dict(to_tell.readers)
            for task in to_tell.readers:
                goes_on = self.copies.has(slot, task) or (task in before and self._told_in == cluster.generation)
                since[slot, task] = self._since.get((slot, task), 0) if goes_on else self._next_id
            if to_tell.until_then != -1:
                self._until_then[slot] = to_tell.until_then
            if planned != -1 and planned not in to_tell.readers:
                self._again_at = job.clock.monotonic() + AGAIN_SECONDS
        self._told, self._told_in, self._since = told, cluster.generation, since
        self.copies.keep_only({slot: readers for slot, (_, readers) in told.items()})
        self._sent_for = self._situation()

    def _reads(self, slot: int, task: int) -> bool:
        owner, readers = self._told.get(slot, (-1, {}))
        return owner == self._job.cluster.slot_map[slot] and task in readers

    def _kept(self, slot: int, planned: int, best: Held | None) -> int:
        """Task of who has the copy of the slot that counts now; -1: nobody needs to keep one."""
        if best is None or not self._job.choices.peer:
            return -1
        if planned == -1:  # a single PS: its holder is to have it
            copy = self._trainers.steady(slot)
            enough = not self._trainers.allowed or (copy is not None and self.copies.as_good(copy.since, best))
            return -1 if enough else best.task
        return planned if self.copies.fresh(slot, planned) else best.task

    def tell(self) -> None:
        """Guard to every PS, as it was planned."""
        job, cluster = self._job, self._job.cluster
        for task, member in {**self._ps(), **self.copies.leaving()}.items():
            slots = {slot: readers[task] for slot, (_, readers) in self._told.items() if task in readers}
            guard = self._guard(slots)
            guard.owned.extend(slot for slot, owner in enumerate(cluster.slot_map) if owner == task)
            job.commander.send(member.outbox, guard=guard)
        self._refreshed_step = job.members.step
        self._tell()

    def _guard(self, readers: Mapping[int, str]) -> pb.Guard:
        """The next one: slot -> as whom it is read."""
        job, cluster = self._job, self._job.cluster
        self._guard_id = self._next_id
        moves = [
            pb.Move(variable=variable, source_task=cluster.slot_map[variable.slot])
            for variable in job.catalogue.variables
            if variable.slot in readers
        ]
        return pb.Guard(
            id=self._guard_id, moves=moves, ps=[one.to_proto() for one in cluster.ps],
            seconds=0.0 if job.choices.peer_steps else job.choices.peer_seconds, global_step=job.catalogue.global_step,
            next_slots=[slot for slot, reader in readers.items() if reader == "next"], generation=cluster.generation,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ changes of PS

    @property
    def kept_in_changes(self) -> bool:
        """Whether the old owners of slots that move keep what they have as backups: dirty rows must be marked all the time."""
        return self._job.choices.peer and self._job.marks_on

    def hand_over(self, old_map: Sequence[int]) -> dict[int, pb.Guard]:
        """The view has changed: what each old owner of a slot that has moved is to keep, by its task."""
        job = self._job
        now, needed = job.cluster.slot_map, self.needed()
        moved = [slot for slot in sorted(needed) if old_map[slot] != now[slot]]
        kept: dict[int, pb.Guard] = {}
        if not self.kept_in_changes:
            return kept
        first = self._next_id
        if self._told_in != job.cluster.generation:  # of another model, or nothing yet by this AIMaster
            self._told, self._since, self._told_in = {}, {}, job.cluster.generation
        for task in sorted({old_map[slot] for slot in moved}):
            slots = [slot for slot in moved if old_map[slot] == task]
            kept[task] = self._guard(dict.fromkeys(slots, "peer"))
            for slot in slots:
                self._told[slot] = now[slot], {task: "peer"}
                self._since[slot, task] = first
        self.copies.moved(moved, first)
        return kept
