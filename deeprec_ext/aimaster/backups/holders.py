"""What is the same of both kinds of backup holders, PS and trainers: figures of their refreshes, what is told of them, when the
next is due, and the numbers of assignments."""

from __future__ import annotations

from collections.abc import Callable

from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.proto import deeprec_ext_pb2 as pb

TICK_SECONDS = 0.25
EVENT_SECONDS = 60.0
"""How often the sum of all refreshes is written as an event; single ones would be thousands an hour."""

TEXT_MAX = 500


class Holders:
    """Base of `PeerBackups` and `TrainerBackups`."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self.error = ""
        self.bytes_sent = 0
        self.refreshes = 0
        self._guard_id = 0
        self._complete = False
        self._last_event = job.clock.monotonic()
        self._refreshed_step = 0

    @property
    def _next_id(self) -> int:
        return max(self._guard_id + 1, self._job.incarnation * 1_000_000)

    def _is_refreshed(self, member: Member, report: pb.BackupReport, what: str, *, expected: bool) -> bool:
        """Counts the report. `expected`: an error would be none, for whose copy it is has gone or moved."""
        self.bytes_sent += report.bytes
        if report.error and not self.error and not expected:
            self._job.event("warning", member.name, text=f"{what} could not be refreshed: {report.error[:TEXT_MAX]}")
        self.error = "" if expected else report.error[:TEXT_MAX]
        self.refreshes += not report.error
        return not report.error

    def _tell_figures(self, complete: bool, goes_on: bool, oldest_seconds: Callable[[], float], role: str = "") -> None:
        """As events: that all copies are there; then now and then, while it goes on, their sum."""
        job, now = self._job, self._job.clock.monotonic()
        if complete != self._complete:
            self._complete = complete
            if complete:
                slots = len(job.variable_slots())
                job.event("peer_backups_complete", role, slots=slots, total_bytes=self.bytes_sent)
                self._last_event = now
        elif goes_on and now - self._last_event >= EVENT_SECONDS:
            self._last_event = now
            job.event("peer_backups", role, total_bytes=self.bytes_sent, refreshes=self.refreshes,
                      oldest_seconds=round(oldest_seconds(), 3))  # fmt: skip

    def _is_due(self) -> bool:
        """Where refreshes come by steps: whether so many were made since the last one; the next counts from now on."""
        steps, now = self._job.choices.peer_steps, self._job.members.step
        if not steps or now - self._refreshed_step < steps:
            return False
        self._refreshed_step = now
        return True
