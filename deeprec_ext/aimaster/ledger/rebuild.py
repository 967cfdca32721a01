"""The data ledger of an AIMaster that has lost its store, put together again.

Two sources. The *replica*: a few PS keep what the ledger was some seconds ago (`replicated`). And what the trainers tell
(`DataKnown`): visits they have trained to their end, leases they hold, and how far they are with them.

What is guaranteed. A visit is trained if the replica or a trainer says so; no trainer is contradicted. Leases go on in the
hands of those who tell them. Every other visit that has been given out is given out again, so nothing is lost; whether it
was trained already nobody knows, so all of it counts as repeated (`unsure`). Such visits are those of trainers that died or
left after the last replica, and those in an answer that never arrived.

Without the table of shards (the replica is lost, or not all files were counted) ranks say nothing. The ledger then goes back to
the replica's position, or to the beginning, like after a restored checkpoint: all leases are void, and what the trainers have
trained counts as repeated.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger.dataset import Counters, Dataset
from deeprec_ext.aimaster.ledger.files import FileShards
from deeprec_ext.aimaster.ledger.leasing import Holder
from deeprec_ext.aimaster.ledger.position import Position
from deeprec_ext.aimaster.ledger.visits import Epoch, Visit
from deeprec_ext.decoding import built
from deeprec_ext.proto import deeprec_ext_pb2 as pb

TABLE_BYTES_MAX = 512 << 20
"""Of an unpacked table of shards: sixteen bytes a shard."""

Spans = Sequence[tuple[int, int]]
"""Ranks [first, end), in order, not touching."""


@dataclass(frozen=True)
class DatasetReplica:
    """One dataset as it was when the AIMaster last told the PS."""

    position: Position
    trained: int = 0  # records, in it
    counters: Counters = field(default_factory=Counters)
    aside: tuple[int, ...] = ()
    replayed: Mapping[str, int] = field(default_factory=dict)
    told_end: bool = False
    came_to: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        return {
            "position": positions.plain(self.position), "trained": self.trained, "counters": asdict(self.counters),
            "aside": self.aside, "replayed": dict(self.replayed), "told_end": self.told_end,
            "came_to": self.came_to,
        }  # fmt: skip

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> DatasetReplica:
        counters = built(Counters, values["counters"], newer=True)
        position, trained = positions.from_plain(values["position"]), int(values["trained"])
        aside, replayed = tuple(values["aside"]), dict(values["replayed"])
        came_to = tuple(str(one) for one in values.get("came_to", ()))
        return DatasetReplica(position, trained, counters, aside, replayed, bool(values["told_end"]), came_to)


def replica_of(dataset: Dataset) -> DatasetReplica:
    aside = tuple(sorted(dataset.visits.aside))
    counters, replayed = replace(dataset.counters), dict(dataset.replayed)
    came_to = tuple(dataset.ends.came_to)
    return DatasetReplica(
        dataset.position(), dataset.visits.trained, counters, aside, replayed, dataset.told_end, came_to
    )


@dataclass(frozen=True)
class DatasetSources:
    """All there is about one dataset. `shards`: its table, packed; `told`: by incarnation."""

    replica: DatasetReplica | None = None
    shards: bytes = b""
    told: Mapping[str, pb.DataKnown] = field(default_factory=dict)

    def without(self, incarnation: str) -> DatasetSources:
        """It is gone: what it has trained counts, what it held is nobody's."""
        if incarnation not in self.told:
            return self
        known = pb.DataKnown()
        known.CopyFrom(self.told[incarnation])
        for lease in known.held:
            lease.id = 0
        return replace(self, told={**self.told, incarnation: known})

    @property
    def holders(self) -> set[str]:
        return {who for who, known in self.told.items() if any(lease.id for lease in known.held)}

    def plain(self) -> dict[str, Any]:
        return {
            "memo": None if self.replica is None else self.replica.plain(),
            "shards": base64.b64encode(self.shards).decode(),
            "told": {who: base64.b64encode(one.SerializeToString()).decode() for who, one in self.told.items()},
        }

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> DatasetSources:
        told = {who: pb.DataKnown.FromString(base64.b64decode(one)) for who, one in values["told"].items()}
        replica = None if values["memo"] is None else DatasetReplica.from_plain(values["memo"])
        return DatasetSources(replica, base64.b64decode(values["shards"]), told)


# -------------------------------------------------------------------------------------------------------------- tables


def pack_table(dataset: Dataset) -> bytes:
    """Of a table that is complete; empty when it follows from the declaration.

    Per file: the number of shards, where each begins (record, byte), and the end.
    """
    files = dataset.declaration.files
    if all(file.records for file in files):
        return b""
    values = array("q")
    for number in range(len(files)):
        shards = dataset.table.shards(number)
        if shards is None or shards.firsts is None or shards.begins is None:
            values.append(-1)  # an index range: follows from the declaration
            continue
        values.append(shards.count)
        values.extend(shards.firsts)
        values.extend(shards.begins)
    return zlib.compress(values.tobytes(), 1)


def fill_table(dataset: Dataset, packed: bytes) -> None:
    """Counts the files that are in it. Bytes that are no table of this dataset change nothing."""
    values = array("q")
    try:
        unpacker = zlib.decompressobj()
        values.frombytes(unpacker.decompress(packed, TABLE_BYTES_MAX))
    except (zlib.error, ValueError):
        return
    found, place = [], 0
    for file in range(len(dataset.declaration.files)):
        if place >= len(values):
            return
        count, place = values[place], place + 1
        if count >= 0:
            end = place + 2 * (count + 1)
            if end > len(values):
                return
            middle = place + count + 1
            found.append((file, FileShards(values[middle - 1], 0, values[place:middle], values[middle:end])))
            place = end
    for file, shards in found:
        if not dataset.table.counted(file):
            dataset.table.set(file, shards)
            dataset.visits.changes.files.add(file)


# ------------------------------------------------------------------------------------------------------------- together


def rebuild(dataset: Dataset, memory: DatasetSources) -> bool:
    """Puts the dataset, fresh from its declaration, into the state that is remembered.

    False: only into that of the replica's position, or of the beginning, and all leases are void.
    """
    replica = memory.replica
    dataset.ends.begun = True  # somebody has trained of it
    rewinds = max([replica.counters.rewinds if replica else 0, *(known.rewinds for known in memory.told.values())])
    if replica is not None:
        dataset.counters, dataset.told_end = replace(replica.counters), replica.told_end
        dataset.ends.came_to = list(replica.came_to)
        dataset.visits.aside, dataset.replayed = set(replica.aside), dict(replica.replayed)
        if replica.counters.rewinds < rewinds or replica.position.fingerprint != dataset.fingerprint:
            replica = None  # from before the last rewind: it says nothing about what was trained since
    dataset.counters.rewinds = rewinds
    dataset.replayed.update({who: known.replayed_records for who, known in memory.told.items()})
    dataset.replayed_changes, dataset.changed = set(dataset.replayed), True
    told = {who: known for who, known in memory.told.items() if known.rewinds == rewinds}
    fill_table(dataset, memory.shards)
    if not dataset.table.complete:
        # What is in hand may be trained as well, until its holders hear of it.
        in_hand = sum(lease.records - lease.done for known in told.values() for lease in known.held)
        dataset.counters.unsure += sum(known.trained_records for known in told.values()) + in_hand
        dataset.rewind(replica.position if replica else None)
        return False
    complete, aside, epochs = merge(dataset, replica.position if replica else Position(dataset.fingerprint), told)
    dataset.visits.restore(complete, aside, epochs)
    dataset.holders = {who: Holder(who) for who in dataset.visits.holders()}
    nobodys = [visit for epoch in epochs for visit in epoch.open.values() if not visit.lease]
    dataset.counters.unsure += sum(visit.left for visit in nobodys)
    left_out = max(dataset.counters.skipped, sum(known.skipped_records for known in told.values()))
    dataset.counters.skipped = min(left_out, dataset.visits.trained)
    _acknowledge(dataset.counters, dataset.visits.trained - (replica.trained if replica else 0))
    return True


def _acknowledge(counters: Counters, gained: int) -> None:
    """As if the trainers had told it one by one since the replica."""
    gained = max(0, gained)
    again = min(gained, counters.to_repeat)
    counters.acknowledged += gained
    counters.to_repeat -= again
    counters.rewound += again


def merge(dataset: Dataset, position: Position, told: Mapping[str, pb.DataKnown]) -> tuple[int, int, tuple[Epoch, ...]]:
    """Complete epochs, records of them that were set aside, and the epochs that have begun. Needs the whole table."""
    count, wanted, aside = dataset.table.count, dataset.visits.epochs_wanted, dataset.visits.aside
    complete = max([position.complete, *(known.complete for known in told.values())])
    spans = _spans(told.values(), count)
    held = _held(dataset, told)
    before = {epoch.number: epoch for epoch in position.epochs}
    seen = [number for number in {*before, *spans, *(number for number, _ in held)} if number >= complete]
    last = max((number for number in seen if not wanted or number < wanted), default=-1)
    epochs = []
    for number in range(complete, last + 1):
        hands = {rank: visit for (epoch, rank), visit in held.items() if epoch == number}
        one = _epoch(dataset, number, before.get(number), spans.get(number, []), hands, whole=number < last)
        epochs.append(one)
    of_one = sum(dataset.table.extent(shard).records for shard in aside)
    given_up = position.complete_aside + (complete - position.complete) * of_one
    return complete, given_up, tuple(epochs)


def _spans(told: Iterable[pb.DataKnown], count: int) -> dict[int, list[tuple[int, int]]]:
    """Epoch → ranks that were trained to their end, by whomever."""
    every: dict[int, list[tuple[int, int]]] = {}
    for known in told:
        for one in known.trained:
            if one.first_rank >= 0 and one.count > 0:
                every.setdefault(one.epoch, []).append((one.first_rank, min(count, one.first_rank + one.count)))
    joined: dict[int, list[tuple[int, int]]] = {}
    for number, spans in every.items():
        rows = joined[number] = []
        for first, end in sorted(spans):
            if rows and first <= rows[-1][1]:
                rows[-1] = rows[-1][0], max(rows[-1][1], end)
            else:
                rows.append((first, end))
    return joined


def _held(dataset: Dataset, told: Mapping[str, pb.DataKnown]) -> dict[tuple[int, int], Visit]:
    """(epoch, rank) → who holds it. The newest lease of a visit counts: the others were taken away from their holders."""
    held: dict[tuple[int, int], Visit] = {}
    for who, known in told.items():
        for lease in known.held:
            if lease.kind != pb.Lease.DATA or not 0 <= lease.rank < dataset.table.count or lease.epoch < 0:
                continue
            if dataset.visits.shard(lease.epoch, lease.rank) != lease.shard:
                continue
            key, records = (lease.epoch, lease.rank), dataset.table.extent(lease.shard).records
            visit = held.setdefault(key, Visit(*key, records))
            visit.done = max(visit.done, min(lease.done, records))
            if lease.id > visit.lease:
                visit.lease, visit.incarnation = lease.id, who
    return held


def _epoch(
    dataset: Dataset, number: int, old: Epoch | None, trained: Spans, held: Mapping[int, Visit], *, whole: bool
) -> Epoch:
    """`whole`: a later epoch has begun, so every visit of this one was given out."""
    visits, table = dataset.visits, dataset.table
    before = min(old.cursor, table.count) if old is not None else 0
    ends = [before, *(end for _, end in trained), *(rank + 1 for rank in held)]
    epoch = Epoch(number, table.count if whole else max(ends))
    if old is not None:
        epoch.issued, epoch.aside = old.issued, old.aside
    known = dict(old.open) if old is not None else {}
    for rank in itertools.chain(sorted(known), range(before, epoch.cursor)):
        shard = visits.shard(number, rank)
        records = table.extent(shard).records
        if rank >= before:
            epoch.issued += records
            if shard in visits.aside:
                epoch.aside += records
                continue
        if _covers(trained, rank):
            continue
        done = known[rank].done if rank in known else 0
        visit = held.get(rank) or Visit(number, rank, records)
        visit.done = max(visit.done, min(done, records))
        if visit.left:
            epoch.open[rank] = visit
    return epoch


def _covers(spans: Spans, rank: int) -> bool:
    place = bisect_right(spans, (rank, 1 << 62)) - 1
    return place >= 0 and spans[place][0] <= rank < spans[place][1]
