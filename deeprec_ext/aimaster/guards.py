"""Who keeps the peer backup of which slot, and how old each is.

A guard of a slot is a PS that is not its owner, on another host where there is one. The plan changes as little as it can:
a guard that stays has only dirty rows to fetch. What a PS reports is what counts: `held` maps a slot to the PS that has a
complete copy and to the moment since which updates are missing in it. A promotion uses nothing else.

Marks. Peer and disk backups read dirty rows all the time, so while either is on, all tables are marked always: bitmaps are
made on every PS (`Track`), then the trainers get sessions that mark (`Mark`). A migration finds the marks there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deeprec_ext.aimaster import commands
from deeprec_ext.aimaster.commands import CommandError
from deeprec_ext.aimaster.members import Member
from deeprec_ext.aimaster.slots import slot_bytes, tracked
from deeprec_ext.proto import deeprec_ext_pb2 as pb

if TYPE_CHECKING:
    from deeprec_ext.aimaster.job import Job

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
EVENT_SECONDS = 60.0
"""How often the sum of all refreshes is written as an event; single ones would be thousands an hour."""

RETRY_SECONDS = 5.0
TRACK_SECONDS = 60.0


@dataclass(frozen=True)
class Held:
    """A complete copy of one slot."""

    task: int
    incarnation: str
    since: float  # monotonic: it has every update before that


def plan_guards(
    sizes: Sequence[int], slot_map: Sequence[int], hosts: Mapping[int, str], present: Mapping[int, int]
) -> dict[int, int]:
    """slot -> task of its guard, for every slot; empty with a single PS. Pure.

    Largest slots first, each to the least loaded PS that is not its owner; another host before the same one, and the
    present guard before others as long as that costs it no more than a fair share.

    Args:
        sizes: [S] bytes of each slot.
        slot_map: [S] owner of each slot.
        hosts: task -> host, of every PS that can guard.
        present: slot -> task of the guard it has.
    """
    tasks = sorted(hosts)
    if len(tasks) < 2:
        return {}
    load = dict.fromkeys(tasks, 0)
    fair = 1.25 * sum(sizes) / len(tasks)
    plan: dict[int, int] = {}
    for slot in sorted(range(len(slot_map)), key=lambda slot: (-sizes[slot], slot)):
        owner = slot_map[slot]
        others = [task for task in tasks if task != owner]
        away = [task for task in others if hosts[task] != hosts.get(owner)]
        choice = away or others
        best = min(choice, key=lambda task: (load[task], task))
        now = present.get(slot, -1)
        if now in choice and (load[now] + sizes[slot] <= fair or load[now] <= load[best]):
            best = now
        plan[slot] = best
        load[best] += sizes[slot]
    return plan


class Guards:
    """`job.guards`. Changes nothing while slots are being moved: `busy` tells."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.busy = lambda: False
        """Whether slots are being moved: from PREPARE to COMMIT of a change of PS, also of one that was interrupted."""
        self.moving = lambda: False
        """Whether a change of PS is under way: marks are not turned on then."""
        self.held: dict[int, Held] = {}
        self.assigned: dict[int, int] = {}
        self.error = ""
        self.bytes_sent = 0
        self.refreshes = 0
        self._guard_id = 0
        self._sent_for: object = None  # what the present assignment was made for
        self._marked = False  # trainers have answered this AIMaster that they mark
        self._complete = False
        self._news = False  # reports came since the view was last looked at
        self._alive_in: object = None
        self._alive_ps: dict[int, str] = {}
        self._last_event = job.clock.monotonic()
        self._refreshed_step = 0

    # ------------------------------------------------------------------------------------------------ what others ask

    @property
    def wanted(self) -> bool:
        """Whether there shall be peer backups now."""
        return self._job.peer_backup and len(self._job.cluster.ps) > 1

    @property
    def marks_wanted(self) -> bool:
        """Whether somebody reads dirty rows all the time."""
        return self.wanted or bool(self._job.disk_backup) or self._job.holding.alone

    def usable(self, slot: int) -> Held | None:
        """The copy from which this slot can be promoted now."""
        held = self.held.get(slot)
        if held is None:
            return None
        return held if self._alive().get(held.task) == held.incarnation else None

    def _alive(self) -> Mapping[int, str]:
        """task -> incarnation of the PS of the view that are not lost; made once per view: it is asked for every slot."""
        cluster = self._job.cluster
        if self._alive_in is not cluster:
            self._alive_in = cluster
            self._alive_ps = {ps.task: ps.incarnation for ps in cluster.ps if ps.name not in cluster.lost}
        return self._alive_ps

    def needed(self) -> set[int]:
        """Slots that have variables: the others need no backup."""
        return {variable.slot for variable in self._job.catalogue.variables}

    def backup_map(self) -> tuple[int, ...]:
        """[S] who would take over each slot; empty while a slot with variables has no copy."""
        job = self._job
        slots = range(len(job.cluster.slot_map))
        copies = {slot: held.task for slot in slots if (held := self.usable(slot)) is not None}
        if not copies or self.needed() - copies.keys():
            return ()
        rest = [ps.task for ps in job.cluster.ps if ps.name not in job.cluster.lost]
        for slot in slots:
            if slot not in copies:  # nothing on it
                copies[slot] = next((task for task in rest if task != job.cluster.slot_map[slot]), -1)
        return tuple(copies[slot] for slot in slots)

    def published(self, slot: int) -> int:
        """Who would take this slot over, as trainers know it; -1 unknown."""
        known = self._job.backup_map
        return known[slot] if slot < len(known) else -1

    def age_seconds(self, slots: Sequence[int]) -> float:
        """How old the oldest of these copies is."""
        now = self._job.clock.monotonic()
        ages = [now - held.since for slot in slots if (held := self.usable(slot)) is not None]
        return max(ages, default=0.0)

    def status(self, message: pb.BackupStatus) -> None:
        message.peer = self.wanted
        if self.wanted:
            message.unprotected_slots.extend(sorted(slot for slot in self.needed() if self.usable(slot) is None))
            message.oldest_seconds = self.age_seconds(range(len(self._job.cluster.slot_map)))
        message.error = message.error or self.error
        message.bytes_sent, message.refreshes = self.bytes_sent, self.refreshes
        self._job.holding.status(message)

    # ------------------------------------------------------------------------------------------------ what PS report

    def report(self, member: Member, report: pb.BackupReport) -> None:
        job = self._job
        if member.role != pb.PS:
            return
        self.bytes_sent += report.bytes
        if report.error:
            expected = self._situation() != self._sent_for or bool(job.cluster.lost)  # its owner is gone, or has moved
            if not self.error and not expected:
                job.event("warning", member.name, text=f"a peer backup could not be refreshed: {report.error[:500]}")
            self.error = "" if expected else report.error[:500]
            return
        self.error = ""
        self.refreshes += 1
        since = job.clock.monotonic() - report.age_seconds
        for slot in report.slots:
            before = self.held.get(slot)
            if self.assigned.get(slot, member.task) == member.task or before is None:
                self.held[slot] = Held(member.task, member.incarnation, since)
        self._news = True
        if job.cluster.lost:
            job.changed.notify()  # a promotion may be waiting for it

    def _tell(self) -> None:
        """Events, and the view with who would take over, when that changed."""
        job = self._job
        now = job.clock.monotonic()
        complete = bool(self.backup_map()) and self.wanted
        if complete != self._complete:
            self._complete = complete
            if complete:
                job.event("peer_backups_complete", slots=len(self.needed()), total_bytes=self.bytes_sent)
                self._last_event = now
        elif self.wanted and now - self._last_event >= EVENT_SECONDS:
            self._last_event = now
            job.event("peer_backups", total_bytes=self.bytes_sent, refreshes=self.refreshes,
                      oldest_seconds=round(self.age_seconds(range(len(job.cluster.slot_map))), 3))  # fmt: skip
        if self.backup_map() != job.backup_map and not job.hold_views and not job.cluster.lost:
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
                self._job.marking = False
            await asyncio.sleep(TICK_SECONDS)

    def _situation(self) -> object:
        """Another one needs another assignment."""
        job = self._job
        cluster = job.cluster
        placed = cluster.ps, cluster.slot_map, cluster.generation, job.catalogue.fingerprint
        return placed, self.wanted, self.marks_wanted, job.disk_backup, job.backup_seconds, job.backup_steps > 0

    def _ready(self) -> bool:
        job = self._job
        if not job.cluster.live or job.cluster.lost or job.hold_views or job.gate_closed or job.ending:
            return False
        return bool(job.catalogue.fingerprint) and not self.busy()

    async def _once(self) -> None:
        job = self._job
        situation = self._situation()
        if situation != self._sent_for:
            if not self._ready() or (not job.marks_on and self.moving()):
                return
            if self.marks_wanted and not (job.marks_on and self._marked):
                job.marking = True  # no scaling begins meanwhile
                await self._mark()
                self._marked = True
            if not self._ready() or situation != self._situation():
                return
            self._assign()
            self._sent_for = situation
        elif not self.wanted or job.gate_closed or job.cluster.lost or job.ending:
            return
        elif job.backup_steps and job.members.step - self._refreshed_step >= job.backup_steps:
            self._refreshed_step = job.members.step
            for member in self._ps().values():
                job.commander.send(member.outbox, refresh=pb.Refresh())

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
        futures = {name: job.commander.send(member.outbox, mark=mark) for name, member in trainers.items()}
        await commands.gather(futures, job.settings.prepare_limit_seconds, "Mark", may_die=trainers)
        if not job.marks_on:
            job.marks_are_on(catalogue)
            job.event("marks_on", slots=len(job.cluster.slot_map))

    def _assign(self) -> None:
        job, present = self._job, self._ps()
        cluster = job.cluster
        sizes = slot_bytes(job.catalogue.variables, len(cluster.slot_map))
        hosts = {task: member.place for task, member in present.items()}
        same = len(set(hosts.values())) == 1
        if same:
            hosts = dict.fromkeys(hosts, "")
        now = {slot: held.task for slot, held in self.held.items() if held.task in present}
        self.assigned = plan_guards(sizes, cluster.slot_map, hosts, now) if self.wanted else {}
        self.held = {slot: held for slot, held in self.held.items() if self.assigned.get(slot) == held.task}
        self._guard_id = max(self._guard_id + 1, job.incarnation * 1_000_000)
        ps = [one.to_proto() for one in cluster.ps]
        seconds = 0.0 if job.backup_steps else job.backup_seconds
        for task, member in present.items():
            moves = [
                pb.Move(variable=variable, source_task=cluster.slot_map[variable.slot])
                for variable in job.catalogue.variables
                if self.assigned.get(variable.slot) == task
            ]
            owned = [slot for slot, owner in enumerate(cluster.slot_map) if owner == task]
            guard = pb.Guard(id=self._guard_id, moves=moves, ps=ps, seconds=seconds, owned=owned,
                             global_step=job.catalogue.global_step)  # fmt: skip
            job.commander.send(member.outbox, guard=guard)
        self._refreshed_step = job.members.step
        self._tell()
