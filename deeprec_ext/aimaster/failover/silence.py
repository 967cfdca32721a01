"""Whose silence counts: a process that hangs is given up, one that only waits for the processor is not.

A PS usually says something every half second. After its limit (3 s) it is given up when there is reason to think that it
hangs, and waited for longer when there is another explanation:

- **The AIMaster can see it** (same machine, same pids): the kernel tells. Stopped by a signal, or all threads asleep: it hangs,
  and where nobody stands in line on the machine a PS is given up after a third of its limit.
  Threads that stand in line for a processor, that work, or that wait for a disk: it is busy, and has `busy_limit_seconds`.
  In line is also who could run and may not: its container has used its quota up.
- **It runs elsewhere**: its limit grows with the run queue of its machine, as those who run there have told, and with how late
  its own last heartbeats were: a container may be throttled on a machine that has nothing to do.
- **Of several at once only one is given up**, and the next a whole limit later, unless they are seen to hang or trainers fail
  because of them: what silences several in one moment is more likely here, or between here and there, than in all of them.
  That is so of PS, and of the trainers of a job without PS, whose silence is as short. Where all of those are silent at once
  each has the limit of a worker: they have the model, and may sum on without a word from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deeprec_ext.aimaster.failover.causes import GONE, HUNG
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.gazer import hostload
from deeprec_ext.proto import deeprec_ext_pb2 as pb

if TYPE_CHECKING:
    from deeprec_ext.aimaster.failover.failures import Failures
    from deeprec_ext.aimaster.job.job import Job

STARVED_SHARE = 0.3
"""Whose threads together stood in line for a processor for so large a share of the time was held up by others."""

WORKING_SHARE = 0.2
"""... and who worked for so large a share of it does not hang, whatever keeps its agent from talking."""

LOOK_FROM_SHARE, LOOK_FROM_HEARTBEATS = 0.2, 1.2
"""From this share of its limit on a silent process is looked at, but not before its next heartbeat is late."""

LOOK_SECONDS_SHARE = 0.25
"""... for so long at least, before what was seen counts."""

SURE_SHARE, SURE_HEARTBEATS = 1 / 3, 2.0
"""A PS that is seen to hang, on a machine that makes nobody wait, has this share of its limit (at least so many heartbeats)."""

LATE_TIMES = 4.0
"""A process whose words were late lately is allowed so many times as long a delay beyond its limit: it may go on."""

USUAL_CROWD = 2.0
"""Threads a processor that a machine with a training process has at times; more of them make everybody wait."""


@dataclass(frozen=True)
class Watched:
    """What the kernel tells of a silent process, over the time in which it was looked at."""

    seconds: float
    worked_seconds: float
    queued_seconds: float
    stopped: bool
    blocked: bool = False
    ready_seconds: float = 0.0
    """Between two looks that both saw a thread which could run."""
    was_blocked: bool = False
    """It waited for a disk at one of the looks."""

    @property
    def hangs(self) -> bool:
        """Seen to hang: nothing keeps it from talking but itself."""
        if self.blocked and not self.stopped:
            return False
        in_line = max(self.queued_seconds, self.ready_seconds) > STARVED_SHARE * self.seconds
        return self.stopped or not (in_line or self.worked_seconds > WORKING_SHARE * self.seconds)


def stretch(crowd: float) -> float:
    """By what factor a machine with so many threads a processor is slower to answer than a usual one; at least 1."""
    return max(1.0, crowd / USUAL_CROWD)


def patience(
    limit: float, busy_limit: float, crowd: float, watched: Watched | None, late: float = 0.0, sure: float = math.inf
) -> float:
    """How many seconds a process may be silent. Pure.

    Args:
      limit: for a process on a quiet machine.
      busy_limit: the most, whatever the reason is.
      crowd: threads a processor on its machine.
      watched: what was seen of it, None where it cannot be seen.
      late: by how many seconds its latest word was late lately, as it told last.
      sure: the limit of one that is seen to hang where the machine is quiet, if that is shorter.
    """
    if watched is not None and watched.seconds < LOOK_SECONDS_SHARE * limit and not watched.stopped:
        return math.inf  # not looked at for long enough to tell
    if watched is None:
        return max(limit, min(busy_limit, limit * stretch(crowd) + LATE_TIMES * late))
    if not watched.hangs:
        return max(limit, busy_limit)
    quiet = crowd <= USUAL_CROWD and not watched.was_blocked
    return min(limit, sure + LATE_TIMES * late) if quiet else limit


@dataclass
class _Looks:
    """At one silent process, again and again: what it did between them. Totals can shrink, when a thread has ended."""

    began: float
    at: float
    last: hostload.Look
    worked_seconds: float = 0.0
    queued_seconds: float = 0.0
    ready_seconds: float = 0.0
    was_blocked: bool = False


class Silence:
    """Watches the members of a job; `given_up` is asked again and again."""

    def __init__(self, job: Job, failures: Failures) -> None:
        self._job, self._failures = job, failures
        self._here, self._pids = hostload.machine(), hostload.pid_namespace()
        self._crowd = hostload.Crowd()
        self._looks: dict[str, _Looks] = {}  # incarnation -> what was seen in this silence
        self._unproven_at = -math.inf  # when a PS was given up last that nobody has seen to hang

    def given_up(self) -> list[tuple[Member, float]]:
        """Who has been silent for too long, with the seconds; the longest silence first."""
        now, busy_limit = self._job.clock.monotonic(), self._job.settings.busy_limit_seconds
        beat = self._job.settings.heartbeat_seconds
        late = sorted(
            self._job.members.silent(LOOK_FROM_SHARE, LOOK_FROM_HEARTBEATS * beat), key=lambda one: -one[1]
        )  # fmt: skip
        self._looks = {
            one.incarnation: self._looks[one.incarnation] for one, *_ in late if one.incarnation in self._looks
        }
        found = []
        nobody_speaks = {one.name for one, *_ in late} >= set(self._in_step())
        for member, seconds, limit in late:
            watched = self._watch(member, now)
            crowd = self._crowd.sample() if watched else self._crowd_around(member)
            sure = max(SURE_SHARE * limit, SURE_HEARTBEATS * beat) if member.role == pb.PS else limit
            if seconds <= patience(limit, busy_limit, crowd, watched, member.heartbeat.late_seconds, sure):
                continue
            if self._job.members.is_short(member) and not self._proven(member, watched, now - seconds):
                alone = (
                    member.role != pb.PS
                    and nobody_speaks
                    and seconds <= self._job.settings.worker_heartbeat_limit_seconds
                )
                if alone or now - self._unproven_at <= limit:
                    continue
                self._unproven_at = now
            found.append((member, seconds))
        return found

    def cause(self, member: Member) -> str:
        """Of a silence that is given up. A stream that has broken and is not made anew is that of a process which has ended,
        or of a machine that cannot be reached: whoever started it may tell it later than a trainer misses it. Where the process
        is seen, it hangs."""
        return (
            GONE
            if member.stream_lost is not None and self._watch(member, self._job.clock.monotonic()) is None
            else HUNG
        )

    def stretch(self) -> float:
        """Of this machine, at this moment."""
        return stretch(self._crowd.sample())

    def _in_step(self) -> list[str]:
        """Trainers whose silence all others feel."""
        there = [one for one in self._job.members if one.role != pb.PS and one.admitted and not one.said_goodbye]
        return [one.name for one in there if self._job.members.is_short(one)]

    def _crowd_around(self, member: Member) -> float:
        """The run queue of its machine, as those who run there told last; of this machine where that is not known."""
        there = [one.heartbeat.crowd for one in self._job.members if one.machine == member.machine != self._here]
        told = [crowd for crowd in there if crowd > 0]
        return sum(told) / len(told) if told else self._crowd.sample()

    def _proven(self, member: Member, watched: Watched | None, since: float) -> bool:
        if watched is not None and watched.hangs:
            return True
        return member.role == pb.PS and self._failures.complained(member.task, since)

    def _watch(self, member: Member, now: float) -> Watched | None:
        """None where it cannot be seen. The process may be gone: then its end is reported by who started it."""
        record = self._job.members.record(member.name)
        if not self._pids or member.pid_namespace != self._pids or record is None:
            return None
        look = hostload.look(record.pid)
        if look is None:
            return None
        looks = self._looks.setdefault(member.incarnation, _Looks(now, now, look))
        looks.worked_seconds += max(0.0, look.worked_seconds - looks.last.worked_seconds)
        looks.queued_seconds += max(0.0, look.queued_seconds - looks.last.queued_seconds)
        looks.ready_seconds += now - looks.at if look.ready and looks.last.ready else 0.0
        looks.at, looks.last, looks.was_blocked = now, look, looks.was_blocked or look.blocked
        return Watched(
            now - looks.began, looks.worked_seconds, looks.queued_seconds, look.stopped, look.blocked,
            looks.ready_seconds, looks.was_blocked,
        )  # fmt: skip
