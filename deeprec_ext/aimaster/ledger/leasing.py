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

MESSAGE_SECONDS = 0.25
"""How long its quickest request may have been on its way."""

LATE_SECONDS_MAX = 60.0
"""... and its last one longer than that: what it says of its clock is believed so far."""

RATE_FACTOR = 4.0
"""A process trains at most so many times faster than it ever reported."""


@dataclass
class Holder:
    """One incarnation."""

    incarnation: str
    asked_at: float = 0.0  # monotonic, when its last request was made, as far as can be told from here
    rate_max: float = 0.0  # records a second; the highest it reported
    sequence: int = 0  # the highest it used with this AIMaster
    given: int = 0  # records it has had in its hands, as far as this AIMaster knows
    active_at: float | None = (
        None  # monotonic, when it last trained something of what it holds; None: not looked at yet
    )
    beyond: int = 0  # records trained that are in no progress, since one before them is not
    handed: int | None = (
        None  # records given to steps that were in no progress at its last request; None: it does not tell
    )
    forgets_before: int = 0  # what it trained in views before this one was forgotten in part, also what it tells late
    waiting: bool = False  # it asked, there was nothing, and it is told when there is
    clock_behind: float = math.inf  # its clock against ours, by the quickest of its requests

    def asked(self, now: float, composed: float = 0.0) -> None:
        """A request has come. It trains on while one is on its way: on a busy machine for seconds, by how much later than the
        quickest one it came after it was made (`composed`, by its own clock; 0: it does not say)."""
        late = 0.0
        if composed > 0:
            self.clock_behind = min(self.clock_behind, now - composed)
            late = min(LATE_SECONDS_MAX, now - composed - self.clock_behind)
        self.asked_at = now - late

    def maybe_trained(self, held_records: int, now: float, rate_of_others: float = 0.0) -> int:
        """Bound of the records it trained after its last acknowledgement: at most what it held.

        Who tells what it had given to steps has trained that at the most, and what it could do since. That is told by the
        fastest of all: one that has just begun has a rate of its own that is that of its first steps, which take long.
        """
        rate = max(self.rate_max, rate_of_others)
        if rate <= 0:
            return held_records
        slack = ACKNOWLEDGE_SECONDS if self.handed is None else MESSAGE_SECONDS
        seconds = max(0.0, now - self.asked_at) + slack
        return min(held_records, max(self.beyond, self.handed or 0) + math.ceil(RATE_FACTOR * rate * seconds))

    def surely_trained(self, held_records: int) -> int:
        """Those of them that it has told: behind a record of their lease that was not trained."""
        return min(held_records, self.beyond)


HELD_LEASES_MAX, HELD_RECORDS_MAX = 1024, 1 << 20
"""In one process's hands. It may have more of one of them: a batch may take many small shards, or a shard be large."""


STALLED_SECONDS = 600.0
"""Who has leases, trains nothing of them for so long, and keeps others waiting for the end of the data, loses them."""

BUSY_SECONDS = 1800.0
"""... and so long who is seen to do something else: an evaluation, a checkpoint to a slow disk."""


def may_have(leases: int, records: int) -> int:
    """Leases that one who holds so much may have beside them: nobody hoards what others could train."""
    return LEASES_MAX if records < HELD_RECORDS_MAX else max(0, HELD_LEASES_MAX - leases)


def share(
    wanted: int, todo: int | None, workers: int, most: int = LEASES_MAX, held: int = 0, need: int | None = None
) -> int:  # fmt: skip
    """Guided self-scheduling (Polychronopoulos and Kuck, 1987), with half shares: at most todo / (2 workers), at least one.

    So shares shrink towards the end, and all workers end at about the same time. What a process holds counts as handed out
    of its own share: one that asks again and again has no more than one that comes later. It asks for no more than
    `lease_ahead_seconds` of its own work; that bound is its own to keep, since only it knows how many shards a batch of it
    needs.

    Args:
      wanted: leases that it asks for.
      todo: leases in nobody's hands; None: without end.
      held: leases that it has.
      need: of `wanted`, those that it has anyway while there are any. None: it does not say, and what it holds does not count.
    """
    if todo is None:
        fair = most
    elif need is None:
        fair = max(1, todo // (2 * max(1, workers)))
    else:
        even = max(1, (todo + held) // max(1, workers) - held)  # where there are few nobody has two and another none
        fair = max(min(need, even), (todo + held) // (2 * max(1, workers)) - held)
    return max(0, min(wanted, fair, most))
