"""Dirty marks and who reads them.

Training sets bits in one bitmap per table (`graph.dirty`). Up to three readers want to know which rows changed, each since
its own last look: a migration (`move`), a peer backup (`peer`), a disk backup (`disk`). So each table has, beside the marks, a
*pending* bitmap per reader, and whoever reads *collects* first: read the marks, add them to every reader's pending set,
clear the marks that were read, add them once more; then take the own pending rows, clear those bits, gather the rows.

Why this loses nothing. A mark follows its update. A row updated before its mark is cleared is gathered, by the collector
itself, after the clear. Another reader may have taken and gathered that row between the first addition and the update;
the second addition gives it back to that reader. The first addition is there for a collector that dies half-way.

One thing must not happen: that a reader who needs *everything* (the final copy of a migration, while training stands
still) looks between another's clear and its second addition. So other readers are told to hold meanwhile (`Hold`).

Memory: four bytes a row. Time: none in a training step, which only marks.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from deeprec_ext.elastic.ops import BOOL, INT64, Ops
from deeprec_ext.elastic.variables import Facts, Located, marked_rows

READERS = ("move", "peer", "disk")


def pending_of(bitmap: Facts, reader: str) -> Facts:
    """The rows that this reader has still to take."""
    return dataclasses.replace(bitmap, name=f"{bitmap.name}:{reader}")


def all_bitmaps(bitmap: Facts) -> list[Facts]:
    """The marks and the pending sets of all readers."""
    return [bitmap, *(pending_of(bitmap, reader) for reader in READERS)]


@dataclasses.dataclass(frozen=True)
class Taken:
    """Names of the nodes of one collection."""

    rows: str
    """int64 [taken]: gather them `after` this."""
    count: str
    """int64: rows that were pending."""
    taken: str
    """int64: rows taken now."""
    after: tuple[str, ...]
    """What a gather of the rows has to wait for."""


class Marks:
    """The bitmaps of one table on one PS, in one graph of ours."""

    def __init__(self, ops: Ops, bitmap: Facts, task: int) -> None:
        self._ops = ops
        self._marks = Located(ops, bitmap, task)
        self._pending = {reader: Located(ops, pending_of(bitmap, reader), task) for reader in READERS}
        self.device = self._marks.device

    def all(self) -> list[Located]:
        return [self._marks, *self._pending.values()]

    def forget(self, reader: str) -> str:
        """Nothing is pending for this reader any more: it is going to copy everything."""
        return self._pending[reader].zeros()

    def take(self, reader: str, most: str | None = None) -> Taken:
        """Collects, and takes the pending rows of `reader`, at most `most` (name of an int64 node)."""
        ops, where = self._ops, self.device
        true, false = ops.constant(True, tf.bool, where), ops.constant(False, tf.bool, where)
        marked = marked_rows(ops, self._marks)
        first = tuple(pending.scatter(marked, true) for pending in self._pending.values())
        clear = self._marks.scatter(marked, false, first)
        again = tuple(pending.scatter(marked, true, (clear,)) for pending in self._pending.values())
        own = self._pending[reader]
        rows = marked_rows(ops, own, again)
        count = ops.add("Size", [rows], where, T=INT64, out_type=INT64)
        taken = count
        if most is not None:
            taken = ops.binary("Minimum", count, most, where)
            begin = ops.constant((0,), tf.int64, where)
            size = ops.add("ExpandDims", [taken, ops.constant(0, tf.int64, where)], where, T=INT64, Tdim=INT64)
            rows = ops.add("Slice", [rows, begin, size], where, T=INT64, Index=INT64)
        return Taken(rows, count, taken, (own.scatter(rows, false),))

    def waiting(self, reader: str) -> str:
        """int64: rows pending for this reader or marked and not collected; at most, as some may be both."""
        ops, where = self._ops, self.device
        both = ops.add("LogicalOr", [self._marks.read(), self._pending[reader].read()], where)
        number = ops.add("Cast", [both], where, SrcT=BOOL, DstT=INT64)
        return ops.add("Sum", [number, ops.constant((0,), tf.int64, where)], where, T=INT64, Tidx=INT64)
