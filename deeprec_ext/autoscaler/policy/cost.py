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
    grows: bool  # processes have to start for it

    def standstill(self, disturbance: float) -> float:
        """Seconds of training that it takes in all: the pause, and what copying and starting take from the steps."""
        return self.pause_seconds + disturbance * self.seconds


def of_change(evidence: Evidence, size: Size) -> Cost:
    """The cost of going to another size."""
    return between(evidence, evidence.size, size)


def between(evidence: Evidence, old: Size, new: Size) -> Cost:
    """The cost of going from one size to another."""
    seconds = pause = moved = 0.0
    if new.ps != old.ps:
        moved = _bytes_moved(evidence, old.ps, new.ps)
        seconds, pause = of_ps_change(evidence, moved, grows=new.ps > old.ps)
    if new.workers != old.workers:
        seconds = max(seconds, duration(evidence, "worker", grows=new.workers > old.workers))
    return Cost(seconds, pause, moved, new.ps > old.ps or new.workers > old.workers)


def of_ps_change(evidence: Evidence, moved: float, *, grows: bool) -> tuple[float, float]:
    """(seconds, pause in seconds) of a change of PS that moves so many bytes; `grows`: processes have to start for it."""
    past = _seen(evidence, "ps", grows)
    pauses = [change.pause_seconds for change in _seen(evidence, "ps") if change.pause_seconds > 0]
    pause = statistics.median(pauses) if pauses else evidence.policy.pause_seconds
    return duration(evidence, "ps", grows=grows) + (0.0 if past else moved / evidence.policy.bytes_per_second), pause


def duration(evidence: Evidence, role: str, *, grows: bool) -> float:
    """Seconds that a change of a role takes, by the last ones; by those of the other role where none was seen."""
    past = [
        change.seconds for change in _seen(evidence, role, grows) or _seen(evidence, "", grows) if change.seconds > 0
    ]
    if past:
        return statistics.median(past)
    return evidence.policy.change_seconds if grows else evidence.policy.shrink_seconds


def _seen(evidence: Evidence, role: str, grows: bool | None = None) -> list[Change]:
    return [
        change for change in evidence.past(role=role)
        if change.kind != "resize" and grows in (None, change.kind != "scale-down")
    ][-5:]  # fmt: skip


def _bytes_moved(evidence: Evidence, old: int, new: int) -> float:
    """The fewest that keep the map balanced: the share of the PS that are new, or go."""
    known = sum(slot.bytes for slot in evidence.observed.slots)
    total = known or evidence.observed.model.table_bytes + evidence.observed.model.dense_bytes
    return total * abs(new - old) / max(new, old)


def pays(evidence: Evidence, share: float, cost: Cost) -> bool:
    """Whether a gain (share of the time or cost of all work that is left) outweighs what the change takes of it."""
    lost = cost.standstill(evidence.policy.disturbance)
    left = evidence.seconds_left - cost.seconds
    return left > 0 and share * left >= evidence.policy.payback * lost
