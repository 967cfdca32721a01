"""How long somebody has waited, in all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Waiting:
    """The time in which at least one thread was inside (`with waiting:`). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0
        self._since = 0.0
        self._total = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._since = self._clock()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._total += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """Since the start of the process, with a wait that goes on."""
        with self._lock:
            return self._total + (self._clock() - self._since if self._inside else 0.0)
