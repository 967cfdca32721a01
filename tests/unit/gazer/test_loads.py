"""What is typical of several traced steps."""

from __future__ import annotations

from array import array

from deeprec_ext.gazer.loads import PerStep, typical


def trace(slots: list[float], ps: list[float], epoch: int = 1) -> PerStep:
    return PerStep(array("d", slots), array("d", ps), epoch)


def test_one_step_that_was_held_up_makes_no_slot_hot() -> None:
    recent = [trace([1.0, 2.0], [3.0]), trace([100.0, 2.0], [102.0]), trace([1.2, 1.8], [3.0])]
    found = typical(recent, 1)
    assert list(found.slots) == [1.2, 2.0] and list(found.ps) == [3.0]
    assert (found.traces, found.ps_traces) == (3, 3)


def test_of_two_the_lower_one_counts_because_what_disturbs_only_adds() -> None:
    assert list(typical([trace([5.0], [1.0]), trace([1.0], [4.0])], 1).slots) == [1.0]


def test_what_ps_cost_before_slots_moved_says_nothing_of_them_now() -> None:
    recent = [trace([1.0], [9.0, 9.0], 1), trace([1.0], [2.0, 2.0, 2.0], 5), trace([1.0], [4.0, 4.0, 4.0], 6)]
    found = typical(recent, 5)
    assert list(found.ps) == [2.0] * 3
    assert (found.traces, found.ps_traces, found.epoch) == (3, 2, 6)
    assert list(typical(recent[:1], 5).ps) == [
        9.0,
        9.0,
    ]  # an old one is better than none; its epoch tells that it is old
