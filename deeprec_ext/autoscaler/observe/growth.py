"""How fast the memory of each process grows: a line through its last minutes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

SECONDS = 180.0
"""Looked back upon: long enough that a copy of a scaling or a collection of garbage is no growth."""

FEWEST, SHORTEST_SECONDS = 6, 30.0
"""Samples, and time between the first and the last, before a slope means anything."""

POINTS_MAX = 60
"""Of one process: one every three seconds."""


class Growth:
    """Fed at every tick with the memory of each process."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, float]]] = {}

    def observe(self, now: float, bytes_of: Mapping[str, float]) -> None:
        """Args: now: seconds; bytes_of: incarnation → bytes. Who is not in it any more is forgotten."""
        for gone in self._points.keys() - bytes_of.keys():
            del self._points[gone]
        for who, size in bytes_of.items():
            points = self._points.setdefault(who, deque(maxlen=POINTS_MAX))
            if not points or now - points[-1][0] >= SECONDS / POINTS_MAX:
                points.append((now, size))
            while points and now - points[0][0] > SECONDS:
                points.popleft()

    def slope(self, who: str) -> float:
        """Bytes per second, by least squares; 0 while too little is known."""
        points = self._points.get(who, deque())
        if len(points) < FEWEST or points[-1][0] - points[0][0] < SHORTEST_SECONDS:
            return 0.0
        middle = sum(time for time, _ in points) / len(points)
        mean = sum(size for _, size in points) / len(points)
        spread = sum((time - middle) ** 2 for time, _ in points)
        return sum((time - middle) * (size - mean) for time, size in points) / spread
