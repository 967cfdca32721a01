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
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
