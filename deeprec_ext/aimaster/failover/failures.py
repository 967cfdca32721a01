"""What died or hung, and how long it took to notice and to train again: the `failures` of summary.json."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.aimaster.core.records import AWAY, Failure, parse_name
from deeprec_ext.aimaster.failover.causes import GONE, HUNG
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.proto import deeprec_ext_pb2 as pb

OPEN_MAX = 100
LOOK_SECONDS = 0.1
"""How often it is looked whether all trainers have made a step since a loss; when each did is told by itself."""
PAUSES_KEPT = 100
"""Of one loss, the longest."""
DATASETS_MAX = 100
"""Whose positions stand in one event."""

ONE_TROUBLE_SECONDS = 10.0
"""Complaints about a PS that are further apart are about two losses."""

RECOVERY_PATIENCE_SECONDS = 30.0
"""So long changes wait for the first steps with the PS that took over; a trainer may have no data, or hang itself."""


@dataclass
class _Open:
    """A failure that has not been recovered from yet."""

    failure: Failure
    step: int  # the highest before it
    incarnation: str  # of the one that died
    died: float  # monotonic: durations do not jump with the clock
    trained: dict[str, float] = field(default_factory=dict)
    """trainer -> when it made its first step in the new epoch, monotonic."""

    @property
    def of_ps(self) -> bool:
        return parse_name(self.failure.name)[0] == pb.PS


class Failures:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._open: list[_Open] = []
        self._recovered: list[_Open] = []  # of lost PS, the last ones that `recovered_by` was told of
        self._epoch = 0  # trainers must be here to count as recovered from a lost PS; 0: no such view yet
        self._replaced_at = job.clock.monotonic()  # when that view came
        self._look_at = 0.0  # monotonic, when it is next looked whether all train
        self._trouble: dict[int, tuple[float, float]] = {}  # task -> first and last complaint of trainers, monotonic
        if not job.spec.resume:  # else another run has ended with what it left open
            self._take_over()

    def _take_over(self) -> None:
        """What was open when the AIMaster before this one ended."""
        job, now = self._job, self._job.clock.monotonic()
        behind = now - job.clock.wall()
        left = [failure for failure in job.store.failures() if failure.recovered_seconds is None][-OPEN_MAX:]
        self._open = [_Open(failure, job.members.step, "", min(now, failure.died + behind)) for failure in left]
        if self._open and job.cluster.formed and not job.cluster.lost:
            self._epoch = job.cluster.epoch

    def trouble(self, tasks: list[int]) -> None:
        """A worker's run failed because of these PS: it may know before the AIMaster does."""
        now = self._job.clock.monotonic()
        for task in tasks[:100]:
            first, last = self._trouble.get(task, (now, now))
            self._trouble[task] = (first if now - last < ONE_TROUBLE_SECONDS else now), now

    def complained(self, task: int, since: float) -> bool:
        """Whether a trainer's run has failed because of this PS since then (monotonic)."""
        return task in self._trouble and self._trouble[task][1] >= since

    def add(self, name: str, cause: str, member: Member | None, task: int = -1) -> None:
        """Records it. The moment of death is the end of the stream, or the last sign of life."""
        clock = self._job.clock
        now = died = clock.monotonic()
        if member is not None:
            last = member.seen if member.stream_lost is None or cause == HUNG else member.stream_lost
            died = min(now, last)
        known = min(now, max(died, self._trouble.pop(task, (now, now))[0]))
        failure = self._job.store.save_failure(
            Failure(
                0, name, cause, clock.wall() - (now - died), known - died, memory_limit_bytes=self._memory_limit(name)
            )
        )
        self._job.event("failure", name, cause=cause, detected_seconds=round(known - died, 3))
        if len(self._open) < OPEN_MAX:
            self._open.append(_Open(failure, self._job.members.step, member.incarnation if member else "", died))

    def learned(self, name: str, cause: str) -> None:
        """Why a process has ended, from who started it: too late for one that was given up meanwhile."""
        for entry in self._open:
            if entry.failure.name == name and entry.failure.cause == GONE:
                self._change(entry, cause=cause)

    def _memory_limit(self, name: str) -> int:
        job = self._job
        request = job.requests.ps_memory_bytes if parse_name(name)[0] == pb.PS else job.requests.worker_memory_bytes
        if job.metrics.shares_limits(name):
            return request  # what is measured is the container's, which others use as well
        return int(job.metrics.latest(name).get("memory_limit_bytes", 0)) or request

    def _change(self, entry: _Open, **changes: Any) -> Failure:
        entry.failure = self._job.store.save_failure(dataclasses.replace(entry.failure, **changes))
        return entry.failure

    def replaced(self, epoch: int) -> None:
        """The view in which every lost PS is replaced."""
        self._epoch, self._replaced_at = epoch, self._job.clock.monotonic()
        for entry in self._open:
            entry.trained.clear()

    def recovering(self) -> bool:
        """Whether trainers are on their way to the first step after the loss of a PS.

        They build sessions then. A change of PS would have them build others beside, and its pause would keep those waiting
        who are through for those who are not.
        """
        waited = self._job.clock.monotonic() - self._replaced_at
        lost = any(one.of_ps for one in self._open)
        return lost and self._epoch > 0 and waited < RECOVERY_PATIENCE_SECONDS

    def seconds_since_death(self) -> float:
        """Since the first PS that is not recovered yet died: training has stood still about so long."""
        died = [one.died for one in self._open if one.of_ps]
        return max(0.0, self._job.clock.monotonic() - min(died)) if died else 0.0

    def recovered_by(self, how: str, age_seconds: float = 0.0, stale_records: int = 0, steps: int = 0) -> None:
        """What the open failures of PS are being recovered by. `steps`: made since the oldest copy used was refreshed."""
        self._recovered = [entry for entry in self._open if entry.of_ps]
        for entry in self._recovered:
            self._change(
                entry,
                recovered_by=how,
                backup_age_seconds=age_seconds,
                stale_records=stale_records,
                steps_missing=steps,
            )

    def forgotten_late(self, records: int) -> None:
        """The promotion they were recovered by has cost so many records more."""
        for entry in self._recovered:
            if entry.failure.recovered_by in ("promotion", "holder"):
                self._change(entry, stale_records=entry.failure.stale_records + records)

    def paused(self, seconds: float) -> None:
        """How long a trainer stood still because of the PS that were lost last."""
        entries = [one for one in self._open if one.of_ps] or self._recovered
        for entry in entries:
            kept = tuple(sorted((*entry.failure.pause_seconds, round(seconds, 6)), reverse=True)[:PAUSES_KEPT])
            self._change(entry, pause_seconds=kept)

    def restored(self, step: int, source: str) -> None:
        """The model is live, from this step, and the data ledger has been rewound to it. In the first generation that is a
        beginning; every other goes back to something older, and that is told.

        Args:
          source: `checkpoint`, `disk backup`, or `nothing` where there was none and the model was initialised.
        """
        job, lost = self._job, []
        for entry in self._open:
            if entry.of_ps:
                lost.append(max(0, entry.step - step))
                self._change(entry, steps_lost=lost[-1])
        lost.append(resuming.restored(job.store, step, source))
        if job.cluster.generation > 1:
            data = [one for one in job.ledger.status() if one.purpose == "train"][:DATASETS_MAX]
            job.event(
                "restored", source=source, step=step, steps_lost=max(*lost, 0 if len(lost) > 1 else job.members.step - step),
                generation=job.cluster.generation,
                data={one.name: {"epoch": one.epoch, "trained": one.trained} for one in data},
            )  # fmt: skip
        job.members.restored(step)

    def observe(self, member: Member) -> None:
        """A trainer's heartbeat: has everybody made a step again?"""
        if not self._open or not member.is_trainer:
            return
        wanted = self._wanted()
        for entry in list(self._open):
            now = self._job.clock.monotonic()
            if entry.of_ps:
                self._trains(entry, member, now)
                done = wanted is not None and entry.trained.keys() >= wanted and self._healed
                now = max(entry.trained.values(), default=now)
            elif self._is_away(entry.failure.name):
                self._open.remove(entry)
                self._change(entry, recovered_seconds=max(0.0, now - entry.died), recovered_by=AWAY)
                continue
            else:
                done = member.name == entry.failure.name and member.heartbeat.training
                done = done and member.incarnation != entry.incarnation
            if done:
                self._open.remove(entry)
                seconds = max(0.0, now - entry.died)
                failure = self._change(entry, recovered_seconds=seconds)
                self._job.event(
                    "recovered", failure.name, seconds=round(seconds, 3), steps_lost=failure.steps_lost,
                    by=failure.recovered_by, backup_age_seconds=failure.backup_age_seconds,
                    steps_missing=failure.steps_missing, stale_records=failure.stale_records,
                )  # fmt: skip
                self._job.changed.notify()

    def _is_away(self, name: str) -> bool:
        """Somebody has asked for fewer since. One that was given up has failed."""
        record = self._job.members.record(name)
        return record is not None and not record.wanted and record.state != "failed"

    @property
    def _healed(self) -> bool:
        return bool(self._epoch) and self._job.cluster.live and not self._job.cluster.lost

    def _trains(self, entry: _Open, member: Member, now: float) -> None:
        if self._healed and member.heartbeat.step_epoch >= self._epoch:
            entry.trained.setdefault(member.name, now - member.heartbeat.step_age_seconds)

    def _wanted(self) -> set[str] | None:
        """All trainers that have to make a step. None: it was looked at just now (a thousand trainers say twice a second that
        they are alive, and one that is stuck keeps a failure open)."""
        now, members = self._job.clock.monotonic(), self._job.members
        if now < self._look_at:
            return None
        self._look_at = now + LOOK_SECONDS
        return {name for name in members.trainers() if members.records[name].wanted}

    @property
    def open(self) -> bool:
        return bool(self._open)
