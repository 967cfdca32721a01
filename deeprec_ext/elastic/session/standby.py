"""Standby sessions: prepared for the loss of each PS, so that training goes on at once with the survivors.

They are built in the thread that prepares sessions, one run compiled at a time, so that commands never wait for more than one:
first every standby session with the runs of every step, then their other runs, last an optimised session in place of a present
one that was made in haste. Its runs are compiled in a thread of their own, at a still lower priority, and it is not begun
before it is known what standby sessions are for: they come first. Where the next change of the PS is likely to come soon, what
follows a change waits a while (`standby_delay_seconds`), but for a few seconds of work: with these the losses to which most
would be lost are prepared for at once. While a change goes on none is begun (`STAND_BACK_SECONDS`).

Before all that, and beside it, the steps of the present session are packed: in a thread of their own that is hardly nicer than
they are, since they take less time then.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from deeprec_ext.elastic.agent.background import GivenUpError
from deeprec_ext.errors import one_line
from deeprec_ext.gazer.cgroup import Cgroup

log = logging.getLogger("deeprec_ext")

MEMORY_SHARE = 0.2
"""With less of the memory left, of the machine or the container, none is added."""

MEMORY_SECONDS = 10.0
"""How soon it is looked again whether there is more: a shortage of a moment must not leave the job without them for good."""


STAND_BACK_SECONDS = 30.0
"""So long after a change has begun nothing else is prepared in advance, neither a standby session nor a better one, though
the present one is packed: the processes that come start on the processors that this would take. (When the change itself
prepares sessions, nothing is until it is over.) No more than half of the time is spent so, however many changes there are.
"""

EARLY_SECONDS = 5.0
"""So much is spent on standby sessions before the delay after a change is over; the first one is made however long it takes."""


FAILED_SECONDS = 300.0
"""After which a session that could not be made is tried again; and when the PS have changed."""


class _Pool(Protocol):
    """Of a `SessionPool`, what is needed here."""

    def drop_standby(self, keep: Iterable[Any]) -> list[Any]: ...
    def has_standby(self, wanted: Any) -> bool: ...
    def prepare(self, wanted: Any, *, standby: bool) -> None: ...
    def complete(self, wanted: Any) -> bool: ...
    def replaced(self) -> list[Any]: ...
    def pack_present(self, again: Callable[[], None]) -> None: ...
    def improve(self, again: Callable[[], None]) -> list[Any] | None: ...


class Standby:
    """Of one trainer.

    Args:
      put: queues work for the thread that prepares.
      pools: of the sessions that are open now.
      wanted: for what they should be prepared, the most important first; empty: for nothing; None: nothing may be touched.
      retire: closes what is not needed any more.
      hold_seconds: for how long no session is to be improved: it may be exchanged before that is done, or standby sessions
        will be wanted. Infinite: until `soon` is called again.
      done: is called when there is nothing more to do for now.
    """

    def __init__(
        self, put: Callable[[Callable[[], None]], None], pools: Callable[[], Collection[_Pool]],
        wanted: Callable[[], list[Any] | None], retire: Callable[[list[Any]], None],
        hold_seconds: Callable[[], float] = lambda: 0.0, done: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._hold_seconds, self._done = hold_seconds, done
        self._put, self._pools, self._wanted, self._retire = put, pools, wanted, retire
        self.delay_seconds = 0.0
        self._due = False
        self._placed_at = self._awake_at = 0.0
        self._back_until = self._back_again = 0.0  # until when it stands back, and from when on it may once more
        self._early_spent = 0.0  # seconds, since the PS have changed
        self._failed: list[tuple[Any, Any, float]] = []  # references to pools, what could not be made for them, when

    def placed(self) -> None:
        """The PS have changed just now. (Not trainers: where they come and go all the time it would never be done.)"""
        self._placed_at, self._early_spent = time.monotonic(), 0.0
        self._failed = []

    def stand_back(self) -> None:
        """A change has begun."""
        now = time.monotonic()
        if now >= self._back_again:
            self._back_until, self._back_again = now + STAND_BACK_SECONDS, now + 2 * STAND_BACK_SECONDS

    def go_on(self) -> None:
        """It has ended."""
        now = time.monotonic()
        if now < self._back_until:  # as long as it stood back it goes on now, at least
            self._back_again = 2 * now - (self._back_until - STAND_BACK_SECONDS)
        self._back_until = 0.0
        self.soon()

    def soon(self) -> None:
        """Prepare what is missing, when nothing else is to be prepared."""
        if not self._due:
            self._due = True
            self._put(self._prepare)

    def _prepare(self) -> None:
        self._due = False
        wanted, pools = self._wanted(), self._pools()
        if wanted is None:
            return
        short = available_memory_share() < MEMORY_SHARE
        for pool in pools:
            self._retire([*pool.drop_standby(wanted), *pool.replaced()])
            if not short:
                pool.pack_present(self.soon)
        if short:
            self._after(MEMORY_SECONDS)
        back = self._back_until - time.monotonic()
        early = self._placed_at + self.delay_seconds - time.monotonic()
        if back > 0:
            self._after(back)
        elif wanted and early > 0:
            self._after(early)
            if self._early_spent < EARLY_SECONDS:
                self._early(pools, wanted)
        elif self._piece(pools, wanted):
            self.soon()
        if not self._due:
            self._done()

    def _early(self, pools: Collection[_Pool], wanted: list[Any]) -> None:
        began = time.monotonic()
        if self._add(pools, wanted):
            self._early_spent += time.monotonic() - began
            self.soon()

    def _add(self, pools: Collection[_Pool], wanted: list[Any]) -> bool | None:
        """The next standby session; None: there are all, False: there is no memory for it."""
        missing = (
            (pool, one)
            for one in wanted
            for pool in pools
            if not pool.has_standby(one) and not self._has_failed(pool, one)
        )
        pool, one = next(missing, (None, None))
        if pool is None:
            return None
        if self._short():
            return False
        try:
            pool.prepare(one, standby=True)
        except GivenUpError:
            raise
        except Exception as error:  # of one loss: the others are prepared for all the same
            log.warning("a session could not be prepared in advance: %s", one_line(error))
            self._failed.append((weakref.ref(pool), one, time.monotonic()))
        return True

    def _has_failed(self, pool: _Pool, one: Any) -> bool:
        """Lately."""
        late = time.monotonic() - FAILED_SECONDS
        self._failed = [failed for failed in self._failed if failed[0]() is not None and failed[2] > late]
        return any(failed[0]() is pool and failed[1] == one for failed in self._failed)

    def _after(self, seconds: float) -> None:
        now = time.monotonic()
        if seconds < math.inf and not now < self._awake_at <= now + seconds:  # one timer that comes in time is enough
            self._awake_at = now + seconds
            timer = threading.Timer(seconds, self.soon)
            timer.daemon = True  # the end of the process does not wait for it
            timer.start()

    def _short(self) -> bool:
        """Whether memory is; then it is looked again later."""
        left = available_memory_share()
        if left < MEMORY_SHARE:
            log.info("no session is prepared in advance: %.0f %% of the memory is left", 100 * left)
            self._after(MEMORY_SECONDS)
        return left < MEMORY_SHARE

    def _piece(self, pools: Collection[_Pool], wanted: list[Any]) -> bool:
        """The next piece of work; whether there may be another."""
        if (added := self._add(pools, wanted)) is not None:
            return added
        if any(pool.complete(one) for pool in pools for one in wanted):
            return True
        if (hold := self._hold_seconds()) > 0:
            self._after(hold)
            return False
        if self._short():
            return False
        for pool in pools:
            done = pool.improve(self.soon)
            if done is not None:
                self._retire(done)
                return True
        return False


@functools.cache
def _container() -> Cgroup:
    return Cgroup()


def available_memory_share() -> float:
    """Of the machine's memory, or of this process's container, what is available, whichever is less; 1 where nobody tells."""
    left = _container().free_memory_share()
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            values = {line.split(":")[0]: float(line.split()[1]) for line in lines}
        return min(left, values["MemAvailable"] / values["MemTotal"])
    except (OSError, KeyError, ValueError, IndexError, ZeroDivisionError):
        return left
