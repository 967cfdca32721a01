"""Who leads a pool, and what the leader does twice a second. Whoever dies leaves a lock that the next one has at once."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
from collections.abc import Callable
from typing import IO

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision
from deeprec_ext.arbiter.record import Record
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.launch.pool.places import PoolDirectory, put
from deeprec_ext.launch.pool.seen import Seen, look, observed
from deeprec_ext.launch.pool.stepping import stepped

log = logging.getLogger(__name__)

RULES = Rules(stops=False, settle_seconds=10.0)
"""Processes of one machine come and go within seconds, and cores that nobody has are lost meanwhile."""


def decide_pool(cluster: Cluster) -> Decision:
    return decide(cluster, RULES)


class Leader:
    """Of one launcher; it leads while it holds the lock, which the kernel drops with the process. Not thread-safe."""

    def __init__(
        self,
        directory: PoolDirectory,
        *,
        decide: Callable[[Cluster], Decision] = decide_pool,
        look: Callable[[PoolDirectory, float], Seen] = look,
    ) -> None:
        self._directory, self._decide, self._look = directory, decide, look
        self._lock: IO[str] | None = None
        self._record: Record | None = None
        self._told: tuple[Allowance, ...] = ()

    @property
    def leads(self) -> bool:
        return self._lock is not None

    def turn(self, now: float) -> bool:
        """Decides, if it leads; whether it does. Raises OSError: nothing is half-written, the next turn goes on."""
        if not self._has_lock():
            return False
        directory = self._directory
        seen = self._look(directory, now)
        for entry in seen.dead:
            log.info("the launcher of %s (pid %d) is gone; it leaves the pool %s", entry.job, entry.pid, directory.name)
            directory.remove(entry.job)
        if seen.size is None:  # what nobody knows is not shared
            return True
        cluster = observed(seen, now)
        decision = self._decide(cluster)
        for one in stepped(cluster, decision, seen.given):
            if one != seen.given.get(one.job):
                put(directory.allowance(one.job), dataclasses.asdict(one))
        if decision.allowances != self._told:
            put(directory.decision, dataclasses.asdict(decision))
            self._told = decision.allowances
        if self._record is None:
            self._record = Record(directory.record, RULES)
        self._record.add(cluster, decision)
        return True

    def close(self) -> None:
        """The next one may lead."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _has_lock(self) -> bool:
        """The file that is there: one whose directory was removed meanwhile is nobody's lock."""
        path = self._directory.lock
        if self._lock is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._lock.fileno()), os.stat(path)):
                    return True
            self.close()
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except OSError:
            file.close()
            raise
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._lock, self._record, self._told = file, None, ()
        return True
