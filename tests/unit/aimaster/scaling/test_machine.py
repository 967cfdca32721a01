"""The table of scaling states."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.aimaster.scaling.machine import (
    EDGES,
    RULES,
    IllegalEdgeError,
    Recovery,
    State,
    before_commit,
    check_edge,
    limit_seconds,
)
from deeprec_ext.options import Settings


def test_an_edge_that_is_not_in_the_table_raises() -> None:
    with pytest.raises(IllegalEdgeError, match="STEADY -> COMMIT"):
        check_edge(State.STEADY, State.COMMIT)


def test_every_state_has_a_rule_and_every_limit_is_a_setting() -> None:
    assert set(RULES) == set(State)
    for state in State:
        assert state is State.STEADY or (limit_seconds(state, Settings()) or 0) > 0


def test_the_table_alone_says_what_can_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {state for state in State if before_commit(state)} == {
        State.ACQUIRE, State.PREPARE, State.PAUSE, State.FINAL_COPY
    }  # fmt: skip
    monkeypatch.setitem(RULES, State.RELEASE, dataclasses.replace(RULES[State.RELEASE], undone=True))
    assert before_commit(State.RELEASE)


def test_before_commit_everything_leads_back_to_steady_and_after_it_nothing_does() -> None:
    for state in State:
        if before_commit(state):
            assert (state, State.STEADY) in EDGES
            assert RULES[state].recovery in (Recovery.RESUME, Recovery.ROLL_BACK)
    assert (State.COMMIT, State.STEADY) not in EDGES
    assert RULES[State.COMMIT].recovery is RULES[State.RELEASE].recovery is Recovery.FORWARD


def test_every_edge_says_why() -> None:
    assert all(EDGES.values())
