"""The thread that keeps the peer backups of a PS (or a holder) up to date: `peer_backup`."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from deeprec_ext.elastic.agent.background import STEADY_NICENESS, politely, without_collections
from deeprec_ext.elastic.ps.held_slots import RUN_LIMIT_SECONDS, Assignment, HeldSlot, HeldSlots
from deeprec_ext.errors import DeepRecError, one_line
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

RETRY_SECONDS, RETRIES_SOON = 1.0, 3
"""After a refresh that failed, how long until the copy that failed is made anew; after so many it waits as long as others."""

BUSY_SHARE = 0.5
"""Most of the time that refreshes may take: what is updated densely is copied whole each time, and may take longer than the
interval. Then the copies are as old as they are told to be. First copies are made once, and do not count."""

LATE_SECONDS = 0.5
"""Copies that are older than the interval and this get the priority of the steps: on a full machine none would come else."""

OF_ONE_SLOT = (
    DeepRecError, tf.errors.NotFoundError, tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
)  # fmt: skip
"""What concerns one slot alone: the PS that owns it answers."""


class Refresher:
    """One thread that keeps the backups up to date. When it hangs in a run on a dead PS, it is left behind."""

    def __init__(self, owner: HeldSlots) -> None:
        self._owner = owner
        self._inbox: queue.Queue[str] = queue.Queue(100)
        self._lock = threading.Lock()
        self._next: tuple[Assignment, list[HeldSlot]] | None = None
        self._source: int | None = None  # being read
        self._abandoned = False
        self._refreshing = 0.0  # seconds of the present cycle, without first copies
        self._taken_at = 0.0  # when the present assignment came; on the monotonic clock
        self._thread = threading.Thread(target=self._work, name="deeprec-guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when its run has ended; it begins no other."""
        self._abandoned = True
        self.wake("stop")
        self._thread.join()

    def take(self, assignment: Assignment, gone: list[HeldSlot]) -> bool:
        """Hands over the next assignment. False: the thread reads from a PS that is not in it any more, probably a dead one,

        so nobody knows when it returns; it is left behind, and ends when it does."""
        with self._lock:
            if self._source is not None and self._source not in {one.source for one in assignment.slots.values()}:
                self._abandoned = True
                return False
            self._next = assignment, [*(self._next[1] if self._next else ()), *gone]
        self.wake("assignment")
        return True

    def wake(self, why: str) -> None:
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(why)

    def _work(self) -> None:
        now, due, failed = Assignment(0), 0.0, 0
        while not self._abandoned:
            pause = due - time.monotonic() if now.slots and now.seconds > 0 else RUN_LIMIT_SECONDS
            why = ""
            with contextlib.suppress(queue.Empty):
                why = self._inbox.get(timeout=max(0.0, pause))
            if self._abandoned:
                return
            with self._lock:
                taken, self._next = self._next, None
            if taken is not None:
                now, gone = taken
                self._taken_at = time.monotonic()
                self._retire(gone)
            elif not why and pause > 0 and now.seconds <= 0:
                continue
            started, self._refreshing = time.monotonic(), 0.0
            failed = 0 if self._cycle(now) else failed + 1
            ended = time.monotonic()
            usual = max(now.seconds or RUN_LIMIT_SECONDS, self._refreshing / BUSY_SHARE)
            due = ended + RETRY_SECONDS if 0 < failed <= RETRIES_SOON else started + usual

    def _retire(self, gone: list[HeldSlot]) -> None:
        for one in gone:
            with self._owner.lock:  # a thread that was left behind may be copying it
                one.retired, mover, one.mover = True, one.mover, None
            if mover is not None:
                threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()
        try:
            self._owner.drop_copies(gone)
        except tf.errors.OpError as error:
            log.warning("old backups could not be removed: %s", one_line(error))

    def _cycle(self, now: Assignment) -> bool:
        """One refresh of everything, source by source; whether all went well."""
        sources: dict[int, list[HeldSlot]] = {}
        for one in now.slots.values():
            sources.setdefault(one.source, []).append(one)
        good = True
        for source, some in sources.items():
            with self._lock:
                if self._abandoned or self._next is not None:
                    return good
                self._source = source
            niceness = None if self._late(now, some) else STEADY_NICENESS
            good = politely(self._refresh, now, some, niceness=niceness) and good
            with self._lock:
                self._source = None
        return good

    def _late(self, now: Assignment, some: list[HeldSlot]) -> bool:
        """Whether a copy is older than it is to be, or has not come in that time."""
        oldest = min(one.began if one.began is not None else self._taken_at for one in some)
        return now.seconds > 0 and time.monotonic() - oldest > now.seconds + LATE_SECONDS

    def _refresh(self, now: Assignment, some: list[HeldSlot]) -> bool:
        started, sent, first, done = time.monotonic(), 0, False, []
        owner = self._owner
        error = ""
        for one in some:
            if one.retired or owner.frozen:
                return False
            try:
                began = time.monotonic()
                mover = one.mover
                if mover is None:
                    sent += self._first_copy(one)
                    first = first or not one.exact
                else:
                    sent += mover.refresh(self._turn)
                    self._refreshing += time.monotonic() - began
                    if mover.appeared():
                        text = (
                            f"slot {one.slot}: a variable was initialised that the copy has not, so it is copied anew"
                        )
                        raise DeepRecError(text)
                one.began = began
                done.append(one)
            except (tf.errors.OpError, DeepRecError) as caught:
                alone = isinstance(caught, OF_ONE_SLOT)
                for bad in [one] if alone else some:  # rows may have been taken and not arrived: everything again;
                    self._discard(bad)  # and a session that names a dead PS may hang at any further run
                quiet = owner.frozen or any(guarded.retired for guarded in some)
                error = error or ("" if quiet else one_line(caught))
                if not alone or quiet or self._abandoned:
                    break
        if done:
            age = time.monotonic() - min((one.began for one in done if one.began is not None), default=started)
            owner.report_copies(
                done, guard=now.guard, bytes=sent, full_bytes=sum(one.full_bytes for one in some),
                seconds=time.monotonic() - started, age_seconds=age, first=first,
            )  # fmt: skip
        if error:
            owner.report(pb.BackupReport(guard=now.guard, error=error))
        return len(done) == len(some)

    def _discard(self, one: HeldSlot) -> None:
        with self._owner.lock:
            mover, one.mover, one.exact = one.mover, None, False
        if mover is not None:
            threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """To be held while dirty rows are taken."""
        if self._owner.frozen:  # somebody else may read them by now
            raise DeepRecError("the copies are to stay as they are")
        with self._owner.collecting.by(self):
            if self._abandoned:  # nobody would forget it again, should it hang
                raise DeepRecError("another thread keeps the backups now")
            yield

    def _first_copy(self, one: HeldSlot) -> int:
        """Or, where our copy was exact when the source became the owner, the first of its dirty rows."""
        with (
            self._owner.copying
        ):  # what is becoming a backup just now would overwrite it; who comes later leaves it alone
            mover, exact = self._owner.mover_for(one), one.exact
        try:
            with without_collections():
                mover.arm(verify=False, tracked=True, begins=not exact)
            had = {variable.name for variable in one.copied} if one.began is not None else set()
            # Else what is here would be taken for as young as what is not there.
            if lost := had.intersection(mover.skipped):
                raise DeepRecError(f"slot {one.slot}: {min(lost)} is not on its PS any more")
            if self._owner.frozen:
                raise DeepRecError("the copies are to stay as they are")
            sent = 0 if exact else mover.first()
            sent += mover.refresh(self._turn)
            one.full_bytes = sum(variable.bytes for variable in one.variables)
            left_out = frozenset(mover.skipped)
            with self._owner.lock:
                if left_out != one.left_out:
                    one.left_out, one.promote = left_out, None
            if self._owner.promotes and one.promote is None:
                self._owner.compile_promotion(one)
            with self._owner.lock:
                if one.retired:
                    raise DeepRecError(f"slot {one.slot} is not to be kept here any more")
                one.mover = mover
        except BaseException:
            threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()
            raise
        return sent
