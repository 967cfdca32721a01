"""The ledger of a process that belongs to no job: the same requests and replies as the AIMaster's, in memory, for one reader.

It gives the shards in the order in which the AIMaster's would give them to a single worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from deeprec_ext.data.readers.base import shares
from deeprec_ext.order import shard_order, shard_seed
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class LocalLedger:
    """Stock training: nothing is persisted, every pass begins at the first record of the first epoch."""

    def __init__(self, declaration: pb.Dataset) -> None:
        self._dataset = declaration
        self._next_lease = 0
        self._files: list[list[pb.Lease] | None] = [None] * len(declaration.files)  # shards of each, once counted
        self._scans = deque(range(len(declaration.files)))
        self._in_hand: dict[int, pb.Lease] = {}
        self._again: deque[pb.Lease] = deque()  # given back
        self._epoch = 0
        self._queue: deque[int] = deque()  # shards of this epoch, in order, as far as known
        self._queued_files = 0
        self._shuffled = False
        self._error = ""
        for number, file in enumerate(declaration.files):
            if declaration.reader == "range":
                begins = range(0, file.records, declaration.shard_records)
                self._count(number, begins, shares(file.records, declaration.shard_records), file.records)
                self._scans.remove(number)

    def answer(self, request: pb.DataRequest) -> pb.DataReply:
        reply = pb.DataReply(sequence=request.sequence, dataset=request.dataset, rewinds=request.rewinds)
        for progress in request.progress:
            lease = self._in_hand.get(progress.lease)
            if lease is not None:
                lease.done = progress.done
                if lease.done >= lease.records:
                    del self._in_hand[progress.lease]
        for lease_id in request.returned:
            lease = self._in_hand.pop(lease_id, None)
            if lease is not None:
                self._again.append(lease)
        for scanned in request.scanned:
            lease = self._in_hand.pop(scanned.lease, None)
            if lease is not None:
                self._count(lease.file, scanned.begins, scanned.records, scanned.end_byte)
        for failure in request.failed:
            lease = self._in_hand.pop(failure.lease, None)
            if lease is None:
                continue
            if not self._dataset.set_aside:
                self._error = self._error or failure.error
            elif lease.kind == pb.Lease.SCAN:
                self._count(lease.file, [], [], 0)
        reply.error = self._error
        while not self._error and len(reply.leases) < request.want and (lease := self._next()) is not None:
            reply.leases.append(lease)
        if reply.leases or any(self._in_hand) or self._more():
            reply.state = pb.DataReply.MORE if reply.leases or self._more() else pb.DataReply.DRAINED
        else:
            reply.state = pb.DataReply.END
        reply.complete = self._epoch + (reply.state == pb.DataReply.END)
        return reply

    # -- the order

    def _count(self, file: int, begins: Sequence[int], records: Sequence[int], end: int) -> None:
        ends = [*begins[1:], end]
        first, shards = 0, []
        for begin, finish, count in zip(begins, ends, records):
            shards.append(
                pb.Lease(kind=pb.Lease.DATA, file=file, first_record=first, records=count, begin_byte=begin, end_byte=finish)
            )  # fmt: skip
            first += count
        self._files[file] = shards

    @property
    def _shards(self) -> list[pb.Lease]:
        """Of the files that are counted, up to the first that is not."""
        found: list[pb.Lease] = []
        for shards in self._files:
            if shards is None:
                break
            found += shards
        return found

    def _fill(self) -> None:
        """Brings the queue of this epoch up to date; begins the next epoch when this one is given out."""
        counted = all(shards is not None for shards in self._files)
        shards = self._shards
        if self._dataset.shuffle:
            if counted and not self._shuffled:
                self._shuffled = True
                self._queue.extend(shard_order(self._dataset.seed, self._epoch, len(shards)))
        else:
            self._queue.extend(range(self._queued_files, len(shards)))
            self._queued_files = len(shards)
        last = self._dataset.epochs and self._epoch + 1 >= self._dataset.epochs
        waits = self._dataset.in_turn and bool(self._in_hand or self._again)
        if counted and shards and not self._queue and not last and not waits:
            self._epoch, self._shuffled, self._queued_files = self._epoch + 1, False, 0
            self._fill()

    def _more(self) -> bool:
        self._fill()
        return bool(self._again or self._queue or self._scans) or any(one is None for one in self._files)

    def _next(self) -> pb.Lease | None:
        if self._scans:
            lease = pb.Lease(kind=pb.Lease.SCAN, file=self._scans.popleft(), shard=-1)
        elif self._again:
            lease = self._again.popleft()
        else:
            self._fill()
            if not self._queue:
                return None
            number = self._queue.popleft()
            lease = pb.Lease()
            lease.CopyFrom(self._shards[number])
            lease.shard, lease.epoch = number, self._epoch
            if self._dataset.shuffle:
                lease.seed = shard_seed(self._dataset.seed, self._epoch, number)
        self._next_lease += 1
        lease.id = self._next_lease
        self._in_hand[lease.id] = lease
        given = pb.Lease()
        given.CopyFrom(lease)
        return given
