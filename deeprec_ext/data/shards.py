"""Batches that are whole shards, each with its place in its file: for work whose results are kept shard by shard."""

from __future__ import annotations

from typing import Any

from deeprec_ext.data.batches import Batch
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class ShardFeeder(Feeder):
    """Its dataset's batch has as many records as a shard; that at the end of a file has fewer, and is none the less alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shard = pb.Lease()
        """Of the batch that was given last."""
        self._read_so_far: dict[int, pb.Lease] = {}

    def _read(self, lease: pb.Lease, voids: int) -> None:
        with self._lock:
            needed = {part.lease for batch in self._outstanding for part in batch.parts}
            self._read_so_far = {name: one for name, one in self._read_so_far.items() if name in needed}
            self._read_so_far[lease.id] = lease
        super()._read(lease, voids)
        with self._lock:
            if self._partial.records:
                self._cut()

    def _next(self) -> Batch:
        batch = super()._next()
        self.shard = self._read_so_far[batch.parts[0].lease]
        return batch
