"""What the decisions of a job have brought: from the observations that were recorded with them."""

from __future__ import annotations

import dataclasses
import time

import pytest

from deeprec_ext.aimaster.core.records import GIVEN_UP, Scaling
from deeprec_ext.autoscaler.observe.changes import changes_of
from deeprec_ext.autoscaler.observe.observed import Change, Limits, Observed, Size, Window
from deeprec_ext.autoscaler.outcomes.brought import brought
from deeprec_ext.autoscaler.outcomes.conditions import comparable
from deeprec_ext.autoscaler.outcomes.trials import stays, trials
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.outcomes.test_trials import GREW, SEEN, windows


def looked(time: float, size: Size, count: int, changes: int) -> Observed:
    return fact(Observed, 1, time, size, Limits(), windows=tuple(SEEN[:count]), changes=GREW[:changes])


def test_the_seven_minutes_of_the_issue_are_told_with_the_decisions_that_were_wrong():
    found = brought([looked(20.0, Size(1, 0), 2, 0), looked(140.0, Size(4, 1), 8, 3)], 0.1, until=530.0)
    values = found.to_values()
    assert values["first"] == {"ps": 1, "workers": 0} and values["examples_per_second_first"] == 22_900
    assert values["seconds_gained"] == pytest.approx(-127, abs=2)
    assert values["gained"] == pytest.approx(-127 / 510, abs=0.01)
    assert [one["decision"] for one in values["wrong"]] == [1, 2, 3]
    assert values["wrong"][2] == {"decision": 3, "from": [2, 1], "to": [4, 1], "predicted": 0.55, "gained": -0.2212}
    said = found.sentence()
    assert "against 22,900 at 1 PS, 0 workers" in said and "behind where it would be" in said
    assert "decision 2 to 2 PS, 1 worker brought -15% where +73% was predicted" in said


def test_changes_by_hand_are_counted_apart():
    by_hand = tuple(dataclasses.replace(one, manual=True, decision=-1) if one.role == "worker" else one for one in GREW)
    seen = [looked(20.0, Size(1, 0), 2, 0), dataclasses.replace(looked(140.0, Size(4, 1), 8, 3), changes=by_hand)]
    found = brought(seen, 0.1, until=530.0)
    assert found.to_values()["by_hand"] == 1 and "; 1 of 3 changes was made by hand" in found.sentence()
    assert "by hand" not in brought([seen[0], looked(140.0, Size(4, 1), 8, 3)], 0.1).sentence()


def test_a_worker_that_was_given_up_is_a_size_of_its_own_and_nobodys_decision():
    """The slower rate after it was laid to the size before, and it counted as made by hand."""
    records = [Scaling(1, GIVEN_UP, "worker", from_count=1, to_count=0, outcome="committed", started=1030.0)]
    lost = changes_of(records, 1000.0, {})
    assert [(one.from_count, one.to_count, one.manual, one.decision) for one in lost] == [(1, 0, False, -1)]
    seen = (*windows((1, 1), 0.0), *windows((1, 0), 40.0))
    past = stays(Size(1, 0), lost)
    assert [(one.counts, one.by_hand) for one in past] == [((1, 1), False), ((1, 0), False)]
    found = brought([fact(Observed, 1, 70.0, Size(1, 0), Limits(), windows=seen, changes=tuple(lost))], 0.1)
    values = found.to_values()
    assert values["by_hand"] == 0 and values["wrong"] == [] and values["examples_per_second_first"] == 24_600
    assert "by hand" not in found.sentence() and trials(past, comparable(seen)) == []


def test_windows_that_a_later_observation_has_forgotten_still_count():
    late = fact(Observed, 1, 140.0, Size(4, 1), Limits(), windows=tuple(windows((4, 1), 120.0)), changes=GREW)
    assert brought([late], 0.1) is None, "nothing is known of the first size"
    assert brought([looked(20.0, Size(1, 0), 2, 0), late], 0.1).account.first_rate == 22_900


def test_a_job_that_never_changed_has_nothing_to_tell():
    assert brought([], 0.1) is None
    assert brought([looked(20.0, Size(1, 0), 2, 0)], 0.1) is None


def test_what_a_change_takes_while_it_goes_on_is_what_the_policy_says():
    seen = [looked(20.0, Size(1, 0), 2, 0), looked(140.0, Size(4, 1), 8, 3)]
    little, much = brought(seen, 0.1, until=530.0).account, brought(seen, 0.6, until=530.0).account
    changing = sum(one.seconds for one in GREW)
    assert 0.3 * changing < much.lost_seconds - little.lost_seconds < 0.6 * changing


def test_a_month_of_windows_and_changes_is_told_in_a_moment():
    """43 200 windows of a minute, a change every three hours: each window is looked at a few times, not once per change."""
    changes = [
        fact(Change, 10_800.0 * number, "scale-up", "ps", 1 + (number + 1) % 2, 1 + number % 2, "committed", 10.0,
             decision=number, foretold=150.0) for number in range(1, 240)
    ]  # fmt: skip
    seen = [
        fact(Window, 60.0 * minute, 60.0, Size(1 + minute // 180 % 2, 1), 100.0 + 20 * (minute // 180 % 2) + minute % 3)
        for minute in range(30 * 1440)
    ]  # fmt: skip
    looks = [
        fact(Observed, 1, 60.0 * (minute + 150), Size(2, 1), Limits(), windows=tuple(seen[minute : minute + 150]),
             changes=tuple(changes)) for minute in range(0, 30 * 1440, 150)
    ]  # fmt: skip
    began = time.process_time()
    found = brought(looks, 0.1)
    assert time.process_time() - began < 10
    assert found.windows == 30 * 1440 and found.account.first_rate == pytest.approx(101, abs=0.5)
    assert found.account.gained == pytest.approx(0.1, abs=0.01)


def test_time_in_which_a_job_stood_until_it_was_resumed_counts_for_nothing():
    """Twelve windows of 20 s at 1 PS, then 30 twice as fast at 2 PS, and in the middle of those an hour of nothing."""
    change = fact(Change, 250.0, "scale-up", "ps", 1, 2, "committed", 8.0)

    def found(away: float):
        small = [fact(Window, 20.0 * number, 20.0, Size(1, 0), 100.0) for number in range(12)]
        large = [
            fact(Window, 250.0 + 20 * number + away * (number >= 15), 20.0, Size(2, 0), 200.0) for number in range(30)
        ]
        looks = [
            fact(Observed, number, one.start + 20, one.size, Limits(), windows=(one,), changes=(change,) * (one in large))
            for number, one in enumerate([*small, *large])
        ]  # fmt: skip
        return brought(looks, 0.0)

    stayed, resumed = found(0.0), found(3600.0)
    assert stayed.account.gained == pytest.approx(1.0, abs=0.05)
    assert resumed.account.seconds == pytest.approx(stayed.account.seconds)
    assert resumed.account.lost_seconds == pytest.approx(stayed.account.lost_seconds)
