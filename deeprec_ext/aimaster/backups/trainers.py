"""One PS alone has no peer: a trainer, the *holder*, keeps the backups of its slots (`job.trainer_backups`).

Who: a trainer on another host than the PS where there is one, then the one that has the copies already, then the chief, which
never scales away; nobody whose container has no room for them. What it reports is what counts, as with peers: a slot has a
copy when its holder, in the same incarnation, has said so. One reads at a time: holders share one set of dirty rows on the
PS, so nobody is chosen before whoever has been one has stopped (its ack, or its end), and the next AIMaster knows the holder's
name from the store and waits for it.

When: while the view has one PS; from before a change that leaves one, so that its commit finds the copies there; and after a
change to more until PS have theirs. A holder that dies or is scaled away is replaced at once. Its dirty rows are
a set of their own (`elastic.ps.collector`), so trainer and PS do not know of each other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from deeprec_ext.aimaster.backups.copies import Copies
from deeprec_ext.aimaster.backups.holders import TICK_SECONDS, Holders
from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.metrics.collector import MetricsCollector
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.autoscaler.model.memory_model import HOLDER_ROOM, Layout, of_holder
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

TASKS_FROM = 1_000_000
"""Task numbers of holders: PS never get so far. The chief's, then the workers' by their index."""

ANSWER_SECONDS, UNFIT_SECONDS = 30.0, 60.0
"""How long a trainer may take to answer, on a machine that may be busy; one that does not is no holder for a while."""

READY_SECONDS = 60.0
"""How long a change that leaves one PS waits for the holder's first copy; then it goes on, and the job says so."""

STORE_KEY = "holder"
"""Its name, for the next AIMaster."""


@dataclass(frozen=True)
class Candidate:
    """A trainer that could be the holder."""

    name: str
    host: str
    room_bytes: float = math.inf  # memory that its container has left


@dataclass(frozen=True)
class Copy:
    """A complete copy of one slot."""

    holder: str
    incarnation: str
    since: float  # monotonic: it has every update before that
    guard: int = 0  # of the assignment under which it was told


def task_of(name: str) -> int:
    """The task number by which a trainer goes as the holder."""
    role, index = parse_name(name)
    return TASKS_FROM + (0 if role == pb.CHIEF else 1 + index)


def choose_holder(candidates: Iterable[Candidate], ps_hosts: Collection[str], needed_bytes: int, present: str) -> str:
    """The best of them; empty when none has room. Pure.

    Args:
        ps_hosts: hosts of the PS: what ends there ends both.
        needed_bytes: of all copies.
        present: who has copies already, and needs no more room, unless it has less than none.
    """
    fit = [one for one in candidates if one.room_bytes >= (0 if one.name == present else needed_bytes)]

    def order(one: Candidate) -> tuple[object, ...]:
        return one.host in ps_hosts, one.name != present, task_of(one.name)

    return min(fit, key=order).name if fit else ""


class TrainerBackups(Holders):
    """On the job's event loop. `run` for ever."""

    def __init__(self, job: JobState, on_ps: Copies, metrics: MetricsCollector) -> None:
        super().__init__(job)
        self._on_ps, self._metrics = on_ps, metrics
        self.copies: dict[int, Copy] = {}
        self.holder = str(job.store.get(STORE_KEY, ""))
        self._sent_for: object = None  # what the present assignment was made for
        self._sent_id = 0  # of its Guard
        self._before: tuple[str, str] | None = None  # (name, incarnation) of the holder before, until this one has all
        self._unfit: dict[str, float] = {}  # incarnations that did not do as they were told -> until when, monotonic
        self._stopped: dict[str, int] = {}  # incarnations that were told to keep nothing -> by which Guard
        self._leaving: dict[str, asyncio.Future[pb.Ack]] = {}  # told to stop; done when they have, or are gone
        self._awaited = False  # a change that leaves one PS waits for the copies
        self._no_room = False  # has been said

    # ------------------------------------------------------------------------------------------------ what others ask

    @property
    def allowed(self) -> bool:
        settings = self._job.settings
        return self._job.choices.peer and settings.peer_backup_holder != "off" and settings.ps_failover == "promote"

    @property
    def alone(self) -> bool:
        """Whether the view has one PS, and a trainer is to keep its backups."""
        return self.allowed and len(self._job.cluster.ps) == 1

    @property
    def wanted(self) -> bool:
        """Whether a trainer shall keep backups now."""
        if self.alone or (self.allowed and self._awaited):
            return True
        slots = self._job.variable_slots()
        return self.allowed and bool(self.copies) and any(self._on_ps.usable(slot) is None for slot in slots)

    def usable(self, slot: int) -> Copy | None:
        """The copy from which this slot can be made anew."""
        copy = self.copies.get(slot)
        member = self._job.members.get(copy.holder) if copy is not None else None
        there = member is not None and copy is not None and member.incarnation == copy.incarnation
        return copy if there and member is not None and not member.said_goodbye else None

    def steady(self, slot: int) -> Copy | None:
        """The same, when its holder has read it from the PS that owns the slot now: it is being kept up."""
        copy = self.usable(slot)
        if copy is None or copy.holder != self.holder or copy.guard < self._sent_id:
            return None
        return copy if self._sent_for == self._situation(self.holder) else None

    def held_only_by(self, names: Collection[str]) -> list[int]:
        """Slots of a single PS of which these trainers alone have a copy: they must not go yet."""
        if not self.alone or not self._candidates():
            return []
        copies = {slot: self.usable(slot) for slot in self._job.variable_slots()}
        return sorted(slot for slot, copy in copies.items() if copy is not None and copy.holder in names)

    def are_exact(self, slot: int, task: int) -> None:
        """What a PS has been made of just now: the holder's copy has every update that there is."""
        copy = self.copies.get(slot)
        if copy is not None and task_of(copy.holder) == task:
            self.copies[slot] = dataclasses.replace(copy, since=self._job.clock.monotonic())

    def complete(self) -> bool:
        return all(self.usable(slot) is not None for slot in self._job.variable_slots())

    @property
    def needed_bytes(self) -> int:
        """Of a trainer, beside its own, while it keeps everything."""
        return of_holder(Layout.of(self._job.catalogue, len(self._job.cluster.slot_map)))

    def copying(self, name: str) -> bool:
        """Whether this trainer is making copies that it has not yet."""
        return self.wanted and name == self.holder and not (
            self.complete() and all(copy.holder == name for copy in self.copies.values())
        )  # fmt: skip

    def bytes_with(self, name: str) -> int:
        """Of the complete copies that this trainer keeps."""
        slots = {slot for slot, copy in self.copies.items() if copy.holder == name}
        return sum(variable.bytes for variable in self._job.catalogue.variables if variable.slot in slots)

    def age_seconds(self, slots: Iterable[int]) -> float:
        """How old the oldest of these copies is."""
        now = self._job.clock.monotonic()
        return max((now - copy.since for slot in slots if (copy := self.usable(slot)) is not None), default=0.0)

    def members(self) -> dict[str, Member]:
        """The trainers that may be reading dirty rows: a final copy needs them to hold."""
        names = {self.holder, self._before[0] if self._before else "", *self._still_leaving()}
        return {name: member for name in names if name and (member := self._job.members.get(name)) is not None}

    def status(self, message: pb.BackupStatus) -> None:
        """After that of the PS."""
        message.bytes_sent += self.bytes_sent
        message.refreshes += self.refreshes
        if self.alone:
            message.holder = self.holder
            message.error = message.error or self.error

    async def ready_for(self, ps: int, seconds: float) -> None:
        """Before a change to so many PS: when it leaves one, until a trainer has the copies; bounded."""
        if ps != 1 or not self.allowed or not self._job.marks_on:
            return
        self._awaited = True
        try:
            if not await self._job.changed.until(self.complete, min(seconds, READY_SECONDS)):
                self._job.event(
                    "warning", text="the change goes on without backups: no trainer has copied all slots yet"
                )
        finally:
            self._awaited = False

    # ------------------------------------------------------------------------------------------------ reports

    def report(self, member: Member, report: pb.BackupReport) -> None:
        """What a trainer says of the copies it keeps."""
        job = self._job
        lost = job.resumed and not self.holder and not self._guard_id  # the store of the AIMaster before was lost
        if lost and not job.suspects.has(member):
            self._now_holds(member.name)
        if member.name != self.holder and (member.name, member.incarnation) != self._before:
            if report.slots:
                self._tell_to_stop(member)
            return
        if report.guard and report.guard < self._stopped.get(member.incarnation, 0):
            return  # of what it has been told to drop since
        expected = self._situation(member.name) != self._sent_for or bool(job.cluster.lost)
        if not self._is_refreshed(member, report, "a backup", expected=expected):
            return
        since = job.clock.monotonic() - report.age_seconds
        for slot in report.slots:
            before = self.usable(slot)
            if before is None or member.name in (before.holder, self.holder):
                self.copies[slot] = Copy(member.name, member.incarnation, since, report.guard)
        self._tell()
        job.changed.notify()

    def _tell(self) -> None:
        complete = self.wanted and self.complete()
        slots = self._job.variable_slots()
        self._tell_figures(complete, complete, lambda: self.age_seconds(slots), self.holder)

    # ------------------------------------------------------------------------------------------------ keeping it so

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            try:
                await self._once()
            except CommandError as error:
                self.error = str(error)
                log.warning("the holder of backups: %s", error)
            await asyncio.sleep(TICK_SECONDS)

    def _ready(self) -> bool:
        return self._job.quiet(Hold.GATE) and self._job.marks_on and self._job.settled

    def _situation(self, holder: str) -> object:
        """Another one needs another assignment."""
        job, member = self._job, self._job.members.get(holder)
        cluster = job.cluster
        timing = job.choices.peer_seconds, job.choices.peer_steps > 0
        who = holder, member.incarnation if member is not None else ""
        return cluster.ps, cluster.slot_map, cluster.generation, job.catalogue.fingerprint, timing, who

    def _candidates(self) -> list[Candidate]:
        job, found = self._job, []
        now = job.clock.monotonic()
        for member in job.members.trainers().values():
            if job.members.records[member.name].wanted and self._unfit.get(member.incarnation, now) <= now:
                used = self._metrics.process(member.name)
                limit = used.memory_limit_bytes if used is not None else 0
                room = HOLDER_ROOM * limit - used.working_set_bytes if used is not None and limit else math.inf
                found.append(Candidate(member.name, member.place, room))
        return found

    async def _once(self) -> None:
        job = self._job
        if not self._ready():
            return
        if job.lock.held(Hold.VIEWS) and not (self.alone and job.members.get(self.holder) is None):
            self._refresh_by_steps(self.holder)
            return  # a change is being prepared: only a holder that is gone is followed by another
        if not self.wanted:
            await self._dismiss()
            return
        hosts = {m.place for ps in job.cluster.ps if (m := job.members.get(ps.name)) is not None}
        needed = self.needed_bytes
        present = self.holder if any(copy.holder == self.holder for copy in self.copies.values()) else ""
        candidates = self._candidates()
        chosen = choose_holder(candidates, hosts, needed, present)
        if not chosen:
            if not self._no_room and job.members.trainers():
                self._no_room = True
                job.event("warning", text=f"no trainer has room for the backups of the PS ({needed / 1e6:.0f} MB): "
                          "give trainers more memory, or use two PS" if candidates else
                          "the PS has no backups for a while: no trainer did as it was told")  # fmt: skip
            return
        self._no_room = False
        if self._situation(chosen) != self._sent_for:
            await self._assign(chosen)
        elif self._before is not None and self.complete() and all(c.holder == chosen for c in self.copies.values()):
            self._send_away()
        else:
            self._refresh_by_steps(chosen)

    def _refresh_by_steps(self, name: str) -> None:
        member = self._job.members.trainers().get(name)
        if member is not None and self._is_due():
            self._job.commander.send(member.outbox, refresh=pb.Refresh())

    async def _assign(self, chosen: str) -> None:
        job, old = self._job, self._job.members.get(self.holder)
        member = job.members.trainers()[chosen]
        if self.holder != chosen:
            if old is not None and old.admitted and not old.said_goodbye:
                await self._part_from(old)
            if self._before is not None and self._before[0] == chosen:
                self._send_away()  # rows that it has missed since are lost to it: from the beginning
            self._now_holds(chosen)
            self._complete = False
            job.event("holder_chosen", chosen)
        if self._still_leaving() - {chosen}:
            return  # it may be reading the same rows
        cluster = job.cluster
        situation = self._situation(chosen)
        moves = [pb.Move(variable=v, source_task=cluster.slot_map[v.slot]) for v in job.catalogue.variables]
        seconds = 0.0 if job.choices.peer_steps else job.choices.peer_seconds
        try:
            number = await self._guard(member, moves, seconds)
        except CommandError:
            self._unfit[member.incarnation] = job.clock.monotonic() + UNFIT_SECONDS
            self._tell_to_stop(member)  # it may have begun all the same
            raise
        self._refreshed_step = job.members.step
        self._sent_for, self._sent_id = situation, number
        job.changed.notify()  # a change may be waiting for what was told before the ack

    async def _guard(self, member: Member, moves: list[pb.Move], seconds: float = 0.0) -> int:
        """Returns its number. Raises CommandError."""
        job = self._job
        self._guard_id = self._next_id
        guard = pb.Guard(id=self._guard_id, moves=moves, ps=[one.to_proto() for one in job.cluster.ps], seconds=seconds,
                         global_step=job.catalogue.global_step, own_task=task_of(member.name))  # fmt: skip
        await commands.gather({member.name: job.commander.send(member.outbox, guard=guard)}, ANSWER_SECONDS, "Guard")
        return guard.id

    async def _part_from(self, old: Member) -> None:
        """Its copies count until the next holder has all; it reads no more."""
        if self._before is not None and not all(copy.holder == old.name for copy in self.copies.values()):
            self._tell_to_stop(old)  # the one before it has more
            return
        self._send_away()
        if old.incarnation in self._unfit:
            return
        try:
            await self._freeze(old)
            hold = pb.Hold(lease_seconds=ANSWER_SECONDS)  # and what it is reading now has ended
            futures = {old.name: self._job.commander.send(old.outbox, hold=hold)}
            await commands.gather(futures, ANSWER_SECONDS, "Hold", may_die=futures)
            self._before = old.name, old.incarnation
        except CommandError as error:
            log.warning("the holder of backups: %s", error)
            self._tell_to_stop(old)

    async def _freeze(self, member: Member) -> None:
        futures = {member.name: self._job.commander.send(member.outbox, freeze=pb.Freeze())}
        await commands.gather(futures, ANSWER_SECONDS, "Freeze", may_die=futures)

    async def freeze(self) -> None:
        """Before copies are pulled: a PS that comes back may have the address of the one before it. Raises CommandError."""
        self._sent_for = None
        for member in self.members().values():
            await self._freeze(member)

    def _send_away(self) -> None:
        """The holder before: its copies are not needed any more."""
        if self._before is not None:
            (name, incarnation), self._before = self._before, None
            member = self._job.members.get(name)
            if member is not None and member.incarnation == incarnation:
                self._tell_to_stop(member)

    def _tell_to_stop(self, member: Member) -> None:
        """It is to keep nothing."""
        self.copies = {slot: copy for slot, copy in self.copies.items() if copy.holder != member.name}
        if member.name in self._still_leaving():
            return
        self._guard_id = self._next_id
        self._stopped[member.incarnation] = self._guard_id
        guard = pb.Guard(id=self._guard_id, own_task=task_of(member.name))
        self._leaving[member.name] = self._job.commander.send(member.outbox, guard=guard)

    def _still_leaving(self) -> set[str]:
        self._leaving = {name: future for name, future in self._leaving.items() if not future.done()}
        return set(self._leaving)

    def _now_holds(self, name: str) -> None:
        self.holder = name
        self._job.store.put(**{STORE_KEY: name})

    async def _dismiss(self) -> None:
        """Nobody needs to keep anything."""
        self._send_away()
        member = self._job.members.get(self.holder) if self.holder else None
        self.copies, self._sent_for, self._complete = {}, None, False
        if self.holder:
            self._now_holds("")
        if member is not None and not member.said_goodbye:
            self._tell_to_stop(member)
            self._job.event("holder_dismissed", member.name)
