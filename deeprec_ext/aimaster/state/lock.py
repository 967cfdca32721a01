"""Who holds what of a job, since when: one lock with named holders. Pure.

A promotion, a scaling and the turning on of marks keep each other and newcomers away for a while. Each takes what it needs by
its own name and gives back its own alone, so nobody opens what somebody else still holds closed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Hold(enum.Enum):
    """What can be held; several may hold the same."""

    GATE = "nobody new takes part: PAUSE to COMMIT, a promotion, a fetch"
    VIEWS = "the next epoch belongs to the holder: end of ACQUIRE to COMMIT"
    SCALING = "a scaling is under way"
    CHANGE = "a change of PS is under way: slots move, or are about to"
    SLOTS = "slots are being moved: PREPARE to the end of COMMIT"
    DECISION = "the view may not be replaced: ACQUIRE to the end of COMMIT"
    UNHEARD = "it is being found out whether anybody has heard of a decision: nobody gets a view"
    MARKS = "marks are being turned on: no scaling begins"
    NEW_PODS = "new pods of a scaling: their failure is not the job's"
    JOINING = "workers that begin with the view that a change of PS ends with: not before"
    FIRST_VIEW = "the first view waits for the size that follows from what the chief declares"
    STOPPING = "the backend takes the pods away: nothing is to be healed"


@dataclass(frozen=True)
class Held:
    since: float  # monotonic
    names: frozenset[str] = frozenset()  # of what, where that is not the job


class Lock:
    """`job.lock`, on the job's event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._held: dict[Hold, dict[str, Held]] = {hold: {} for hold in Hold}

    def take(self, holder: str, *holds: Hold, names: Iterable[str] = ()) -> None:
        """Who has it already has it since then."""
        for hold in holds:
            before = self._held[hold].get(holder)
            self._held[hold][holder] = Held(before.since if before else self._monotonic(), frozenset(names))

    def give_back(self, holder: str, *holds: Hold) -> None:
        """Of this holder alone."""
        for hold in holds:
            self._held[hold].pop(holder, None)

    def give_all_back(self, holder: str) -> None:
        self.give_back(holder, *Hold)

    def held(self, *holds: Hold) -> bool:
        """Whether anybody has any of these."""
        return any(self._held[hold] for hold in holds)

    def names(self, hold: Hold) -> frozenset[str]:
        """Of what it is held, by all together."""
        return frozenset().union(*(one.names for one in self._held[hold].values()))

    def __str__(self) -> str:
        now = self._monotonic()
        lines = [
            f"{hold.name} by {who} for {now - one.since:.1f} s"
            for hold in Hold
            for who, one in self._held[hold].items()
        ]
        return ", ".join(lines) or "nothing"
