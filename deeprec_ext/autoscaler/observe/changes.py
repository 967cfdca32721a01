"""What has been changed of a job, from its scalings: the same for one that runs and one that has ended. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from deeprec_ext.aimaster.core.records import ARBITER, Scaling
from deeprec_ext.autoscaler.observe.observed import Change


def changes_of(scalings: Sequence[Scaling], started: float, foretold: Mapping[int, float]) -> list[Change]:
    """Scalings that have ended, one per role that changed; a PS that came back by itself is nobody's decision and no change of
    size, a worker that was given up nobody's decision and one.

    Args:
        started: Unix seconds; times count from it.
        foretold: examples per second, by number of decision.
    """
    changes = []
    for one in scalings:
        if one.outcome:
            change = Change(
                time=round(one.started - started + one.seconds, 3) if one.started else 0.0, kind=one.kind, role=one.role,
                from_count=one.to_count if one.returning else one.from_count, to_count=one.to_count,
                outcome=one.outcome, seconds=one.seconds,
                pause_seconds=max(one.pause_seconds, default=0.0), bytes_moved=one.bytes_moved,
                manual=one.asked, decision=one.decision,
                foretold=foretold.get(one.decision, 0.0), arbiter=one.requested_by == ARBITER,
            )  # fmt: skip
            changes.append(change)
            if one.both:
                changes.append(_of_workers(change, one))
    return changes


def _of_workers(change: Change, one: Scaling) -> Change:
    """The workers' half of a change of both; bytes and pause are those of the PS."""
    kind = "scale-up" if one.workers_to > one.workers_from else "scale-down"
    return dataclasses.replace(
        change, kind=kind, role="worker", from_count=one.workers_from, to_count=one.workers_to, pause_seconds=0.0,
        bytes_moved=0,
    )  # fmt: skip
