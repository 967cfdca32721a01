"""The schedules are functions of the seed, and the promises are checked."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from deeprec_ext.launch.events import parse_events
from tests.chaos.invariants import Bounds, Left, violations
from tests.chaos.schedule import PS_MAX, Plan, plan

BOUNDS = Bounds(1000, 2.0, 1.0, (0.8, 0.9))
DATA = {"records": 1000, "trained": 1000, "lost": 0, "repeated": 0, "stale": 0}
GOOD = Left(0, {"status": "succeeded", "data": DATA, "metrics": {"auc": 0.85}, "events": [], "failures": []}, [])
CALM = Plan(0, 2, 1, False, ())


def with_data(**changes: int) -> Left:
    return dataclasses.replace(GOOD, summary={**GOOD.summary, "data": {**DATA, **changes}})


def test_the_same_seed_gives_the_same_schedule_and_another_one_another():
    assert plan(3, 8) == plan(3, 8)
    assert len({plan(seed, 8).describe() for seed in range(50)}) == 50


@pytest.mark.parametrize("seed", range(40))
def test_every_schedule_is_a_valid_events_file_and_strikes_a_ps(seed):
    chosen = plan(seed, 12)
    events = parse_events(yaml.safe_dump(list(chosen.events)))
    assert len(events) == 12
    assert chosen.strikes("ps") >= 1
    for event in events:
        if event.ps is not None:
            assert 1 <= event.ps <= PS_MAX
        if event.action in ("kill", "hang") and event.target == "evaluator-0":
            assert chosen.evaluator


def test_a_run_that_kept_everything_breaks_no_promise():
    assert violations(CALM, GOOD, BOUNDS) == []


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (dataclasses.replace(GOOD, exit_code=None), "did not end in time"),
        (dataclasses.replace(GOOD, exit_code=1), "exit code 1"),
        (dataclasses.replace(GOOD, processes=["17: python"]), "left behind: 17: python"),
        (with_data(lost=1, trained=999), "lost 1 records"),
        (with_data(records=999, trained=999), "999 records were to be trained instead of 1000"),
        (with_data(repeated=1), "repeated 1 records, at most 0"),
        (with_data(stale=1), "stale 1 records, but no PS died"),
        (dataclasses.replace(GOOD, summary={**GOOD.summary, "data": None}), "no data"),
        (dataclasses.replace(GOOD, summary={**GOOD.summary, "metrics": {"auc": 0.7}}), "outside of the spread"),
        (dataclasses.replace(GOOD, steps={"chief-0.1": [(1.0, 5, 10), (2.0, 4, 10)]}), "went back from 5 to 4"),
        (
            dataclasses.replace(GOOD, summary={**GOOD.summary, "events": [
                {"event": "kill ps-0 at step 1", "fired": True, "outcome": "refused", "reason": "ps-0 does not run"}]}),
            "kill ps-0 at step 1: refused ps-0 does not run",
        ),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named(left: Left, said: str):
    assert any(said in line for line in violations(CALM, left, BOUNDS)), violations(CALM, left, BOUNDS)


def test_steps_may_go_back_where_the_model_was_restored():
    left = dataclasses.replace(
        GOOD, steps={"chief-0.1": [(1.0, 5, 10), (2.0, 4, 10)]}, events=[{"type": "ps_replaced", "time": 1.5}]
    )
    assert violations(CALM, left, BOUNDS) == []
