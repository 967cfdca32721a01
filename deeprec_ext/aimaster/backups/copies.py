"""Which PS have complete copies of which slots, and since when: what PS report, and nothing else, counts.

A slot may have several: its holder's, and those of who kept it before until the holder has one. A PS that leaves the view is a
holder until it is told to leave; its copies can be fetched, not promoted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.aimaster.core.records import PsInfo
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.proto import deeprec_ext_pb2 as pb

FRESH_SECONDS = 1.0
"""Of two copies, one that is older by no more than this and the interval of refreshes is as good as the other."""

STEPS_SECONDS = 5.0
"""The interval that is taken where refreshes come by steps."""


@dataclass(frozen=True)
class Held:
    """A complete copy of one slot."""

    task: int
    incarnation: str
    since: float  # monotonic: it has every update before that
    reader: str = "peer"  # as whom the PS reads the dirty rows of the slot


class Copies:
    """Of the PS of a job."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._held: dict[int, dict[int, Held]] = {}  # slot -> task -> copy
        self._not_before: dict[int, int] = {}  # slot -> id of the first Guard whose reports count: it has moved
        self._generation = 0
        self._alive_in: object = None
        self._alive_ps: dict[int, PsInfo] = {}

    # ------------------------------------------------------------------------------------------------ asking

    def usable(self, slot: int, planned: int = -1) -> Held | None:
        """The copy from which this slot can be promoted now: that of the planned holder, unless another is much fresher."""
        view = self._in_view()
        there = [one for one in self._of(slot) if one.task in view and view[one.task].incarnation == one.incarnation]
        return self._best(there, planned)

    def anywhere(self, slot: int, planned: int = -1) -> Held | None:
        """The same, of PS that leave as well."""
        return self._best([one for one in self._of(slot) if self.member(one) is not None], planned)

    def fresh(self, slot: int, task: int) -> bool:
        """Whether this PS has a copy that is as good as any."""
        one, best = self._held.get(slot, {}).get(task), self.anywhere(slot)
        return one is not None and best is not None and self.member(one) is not None and self.as_good(one.since, best)

    def as_good(self, since: float, than: Held) -> bool:
        seconds = STEPS_SECONDS if self._job.choices.peer_steps else self._job.choices.peer_seconds
        return since >= than.since - seconds - FRESH_SECONDS

    def has(self, slot: int, task: int) -> bool:
        """Whether this PS has said that it has a copy."""
        return task in self._held.get(slot, {})

    def reader(self, slot: int, task: int) -> str:
        """As whom this PS reads the dirty rows of the slot; empty: it has no copy."""
        one = self._held.get(slot, {}).get(task)
        return one.reader if one is not None else ""

    def leaving(self) -> dict[int, Member]:
        """task -> PS that have copies and are not in the view."""
        found = {}
        for copies in self._held.values():
            for task, one in copies.items():
                if task not in found and task not in self._in_view() and (member := self.member(one)) is not None:
                    found[task] = member
        return found

    def member(self, held: Held) -> Member | None:
        """Who has it; None: it is gone."""
        known = self._in_view().get(held.task)
        members = self._job.members
        member = members.get(known.name) if known is not None else members.by_incarnation(held.incarnation)
        return member if member is not None and member.admitted and member.incarnation == held.incarnation else None

    def _of(self, slot: int) -> Sequence[Held]:
        self.follow()
        owner = self._job.cluster.slot_map[slot] if slot < len(self._job.cluster.slot_map) else -1
        return [one for one in self._held.get(slot, {}).values() if one.task != owner]

    def _best(self, found: Sequence[Held], planned: int) -> Held | None:
        best = max(found, key=lambda one: (one.since, one.task), default=None)
        if best is None:
            return None
        return next((one for one in found if one.task == planned and self.as_good(one.since, best)), best)

    def _in_view(self) -> Mapping[int, PsInfo]:
        """task -> those of the PS of the view that are not lost; made once per view: it is asked for every slot."""
        cluster = self._job.cluster
        if self._alive_in is not cluster:
            self._alive_in = cluster
            self._alive_ps = {ps.task: ps for ps in cluster.ps if ps.name not in cluster.lost}
        return self._alive_ps

    # ------------------------------------------------------------------------------------------------ hearing

    def reported(self, member: Member, slots: Iterable[int], report: pb.BackupReport) -> None:
        """It has these slots, of those in its report."""
        since = self._job.clock.monotonic() - report.age_seconds
        self.follow()
        for slot in slots:
            if report.guard >= self._not_before.get(slot, 0):
                reader = "next" if slot in report.next_slots else "peer"
                self._held.setdefault(slot, {})[member.task] = Held(member.task, member.incarnation, since, reader)

    def are_exact(self, slot: int, task: int) -> None:
        """What a PS has been made of just now: this copy has every update that there is."""
        one = self._held.get(slot, {}).get(task)
        if one is not None:
            self._held[slot][task] = dataclasses.replace(one, since=self._job.clock.monotonic())

    def moved(self, slots: Iterable[int], guard: int) -> None:
        """These have another owner: what is told of them by an older Guard is of the one before."""
        for slot in slots:
            self._held.pop(slot, None)
            self._not_before[slot] = guard

    def follow(self) -> None:
        """Copies of another generation are none."""
        if self._generation != self._job.cluster.generation:
            self._generation = self._job.cluster.generation
            self._held.clear()

    def keep_only(self, told: Mapping[int, Collection[int]]) -> None:
        """slot -> tasks that are going to keep it: the copies of others are dropped, or their PS is gone."""
        self.follow()
        for slot in list(self._held):
            kept = {
                task: one for task, one in self._held[slot].items()
                if task in told.get(slot, ()) and self.member(one) is not None
            }  # fmt: skip
            if kept:
                self._held[slot] = kept
            else:
                del self._held[slot]
