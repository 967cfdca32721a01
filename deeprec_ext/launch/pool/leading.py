"""Who leads a pool, and what the leader does twice a second.

Each leader has a term, a number of its own: a file that it alone has made, and whose lock it holds. Whoever dies leaves a lock
that is free, and the next one leads at once, in a higher term. One that is stopped (Ctrl-Z), or hangs, keeps its lock; who sees
that it has decided nothing for STUCK_SECONDS takes over all the same. The one before may wake up at any line and still write
what it had in mind: that bears its term, no launcher obeys another than the highest (`membership`), and who leads writes its
own again over it, by what it remembers of its term.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
from collections.abc import Callable, Sequence
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


STUCK_SECONDS = 5.0
"""Without a decision, by who watches: a turn takes milliseconds."""


class Leader:
    """Of one launcher; it leads while its term is the highest. Not thread-safe."""

    def __init__(
        self,
        directory: PoolDirectory,
        *,
        decide: Callable[[Cluster], Decision] = decide_pool,
        look: Callable[[PoolDirectory, float], Seen] = look,
    ) -> None:
        self._directory, self._decide, self._look = directory, decide, look
        self._lock: IO[str] | None = None
        self._term = 0
        self._record: Record | None = None
        self._given: dict[str, Allowance] = {}  # in this term
        self._decision: Decision | None = None  # of it
        self._watched, self._since = (0, 0), 0.0  # (term, when it decided last) of another, unchanged since

    @property
    def leads(self) -> bool:
        return self._lock is not None

    def turn(self, now: float) -> bool:
        """Decides, if it leads; whether it does. Raises OSError: nothing is half-written, the next turn goes on."""
        if not self._in_office():
            self.close()
            if not self._takes_over(now):
                return False
        directory = self._directory
        there = self._look(directory, now)
        seen = self._own(there)
        for entry in seen.dead:
            log.info("the launcher of %s (pid %d) is gone; it leaves the pool %s", entry.job, entry.pid, directory.name)
            if not self._in_office():  # whoever leads now may know that it has come again
                return False
            directory.remove(entry.job)
        if seen.size is not None:  # what nobody knows is not shared
            cluster = observed(seen, now)
            decision = self._decide(cluster)
            allowances = stepped(cluster, decision, seen.given)
            if not self._in_office():  # it has woken up here: nobody would obey it
                return False
            self._write(there, decision, allowances)
            if self._record is None:
                self._record = Record(directory.record, RULES, self._term)
            self._record.add(cluster, decision)
        if self._lock is not None:
            os.utime(self._lock.fileno())
        return True

    def _own(self, seen: Seen) -> Seen:
        """With what it has said itself where one before it has written since."""
        given = {
            job: one if seen.terms.get(job) == self._term else self._given.get(job, one) for job, one in seen.given.items()
        }  # fmt: skip
        return dataclasses.replace(seen, given=given, decision=self._decision or seen.decision)

    def _write(self, there: Seen, decision: Decision, allowances: Sequence[Allowance]) -> None:
        directory, before = self._directory, self._decision
        for one in allowances:
            if one != there.given.get(one.job) or there.terms.get(one.job) != self._term:
                put(directory.allowance(one.job), {**dataclasses.asdict(one), "term": self._term})
        self._given = {one.job: one for one in allowances}
        if before is None or decision.allowances != before.allowances or there.decision != before:
            put(directory.decision, dataclasses.asdict(decision))
            self._decision = decision

    def close(self) -> None:
        """The next one may lead."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ------------------------------------------------------------------------------------------------ who leads

    def _in_office(self) -> bool:
        """The file is the one that is there: of a directory that was removed meanwhile it is nobody's."""
        if self._lock is None or self._directory.term() != self._term:
            return False
        try:
            return os.path.samestat(os.fstat(self._lock.fileno()), os.stat(self._directory.lock(self._term)))
        except OSError:
            return False

    def _takes_over(self, now: float) -> bool:
        """Raises OSError."""
        term = self._directory.term()
        if term and not self._is_free(term):
            pid = self._stuck(term, now)
            if not pid:
                return False
            log.info("the pool %s: its leader (pid %s) has decided nothing for a while", self._directory.name, pid)
        # No term comes twice, though the directory is removed and made again.
        return self._begin(max(term + 1, int(now)))

    def _is_free(self, term: int) -> bool:
        """Whether who led has ended. Raises OSError."""
        try:
            with self._directory.lock(term).open("r+b") as file:  # NFS locks only what may be written
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except FileNotFoundError:  # of a higher term by now
            return False
        return True

    def _stuck(self, term: int, now: float) -> str:
        """Its pid, if it has decided nothing for STUCK_SECONDS of ours, whatever clocks say."""
        path = self._directory.lock(term)
        with contextlib.suppress(OSError):
            watched = term, path.stat().st_mtime_ns
            if watched == self._watched:
                return (path.read_text()[:20].strip() or "?") if abs(now - self._since) >= STUCK_SECONDS else ""
            self._watched, self._since = watched, now
        return ""

    def _begin(self, term: int) -> bool:
        """Of several that try it one makes the file. Raises OSError."""
        path = self._directory.lock(term)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return False
        file = os.fdopen(descriptor, "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody looks whether it is free, and takes the next term
            file.close()
            return False
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):  # of a full disk: only who reads it misses it
            os.write(descriptor, b"%d\n" % os.getpid())
        self._lock, self._term, self._record, self._given, self._decision = file, term, None, {}, None
        for older in self._directory.terms():
            if older < term:
                with contextlib.suppress(OSError):
                    self._directory.lock(older).unlink()
        return True
