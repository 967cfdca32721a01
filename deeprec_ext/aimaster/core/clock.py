"""Time as the AIMaster sees it; tests inject their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back: ages and deadlines."""

    def wall(self) -> float:
        """Unix seconds: what is written down."""


class SystemClock:
    """Its wall time goes on evenly from what the machine's clock says at the start: one that is set, or jumps, while the
    job runs changes neither ages nor the order of what is written down."""

    def __init__(self, after: float = 0.0) -> None:
        """`after`: Unix seconds that have been written down already; it does not begin before."""
        self._ahead = max(time.time(), after) - time.monotonic()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.monotonic() + self._ahead
