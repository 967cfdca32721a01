"""Hot slots: a map balanced by measured load instead of bytes, with the fewest moves (`aimaster/placement/planner.py`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.aimaster.placement import planner
from deeprec_ext.autoscaler.observe.observed import Change, SlotUse
from deeprec_ext.autoscaler.outcomes.measured import key_of
from deeprec_ext.autoscaler.outcomes.trials import WORSE
from deeprec_ext.autoscaler.policy import cost, hysteresis
from deeprec_ext.autoscaler.policy.decision import Answer, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import HOUR, Evidence
from deeprec_ext.units import format_seconds

PLANNED_MAX = 512
"""Slots up to which a map is planned in well under a second; no job has so many by default."""

DOUBLINGS_MAX = 10


@dataclass(frozen=True)
class Spread:
    """How the measured load of the slots lies on the PS."""

    owners: tuple[str, ...]
    loads: tuple[float, ...]  # per owner
    hottest: SlotUse  # the slot with the largest load

    @property
    def total(self) -> float:
        return sum(self.loads)

    @property
    def worst(self) -> float:
        return max(self.loads)

    @property
    def imbalance(self) -> float:
        return self.worst * len(self.loads) / self.total

    @property
    def one_slot_rules(self) -> bool:
        """Whether one slot alone is nearly all the load of the busiest PS: no move makes that less."""
        return self.hottest.load >= 0.9 * self.worst


def spread_of(evidence: Evidence) -> Spread | None:
    """None where nothing was measured, or there is nothing to spread over."""
    slots = [slot for slot in evidence.observed.slots if slot.owner]
    owners = tuple(sorted({slot.owner for slot in slots} | {use.name for use in evidence.ps}))
    loads = dict.fromkeys(owners, 0.0)
    for slot in slots:
        loads[slot.owner] += slot.load
    if len(owners) < 2 or not sum(loads.values()) > 0:
        return None
    return Spread(owners, tuple(loads.values()), max(slots, key=lambda slot: (slot.load, -slot.slot)))


def hot_slots(evidence: Evidence) -> Answer:
    """Moves load from the busiest PS, where it is the bottleneck and moving it helps."""
    policy, spread = evidence.policy, spread_of(evidence)
    if spread is None or spread.imbalance < policy.imbalance or not _matters(evidence, spread):
        return None
    busiest = spread.owners[spread.loads.index(spread.worst)]
    what = f"{busiest} has {spread.worst / spread.total:.0%} of the load of {len(spread.loads)} PS"
    if spread.one_slot_rules:
        return Remark(
            f"{what}, nearly all of it in slot {spread.hottest.slot}: no move of slots makes that less; a table in it is to be "
            f"partitioned over more slots"
        )
    if why := _too_soon(evidence):
        return Remark(f"{what}; {why}")
    count = 1 + max(slot.slot for slot in evidence.observed.slots)
    if not len(spread.owners) <= count <= PLANNED_MAX:
        return Remark(f"{what}; {count} slots cannot be planned anew for it")
    weights = _weights(evidence, count)
    after, moved, moves = _planned(evidence, spread, weights)
    if after > (1 - policy.rebalance_gain) * spread.worst:
        return Remark(f"{what}; the best map of its slots would not lower that by {policy.rebalance_gain:.0%}")
    seconds, pause = cost.of_ps_change(evidence, moved)
    gain = 1 - after / spread.worst
    if not cost.pays(evidence, gain * min(1.0, _busy(evidence, busiest)), cost.Cost(seconds, pause, moved)):
        return Remark(f"{what}; moving slots would not pay in the time that is left")
    return Proposal(
        "rebalance", evidence.size,
        f"{what}, {spread.imbalance:.2f} times its share: moving {moves} of {count} slots takes {gain:.0%} of it away",
        slot_weights=weights,
    )  # fmt: skip


def _busy(evidence: Evidence, name: str) -> float:
    """Of a PS, where it is measured; else all its time."""
    return next((use.busy_share for use in evidence.ps if use.name == name and use.busy_share > 0), 1.0)


def _matters(evidence: Evidence, spread: Spread) -> bool:
    """An idle PS may be as unbalanced as it likes."""
    return _busy(evidence, spread.owners[spread.loads.index(spread.worst)]) >= evidence.policy.busy_share


def _too_soon(evidence: Evidence) -> str:
    if why := hysteresis.failed(evidence, "ps", ("rebalance",)) or _made_slower(evidence):
        return why
    recent = [one for one in evidence.past(seconds=HOUR) if one.kind == "rebalance" and not one.manual]
    if len(recent) >= max(1, evidence.policy.reversals_per_hour):
        return f"slots were moved {len(recent)} times within the hour already"
    if evidence.now - evidence.changed_at < evidence.policy.down_cooldown_seconds:
        return "the last change is not old enough"
    return ""


def _made_slower(evidence: Evidence) -> str:
    """Why slots are not moved again after moves that cost throughput, in a row; empty: they may be.

    Rates are compared as they were measured: brought to the same conditions, a shift would be one of the conditions.
    """
    row: list[tuple[Change, float]] = []
    for change in reversed([one for one in evidence.past(role="ps") if one.kind == "rebalance" and not one.manual]):
        gained = _gained(evidence, change)
        if gained is not None and gained >= -WORSE:
            break
        if gained is not None:
            row.append((change, gained))
    if not row:
        return ""
    last, gained = row[0]
    wait = evidence.policy.direction_seconds * 2.0 ** min(len(row) - 1, DOUBLINGS_MAX)
    left = last.time + wait - evidence.now
    return (
        f"slots were moved and it trained {-gained:.0%} slower; the next try is in {format_seconds(left)}"
        if left > 0
        else ""
    )


def _gained(evidence: Evidence, change: Change) -> float | None:
    """Share of throughput that a change which left the size as it was has brought; None: not measured on both sides."""
    ends = [one.time for one in evidence.past()]
    since = max((end for end in ends if end < change.time), default=0.0)
    until = min((end for end in ends if end > change.time), default=math.inf)
    before = [
        one
        for one in evidence.windows
        if since <= one.start and one.start + one.seconds <= change.time - change.seconds
    ]
    after = [one for one in evidence.windows if change.time <= one.start < until]
    if not before or not after or {key_of(one.size) for one in before + after} != {key_of(before[-1].size)}:
        return None
    old, new = (statistics.median(one.examples_per_second for one in side) for side in (before, after))
    return new / old - 1 if old > 0 else None


def _weights(evidence: Evidence, count: int) -> tuple[float, ...]:
    """[S] load by slot number; a slot that is not there has none."""
    loads = {slot.slot: slot.load for slot in evidence.observed.slots}
    return tuple(round(loads.get(slot, 0.0), 6) for slot in range(count))


def _planned(evidence: Evidence, spread: Spread, weights: Sequence[float]) -> tuple[float, float, int]:
    """(load of the busiest PS, bytes moved, slots moved) after the rebalance, as the executor will plan it."""
    number = {owner: index for index, owner in enumerate(spread.owners)}
    owned = {slot.slot: number.get(slot.owner, 0) for slot in evidence.observed.slots}
    sizes = {slot.slot: slot.bytes for slot in evidence.observed.slots}
    before = [owned.get(slot, 0) for slot in range(len(weights))]
    plan = planner.plan(planner.whole_weights(weights), before, list(range(len(spread.owners))))
    loads = [0.0] * len(spread.owners)
    for weight, owner in zip(weights, plan.slot_map):
        loads[owner] += weight
    return max(loads), float(sum(sizes.get(move.slot, 0) for move in plan.moves)), len(plan.moves)
