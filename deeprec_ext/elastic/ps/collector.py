"""Dirty marks and who reads them.

Training sets bits in one bitmap per table (`graph.dirty`). Up to five readers want to know which rows changed, each since
its own last look: a migration (`move`), a peer backup (`peer`), the peer backup that is going to take its place (`next`; the
one after that is `peer` again), a disk backup (`disk`), a trainer that holds the backups of a single PS (`hold`). So each
table has, beside the marks, a *pending* bitmap per reader, which has no rows until that reader *begins*. Whoever reads
*collects*:

1. read the marks, then see which others have begun;
2. add what is marked to their pending sets;
3. clear those marks;
4. see again who has begun, and add once more what was cleared;
5. take the rows that were marked and the own pending ones, clear their own bits, and, after all this, gather them.

Why this loses nothing. A mark follows its update. *The reader itself*: an update whose mark is cleared in 3 is in the rows
gathered after it; one whose mark comes later is found next time. *Another reader* may have taken and gathered a row between 2
and the update: 4 gives the row back to it. *One that begins meanwhile* copies everything after it has begun: an update that
its copy does not have was made after it began, so, if its mark is cleared in 3, then before 4 looks again. 2 is there for a
collector that dies between 3 and 4.

Two things must not happen. A reader who needs *everything* (the final copy of a migration, while training stands still) must
not look between another's 3 and 4: so others are told to hold meanwhile (`Hold`). And a reader must not begin between 1 and 3
of a collector that dies before 4: then a PS has died, and what had just begun begins anew (a scaling is rolled back, a cut
dropped and the next one whole).

Nothing is written for readers that there are not: most of the time there is one, and then a collection is one look for set
bits, in marks and pending set together, and clearing them. Memory: a byte a row, and one for each reader that has begun. Time
in a training step: a mark.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, local_program, set_rows
from deeprec_ext.elastic.runtime.ops import BOOL, INT64, Ops
from deeprec_ext.graph.attributes import integer
from deeprec_ext.proto import deeprec_ext_pb2 as pb

READERS = ("move", "peer", "next", "disk", "hold")


def pending_of(bitmap: Facts, reader: str) -> Facts:
    """The rows that this reader, which has begun, has still to take."""
    return dataclasses.replace(bitmap, name=f"{bitmap.name}:{reader}")


def all_bitmaps(bitmap: Facts, begun: Sequence[str] = ()) -> list[Facts]:
    """The marks and the pending sets of all readers as they are made: of no rows but for those that have `begun`."""
    pending = [pending_of(bitmap, reader) for reader in READERS]
    return [
        bitmap,
        *(one if reader in begun else dataclasses.replace(one, shape=(0,)) for one, reader in zip(pending, READERS)),
    ]


@dataclasses.dataclass(frozen=True)
class Taken:
    """Names of the nodes of one collection."""

    rows: str
    """int64 [taken]: gather them `after` this."""
    found: str
    """int64: rows that were pending."""
    taken: str
    """int64: rows taken now."""
    after: tuple[str, ...]
    """What a gather of the rows has to wait for, and every run has to do."""


class Marks:
    """The bitmaps of one table on one PS, in one graph of ours."""

    def __init__(self, ops: Ops, bitmap: Facts, task: int) -> None:
        self._ops, self._bitmap = ops, bitmap
        self._marks = Located(ops, bitmap, task)
        self._pending = {reader: Located(ops, pending_of(bitmap, reader), task) for reader in READERS}
        self.device = self._marks.device
        self._zero = ops.constant((0,), tf.int64, self.device)

    def begin(self, reader: str) -> str:
        """From now on rows are kept for this reader, and nothing is pending: it is going to copy everything."""
        return self._pending[reader].zeros()

    def take(self, reader: str, most: int = 0) -> Taken:
        """Collects, and takes the pending rows of `reader`, which has begun; at most so many, if not 0."""
        ops, where = self._ops, self.device
        true, false = ops.constant(True, tf.bool, where), ops.constant(False, tf.bool, where)
        own, others = self._pending[reader], [self._pending[one] for one in READERS if one != reader]
        marks = self._marks.read()
        found = set_rows(ops, ops.add("LogicalOr", [marks, own.read()], where), where)

        begun = [other.dimensions((marks,)) for other in others]  # of each: [0] or [rows]
        listened = begun[0]
        for one in begun[1:]:
            listened = ops.binary("Maximum", listened, one, where)
        marked = set_rows(ops, self._head(marks, listened, BOOL), where)
        first = [other.scatter(self._up_to(marked, rows), true) for other, rows in zip(others, begun)]

        rows, left = found, ""
        if most:
            rows, left = self._cut(found, most)
            first.append(own.scatter(left, true))

        # Where nobody listens, marks that came meanwhile to rows pending already may be cleared as well.
        everything = ops.constant((self._bitmap.rows,), tf.int64, where)
        alone = self._up_to(found, ops.binary("Sub", everything, listened, where))
        axis = ops.constant(0, tf.int64, where)
        cleared = ops.add("ConcatV2", [marked, alone, axis], where, N=integer(2), T=INT64, Tidx=INT64)
        clear = self._marks.scatter(cleared, false, tuple(first))
        again = [other.scatter(self._up_to(cleared, other.dimensions((clear,))), true) for other in others]
        return Taken(rows, self._size(found), self._size(rows), (own.scatter(rows, false), *again))

    def waiting(self, reader: str) -> str:
        """int64: rows pending for this reader, which has begun, or marked and not collected."""
        ops, where = self._ops, self.device
        both = ops.add("LogicalOr", [self._marks.read(), self._pending[reader].read()], where)
        number = ops.add("Cast", [both], where, SrcT=BOOL, DstT=INT64)
        return ops.add("Sum", [number, self._zero], where, T=INT64, Tidx=INT64)

    def _size(self, rows: str) -> str:
        return self._ops.add("Size", [rows], self.device, T=INT64, out_type=INT64)

    def _up_to(self, rows: str, most: str) -> str:
        """The first rows, or all if there are no more than `most` (int64 [1])."""
        there = self._ops.add("Shape", [rows], self.device, T=INT64, out_type=INT64)
        return self._head(rows, self._ops.binary("Minimum", most, there, self.device), INT64)

    def _head(self, values: str, count: str, dtype: AttrValue) -> str:
        """The first `count` (int64 [1]) values."""
        return self._ops.add("Slice", [values, self._zero, count], self.device, T=dtype, Index=INT64)

    def _cut(self, rows: str, most: int) -> tuple[str, str]:
        """At most so many rows, and the rest."""
        ops, where = self._ops, self.device
        there = ops.add("Shape", [rows], where, T=INT64, out_type=INT64)
        end = ops.binary("Minimum", there, ops.constant((most,), tf.int64, where), where)
        rest = ops.add("Slice", [rows, end, ops.constant((-1,), tf.int64, where)], where, T=INT64, Index=INT64)
        return self._head(rows, end, INT64), rest


def make_bitmaps(target: str, own_task: int, variables: Sequence[pb.Variable]) -> int:
    """Makes the bitmaps of these tables on this PS where they are missing; returns how many."""
    tables = {v.bitmap: v for v in variables if v.bitmap and v.update == pb.Variable.ROWS}
    if not tables:
        return 0
    with contextlib.closing(local_program(target, own_task)) as program:
        ops = Ops("look")
        bits = [facts for v in tables.values() for facts in all_bitmaps(bitmap_of(Facts.from_proto(v)))]
        there = [Located(ops, facts, own_task).initialized() for facts in bits]
        program.load(ops)
        known = program.compile(fetches=there)()
        make = Ops("make")
        missing = [Located(make, facts, own_task).zeros() for facts, good in zip(bits, known) if not good]
        program.run(make, missing)
        return len(missing)
