"""Moves of slots are measured: those that made the job slower are not made again for a time that doubles."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.autoscaler.observe.observed import Change, Limits, Observed, Size, SlotUse
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import POLICY, seen, uses, windows

SIZE = Size(2, 1)
SLOTS = tuple(fact(SlotUse, slot, f"ps-{slot // 2}", 10**6, load) for slot, load in enumerate((0.5, 0.45, 0.02, 0.02)))
MOVED = 200.0
AGAIN = MOVED + POLICY.direction_seconds


def unbalanced(now: float, *rates: float) -> Observed:
    """Slots were moved at `MOVED` and, with three rates, again 40 s later; examples per second before and after."""
    changes = [
        fact(Change, MOVED + 40.0 * number, "rebalance", "ps", 2, 2, "committed", seconds=2.0, decision=number)
        for number in range(len(rates) - 1)
    ]
    starts = [MOVED - 40.0, *(change.time for change in changes)]
    measured = [one for start, rate in zip(starts, rates) for one in windows(SIZE, rate, start)]
    return seen(
        SIZE, windows=(*measured, *windows(SIZE, rates[-1], now - 40.0)), time=now, slots=SLOTS, changes=tuple(changes),
        roles=uses(SIZE, ps_0={"busy_share": 0.95}), limits=Limits(2, 2, 1, 1),
    )  # fmt: skip


def decided(now: float, *rates: float) -> Decision:
    policy = dataclasses.replace(POLICY, reversals_per_hour=99)
    return decide(unbalanced(now, *rates), policy)


@pytest.mark.parametrize("after", [1000.0, 1300.0, 970.0])
def test_slots_whose_moves_did_no_harm_may_be_moved_again(after: float) -> None:
    assert decided(AGAIN - 60.0, 1000.0, after).action == "rebalance"


def test_slots_whose_moves_made_the_job_slower_are_left_for_a_time() -> None:
    found = decided(AGAIN - 60.0, 1000.0, 700.0)
    assert found.action != "rebalance" and "slots were moved and it trained 30% slower" in found.reason
    assert decided(AGAIN + 60.0, 1000.0, 700.0).action == "rebalance"


def test_the_time_doubles_with_each_move_that_made_it_slower() -> None:
    last = MOVED + 40.0
    assert decided(last + 2 * POLICY.direction_seconds - 60.0, 1000.0, 700.0, 500.0).action != "rebalance"
    assert decided(last + 2 * POLICY.direction_seconds + 60.0, 1000.0, 700.0, 500.0).action == "rebalance"
    assert decided(last + POLICY.direction_seconds + 60.0, 700.0, 1000.0, 800.0).action == "rebalance", "one was right"
