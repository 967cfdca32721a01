"""Waiting for a condition of the AIMaster's state, with a deadline. All on one event loop, so no locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    """Wakes those whose condition has become true when something has changed.

    Conditions are looked at here, once per turn of the loop however often `notify` was called, and not by the waiting
    tasks: a thousand registrations that wait for the first view must not each be woken by each other.
    """

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._scheduled = False

    def notify(self) -> None:
        if self._waiters and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        for waiter, condition in list(self._waiters.items()):
            if not waiter.done() and condition():
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
            self._waiters[waiter] = condition
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.pop(waiter, None)
        return True
