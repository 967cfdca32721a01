"""Memory of a parameter server, from the variables that are on it, and of a trainer that keeps copies of them. Pure.

    PS = process + variables + backups + marks + buffers

- *process*: the interpreter, TensorFlow, its threads and graphs, and some more for each variable, which has kernels of its own;
- *variables*: bytes of the catalogue on its slots, optimizer slots included;
- *backups*: the same of the slots it guards, where there are peer backups, which take more than one PS;
- *marks*: bits (a byte each) per row of its tables and of those it guards: the marks themselves, and one set for each reader;
- *buffers*: rows on their way: a chunk of a copy on either side, the dirty rows of a refresh; and the sessions that carry them.

Not in it, because it passes: a scaling, in which the target has its copies before the source gives up its own (`moving`), and a
checkpoint (`peak`), for which a table that training updates by rows is copied before it is written, where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.aimaster.placement.holder_plan import first_holders
from deeprec_ext.aimaster.placement.planner import laid_out
from deeprec_ext.aimaster.placement.slots import slot_bytes, slot_rows
from deeprec_ext.autoscaler.observe.observed import Model
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PROCESS_BYTES = 424_000_000
"""Resident memory of `deeprec_ext.elastic.serve` with TensorFlow 2.15 before it has a variable, its libraries included:
measured by `benchmarks/estimator.py`, which says how far off it is elsewhere."""

VARIABLE_BYTES = 100_000
"""Of one variable beside its values: kernels, handles, names in graphs."""

GUARDING_BYTES = 90_000_000
"""Of a PS that guards others' slots beside the copies: sessions on it and on theirs, and what their transfers leave in the
allocator. 75 to 110 MB where `benchmarks/estimator.py` measured."""

CHUNK_BYTES = 8 << 20
"""Setting `copy_chunk_bytes`."""

DIRTY_ROUND_BYTES = 256 << 20
"""Most that one round of dirty rows takes (`deeprec_ext.elastic.ps.migration`)."""

HOLDER_ROOM = 0.9
"""Share of a trainer's memory that may be in use with the copies of a single PS; with more it keeps none."""

DIRTY_SHARE = 0.1
"""Of a table's bytes, dirty between two refreshes: most steps touch the same rows."""


@dataclass(frozen=True)
class Layout:
    """What is on each slot, whoever has it. All [S]."""

    sizes: tuple[int, ...]  # bytes of all variables
    tables: tuple[int, ...]  # bytes of those updated by rows
    rows: tuple[int, ...]  # of the tables
    counts: tuple[int, ...]  # variables
    unknown: int = 0  # of these, whose size the graph does not tell

    @classmethod
    def of(cls, catalogue: pb.Catalogue, slots: int) -> Layout:
        variables = [variable for variable in catalogue.variables if 0 <= variable.slot < slots]
        tables = [variable for variable in variables if variable.update == pb.Variable.ROWS]
        counts = [0] * slots
        for variable in variables:
            counts[variable.slot] += 1
        return cls(
            tuple(slot_bytes(variables, slots)), tuple(slot_bytes(tables, slots)), tuple(slot_rows(variables, slots)),
            tuple(counts), sum(not variable.bytes for variable in variables),
        )  # fmt: skip


@dataclass(frozen=True)
class PsMemory:
    """Of one PS, bytes."""

    process: int = PROCESS_BYTES
    variables: int = 0
    backups: int = 0
    marks: int = 0
    buffers: int = 0
    tables: int = 0  # of its own variables, those updated by rows

    @property
    def stored(self) -> int:
        """What follows from the variables alone; the rest was measured."""
        return self.variables + self.backups + self.marks

    @property
    def total(self) -> int:
        """While it trains."""
        return self.stored + self.process + self.buffers

    @property
    def peak(self) -> int:
        """While the chief writes a checkpoint too."""
        return self.total + self.tables


def ps_memory(
    layout: Layout, slot_map: Sequence[int], backup_map: Sequence[int] = (), *, disk: bool = False
) -> dict[int, PsMemory]:
    """By task.

    Args:
        slot_map: [S] slot -> task of its owner.
        backup_map: [S] slot -> task of the PS that guards it, -1: none; empty: no peer backups.
        disk: disk backups are on, which read dirty rows too.
    """
    own, guarded = _by_task(slot_map), _by_task(backup_map)
    marks = bool(backup_map) + disk
    return {
        task: _one(layout, own.get(task, ()), guarded.get(task, ()), marks)
        for task in sorted(own.keys() | guarded.keys()) if task >= 0
    }  # fmt: skip


def _by_task(slot_map: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for slot, task in enumerate(slot_map):
        found.setdefault(task, []).append(slot)
    return found


def _one(layout: Layout, own: Sequence[int], guarded: Sequence[int], marks: int) -> PsMemory:
    """Of a PS with these slots. `marks`: sets of them."""
    marked = (marks + 1) * sum(layout.rows[slot] for slot in [*own, *guarded]) if marks else 0
    dirty = DIRTY_SHARE * sum(layout.tables[slot] for slot in guarded)
    return PsMemory(
        process=PROCESS_BYTES + VARIABLE_BYTES * sum(layout.counts[slot] for slot in [*own, *guarded]),
        variables=sum(layout.sizes[slot] for slot in own), backups=sum(layout.sizes[slot] for slot in guarded),
        marks=marked, buffers=round(min(dirty, DIRTY_ROUND_BYTES)) + (CHUNK_BYTES + GUARDING_BYTES if guarded else 0),
        tables=sum(layout.tables[slot] for slot in own),
    )  # fmt: skip


def for_count(layout: Layout, ps: int, *, backups: bool = True, disk: bool = False) -> PsMemory:
    """The fullest of so many PS, once slots are balanced by bytes."""
    balanced = laid_out(layout.sizes, ps)
    backup_map = first_holders(layout.sizes, balanced, ps) if backups else ()
    return max(ps_memory(layout, balanced, backup_map, disk=disk).values(), key=lambda one: one.total)


def moving(layout: Layout, before: dict[int, PsMemory], old: Sequence[int], new: Sequence[int]) -> dict[int, int]:
    """Bytes by task at the height of a scaling: sources and targets both have what moves, and mark it.

    Args:
        before: memory of the present PS; one that is new is not in it.
        old, new: [S] slot maps.
    """
    moved = [slot for slot in range(len(old)) if old[slot] != new[slot]]
    found = {}
    for task in sorted({*before, *old, *new}):
        incoming = [slot for slot in moved if new[slot] == task]
        outgoing = [slot for slot in moved if old[slot] == task]
        rows = sum(layout.rows[slot] for slot in [*incoming, *outgoing])
        copies = sum(layout.sizes[slot] for slot in incoming)
        kernels = VARIABLE_BYTES * sum(layout.counts[slot] for slot in incoming)
        found[task] = before.get(task, PsMemory()).total + copies + kernels + rows + (CHUNK_BYTES if rows else 0)
    return found


def of_holder(layout: Layout) -> int:
    """Of a trainer, beside its own: copies of all variables of a single PS, optimizer slots included, and what keeps them up.

    Not GUARDING_BYTES: with half a megabyte of variables a chief took 13 MB more than without, most of which is a chunk."""
    if not any(layout.counts):
        return 0
    dirty = min(DIRTY_SHARE * sum(layout.tables), DIRTY_ROUND_BYTES)
    return sum(layout.sizes) + VARIABLE_BYTES * sum(layout.counts) + round(dirty) + CHUNK_BYTES


def of_holder_of(model: Model) -> int:
    """The same, where only features of the model are known; 0 where none is."""
    variables = model.table_bytes + model.dense_bytes
    return variables + CHUNK_BYTES + round(min(DIRTY_SHARE * model.table_bytes, DIRTY_ROUND_BYTES)) if variables else 0


def even_share(model: Model, ps: int, backups: bool) -> float:
    """Bytes of the fullest of so many PS where only features of the model are known: slots are even, or one is the largest."""
    copies = 2 if backups and ps > 1 else 1
    variables = max((model.table_bytes + model.dense_bytes) / ps, float(model.largest_slot_bytes))
    return PROCESS_BYTES + copies * variables + (2 * CHUNK_BYTES + GUARDING_BYTES if copies > 1 else 0)
