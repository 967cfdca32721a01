"""Which visits this process has trained to their end: what an AIMaster that has lost its store cannot know by itself.

A visit is a shard in an epoch, known by its rank in the epoch's order. Ranks are leased in order, so neighbours join, and an
epoch is a few ranges. Epochs of which nothing is left are forgotten.
"""

from __future__ import annotations

from bisect import bisect_right

from deeprec_ext.proto import deeprec_ext_pb2 as pb

RANGES_MAX = 200_000
"""In all. Beyond, new ones are not noted: they would be trained again if the store were lost."""


class TrainedVisits:
    """Ranges of ranks per epoch."""

    def __init__(self) -> None:
        self.complete = 0  # epochs, from the first on, of which nothing is left
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # epoch -> [first, end), in order, never touching
        self._count = 0

    def add(self, epoch: int, rank: int) -> None:
        if epoch < self.complete or self._count >= RANGES_MAX:
            return
        ranges = self._ranges.setdefault(epoch, [])
        place = bisect_right(ranges, (rank, 1 << 62))
        before = ranges[place - 1] if place else (-1, -1)
        if rank < before[1]:
            return
        first, end, low, high = rank, rank + 1, place, place
        if before[1] == rank:
            first, low = before[0], place - 1
        if place < len(ranges) and ranges[place][0] == end:
            end, high = ranges[place][1], place + 1
        ranges[low:high] = [(first, end)]
        self._count += 1 - (high - low)

    def completed(self, epochs: int) -> None:
        """Nothing is left of so many."""
        self.complete = max(self.complete, epochs)
        for epoch in [epoch for epoch in self._ranges if epoch < self.complete]:
            self._count -= len(self._ranges.pop(epoch))

    def clear(self) -> None:
        """The ledger was rewound: what was trained before does not count."""
        self.complete = self._count = 0
        self._ranges.clear()

    def tell(self) -> list[pb.Trained]:
        return [
            pb.Trained(epoch=epoch, first_rank=first, count=end - first)
            for epoch, ranges in sorted(self._ranges.items())
            for first, end in ranges
        ]
