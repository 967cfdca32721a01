"""The ledger's position: what is trained for sure, in a few bytes, to be stored with a checkpoint or backup.

Only what training must not repeat or lose is in it: datasets of purpose `train`. For each, complete epochs are a number,
an epoch that has begun is a cursor and the visits before it that are not done; of those, runs with no progress are one entry
each. Files and shards are not in it: their numbering follows from the declaration, whose fingerprint is.

Format: `DRL1`, then a zlib stream of JSON. Nothing is unpickled, and sizes are checked before anything is unpacked.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeprec_ext.aimaster.ledger.visits import SCAN, Epoch, Visit, Visits
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

MAGIC = b"DRL1"
SIZE_MAX = 64 << 20
"""Unpacked; two million visits under way would fit."""


class PositionError(DeepRecError):
    """These bytes are no position of a data ledger."""


@dataclass(frozen=True)
class Position:
    """Of one dataset."""

    fingerprint: str
    complete: int = 0
    complete_aside: int = 0
    epochs: tuple[Epoch, ...] = ()
    skipped: int = 0  # records of what is done that were left out, being damaged

    @property
    def last_rank(self) -> int:
        return max((epoch.cursor for epoch in self.epochs), default=0)


def fingerprint(declaration: pb.Dataset) -> str:
    """Another one: other shards, or another order of them. How many epochs there are to be does not matter."""
    order = pb.Dataset()
    order.CopyFrom(declaration)
    for field in ("name", "epochs", "set_aside", "purpose", "in_turn", "content"):
        order.ClearField(field)
    return hashlib.sha256(order.SerializeToString(deterministic=True)).hexdigest()[:16]


def of_visits(visits: Visits, fingerprint_: str) -> Position:
    """Where these visits are. Leases are not in it: what is not acknowledged is to be trained."""
    epochs = []
    for number, epoch in sorted(visits.epochs.items()):
        if number != SCAN:
            rest = {rank: Visit(number, rank, v.records, v.done) for rank, v in sorted(epoch.open.items())}
            epochs.append(Epoch(number, epoch.cursor, epoch.issued, epoch.aside, rest))
    return Position(fingerprint_, visits.complete, visits.complete_aside, tuple(epochs))


def pack(positions: Mapping[str, Position]) -> bytes:
    """Never empty, also without a dataset: then nothing is trained yet."""
    text = json.dumps({name: plain(position) for name, position in positions.items()}, separators=(",", ":"))
    return MAGIC + zlib.compress(text.encode(), 6)


def unpack(packed: bytes) -> dict[str, Position]:
    """Empty bytes: nothing is trained. Raises PositionError."""
    if not packed:
        return {}
    if packed[: len(MAGIC)] != MAGIC:
        raise PositionError(f"not a position of the data ledger, or of another version: it begins with {packed[:4]!r}")
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed[len(MAGIC) :], SIZE_MAX)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise PositionError(f"a position of the data ledger is torn, or larger than {SIZE_MAX} bytes")
        return {str(name): from_plain(values) for name, values in json.loads(text).items()}
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise PositionError(f"a position of the data ledger is damaged: {error!r}") from error


def plain(position: Position) -> dict[str, Any]:
    epochs = [[e.number, e.cursor, e.issued, e.aside, _runs(e)] for e in position.epochs]
    return {
        "of": position.fingerprint,
        "complete": position.complete,
        "aside": position.complete_aside,
        "epochs": epochs,
        **({"skipped": position.skipped} if position.skipped else {}),
    }


def _runs(epoch: Epoch) -> list[list[int]]:
    """[ranks to skip, how many, records of each, done of each]."""
    runs: list[list[int]] = []
    behind = 0
    for rank, visit in sorted(epoch.open.items()):
        if runs and rank == behind and not visit.done and runs[-1][2:] == [visit.records, 0]:
            runs[-1][1] += 1
        else:
            runs.append([rank - behind, 1, visit.records, visit.done])
        behind = rank + 1
    return runs


def from_plain(values: Mapping[str, Any]) -> Position:
    epochs = []
    for number, cursor, issued, aside, runs in values["epochs"]:
        epoch = Epoch(int(number), int(cursor), int(issued), int(aside))
        rank = 0
        for skipped, count, records, done in runs:
            if skipped < 0 or count < 1 or not 0 <= done < records or rank + skipped + count > cursor:
                raise ValueError(f"visits behind the cursor of epoch {number}")
            rank += skipped
            for _ in range(count):
                epoch.open[rank] = Visit(epoch.number, rank, int(records), int(done))
                rank += 1
        epochs.append(epoch)
    skipped = max(0, int(values.get("skipped", 0)))
    return Position(str(values["of"]), int(values["complete"]), int(values["aside"]), tuple(epochs), skipped)
