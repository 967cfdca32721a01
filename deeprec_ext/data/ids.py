"""Records that carry their ids (`with_ids=True`), so that stages after the dataset may shuffle, filter and batch them anew.

Elements are dicts with the feature `deeprec_record`, int64 [batch, 2]: the lease and the place in its order. The session
fetches it with each step, so it is known which records the step trained, in whatever order. A lease's progress is what is
trained without a gap. What never comes back is known at the end of the stream: then the pipeline is empty, and records that
no step has shown were filtered; they count as trained. While other workers still hold shards, the stream ends too (a shuffle
buffer would keep its records otherwise), and begins again when there is more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deeprec_ext.data.batches import Batch, Part, Ticket
from deeprec_ext.data.errors import DataError
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.graph.marks import RECORD
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def as_features(elements: Columns) -> dict[str, Any]:
    """Batches that are no dicts become the feature `record`."""
    return dict(elements) if not isinstance(elements, np.ndarray) else {"record": elements}


@dataclass
class Track:
    """The records of one lease that are in the pipeline."""

    done: int  # trained without a gap
    given: int
    beyond: set[int] = field(default_factory=set)  # trained behind the first gap
    skipped: set[int] = field(default_factory=set)  # damaged, and not in the pipeline: no gap

    def trained(self, places: np.ndarray) -> int:
        """Returns how many more are trained behind the gap (fewer: negative)."""
        before = len(self.beyond)
        self.beyond.update(int(place) for place in places if place >= self.done)
        while self.done in self.beyond or self.done in self.skipped:
            self.beyond.discard(self.done)
            self.skipped.discard(self.done)
            self.done += 1
        return len(self.beyond) - before

    def skip(self, part: Part) -> None:
        """The records of this part are in the pipeline, but for the damaged ones."""
        self.given = part.done
        self.skipped.update(part.skipped)


class IdFeeder(Feeder):
    """Until a session claims it, as any feeder: a batch counts as trained when the next one is read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tracks: dict[int, Track] = {}
        self._stream_ended = False  # by itself, in this era
        self._gave = False  # in this era
        self._last_records = self._most_records = 0  # of the last run, and of any

    def _finished_batch(self, batch: Batch) -> Batch:
        ids = np.concatenate([np.stack([np.full(part.records, part.lease), part.places()], 1) for part in batch.parts])
        return Batch({**as_features(batch.elements), RECORD: ids.astype(np.int64)}, batch.parts, batch.records)

    # -- giving

    def _next(self) -> Batch:
        if not self._claimed:
            return super()._next()
        batch = self._outstanding.popleft()
        self._gave = True
        for part in batch.parts:
            track = self._tracks.setdefault(part.lease, Track(part.first, 0))
            track.skip(part)
        return batch

    @property
    def _stream_over(self) -> bool:
        """Also when others hold the rest: what is in the pipeline must come out."""
        if not self._claimed:
            return super()._stream_over
        drained = self._leases.state == pb.DataReply.DRAINED and not self._leases.unread and not self._partial.records
        over = self._over or (drained and self._gave)
        self._stream_ended = self._stream_ended or (over and not self._outstanding)
        return over

    def _new_era(self) -> None:
        super()._new_era()
        self._abandon()
        self._stream_ended = self._gave = False

    def _abandon(self) -> None:
        """Nobody waits for the gaps to close: what was trained behind them is given once more."""
        self._leases.replayed += self._leases.beyond
        self._leases.beyond = 0
        self._tracks = {}

    def _left_out(self, part: Part) -> None:
        track = self._tracks.get(part.lease)
        if self._outstanding or track is None:
            super()._left_out(part)
            return
        track.skip(part)
        self._leases.beyond += track.trained(np.empty(0, np.int64))
        self._acknowledge(part.lease, track.done)

    def _handed(self) -> int:
        """What is trained behind gaps, and what runs under way may have read: of the pipeline no more than a step has had."""
        if not self._claimed:
            return super()._handed()
        pipeline = sum(track.given - track.done for track in self._tracks.values())
        if not self._most_records:
            return pipeline if self._running else 0
        batches = sum(ticket.batches for ticket in self._running.values())
        return min(pipeline, self._leases.beyond + batches * self._most_records)

    # -- for sessions

    def finish(self) -> None:
        with self._lock:
            self._abandon()
        super().finish()

    def renew(self) -> None:
        with self._lock:
            self._put_back()
            self._restart_needed = False

    def _put_back(self) -> None:
        """What is in the pipeline is lost with it: the ledger gives it again."""
        lost = [lease for lease in self._tracks if lease in self._leases.held]
        if lost:
            self._leases.give_back()
            self._drop()
        else:
            self._new_era()
        self._wake()

    def begin(self, batches: int, timeout_seconds: float) -> Ticket | None:
        with self._lock:
            self._wake_up()
            ready = lambda: bool(self._outstanding) or self._over or self._stream_over  # noqa: E731
            if not self._ready.wait_for(ready, timeout_seconds):
                return None
            return self._ticket(batches)

    def trained(self, ticket: Ticket, records: np.ndarray | None = None) -> None:
        if records is None:
            raise DataError(
                f"dataset {self.name}: the step did not show which records it trained: keep the feature {RECORD!r} in map"
            )
        with self._lock:
            if self._running.pop(ticket.number, None) is None:
                return
            ids = records.reshape(-1, 2)
            self._last_records = len(ids)
            self._most_records = max(self._most_records, len(ids))
            for lease in np.unique(ids[:, 0]).tolist():
                track = self._tracks.get(lease)
                if track is not None:
                    self._leases.beyond += track.trained(ids[ids[:, 0] == lease, 1])
                    self._acknowledge(lease, track.done)
            self._nudge()

    def _acknowledge(self, lease: int, done: int) -> None:
        held = self._leases.held.get(lease)
        if held is None or done >= held.lease.records:
            behind = len(self._tracks.pop(lease).beyond)
            self._leases.beyond -= behind
            self._leases.replayed += behind if held is None else 0  # the lease went to somebody else meanwhile
        self._leases.trained(lease, done)

    def _replay(self) -> None:
        self._leases.replayed += self._last_records
        self._restart_needed = True
        self._put_back()

    def unused(self, ticket: Ticket) -> bool:
        with self._lock:
            if self._running.pop(ticket.number, None) is None or not (self._stream_ended and self._gave):
                return False
            for lease, track in list(self._tracks.items()):  # no step has shown them: they were filtered
                self._acknowledge(lease, track.given)
            self._leases.beyond = 0
            self._new_era()
            self._restart_needed = True
            self._talk.notify_all()
            return True
