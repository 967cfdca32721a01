"""The feeder of one dataset in one process: leases in, batches out, and which of them are trained.

Three threads: one talks with the ledger, one reads shards and cuts batches into a bounded list, one counts files. Batches
that are given but not known to be trained stay in the list, so that they can be given again when a step failed, when the
iterator is made anew, or when the session had to be recovered.

An *era* is the life of one iterator. Whoever reads in an earlier era gets the end of the data, and what it read does not count.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from deeprec_ext.data.batches import Batch, Part, Partial, Ticket, said
from deeprec_ext.data.errors import DataError
from deeprec_ext.data.leases import REPORT_SECONDS, Leases
from deeprec_ext.data.readers.base import Columns, Reader, concatenate, order, take
from deeprec_ext.data.reading import LeasedFiles
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

BATCHES_AHEAD = 16
"""Batches cut in advance: hides the reading of a shard; each costs the memory of a batch."""

JOIN_SECONDS = 2.0

NUDGE_SECONDS = 0.05
"""Whether leases run short is looked at so often: not at every step."""


class Link(Protocol):
    """The way to the ledger."""

    def send(self, request: pb.DataRequest) -> None:
        """The reply comes through `Feeder.receive`, at once or later, or never."""


class Feeder:
    """Implements `elastic.agent.inputs.Source`. Owns its threads; `close` ends them.

    Args:
      declaration: the dataset; reader: of its files; batch_size: records.
      ahead_seconds: work to hold in leases.
      bad_records: `fail` or `skip`: what a damaged record does.
      clock: monotonic seconds.
      drop_remainder: there is no batch of fewer records: those that are left at the end of an epoch count as trained.
    """

    def __init__(
        self, declaration: pb.Dataset, reader: Reader, batch_size: int, ahead_seconds: float,
        bad_records: str = "fail", clock: Callable[[], float] = time.monotonic, drop_remainder: bool = False,
    ) -> None:  # fmt: skip
        self.declaration, self.reader, self.batch_size = declaration, reader, batch_size
        self.drop_remainder = drop_remainder
        self._clock = clock
        self._files = LeasedFiles(declaration, reader, self._pause, bad_records == "skip")
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)  # for the reading thread
        self._ready = threading.Condition(self._lock)  # for those who want batches
        self._talk = threading.Condition(self._lock)
        self._scan = threading.Condition(self._lock)
        self._leases = Leases(declaration, ahead_seconds, 4 * batch_size)
        self._leases.handed = self._handed
        self._link: Link | None = None
        self._outstanding: deque[Batch] = deque()  # from the first that is not known to be trained
        self._given = 0  # of these, in this era
        self.epoch = 0
        """Of the batch that was given last; of one over the end of an epoch that where it begins."""
        self._partial = Partial()
        self._mixed = False  # the first batches may be of another size than is cut now
        self._voids = 0  # grows when what was read before does not count any more
        self._era = 0
        self._attached = self._emptying = False
        self._claims = 0
        self._closed = False
        self._error = ""
        self._threads: list[threading.Thread] = []
        # of this era, counted from its beginning
        self._begun = self._finished = self._popped = self._tickets = 0
        self._running: dict[int, Ticket] = {}
        self._restart_needed = False
        self._nudged = 0.0

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def training(self) -> bool:
        return self.declaration.purpose == "train"

    @property
    def complete(self) -> int:
        """Epochs, from the first on, that all processes together have trained, as far as this one has heard."""
        return self._leases.complete

    @property
    def ended(self) -> bool:
        """Whether all of all epochs is trained."""
        return self._leases.state == pb.DataReply.END

    @property
    def drained(self) -> bool:
        """Whether processes hold all that is left, this one perhaps among them."""
        return self._leases.state == pb.DataReply.DRAINED

    @property
    def others_hold_the_rest(self) -> bool:
        """Of who waits for a batch: there is one when another process gives something back, or dies."""
        with self._lock:
            return self.drained and not self._leases.unread and not self._partial.records

    @property
    def reading(self) -> bool:
        """Whether records that no batch has yet are in hand: the next batch waits for this process alone."""
        with self._lock:
            return self._leases.unread > 0 and not self._leases.asleep

    @property
    def left(self) -> int | None:
        """Records in hand that no run has asked for; None: the ledger has more."""
        with self._lock:
            if self._leases.asleep or self._over:
                return 0
            if not self.drained:
                return None
            behind = itertools.islice(self._outstanding, self._begun - self._popped, None)
            return self._leases.unread + self._partial.records + sum(batch.records for batch in behind)

    @property
    def under_way(self) -> bool:
        """Whether tickets were given of which nobody knows yet what became of them."""
        return bool(self._running)

    @property
    def rewinds(self) -> int:
        """Of the ledger, as far as this process has heard."""
        return self._leases.rewinds

    def connect(self, link: Link) -> None:
        self._link = link

    def _start(self) -> None:
        """Begins to ask for leases, when somebody wants batches; with the lock held."""
        if self._threads or self._closed:
            return
        assert self._link is not None
        for name, work in (("talk", self._work_talk), ("read", self._work_read), ("scan", self._work_scan)):
            thread = threading.Thread(target=self._guarded, args=(work,), name=f"deeprec-data-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._wake()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def _wake(self) -> None:
        for condition in (self._room, self._ready, self._talk, self._scan):
            condition.notify_all()

    # -- for the iterator that reads batches

    def batches(self) -> Iterator[Columns]:
        """The batches of one era. Ends when the data has ended or another era has begun; raises DataError."""
        with self._lock:
            if self._emptying:  # it has not been read so far, and will not be
                return
            if self._attached:
                self._new_era()
            self._attached, self._leases.asleep = True, False
            self._start()
            self._talk.notify_all()
            era = self._era
        while True:
            with self._lock:
                if era == self._era and not self._claimed:
                    self._pop(self._given)  # who asks for the next one is done with the one before
                self._ready.wait_for(
                    lambda: era != self._era or self._given < len(self._outstanding) or self._stream_over
                )
                if era != self._era or self._closed:
                    return
                if self._given >= len(self._outstanding):
                    if self._failure:
                        raise DataError(self._failure)
                    return
                batch = self._next()
                self._room.notify_all()
            yield batch.elements

    def _next(self) -> Batch:
        batch = self._outstanding[self._given]
        self._given += 1
        self.epoch = batch.parts[0].epoch
        return batch

    @property
    def _stream_over(self) -> bool:
        """Whether the iterator of this era ends when it has given what there is."""
        return self._over

    @property
    def _failure(self) -> str:
        return self._error or self._leases.error

    @property
    def failure(self) -> str:
        """Why it gives no more; empty: it has not failed."""
        with self._lock:
            return self._failure

    @property
    def exhausted(self) -> bool:
        """Whether there will be no other batch: all is trained, by whomever; or it was closed, or has failed."""
        with self._lock:
            return self._over and self._given >= len(self._outstanding)

    @property
    def _over(self) -> bool:
        """Nothing will be added."""
        return self._closed or bool(self._failure) or self._leases.state == pb.DataReply.END

    def _new_era(self) -> None:
        self._era += 1
        self._given = self._begun = self._finished = self._popped = 0
        self._attached = False
        self._running.clear()
        self._ready.notify_all()

    # -- for sessions (elastic.inputs.Source)

    def claim(self) -> None:
        with self._lock:
            self._claims += 1
            self._start()

    def release(self) -> None:
        with self._lock:
            self._claims -= 1

    @property
    def _claimed(self) -> bool:
        return self._claims > 0

    @property
    def restart_needed(self) -> bool:
        return self._restart_needed

    @property
    def begun(self) -> bool:
        return self._attached

    def emptying(self, on: bool) -> None:
        with self._lock:
            self._emptying = on

    def renew(self) -> None:
        """The iterator is about to be made anew: the batches not known to be trained come first again."""
        with self._lock:
            self._new_era()
            self._restart_needed = False
            if self._mixed:
                self._mixed = False
                self._cut_anew(0)

    def cut_to(self, records: int) -> bool:
        """Batches have so many records from now on, also those that are read and not given. False: some of another size were
        read ahead of their runs, and come anew with `renew`."""
        with self._lock:
            asked_for = self._begun - self._popped
            if records != self.batch_size:
                self.batch_size, self._mixed = records, True
                self._cut_anew(max(self._given, asked_for))
            return not self._mixed or self._given <= asked_for

    def end_late(self) -> None:
        with self._lock:
            if self._restart_needed and self._attached:
                self._new_era()

    def restarted(self) -> None:
        self._restart_needed = False

    def restart(self) -> None:
        with self._lock:
            if self._running:
                self._replay()
            else:
                self.renew()
            self._restart_needed = True

    def valid(self, ticket: Ticket) -> bool:
        return ticket.number in self._running

    def begin(self, batches: int, timeout_seconds: float) -> Ticket | None:
        with self._lock:
            self._wake_up()
            wanted = self._begun - self._popped + batches
            if not self._ready.wait_for(lambda: len(self._outstanding) >= wanted or self._over, timeout_seconds):
                return None
            return self._ticket(batches)

    def _wake_up(self) -> None:
        if self._leases.asleep:
            self._leases.asleep = False
            self._talk.notify_all()

    def _ticket(self, batches: int) -> Ticket:
        if self._failure:
            raise DataError(self._failure)
        self._tickets += 1
        ticket = Ticket(self._tickets, batches, self._finished)
        self._begun += batches
        self._running[ticket.number] = ticket
        if not self._leases.total_trained:
            self._nudge()
        return ticket

    def trained(self, ticket: Ticket, records: np.ndarray | None = None) -> None:
        with self._lock:
            if self._running.pop(ticket.number, None) is None:
                return  # what it trained is given once more: counted when the era ended
            self._finished += ticket.batches
            self._pop_sure()

    def _pop_sure(self) -> None:
        """A run may read any batch but those that runs had finished with when it began."""
        sure = min((one.finished_before for one in self._running.values()), default=self._finished)
        self._pop(sure - self._popped)

    def repeated(self, records: int) -> None:
        """A run that was given these records itself was made twice: it may have trained them twice."""
        with self._lock:
            self._leases.replayed += records

    def failed(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket.number in self._running:
                self._replay()

    def withdraw(self, ticket: Ticket) -> None:
        with self._lock:
            if self._running.pop(ticket.number, None) is not None:
                self._begun -= ticket.batches
                self._pop_sure()  # else what is trained before it would come again, too, with another era

    def unused(self, ticket: Ticket) -> bool:
        self.withdraw(ticket)
        return False

    def broken(self, ticket: Ticket, error: str) -> None:
        with self._lock:
            if ticket.number not in self._running:
                return
            first = ticket.finished_before - self._popped
            suspects = list(self._outstanding)[first : first + ticket.batches]
            for part in {part.lease: part for batch in suspects for part in batch.parts}.values():
                lease = self._leases.held.get(part.lease)
                if lease is not None:
                    self._leases.fail(part.lease, f"{self._files.shard(lease.lease)}: {error}")
            self._leases.give_back()
            self._drop()

    def _replay(self) -> None:
        """What runs under way have read is given once more."""
        first = min(one.finished_before for one in self._running.values()) - self._popped
        for batch in list(self._outstanding)[first : self._begun - self._popped]:
            self._leases.replayed += batch.records
        self._new_era()
        self._restart_needed = True

    def _pop(self, batches: int) -> None:
        """The first batches are trained."""
        for _ in range(min(batches, len(self._outstanding))):
            batch = self._outstanding.popleft()
            self._given -= 1
            self._popped += 1
            for part in batch.parts:
                if not self._leases.trained(part.lease, part.done):
                    self._leases.replayed += part.records  # the lease went to somebody else meanwhile
        if batches > 0:
            self._room.notify_all()
            self._nudge()

    def _nudge(self) -> None:
        """Wakes the talking thread when it has something to say; it looks by itself twice a second."""
        now = self._clock()
        if (now - self._nudged > NUDGE_SECONDS or not self._outstanding) and self._leases.due_in(now) <= 0:
            self._nudged = now
            self._talk.notify_all()

    def _drop(self) -> None:
        """All that was read does not count: other leases will bring it again."""
        self._outstanding.clear()
        self._partial = Partial()
        self._voids += 1
        # A run that is under way and has not read yet would read what comes next, without a ticket for it.
        self._restart_needed = self._restart_needed or self._attached or bool(self._running)
        self._new_era()
        self._wake()

    def waits_for(self) -> str:
        with self._lock:
            if self._leases.state == pb.DataReply.DRAINED:
                return f"dataset {self.name}: other workers hold the last shards"
            if self._leases.to_scan:
                return f"dataset {self.name}: files are being counted"
            if self._leases.unread:
                path = self._files.path(self._leases.to_read[0]) if self._leases.to_read else ""
                return f"dataset {self.name}: reading {path}"
            return f"dataset {self.name}: leases from the AIMaster"

    def receive(self, reply: pb.DataReply) -> None:
        with self._lock:
            if self._leases.receive(reply, self._clock()):
                log.info("dataset %s goes back to the position of a checkpoint or backup", self.name)
                self._drop()
            self._wake()

    def registered(self, aimaster_incarnation: int) -> None:
        with self._lock:
            self._leases.registered(aimaster_incarnation)
            self._talk.notify_all()

    def tell(self) -> pb.DataKnown:
        with self._lock:
            return self._leases.tell()

    def finish(self) -> None:
        """What is trained is told, the rest given back; the feeder sleeps until somebody asks again."""
        self._give_back(listens=False)

    def rest(self) -> None:
        """As `finish`, but it goes on asking how far the others are."""
        self._give_back(listens=True)

    def _give_back(self, listens: bool) -> None:
        with self._lock:
            self._leases.listens = listens
            if not self._threads or self._leases.asleep:
                return
            self._leases.asleep = True
            request = self._leases.last_request(self._clock())
            self._drop()
        assert self._link is not None
        if request is not None:
            self._link.send(request)

    # -- the threads

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            log.exception("the feeder of dataset %s failed", self.name)
            with self._lock:
                self._error = f"dataset {self.name}: {type(error).__name__}: {error}"
                self._wake()

    def _pause(self, seconds: float) -> bool:
        """Whether the feeder was closed meanwhile."""
        with self._lock:
            return self._room.wait_for(lambda: self._closed, seconds)

    def _work_talk(self) -> None:
        assert self._link is not None
        while True:
            with self._lock:
                if self._closed:
                    return
                request = self._leases.request(self._clock())
                if request is None:
                    self._talk.wait(min(REPORT_SECONDS, self._leases.due_in(self._clock())))
                    continue
            self._link.send(request)

    def _work_scan(self) -> None:
        while True:
            with self._lock:
                self._scan.wait_for(lambda: self._closed or self._leases.to_scan)
                if self._closed:
                    return
                lease = self._leases.to_scan[0]
            try:
                scanned = self._files.scan(lease)
            except Exception as error:  # a reader may be the user's
                with self._lock:
                    self._fail(lease, f"counting the records of {self._files.path(lease)}: {said(error)}")
                continue
            with self._lock:
                self._leases.scanned(scanned)
                self._talk.notify_all()

    def _fail(self, lease: pb.Lease, error: str) -> None:
        log.warning("dataset %s: %s", self.name, error)
        self._leases.fail(lease.id, error)
        self._talk.notify_all()

    def _work_read(self) -> None:
        while True:
            with self._lock:
                self._room.wait_for(lambda: self._closed or self._leases.to_read or self._flushable)
                if self._closed:
                    return
                if self._flushable:
                    if self.drop_remainder:
                        self._drop_rest()
                    else:
                        self._cut()
                    continue
                lease = self._leases.to_read.popleft()
                voids = self._voids
            self._read(lease, voids)

    @property
    def _flushable(self) -> bool:
        """Whether the short rest must be trained now, since others or the end wait for it."""
        over = self._leases.state in (pb.DataReply.DRAINED, pb.DataReply.END)
        return over and self._partial.records > 0 and not self._leases.to_read

    def _read(self, lease: pb.Lease, voids: int) -> None:
        try:
            columns, bad = self._files.read(lease)
        except Exception as error:  # a reader may be the user's
            shard = self._files.shard(lease)
            with self._lock:
                self._fail(lease, str(error) if str(shard) in str(error) else f"{shard}: {said(error)}")
            return
        rows = order(lease.seed, lease.records)
        skipped = _places(bad, rows, lease.records)
        done = lease.done
        with self._lock:
            if (held := self._leases.held.get(lease.id)) is not None:
                held.skipped = skipped.tolist()
        while done < lease.records:
            with self._lock:
                self._room.wait_for(lambda: self._closed or voids != self._voids or self._has_room)
                held = self._leases.held.get(lease.id)
                if self._closed or voids != self._voids or held is None:
                    return
                wanted = max(1, self.batch_size - self._partial.records)
                part = _part(lease, done, wanted, skipped)
                if not part.skipped:
                    piece = take(columns, slice(done, part.done) if rows is None else rows[done : part.done])
                else:
                    piece = take(columns, part.places() if rows is None else rows[part.places()])
                self._leases.held.read(held, done := part.done)
                self._add(part, piece)
                self._nudge()

    @property
    def _has_room(self) -> bool:
        return len(self._outstanding) - self._given < BATCHES_AHEAD

    def _cut(self) -> None:
        partial, self._partial = self._partial, Partial()
        batch = Batch(concatenate(partial.columns), tuple(partial.parts), partial.records)
        self._outstanding.append(self._finished_batch(batch))
        self._ready.notify_all()

    def _cut_anew(self, first: int) -> None:
        """What is read and in no batch before the one with this number; with the lock held."""
        behind = list(itertools.islice(self._outstanding, first, None))
        for _ in behind:
            self._outstanding.pop()
        rest, self._partial = self._partial, Partial()
        columns = [*(batch.elements for batch in behind), *rest.columns]
        if not columns:
            return
        records, at = concatenate(columns), 0
        left = deque([*(part for batch in behind for part in batch.parts), *rest.parts])
        while left:
            part, more = _divided(left.popleft(), self.batch_size - self._partial.records)
            if more is not None:
                left.appendleft(more)
            self._add(part, take(records, slice(at, at + part.records)))
            at += part.records
        self._wake()

    def _add(self, part: Part, piece: Columns) -> None:
        """The next records of all."""
        if part.records or self._partial.records:
            self._partial.columns.append(piece)
            self._partial.parts.append(part)
            self._partial.records += part.records
        else:
            self._left_out(part)
        if self._partial.records >= self.batch_size:
            self._cut()

    def _drop_rest(self) -> None:
        """Of too few records for a batch: done with when the batch before them is."""
        partial, self._partial = self._partial, Partial()
        for part in partial.parts:
            self._left_out(part)
        self._nudge()

    def _finished_batch(self, batch: Batch) -> Batch:
        return batch

    def _left_out(self, part: Part) -> None:
        """A part that is in no batch, of damaged records only or dropped: done with what is before it."""
        if self._outstanding:
            last = self._outstanding[-1]
            self._outstanding[-1] = dataclasses.replace(last, parts=(*last.parts, part))
        else:
            self._leases.trained(part.lease, part.done)

    def _handed(self) -> int:
        """Records given to steps that are not known to be trained."""
        count = self._begun - self._popped if self._claimed else self._given
        return sum(batch.records for batch in itertools.islice(self._outstanding, max(0, count)))


def _places(bad: Sequence[int], rows: np.ndarray | None, records: int) -> np.ndarray:
    """Places in the shard's order, sorted, of the records with these numbers."""
    if not len(bad):
        return np.empty(0, np.int64)
    left_out = np.zeros(records, bool)
    left_out[list(bad)] = True
    return np.flatnonzero(left_out if rows is None else left_out[rows])


def _part(lease: pb.Lease, done: int, wanted: int, skipped: np.ndarray) -> Part:
    """The next `wanted` records of the lease, or all that are left; with the damaged ones before and, at the end, behind."""
    if not len(skipped):
        until = min(lease.records, done + wanted)
        return Part(lease.id, until, until - done, epoch=lease.epoch)
    good = np.setdiff1d(np.arange(done, lease.records), skipped, assume_unique=True)
    until = int(good[wanted - 1]) + 1 if len(good) > wanted else lease.records
    left_out = tuple(skipped[(skipped >= done) & (skipped < until)].tolist())
    return Part(lease.id, until, until - done - len(left_out), left_out, lease.epoch)


def _divided(part: Part, wanted: int) -> tuple[Part, Part | None]:
    """At most so many records of it, and the rest."""
    if part.records <= wanted:
        return part, None
    until = int(part.places()[wanted - 1]) + 1 if part.skipped else part.first + wanted
    before = tuple(place for place in part.skipped if place < until)
    return (
        dataclasses.replace(part, done=until, records=wanted, skipped=before),
        dataclasses.replace(part, records=part.records - wanted, skipped=part.skipped[len(before) :]),
    )
