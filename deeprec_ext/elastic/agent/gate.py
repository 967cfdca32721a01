"""The gate at the step boundary: every run that touches the PS passes it, and the agent can close it.

A pause is a lease. When it runs out, the runs that wait go on by themselves, whatever became of the AIMaster.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator

from deeprec_ext.elastic.agent.causes import GATE, causes
from deeprec_ext.elastic.agent.waiting import Waiting


class Gate:
    """Counts the runs under way; closed, it holds back new ones. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._under_way: set[int] = set()
        self._tickets = itertools.count()
        self._closed_until: float | None = None
        self.waits = 0  # runs that had to wait here since the start
        self.waiting = Waiting(clock)

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """One run: waits while the gate is closed, at most until the lease runs out."""
        with self._changed:
            if self._closed_until is not None:
                self._wait_until_open()
            ticket = next(self._tickets)
            self._under_way.add(ticket)
        try:
            yield
        finally:
            with self._changed:
                self._under_way.discard(ticket)
                self._changed.notify_all()

    def _wait_until_open(self) -> None:
        self.waits += 1
        with self.waiting, causes.during(GATE):
            while self._closed_until is not None:
                remaining = self._closed_until - self._clock()
                if remaining <= 0:
                    self._closed_until = None
                    self._changed.notify_all()
                    return
                self._changed.wait(remaining)

    def close(self, lease_seconds: float) -> None:
        """Holds back new runs until `open`, or until the lease runs out."""
        with self._changed:
            self._closed_until = self._clock() + lease_seconds

    def open(self) -> None:
        with self._changed:
            self._closed_until = None
            self._changed.notify_all()

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Whether, within the time, no run is under way any more. New ones may start unless the gate is closed."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, timeout_seconds)

    def wait_past(self, timeout_seconds: float) -> bool:
        """Whether, within the time, every run that is under way now has ended; later ones do not matter."""
        with self._changed:
            now = set(self._under_way)
            return self._changed.wait_for(lambda: not (now & self._under_way), timeout_seconds)

    @property
    def closed(self) -> bool:
        return self._closed_until is not None and self._closed_until > self._clock()
