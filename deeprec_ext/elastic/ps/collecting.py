"""Whose turn it is to collect dirty marks on this PS (`collector`): any backup, unless a final copy must be alone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator


class Collecting:
    """Held around everything that collects dirty marks; `hold` keeps it out while a final copy needs to be the only one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._active: list[object] = []  # who is inside
        self._held_until = 0.0

    def __enter__(self) -> None:
        self._enter(threading.current_thread())

    def __exit__(self, *_: object) -> None:
        self.forget(threading.current_thread())

    @contextlib.contextmanager
    def by(self, who: object) -> Iterator[None]:
        """The same, by somebody who may be forgotten."""
        self._enter(who)
        try:
            yield
        finally:
            self.forget(who)

    def _enter(self, who: object) -> None:
        with self._changed:
            while (left := self._held_until - self._clock()) > 0:
                self._changed.wait(left)
            self._active.append(who)

    def forget(self, who: object) -> None:
        """It is out, or hangs in a collection on a PS that is dead: nobody needs to wait for its end."""
        with self._changed:
            if who in self._active:
                self._active.remove(who)
            self._changed.notify_all()

    def hold(self, lease_seconds: float, timeout_seconds: float) -> bool:
        """Keeps newcomers out for `lease_seconds` (0: lets them in again); whether those inside ended in time."""
        with self._changed:
            self._held_until = self._clock() + lease_seconds if lease_seconds > 0 else 0.0
            self._changed.notify_all()
            return not lease_seconds or self._changed.wait_for(lambda: not self._active, timeout_seconds)
