"""One lock with named holders."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.scaling.machine import State, tell_holds
from deeprec_ext.aimaster.state.lock import Hold, Lock


def lock() -> Lock:
    return Lock(iter(range(100)).__next__)


def test_what_two_hold_stays_held_until_both_have_given_it_back() -> None:
    one = lock()
    one.take("promotion", Hold.GATE)
    one.take("scaling 3", Hold.GATE, Hold.VIEWS)
    one.give_all_back("scaling 3")
    assert one.held(Hold.GATE) and not one.held(Hold.VIEWS)
    one.give_back("scaling 3", Hold.GATE)
    assert one.held(Hold.GATE), "nobody gives back what is another's"
    one.give_back("promotion", Hold.GATE)
    assert not one.held(*Hold)


def test_it_is_told_who_holds_what_since_when() -> None:
    now = [10.0]
    one = Lock(lambda: now[0])
    assert str(one) == "nothing"
    one.take("scaling 3", Hold.GATE)
    now[0] = 12.0
    one.take("scaling 3", Hold.GATE)  # has it already
    assert str(one) == "GATE by scaling 3 for 2.0 s"


def test_new_pods_are_named() -> None:
    one = lock()
    one.take("scaling 3", Hold.NEW_PODS, names=("ps-2", "ps-3"))
    assert one.names(Hold.NEW_PODS) == {"ps-2", "ps-3"}
    one.take("scaling 3", Hold.NEW_PODS)
    assert one.names(Hold.NEW_PODS) == set() and one.held(Hold.NEW_PODS)


@pytest.mark.parametrize(
    ("role", "state", "held"),
    [
        ("ps", State.ACQUIRE, {Hold.SCALING, Hold.CHANGE, Hold.DECISION}),
        ("ps", State.PREPARE, {Hold.SCALING, Hold.CHANGE, Hold.DECISION, Hold.SLOTS}),
        ("ps", State.COMMIT, {Hold.SCALING, Hold.CHANGE, Hold.DECISION, Hold.SLOTS}),
        ("ps", State.RELEASE, {Hold.SCALING, Hold.CHANGE}),
        ("worker", State.ACQUIRE, {Hold.SCALING, Hold.DECISION}),
        ("worker", State.COMMIT, {Hold.SCALING, Hold.DECISION}),
        ("worker", State.RELEASE, {Hold.SCALING}),
    ],
)
def test_a_scaling_holds_what_its_state_says_and_keeps_what_it_took(role: str, state: State, held: set[Hold]) -> None:
    one, scaling = lock(), Scaling(3, "scale-up", role)
    one.take("scaling 3", Hold.GATE)
    for before in (State.PREPARE, state):
        tell_holds(one, dataclasses.replace(scaling, state=before.value))
    assert {hold for hold in Hold if one.held(hold)} == held | {Hold.GATE}


def test_one_that_an_aimaster_left_half_done_counts_as_a_change_of_ps_until_somebody_goes_on_with_it() -> None:
    one, scaling = lock(), Scaling(3, "scale-up", "worker", state=State.COMMIT.value)
    tell_holds(one, scaling, interrupted=True)
    assert one.held(Hold.CHANGE) and not one.held(Hold.SLOTS)
    tell_holds(one, scaling)
    assert not one.held(Hold.CHANGE)
