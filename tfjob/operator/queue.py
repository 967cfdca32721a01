"""Names of jobs to look at: each at most once in it, none by two at the same time, later where something is not due yet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BACKOFF_SECONDS, BACKOFF_MAX_SECONDS = 0.2, 60.0
"""After an error; doubled with each one in a row."""


class WorkQueue(Generic[K]):
    """For one event loop. Bounded by the number of different keys."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()  # in `_ready`
        self._working: set[K] = set()
        self._again: set[K] = set()  # came in while it was being worked on
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._working)

    def add(self, key: K) -> None:
        """As soon as possible."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Later, unless it comes in before; of several times the earliest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(due, self.add, key)

    async def get(self) -> K:
        """The next one; `done` must follow."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K, *, failed: bool = False) -> None:
        """`failed`: it comes again after a while, the longer the oftener it has failed in a row."""
        self._working.discard(key)
        if failed:
            count = self._failures[key] = self._failures.get(key, 0) + 1
            pause = min(BACKOFF_SECONDS * 2 ** min(count - 1, 20), BACKOFF_MAX_SECONDS)
            self.add_after(key, pause * random.uniform(0.8, 1.2))
        else:
            self._failures.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            if not failed:
                self.add(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
