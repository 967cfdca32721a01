"""What a process's steps have taken for minutes: one slow minute makes nobody a straggler. Pure."""

from __future__ import annotations

import statistics
from collections import deque

SECONDS = 300.0
"""Looked back upon."""

SHORTEST_SECONDS = 120.0
"""From the first to the last value, before the median says anything about minutes."""

VALUES_MAX = 100
"""Of one process: one every three seconds."""


class Lasting:
    """Fed with the median step time of each interval that had steps."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=VALUES_MAX)

    def add(self, now: float, value: float) -> None:
        """Args: now: seconds, monotonic."""
        if not self._values or now - self._values[-1][0] >= SECONDS / VALUES_MAX:
            self._values.append((now, value))

    def median(self, now: float) -> float:
        """Over the last minutes; 0: there are too few."""
        while self._values and now - self._values[0][0] > SECONDS:
            self._values.popleft()
        if not self._values or self._values[-1][0] - self._values[0][0] < SHORTEST_SECONDS:
            return 0.0
        return statistics.median(value for _, value in self._values)
