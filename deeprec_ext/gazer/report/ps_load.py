"""Where the work of the PS was: per PS and per slot, and what a better spread would save.

The measure is time: `busy_share` of a PS is seconds in which an op ran for a trainer, per second, summed over trainers;
`lookup_share + update_share` of a slot is the same for the ops on its variables. Rows and bytes stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.gazer.report.lines import Lines, Windows, length, natural
from deeprec_ext.gazer.report.story import Story, Table

WORTH_MOVING = 0.01
"""A move that makes the busiest PS faster by less than this share is noise."""


@dataclass(frozen=True)
class SlotLoad:
    slot: int
    owner: str
    load: float  # seconds of look-ups and updates per second
    lookup_rows: float  # per second
    update_rows: float  # per second
    bytes: int
    rows: int
    tables: tuple[Table, ...]  # largest first

    @property
    def name(self) -> str:
        return f"slot-{self.slot}"

    @property
    def largest(self) -> list[Table]:
        """Its tables without those of the optimizer (`C1/embedding/Adagrad`), largest first."""
        names = {table.name for table in self.tables}
        return [table for table in self.tables if table.name.rpartition("/")[0] not in names]


@dataclass(frozen=True)
class PsLoad:
    name: str
    busy: float  # seconds per second, summed over trainers
    lookup_rows: float  # per second
    bytes: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    slot: int
    source: str
    target: str


@dataclass(frozen=True)
class Loads:
    """Means over the calm time of one slot map."""

    windows: Windows
    traces: int  # traced steps in that time
    trainers: int
    ps: tuple[PsLoad, ...]  # busiest first
    slots: tuple[SlotLoad, ...]  # busiest first

    @property
    def seconds(self) -> float:
        return length(self.windows)

    @property
    def busy(self) -> float:
        """Of all PS together."""
        return sum(one.busy for one in self.ps)

    @property
    def load(self) -> float:
        """Of all slots together."""
        return sum(one.load for one in self.slots)

    @property
    def lookup_rows(self) -> float:
        return sum(one.lookup_rows for one in self.ps)

    def part_of_step(self, busy: float) -> float:
        """Share of a trainer's step in which a PS that is busy so much works for it.

        `busy / trainers`: a PS is busy `b` seconds in each step of a trainer, at `s` steps a second of each of `n` trainers:
        its busy share is `b·s·n`, a step lasts `1/s`, so the part of the step is `b·s`. At most 1.
        """
        return min(1.0, busy / self.trainers) if self.trainers else 0.0


def measure(story: Story, lines: Lines, windows: Windows, trainers: Sequence[str]) -> Loads | None:
    """None where no PS was busy in the windows, as far as is known."""
    owners = _owners(story, windows)
    slots = [_slot_load(story, lines, windows, slot, owner) for slot, owner in enumerate(owners)]
    names = lines.subjects("busy_share", "ps-")
    found = [_ps_load(lines, windows, name, slots) for name in names if not owners or name in owners]
    if not any(one.busy for one in found):
        return None
    times = [one.time for one in story.traces]
    active = [
        name for name in trainers if lines.seconds(name, "steps_per_second", windows) > 0.5 * length(windows)
    ]  # fmt: skip
    return Loads(
        windows, sum(any(start <= time <= end for start, end in windows) for time in times), len(active),
        tuple(sorted(found, key=lambda one: (-one.busy, natural(one.name)))),
        tuple(sorted(slots, key=lambda one: (-one.load, one.slot))),
    )  # fmt: skip


def _owners(story: Story, windows: Windows) -> tuple[str, ...]:
    """[S] of the slot map in use during the windows."""
    known = [one.owners for one in story.placements if windows and one.time <= windows[0][0]]
    return known[-1] if known else story.placements[-1].owners if story.placements else ()


def _slot_load(story: Story, lines: Lines, windows: Windows, slot: int, owner: str) -> SlotLoad:
    def mean(metric: str) -> float:
        return lines.mean(f"slot-{slot}", metric, windows) or 0.0

    tables = story.tables.get(slot, ())
    return SlotLoad(
        slot, owner, mean("lookup_share") + mean("update_share"), mean("lookup_rows_per_second"),
        mean("update_rows_per_second"), sum(table.bytes for table in tables), sum(table.rows for table in tables), tables,
    )  # fmt: skip


def _ps_load(lines: Lines, windows: Windows, name: str, slots: Sequence[SlotLoad]) -> PsLoad:
    mine = [one for one in slots if one.owner == name]
    return PsLoad(
        name, lines.mean(name, "busy_share", windows) or 0.0, sum(one.lookup_rows for one in mine),
        sum(one.bytes for one in mine), tuple(one.slot for one in mine),
    )  # fmt: skip


def rebalance(loads: Loads) -> tuple[float, tuple[Move, ...]]:
    """What moving slots between the present PS could do about the busiest one.

    Greedy: the slot whose move shortens the busiest PS most goes to the idlest, until nothing is gained any more. Few moves,
    and an estimate on the careful side: swaps could gain a little more.

    Returns:
        (ratio, moves): the load of the busiest PS afterwards, divided by what it is now (1.0: nothing helps).
    """
    where = {one.slot: one.owner for one in loads.slots}
    weight = {one.slot: one.load for one in loads.slots}
    totals = {one.name: 0.0 for one in loads.ps}
    for slot, owner in where.items():
        if owner in totals:
            totals[owner] += weight[slot]
    before = max(totals.values(), default=0.0)
    if before <= 0 or len(totals) < 2:
        return 1.0, ()
    moves: list[Move] = []
    for _ in range(2 * len(where)):
        full, idle = max(totals, key=totals.__getitem__), min(totals, key=totals.__getitem__)
        gains = [
            (totals[full] - max(totals[full] - weight[slot], totals[idle] + weight[slot]), -slot)
            for slot, owner in where.items()
            if owner == full and weight[slot] > 0
        ]
        gain, slot = max(gains, default=(0.0, 0))
        if gain < WORTH_MOVING * before:
            break
        slot = -slot
        moves.append(Move(slot, full, idle))
        where[slot], totals[full], totals[idle] = idle, totals[full] - weight[slot], totals[idle] + weight[slot]
    return max(totals.values()) / before, tuple(moves)


def saved_by(loads: Loads, ratio: float) -> float:
    """Share of the step time that is saved when the busiest PS has only `ratio` of its work.

    The PS of a step work side by side, so a step waits for the busiest: `part_of_step(busy of the busiest) · (1 - ratio)`.
    Waiting in queues and what overlaps with the trainer's own work are left out, so it is an estimate, said as "about".
    """
    return loads.part_of_step(loads.ps[0].busy) * (1.0 - ratio)


def spread(counts: Mapping[str, float]) -> float:
    """The largest of some values divided by their mean: 1.0 is even. 0 where all are 0."""
    total = sum(counts.values())
    return max(counts.values()) * len(counts) / total if total else 0.0
