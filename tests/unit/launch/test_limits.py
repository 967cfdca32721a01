from __future__ import annotations

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.events import ScriptedEvent
from deeprec_ext.launch.limits import Limits, resolve_limits


def limits(events=(), **given) -> Limits:
    values = {"ps": 2, "workers": 1, "slots": None, "min_ps": None, "max_ps": None, "min_workers": None,
              "max_workers": None, "evaluator": False}  # fmt: skip
    return resolve_limits(**{**values, **given}, events=events)


def test_defaults_leave_room_to_scale():
    assert limits() == Limits(2, 1, 8, 1, 4, 0, 4, False)


def test_events_and_flags_raise_the_defaults():
    events = [ScriptedEvent("scale", ps=6, at_step=1), ScriptedEvent("scale", workers=5, at_step=2)]
    resolved = limits(events)
    assert (resolved.max_ps, resolved.slots, resolved.max_workers) == (6, 12, 5)
    assert limits(ps=5).slots == 10


def test_given_slots_bound_the_default_of_max_ps():
    assert limits(slots=3).max_ps == 3


def test_a_job_that_sums_has_no_ps_and_no_slots():
    assert limits(ps=0, slots=0, min_ps=0, max_ps=0) == Limits(0, 1, 0, 0, 0, 0, 4, False)
    for event in (ScriptedEvent("scale", ps=1, at_step=1), ScriptedEvent("kill", "ps-0", at_step=1)):
        with pytest.raises(UsageError, match="with --strategy allreduce there are no PS"):
            limits([event], ps=0, slots=0, min_ps=0, max_ps=0)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"slots": 0}, "--ps 2 with --slots 0"),
        ({"ps": 0}, "--ps 0: a job needs at least 1 PS"),
        ({"workers": -1}, "--workers -1"),
        ({"ps": 4, "slots": 2}, "--ps 4 with --slots 2"),
        ({"max_ps": 9, "slots": 8}, "--max-ps 9 with --slots 8"),
        ({"ps": 3, "max_ps": 2}, "must lie between"),
        ({"ps": 1, "min_ps": 2}, "must lie between"),
        ({"min_ps": 0}, "--min-ps 0"),
        ({"min_ps": 5, "max_ps": 4}, "--min-ps 5 is more than --max-ps 4"),
        ({"max_ps": 0}, "--max-ps 0: must be 1 or more"),
        ({"max_workers": -2}, "--max-workers -2: must be 0 (only the chief) or more"),
        ({"min_workers": 3, "max_workers": 1}, "--min-workers 3 is more than --max-workers 1"),
        ({"workers": 5, "max_workers": 2}, "must lie between"),
        ({"workers": 0, "min_workers": 1}, "must lie between"),
    ],
)
def test_impossible_counts_are_refused_by_flag(given, part):
    with pytest.raises(UsageError) as error:
        limits(**given)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("event", "given", "part"),
    [
        (ScriptedEvent("scale", ps=9, at_step=1), {"slots": 8}, "more PS than the 8 slots"),
        (ScriptedEvent("scale", ps=4, at_step=1), {"max_ps": 3}, "must lie between --min-ps 1 and --max-ps 3"),
        (ScriptedEvent("scale", workers=0, at_step=1), {"min_workers": 1}, "must lie between --min-workers 1"),
        (ScriptedEvent("kill", "evaluator-0", at_step=1), {}, "started with --evaluator"),
        (ScriptedEvent("kill", "chief-1", at_step=1), {}, "the chief is chief-0"),
    ],
)
def test_events_that_cannot_be_are_refused_before_the_start(event, given, part):
    with pytest.raises(UsageError, match=part):
        limits([event], **given)
