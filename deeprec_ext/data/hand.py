"""The leases that a process holds of one dataset, with what is asked of them at every batch: a process may hold thousands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass
class Held:
    """One DATA lease in hand."""

    lease: pb.Lease
    read: int  # records cut into batches, in the shard's order
    trained: int
    told: int
    skipped: list[int] = field(default_factory=list)  # places of the order whose record is damaged

    def progress(self) -> pb.LeaseProgress:
        """All that is not acknowledged."""
        skipped = [place for place in self.skipped if self.told <= place < self.trained]
        return pb.LeaseProgress(lease=self.lease.id, done=self.trained, skipped=skipped)


class Hand:
    """By the number of the lease, in the order in which they came."""

    def __init__(self) -> None:
        self.unread = 0
        """Records that are in no batch yet."""
        self._held: dict[int, Held] = {}
        self._untold: dict[int, Held] = {}  # of which more is trained than is told

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def get(self, number: int) -> Held | None:
        return self._held.get(number)

    @property
    def untold(self) -> list[Held]:
        """Of which more is trained than the ledger has acknowledged."""
        return list(self._untold.values())

    @property
    def any_untold(self) -> bool:
        return bool(self._untold)

    def add(self, lease: pb.Lease) -> None:
        self._held[lease.id] = Held(lease, lease.done, lease.done, lease.done)
        self.unread += lease.records - lease.done

    def remove(self, number: int) -> Held | None:
        """None: it is not there."""
        held = self._held.pop(number, None)
        if held is not None:
            self._untold.pop(number, None)
            self.unread -= held.lease.records - held.read
        return held

    def clear(self) -> None:
        self._held.clear()
        self._untold.clear()
        self.unread = 0

    def read(self, held: Held, done: int) -> None:
        """So many records of the shard's order are in batches."""
        self.unread -= done - held.read
        held.read = done

    def trained(self, held: Held, done: int) -> int:
        """The first `done` records of the shard's order are trained; how many of them were not before."""
        more = max(0, done - held.trained)
        held.trained += more
        if held.trained > held.told:
            self._untold[held.lease.id] = held
        return more

    def told(self, held: Held, done: int) -> None:
        """The ledger has acknowledged the first `done`."""
        held.told = max(held.told, done)
        if held.told >= held.trained:
            self._untold.pop(held.lease.id, None)
