"""Reading the state of a PS's own slots into the files of one cut, while training goes on.

A table that was written for the parent cut is written by its dirty rows (reader `disk` of the collector), everything else
whole. Values come in chunks through a session of ours on this very PS. Tables are gathered by rows, also when they are
written whole: a plain read of a large variable would hold its buffer, and the next update would copy all of it.

A whole table too takes what is pending, before it is read: a row that changes after that is pending for the next cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.backup.blocks import FileWriter
from deeprec_ext.backup.dtypes import known
from deeprec_ext.elastic.ps.collector import Marks, pending_of
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, local_program, ps_device
from deeprec_ext.elastic.runtime.ops import INT64, Ops
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

CHUNK_BYTES = 16 << 20
"""About what one run fetches, and what one block holds: bounds the memory of a cut."""

GATHERED = frozenset({tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64})
"""Large dense variables of these types are read by rows, others in one piece."""


class CancelledCutError(DeepRecError):
    """Another command came: the cut is dropped."""


@dataclass
class _Group:
    """Variables that are read at the same rows: a table with its optimizer slots, or one large dense variable."""

    facts: list[Facts]
    gather: Callable[[np.ndarray], Sequence[np.ndarray]]
    bitmap: str = ""
    begin: Callable[[], object] | None = None
    take: Callable[[], Sequence[np.ndarray]] | None = None

    @property
    def rows(self) -> int:
        return self.facts[0].rows

    @property
    def chunk_rows(self) -> int:
        return max(1, CHUNK_BYTES // max(1, sum(facts.row_bytes for facts in self.facts)))


@dataclass
class _Slot:
    groups: list[_Group] = field(default_factory=list)
    small: list[tuple[list[Facts], Callable[[], Sequence[np.ndarray]]]] = field(default_factory=list)


@dataclass(frozen=True)
class Written:
    """What one slot's file holds."""

    whole: bool
    tables: frozenset[str]
    """Bitmaps of the tables whose next delta may follow this file."""


class Source:
    """The variables of this PS, ready to be read again and again. One session on this PS; `close` it.

    `touched` is told slot and number of the dirty rows of a table.
    """

    def __init__(
        self, target: str, own_task: int, variables: Sequence[pb.Variable], collecting: AbstractContextManager[Any],
        touched: Callable[[int, int], None] = lambda slot, rows: None,
    ) -> None:  # fmt: skip
        self._own, self._collecting, self._touched = own_task, collecting, touched
        self.cancelled = threading.Event()
        self._program = local_program(target, own_task)
        self._facts = {v.name: Facts.from_proto(v) for v in variables if known(v.dtype)}
        self._slots = {v.name: v.slot for v in variables}
        self._tables = {v.name for v in variables if v.update == pb.Variable.ROWS and v.bitmap and v.shape}
        ops = Ops("look")
        bits = {facts.bitmap: bitmap_of(facts) for name, facts in self._facts.items() if name in self._tables}
        self._looked = list(self._facts), list(bits)
        there = [Located(ops, facts, own_task).initialized() for facts in self._facts.values()]
        there += [Located(ops, pending_of(one, "disk"), own_task).initialized() for one in bits.values()]
        self._program.load(ops)
        self._look = self._program.compile(fetches=there) if there else list
        self._built: dict[int, tuple[frozenset[str], _Slot]] = {}
        self._builds = 0

    def look(self) -> tuple[frozenset[str], frozenset[str]]:
        """Which variables are initialised, and which bitmaps of this reader there are."""
        names, bitmaps = self._looked
        good = [bool(one) for one in self._look()]
        ready = frozenset(name for name, one in zip(names, good) if one)
        return ready, frozenset(name for name, one in zip(bitmaps, good[len(names) :]) if one)

    def write(
        self, writer: FileWriter, slot: int, ready: frozenset[str], marked: frozenset[str], deltas: frozenset[str]
    ) -> Written:
        """One slot's file. `deltas`: bitmaps of tables of which only the dirty rows are wanted."""
        names = frozenset(name for name in ready if self._slots[name] == slot)
        if self._built.get(slot, (None, None))[0] != names:
            self._built[slot] = names, self._build(names)
        one, whole = self._built[slot][1], True
        for group in one.groups:
            if group.bitmap in deltas and group.take is not None:
                whole = False
                self._dirty(writer, group)
            else:
                if group.bitmap in marked and group.begin is not None:
                    group.begin()
                    self._take(group)
                for first in range(0, group.rows, group.chunk_rows):
                    rows = np.arange(first, min(group.rows, first + group.chunk_rows), dtype=np.int64)
                    for facts, values in self._values(group, rows):
                        writer.add_range(facts.name, facts.dtype.as_datatype_enum, first, values)
        for members, read in one.small:
            self._check()
            for facts, value in zip(members, read()):
                writer.add_whole(facts.name, facts.dtype.as_datatype_enum, np.asarray(value))
        return Written(whole, frozenset(group.bitmap for group in one.groups if group.bitmap in marked))

    def _dirty(self, writer: FileWriter, group: _Group) -> None:
        rows = self._take(group)
        self._touched(self._slots[group.facts[0].name], len(rows))
        for begin in range(0, len(rows), group.chunk_rows):
            some = rows[begin : begin + group.chunk_rows]
            for facts, values in self._values(group, some):
                writer.add_rows(facts.name, facts.dtype.as_datatype_enum, some, values)

    def _take(self, group: _Group) -> np.ndarray:
        assert group.take is not None
        with self._collecting:
            (rows,) = group.take()
        return np.asarray(rows)

    def _values(self, group: _Group, rows: np.ndarray) -> Iterator[tuple[Facts, np.ndarray]]:
        self._check()
        yield from zip(group.facts, group.gather(rows))

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise CancelledCutError("the cut was dropped: another command came")

    def _build(self, names: frozenset[str]) -> _Slot:
        self._builds += 1
        ops = Ops(f"cut{self._builds}_")
        tables: dict[str, list[Facts]] = {}
        large, small = [], []
        for name in sorted(names):
            facts = self._facts[name]
            if name in self._tables:
                tables.setdefault(facts.bitmap, []).append(facts)
            elif facts.shape and facts.dtype in GATHERED and facts.bytes > CHUNK_BYTES:
                large.append(facts)
            else:
                small.append(facts)
        rows = ops.add("Placeholder", device=ps_device(self._own), dtype=INT64)
        todo: list[tuple[list[Facts], list[str], str, str, str]] = []
        for bitmap, members in tables.items():
            marks = Marks(ops, bitmap_of(members[0]), self._own)
            taken = marks.take("disk")
            gathers = [Located(ops, facts, self._own).gather(rows) for facts in members]
            taken_rows = ops.add("Identity", [taken.rows], ps_device(self._own), taken.after, T=INT64)
            todo.append((members, gathers, bitmap, marks.begin("disk"), taken_rows))
        for facts in large:
            todo.append(([facts], [Located(ops, facts, self._own).gather(rows)], "", "", ""))
        packs = [(pack, [Located(ops, facts, self._own).read() for facts in pack]) for pack in _packs(small)]
        self._program.load(ops)
        compile_ = self._program.compile
        slot = _Slot()
        for members, gathers, bitmap, begin, take in todo:
            group = _Group(members, compile_(fetches=gathers, feeds=[rows]), bitmap)
            if bitmap:
                group.begin, group.take = compile_(targets=[begin]), compile_(fetches=[take])
            slot.groups.append(group)
        slot.small = [(pack, compile_(fetches=reads)) for pack, reads in packs]
        return slot

    def close(self) -> None:
        self._program.close()


def _packs(small: Sequence[Facts]) -> Iterator[list[Facts]]:
    """Variables that are read in one run."""
    pack: list[Facts] = []
    size = 0
    for facts in small:
        if pack and size + facts.bytes > CHUNK_BYTES:
            yield pack
            pack, size = [], 0
        pack.append(facts)
        size += facts.bytes
    if pack:
        yield pack


def deltas_of(written: Mapping[str, str], parent: str, base: bool) -> frozenset[str]:
    """Bitmaps of the tables that follow the parent cut. `written`: bitmap -> id of the cut it was last written for."""
    return frozenset() if base or not parent else frozenset(b for b, cut in written.items() if cut == parent)
