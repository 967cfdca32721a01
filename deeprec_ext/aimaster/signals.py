"""Waiting for a condition of the AIMaster's state, with a deadline. All on one event loop, so no locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    """Wakes everybody who waits when something has changed; they look at the state again."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_seconds: float | None) -> bool:
        """Whether `condition` became true in time. None waits for ever (only where a caller has its own deadline)."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while not condition():
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return True
