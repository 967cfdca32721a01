"""The virtual clock: events in the order of time, and of their making where times are equal."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    job: str
    kind: str
    about: Any = None
    turn: int = 0  # of the job's `turn` of this kind when it was made; an older one is void


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0
        self._heap: list[tuple[float, int, Event]] = []

    def at(self, time: float, event: Event) -> None:
        """Never in the past; never, where the time is infinite."""
        if math.isfinite(time):
            heapq.heappush(self._heap, (max(time, self.now), self.count, event))
            self.count += 1

    def next(self) -> Event | None:
        """The next event; the clock stands at its time. None: there is none."""
        if not self._heap:
            return None
        self.now, _, event = heapq.heappop(self._heap)
        return event
