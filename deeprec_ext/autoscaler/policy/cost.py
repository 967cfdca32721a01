"""What a change costs, from the changes that were seen, and whether its gain is worth it over the work that is left."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Change, Size
from deeprec_ext.autoscaler.policy.evidence import Evidence


@dataclass(frozen=True)
class Cost:
    """Of one change."""

    seconds: float  # until it is done
    pause_seconds: float  # in which nobody trains
    bytes: float  # that move between PS

    def standstill(self, disturbance: float) -> float:
        """Seconds of training that it takes in all: the pause, and what copying and starting take from the steps."""
        return self.pause_seconds + disturbance * self.seconds


def of_change(evidence: Evidence, size: Size) -> Cost:
    """The cost of going to another size; as much as that of going back."""
    seconds = pause = moved = 0.0
    starts = size.ps > evidence.size.ps or size.workers > evidence.size.workers
    if size.ps != evidence.size.ps:
        moved = _bytes_moved(evidence, size.ps)
        seconds, pause = of_ps_change(evidence, moved, starts)
    if size.workers != evidence.size.workers:
        seconds = max(seconds, duration(evidence, "worker", starts))
        if evidence.limits.sums:
            pause = pause_of(evidence, "worker")  # all wait for the one that has just come
    return Cost(seconds, pause, moved)


def of_ps_change(evidence: Evidence, moved: float, starts: bool = True) -> tuple[float, float]:
    """(seconds, pause in seconds) of a change of PS that moves so many bytes. `starts`: processes, for it."""
    copying = 0.0 if _seen(evidence, "ps") else moved / evidence.policy.bytes_per_second
    return duration(evidence, "ps", starts) + copying, pause_of(evidence, "ps")


def pause_of(evidence: Evidence, role: str) -> float:
    """Seconds in which nobody trains, by the last changes of a role."""
    pauses = [change.pause_seconds for change in _seen(evidence, role) if change.pause_seconds > 0]
    return statistics.median(pauses) if pauses else evidence.policy.pause_seconds


def duration(evidence: Evidence, role: str, starts: bool = True) -> float:
    """Seconds that a change of a role takes, by the last ones; by those of the other role where none was seen.

    Before the first `change_seconds`; where nothing `starts` no longer than the job took to start, with all its processes.
    """
    past = [change.seconds for change in _seen(evidence, role) or _seen(evidence, "") if change.seconds > 0]
    usual = evidence.policy.change_seconds
    return statistics.median(past) if past else usual if starts else min(usual, evidence.start_seconds)


def _seen(evidence: Evidence, role: str) -> list[Change]:
    return [change for change in evidence.past(role=role) if change.kind != "resize"][-5:]


def _bytes_moved(evidence: Evidence, ps: int) -> float:
    """The fewest that keep the map balanced: the share of the PS that are new, or go."""
    known = sum(slot.bytes for slot in evidence.observed.slots)
    total = known or evidence.observed.model.table_bytes + evidence.observed.model.dense_bytes
    return total * abs(ps - evidence.size.ps) / max(ps, evidence.size.ps)


def pays(evidence: Evidence, share: float, cost: Cost) -> bool:
    """Whether a gain (share of the time or cost of all work that is left) outweighs what the change takes of it."""
    lost = cost.standstill(evidence.policy.disturbance)
    left = evidence.seconds_left - cost.seconds
    return left > 0 and share * left >= evidence.policy.payback * lost
