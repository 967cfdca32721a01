"""Migration: the PS that gets a slot pulls its variables from the PS that has it, while training goes on.

ARM makes the target variables and the bitmaps of dirty rows and compiles every copy. FIRST copies tables in chunks of rows.
Each round of DIRTY takes the rows that were marked meanwhile (`collector` says why none is missed). When training stands
still one more round (FINAL) and the dense variables complete the copy.

Nothing but TensorFlow's own transport is on the wire: reads on the source's device, writes on the target's. What a refresh
of a backup takes from a source travels as one tensor of each type (`parcels`), and so do dense variables in a change of PS.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.elastic.ps.collector import Marks, all_bitmaps
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, present, ps_device
from deeprec_ext.elastic.runtime.ops import INT64, Ops, Program
from deeprec_ext.elastic.runtime.parcels import Sent, together
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.errors import DeepRecError
from deeprec_ext.graph.attributes import integer, kind, shape
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

DIRTY_ROUND_BYTES = 256 << 20
"""Most memory that one round of dirty rows takes on each side, over all tables: twice what travels."""

MOVE = "move"
"""The reader (`collector.READERS`) of a change of PS; the others keep backups up to date."""

FINAL_ROUNDS_MAX = 1000
"""Rounds of FINAL_COPY; training stands still, so the dirty rows only become fewer."""


_Key = tuple[int, str]
"""Task of the source, name of a bitmap there."""


@dataclass(frozen=True)
class _Moved:
    """One variable on its way."""

    facts: Facts
    source_task: int
    by_rows: bool
    slot: int


@dataclass(frozen=True)
class _Pair:
    """The variable where it is and where it goes."""

    moved: _Moved
    source: Located
    target: Located


class Mover:
    """The copies of some variables into one PS, compiled in advance: of a scaling, or a peer backup that is kept up.

    Args:
      target: `grpc://host:port` of the PS's own server.
      own_task: its task number.
      ps: task → address of the old and the new PS.
      moves: what to pull, from where.
      chunk_bytes: about how much one run of the first copy carries.
      reader: whose dirty rows are taken (`collector.READERS`).
      suffix: added to the names here; a copy that is there already under such a name is kept, and overwritten bit by bit.
      timeout_seconds: of a single run; 0: none.
      touched: is told slot and number of dirty rows that were taken (Gazer).
    """

    def __init__(
        self, target: str, own_task: int, ps: dict[int, str], moves: Sequence[pb.Move], chunk_bytes: int, *,
        reader: str = MOVE, suffix: str = "", timeout_seconds: float = 0.0,
        touched: Callable[[int, int], None] = lambda slot, rows: None,
    ) -> None:  # fmt: skip
        self._own = own_task
        self._chunk_bytes = chunk_bytes
        self._reader, self._suffix = reader, suffix
        self._moved = [
            _Moved(Facts.from_proto(m.variable), m.source_task, m.variable.update == pb.Variable.ROWS, m.variable.slot)
            for m in moves
        ]
        config = elastic_config(ps)
        config.operation_timeout_in_ms = int(1000 * timeout_seconds)
        self._program = Program(target, config)
        self._first: Callable[..., Any] | None = None
        self._dirty: Callable[..., Any] | None = None
        self._count: Callable[..., Any] | None = None
        self._dense: Callable[..., Any] | None = None
        self._all: Callable[..., Any] | None = None  # dirty rows and the dense variables
        self._sums: Callable[..., Any] | None = None
        self._late: Callable[..., Any] | None = None
        self._row_bytes: list[int] = []
        self._row_slots: list[int] = []
        self._touched = touched
        self._chunks = 0
        self._table_bytes = 0
        self._names: list[str] = []
        self.dense_bytes = 0
        self.cancelled = False  # set by another thread: copies end at once
        self.skipped: list[str] = []

    def arm(self, verify: bool, tracked: bool = False, guarded: bool = False, begins: bool = True) -> int:
        """Makes variables and bitmaps, builds the copies; returns how many variables will come.

        Variables that are not initialised on their source are left out, and named in `skipped`. `tracked`: the tables are
        marked at any time, so they have bitmaps and need them here as well. `guarded`: whoever has them now is going to be
        their peer backup here, from the commit on. `begins`: whether dirty rows count from now on; else the source has kept
        them for this reader since the copies here were exact.
        """
        if not self._moved:
            return 0
        there = [(moved.facts, moved.source_task) for moved in self._moved]
        found = present(self._program, [*there, *((self._renamed(facts), self._own) for facts, _ in there)])
        ready, kept = found[: len(there)], found[len(there) :]
        self.skipped = [moved.facts.name for moved, good in zip(self._moved, ready) if not good]
        if self.skipped:
            missing = [one for one, good in zip(there, ready) if not good]
            self._late = lambda: present(self._program, missing)
        kept_names = {moved.facts.name for moved, known in zip(self._moved, kept) if known and self._suffix}
        ops = Ops("copy")
        pairs = [
            _Pair(
                moved, Located(ops, moved.facts, moved.source_task), Located(ops, self._renamed(moved.facts), self._own)
            )
            for moved, good in zip(self._moved, ready)
            if good
        ]
        tables = [pair for pair in pairs if pair.moved.by_rows]
        dense = [pair for pair in pairs if not pair.moved.by_rows]
        marks: dict[_Key, Marks] = {}
        make = [pair.target.zeros() for pair in tables if pair.moved.facts.name not in kept_names]
        begin: list[str] = []
        for pair in sorted(tables, key=lambda pair: pair.moved.source_task):
            bitmap, source = bitmap_of(pair.moved.facts), pair.moved.source_task
            if (source, bitmap.name) not in marks:
                one = marks[source, bitmap.name] = Marks(ops, bitmap, source)
                # Untracked, nobody else reads, and nobody marks yet; tracked, the source has them, and here they are missing.
                begun = ("peer",) if guarded else ()
                make += [
                    Located(ops, bits, self._own if tracked else source).zeros() for bits in all_bitmaps(bitmap, begun)
                ]
                if begins:
                    begin.append(one.begin(self._reader))
        chunk, first = self._add_first(ops, tables)
        counts, dirty = self._add_dirty(ops, tables, marks)
        waiting = self._packed(ops, {key: [bits.waiting(self._reader)] for key, bits in marks.items()})
        copies = self._add_dense(ops, dense)
        sums = [one.checksum() for pair in pairs for one in (pair.source, pair.target)] if verify else []
        self._program.load(ops)
        for some in (make, begin):
            if some:
                self._program.compile(targets=some)()
        if tables:
            self._first = self._program.compile(targets=first, feeds=[chunk])
            self._dirty = self._program.compile(targets=dirty, fetches=list(counts.values()))
            self._count = self._program.compile(fetches=list(waiting.values()))
            self._all = self._dirty
        if copies:
            self._dense = self._program.compile(targets=copies)
            self._all = self._program.compile(targets=[*copies, *dirty], fetches=list(counts.values()))
            self.dense_bytes = sum(pair.moved.facts.bytes for pair in dense)
        if sums:
            self._sums = self._program.compile(fetches=sums)
            self._names = [pair.moved.facts.name for pair in pairs]
        return len(pairs)

    def _renamed(self, facts: Facts) -> Facts:
        return dataclasses.replace(facts, name=facts.name + self._suffix)

    def _add_first(self, ops: Ops, tables: list[_Pair]) -> tuple[str, list[str]]:
        """Chunk k takes the k-th part of the rows of every table, so that all tables end together."""
        self._table_bytes = sum(pair.moved.facts.bytes for pair in tables)
        self._chunks = max(1, math.ceil(self._table_bytes / self._chunk_bytes)) if tables else 0
        return copy_in_chunks(ops, [(pair.source, pair.target) for pair in tables], self._chunks, ps_device(self._own))

    def _add_dirty(self, ops: Ops, tables: list[_Pair], marks: dict[_Key, Marks]) -> tuple[dict[int, str], list[str]]:
        """One run takes the dirty rows of every table at once; ([found, taken] of each bitmap as `_packed`, what to run)."""
        counts: dict[_Key, list[str]] = {}
        groups: dict[int, list[tuple[Sent, list[_Pair], list[Sent]]]] = {}  # by source: row numbers, rows of each table
        for key, bits in marks.items():
            group = [pair for pair in tables if (pair.moved.source_task, pair.moved.facts.bitmap) == key]
            index = tf.int32 if group[0].moved.facts.rows <= tf.int32.max else tf.int64  # on the wire
            row_bytes = index.size + sum(pair.moved.facts.row_bytes for pair in group)
            taken = bits.take(self._reader, max(1, DIRTY_ROUND_BYTES // (2 * max(1, len(marks) * row_bytes))))
            cast = ops.add("Cast", [taken.rows], bits.device, SrcT=INT64, DstT=kind(index))
            here = groups.setdefault(key[0], [])
            number = 2 * len(here) + 1
            rows = [
                Sent(pair.source.gather(taken.rows, taken.after), pair.source.facts.dtype, pair.source.facts.shape[1:], number)
                for pair in group
            ]  # fmt: skip
            here.append((Sent(cast, index, (), number), group, rows))
            counts[key] = [taken.found, taken.taken]
            self._row_bytes.append(row_bytes)
            self._row_slots.append(group[0].moved.slot)
        packed, copies = self._packed(ops, counts), []
        for source, some in groups.items():
            sent = [one for ids, _, rows in some for one in (ids, *rows)]
            # Before a change there are tens of megabytes of them: joined and split in one thread each they come later.
            arrived = iter(
                [one.tensor for one in sent]
                if self._reader == MOVE
                else together(ops, sent, ps_device(source), ps_device(self._own), packed[source])
            )
            for ids, group, _ in some:
                where = next(arrived)
                copies += [pair.target.scatter(where, next(arrived), index=ids.dtype) for pair in group]
        return packed, copies

    def _add_dense(self, ops: Ops, dense: list[_Pair]) -> list[str]:
        copies = []
        for source in dict.fromkeys(pair.moved.source_task for pair in dense):
            some = [pair for pair in dense if pair.moved.source_task == source]
            sent = [pair.source.sent(pair.source.read()) for pair in some]
            arrived = together(ops, sent, ps_device(source), ps_device(self._own))
            copies += [pair.target.assign(value) for pair, value in zip(some, arrived)]
        return copies

    def _packed(self, ops: Ops, numbers: dict[_Key, list[str]]) -> dict[int, str]:
        """One int64 vector per source: a transfer of a single number costs as much as that of a thousand."""
        by_source: dict[int, list[str]] = {}
        for (source, _), some in numbers.items():
            by_source.setdefault(source, []).extend(some)
        return {
            source: ops.add("Pack", some, ps_device(source), T=INT64, N=integer(len(some)))
            for source, some in by_source.items()
        }

    # -- the copies

    def first(self) -> int:
        """The first copy of the tables; returns bytes. Training goes on."""
        if self._first is not None:
            for chunk in range(self._chunks):
                if self.cancelled:
                    raise DeepRecError("the copy was called off")
                self._first(chunk)
        return self._table_bytes

    def dirty(self) -> tuple[int, int]:
        """One round: (bytes sent, bytes that are dirty after it)."""
        if self._dirty is None or self._count is None:
            return 0, 0
        _, sent = self._round(self._dirty)
        return sent, self._weigh(np.concatenate(self._count()))

    def _round(self, run: Callable[..., Any] | None) -> tuple[bool, int]:
        """Takes what is dirty, or as much as one round may; (whether that was all, bytes of rows)."""
        counts = run() if run is not None else []
        if not counts:
            return True, 0
        found, taken = np.concatenate(counts).reshape(-1, 2).T
        for slot, rows in zip(self._row_slots, taken):
            self._touched(slot, int(rows))
        return bool((found == taken).all()), self._weigh(taken)

    def _weigh(self, rows: Sequence[int]) -> int:
        return sum(int(count) * size for count, size in zip(rows, self._row_bytes))

    def refresh(self, collecting: Callable[[], AbstractContextManager[Any]] = nullcontext) -> int:
        """What changed since the last time: dirty rows and the dense variables whole; training goes on. Returns bytes.

        `collecting` is entered for each round of at most `DIRTY_ROUND_BYTES`.
        """
        if self._dense is not None:  # by itself: who waits for the end of a collection need not wait for it
            self._dense()
        sent, complete = self.dense_bytes, self._dirty is None
        while not complete:
            with collecting():
                complete, count = self._round(self._dirty)
            sent += count
        return sent

    def appeared(self) -> list[str]:
        """Variables that were left out and have been initialised since."""
        found = self._late() if self._late is not None else ()
        return [name for name, good in zip(self.skipped, found) if good]

    def final(self) -> tuple[int, int]:
        """While training stands still: (dense bytes, bytes of the dirty rows).

        Raises DeepRecError when a variable that was left out has been initialised since.
        """
        if names := self.appeared():
            raise DeepRecError(f"{', '.join(names[:3])} was initialised while its slot was being moved")
        run, resent = self._all, 0
        for _ in range(FINAL_ROUNDS_MAX):
            complete, count = self._round(run)
            run, resent = self._dirty, resent + count
            if complete:
                return self.dense_bytes, resent
        raise RuntimeError("rows keep becoming dirty in the final copy: a trainer does not stand still")

    def verify(self) -> int:
        """Compares the checksums of both sides of every variable; returns how many. RuntimeError names a difference."""
        if self._sums is None:
            return 0
        sums = self._sums()
        for name, here, there in zip(self._names, sums[::2], sums[1::2]):
            if here != there:
                raise RuntimeError(f"{name} differs after the final copy: checksum {here} at the source, {there} here")
        return len(self._names)

    def close(self) -> None:
        self._program.close()


def copy_in_chunks(
    ops: Ops, tables: Sequence[tuple[Located, Located]], chunks: int, here: str
) -> tuple[str, list[str]]:
    """(What to feed with the number of a chunk, what to run) to copy that part of the rows from each first to its second."""
    chunk = ops.add("Placeholder", device=here, dtype=INT64, shape=shape([]))
    copies = []
    for source, target in tables:
        rows, where = source.facts.rows, source.device
        each, last = math.ceil(rows / chunks), ops.constant(rows, tf.int64, where)
        start = ops.binary("Mul", chunk, ops.constant(each, tf.int64, where), where)
        begin = ops.binary("Minimum", start, last, where)
        after = ops.binary("AddV2", begin, ops.constant(each, tf.int64, where), where)
        end = ops.binary("Minimum", after, last, where)
        some = ops.add("Range", [begin, end, ops.constant(1, tf.int64, where)], where, Tidx=INT64)
        copies.append(target.scatter(some, source.gather(some)))
    return chunk, copies


def destroy(target: str, own_task: int, address: str, variables: Sequence[pb.Variable]) -> None:
    """Destroys variables and their bitmaps on this PS. Idempotent."""
    started = time.monotonic()
    with contextlib.closing(Program(target, elastic_config({own_task: address}))) as program:
        some = [Facts.from_proto(variable) for variable in variables]
        references = [
            (facts, own_task) for facts in some if facts.reference
        ]  # nobody must take for there what never was
        absent_ones = {facts.name for (facts, _), good in zip(references, present(program, references)) if not good}
        ops, doomed, bitmaps = Ops(), [], set()
        for facts in some:
            if facts.name not in absent_ones:
                doomed.append(Located(ops, facts, own_task).destroy())
            if facts.bitmap and facts.bitmap not in bitmaps:
                bitmaps.add(facts.bitmap)
                doomed += [Located(ops, bits, own_task).destroy() for bits in all_bitmaps(bitmap_of(facts))]
        program.run(ops, doomed)
    log.info("destroyed %d variables in %.3f s", len(variables), time.monotonic() - started)


def absent(target: str, own_task: int, address: str, variables: Sequence[pb.Variable]) -> list[str]:
    """Names of those that are not initialised on this PS."""
    if not variables:
        return []
    with contextlib.closing(Program(target, elastic_config({own_task: address}))) as program:
        found = present(program, [(Facts.from_proto(variable), own_task) for variable in variables])
    return [variable.name for variable, good in zip(variables, found) if not good]
