"""The processes that lease from one dataset: how many, how fast, who waits; and how much is handed out at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEASES_MAX = 256
"""In one reply."""

SCANS_MAX = 16
"""Files in one process's hands to be counted: it counts one after the other."""

ACKNOWLEDGE_SECONDS = 1.0
"""Progress comes about every half second; so much of it may have been under way when the process died."""

RATE_FACTOR = 4.0
"""A process trains at most so many times faster than it ever reported."""


@dataclass
class Holder:
    """One incarnation."""

    incarnation: str
    asked_at: float = 0.0  # monotonic, of its last request
    rate_max: float = 0.0  # records a second; the highest it reported
    sequence: int = 0  # the highest it used with this AIMaster
    given: int = 0  # records it has had in its hands, as far as this AIMaster knows
    active_at: float | None = (
        None  # monotonic, when it last trained something of what it holds; None: not looked at yet
    )
    beyond: int = 0  # records trained that are in no progress, since one before them is not
    forgets_before: int = 0  # what it trained in views before this one was forgotten in part, also what it tells late
    waiting: bool = False  # it asked, there was nothing, and it is told when there is

    def maybe_trained(self, held_records: int, now: float) -> int:
        """Bound of the records it trained after its last acknowledgement: what it could do since, at most what it held."""
        if self.rate_max <= 0:
            return held_records
        seconds = max(0.0, now - self.asked_at) + ACKNOWLEDGE_SECONDS
        return min(held_records, self.beyond + math.ceil(RATE_FACTOR * self.rate_max * seconds))


HELD_LEASES_MAX, HELD_RECORDS_MAX = 1024, 1 << 20
"""In one process's hands. It may have more of one of them: a batch may take many small shards, or a shard be large."""


STALLED_SECONDS = 600.0
"""Who has leases, trains nothing of them for so long, and keeps others waiting for the end of the data, loses them."""


def may_have(leases: int, records: int) -> int:
    """Leases that one who holds so much may have beside them: nobody hoards what others could train."""
    return LEASES_MAX if records < HELD_RECORDS_MAX else max(0, HELD_LEASES_MAX - leases)


def share(wanted: int, todo: int | None, workers: int, most: int = LEASES_MAX) -> int:
    """Guided self-scheduling (Polychronopoulos and Kuck, 1987), with half shares: at most todo / (2 workers), at least one.

    So shares shrink towards the end, and all workers end at about the same time. `todo` None: without end. A process asks
    for no more than `lease_ahead_seconds` of its own work; that bound is its own to keep, since only it knows how many
    shards a batch of it needs.
    """
    fair = most if todo is None else max(1, todo // (2 * max(1, workers)))
    return max(0, min(wanted, fair, most))
