"""Who gets what is left: by gain, fairly, seldom."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Cluster, Count, Job, Worth
from deeprec_ext.arbiter.rules import Rules
from tests.unit.arbiter.clusters import NOW, bid, cluster, given, job, nodes, sizes, why, workers, worth


def test_equal_jobs_get_the_same_and_odd_cores_go_to_who_was_first():
    jobs = [job(name, most=(0, 15)) for name in ("a", "b", "c")]
    assert workers(cluster(jobs, nodes(1, 16.0))) == [5, 4, 4]


def test_the_larger_gain_per_core_goes_first():
    assert workers(cluster([job("flat", power=0.2), job("steep", power=0.9)], nodes(1, 8.0))) == [1, 5]


def test_a_job_with_double_the_weight_gets_about_double():
    jobs = [job("one", most=(0, 30)), job("two", most=(0, 30), weight=2.0)]
    assert workers(cluster(jobs, nodes(1, 30.0))) == [9, 19]


def test_a_job_without_a_model_gets_an_even_share():
    jobs = [job("unknown", power=None), job("also", power=None), job("known", power=1.0)]
    assert workers(cluster(jobs, nodes(1, 12.0))) == [3, 3, 3]


def test_a_gain_that_comes_only_after_two_workers_is_seen():
    speeds = [100.0, 200.0, 200.0, 900.0]
    steps = tuple(Worth(0, at, speed) for at, speed in enumerate(speeds))
    jumps = job("jumps", least=(0, 1), most=(0, 3), bid=bid((0, 1), (0, 3), steps))
    assert workers(cluster([jumps, job("slow", power=0.4, most=(0, 5))], nodes(1, 6.0))) == [3, 1]


def test_what_is_left_over_goes_to_a_smaller_step_where_the_best_has_no_room():
    sparse = tuple(Worth(0, at, 100.0 * (at + 1)) for at in (1, 8))
    assert workers(cluster([job("a", most=(0, 8), bid=bid((0, 1), (0, 8), sparse))], nodes(1, 6.0))) == [5]


def test_ps_come_with_workers_as_the_model_says():
    two = tuple(Worth(ps, at, 100.0 * min(at + 1, 3 * ps)) for ps in (1, 2) for at in range(1, 6))
    seen = job("a", least=(1, 1), most=(2, 5), bid=bid((1, 1), (2, 5), two))
    assert sizes(cluster([seen], nodes(1, 8.0))) == {"a": (2, 5)}
    assert sizes(cluster([seen], nodes(1, 4.0))) == {"a": (1, 2)}


@pytest.mark.parametrize(
    ("taken", "age", "grows"),
    [(0.0, 12.0, False), (2.0, 12.0, True), (2.0, 4.0, False), (15.0, 12.0, False), (90.0, 21.0, True)],
)
def test_a_job_whose_changes_are_quick_is_changed_again_sooner(taken: float, age: float, grows: bool) -> None:
    """Free room came in two pieces, a second apart."""
    most, steps = (0, 5), worth(0.9, (0, 1), (0, 5))
    one = job(
        "a", allowed=(0, 2), on="node-000", age=age, most=most, bid=bid((0, 2), most, steps, change_seconds=taken)
    )
    assert workers(cluster([one], nodes(1, 8.0))) == [5 if grows else 2]


def test_never_more_than_is_wanted_nor_than_the_most_nor_less_than_the_least():
    steps = tuple(Worth(0, at, 100.0 * (at + 1)) for at in range(40))
    for wanted, got in (((0, 3), 3), ((0, 30), 5), ((0, 0), 2)):
        one = job("a", least=(0, 2), most=(0, 5), bid=bid((0, 2), wanted, steps))
        assert workers(cluster([one], nodes(8))) == [got]


def test_a_job_without_a_bid_has_what_its_user_wrote():
    assert workers(cluster([job("a", bid=None, written=Count(0, 3))], nodes(8))) == [3]


def test_a_higher_priority_has_all_that_it_wants_before_others_have_more_than_their_least():
    jobs = [job("low", allowed=(0, 5), on="node-000"), job("high", allowed=(0, 1), on="node-000", priority=5)]
    assert workers(cluster(jobs, nodes(1, 8.0))) == [1, 5]


def test_by_weight_priorities_count_for_minimums_alone():
    jobs = [job("low", most=(0, 15)), job("high", most=(0, 15), priority=5)]
    seen = cluster(jobs, nodes(1, 16.0))
    assert workers(seen, Rules(priorities="weight")) == [7, 7]
    assert workers(seen) == [1, 13]


# -------------------------------------------------------------------------------------------------- deadlines


def deadline(name: str, seconds: float, **more: Any) -> Job:
    one = job(name, most=(0, 7), power=1.0)
    assert one.bid is not None
    known = dataclasses.replace(one.bid, left=600_000.0)
    return dataclasses.replace(one, bid=known, deadline=NOW + seconds, **more)


def test_a_deadline_is_met_before_others_have_more_than_their_least():
    """600 examples a second are six trainers."""
    seen = cluster([deadline("due", 1000.0), job("free", power=1.0), job("more", power=1.0)], nodes(1, 10.0))
    assert workers(seen) == [5, 1, 1]


def test_a_deadline_that_nothing_meets_raises_no_need():
    assert workers(cluster([deadline("due", 10.0), job("free", power=1.0)], nodes(1, 8.0))) == [3, 3]


def test_a_deadline_is_its_users_word_and_not_its_aimasters():
    liar = dataclasses.replace(deadline("liar", 1000.0), deadline=0.0)
    assert workers(cluster([liar, job("honest", most=(0, 7), power=1.0)], nodes(1, 8.0))) == [3, 3]


def test_a_deadline_comes_nearer_and_who_has_not_trained_meanwhile_needs_more():
    """Of 3 600 s, in which two trainers would be enough, 2 200 s are gone."""
    due = deadline("due", 3600.0, started=True)
    assert due.bid is not None
    idle = dataclasses.replace(due, bid=dataclasses.replace(due.bid, left=700_000.0, training=False))
    others = [job("free", power=1.0), job("more", power=1.0)]
    seen = cluster([idle, *others], nodes(1, 9.0))
    assert workers(seen) == [2, 2, 2]
    assert workers(dataclasses.replace(seen, time=NOW + 2200.0)) == [4, 1, 1]
    assert workers(dataclasses.replace(seen, time=NOW + 4000.0)) == [2, 2, 2], "over: nothing keeps it any more"
    trains = dataclasses.replace(
        job("due", most=(0, 7), power=1.0, allowed=(0, 2), on="node-000"), bid=due.bid, deadline=due.deadline
    )
    seen = cluster([trains, *others], nodes(1, 9.0))
    assert workers(dataclasses.replace(seen, time=NOW + 2200.0)) == [2, 2, 2], (
        "until its AIMaster says what is left now"
    )


def test_what_a_deadline_needs_is_not_taken_by_equals_but_by_minimums_of_a_higher_priority():
    due = dataclasses.replace(deadline("due", 1000.0), started=True)
    running = job("due", most=(0, 7), power=1.0, allowed=(0, 5), on="node-000")
    due = dataclasses.replace(running, bid=due.bid, deadline=due.deadline)
    assert workers(cluster([due, job("equal")], nodes(1, 6.0))) == [5, None]
    assert workers(cluster([due, job("high", most=(0, 1), priority=1)], nodes(1, 6.0))) == [3, 1]


# -------------------------------------------------------------------------------------------------- few changes


def test_a_change_that_does_not_pay_within_the_time_left_is_not_made():
    for left, after in ((1e9, 7), (1000.0, 3)):
        one = job("a", allowed=(0, 3), on="node-000")
        assert one.bid is not None
        one = dataclasses.replace(one, bid=dataclasses.replace(one.bid, left=left))
        assert workers(cluster([one], nodes(1, 8.0))) == [after]


def test_a_gain_within_the_error_of_the_model_is_no_reason_to_take_from_others_but_what_is_free_may_be_tried():
    flat = tuple(Worth(0, at, 100.0 + at) for at in range(8))
    one = job("a", allowed=(0, 3), on="node-000", bid=bid((0, 3), (0, 4), flat))
    other = job("b", allowed=(0, 3), on="node-000", bid=bid((0, 3), (0, 3), flat))
    assert workers(cluster([one, other], nodes(1, 8.0))) == [3, 3]
    assert workers(cluster([one, other], nodes(1, 9.0))) == [4, 3]
    soon = job("a", allowed=(0, 3), on="node-000", bid=bid((0, 3), (0, 4), flat, left=1e4))
    assert workers(cluster([soon], nodes(1, 9.0))) == [3], "nothing is learned for the last minutes"


def test_a_job_is_left_alone_after_a_change_and_while_a_scaling_is_under_way():
    assert workers(cluster([job("a", allowed=(0, 3), on="node-000", age=7.0)], nodes(1, 8.0))) == [3]
    assert workers(cluster([job("a", allowed=(0, 3), on="node-000", age=30.0)], nodes(1, 8.0))) == [7]
    one = job("a", allowed=(0, 3), on="node-000")
    assert one.bid is not None
    assert workers(cluster([dataclasses.replace(one, bid=dataclasses.replace(one.bid, busy=True))], nodes(1, 8.0))) == [
        3
    ]


def test_a_scaling_that_was_under_way_long_ago_or_is_in_the_future_holds_nothing():
    for time, after in ((NOW - 200.0, 3), (NOW - 400.0, 7), (NOW + 1e9, 7), (-math.inf, 7), (math.nan, 7)):
        one = job("a", allowed=(0, 3), on="node-000")
        assert one.bid is not None
        said = dataclasses.replace(one.bid, busy=True, time=time)
        assert workers(cluster([dataclasses.replace(one, bid=said)], nodes(1, 8.0))) == [after]


def test_an_allowance_from_the_future_counts_from_now():
    one = job("a", allowed=(0, 3), on="node-000", age=-9e11)
    seen = cluster([one], nodes(1, 8.0))
    first = decide(seen)
    assert [(given.workers, given.since, given.why) for given in first.allowances] == [
        (3, NOW, "has 3 workers and the chief")
    ]
    assert workers(given(seen, first, later=30.0)) == [7]


def test_but_a_minimum_does_not_wait_for_that():
    seen = cluster([job("a", allowed=(0, 7), on="node-000", age=1.0), job("b")], nodes(1, 8.0))
    assert workers(seen) == [3, 3], "what is changed anyway is changed once, to where it belongs"


def test_equals_move_cores_where_it_pays_and_not_for_one_core_more_or_less():
    uneven = [job("a", allowed=(0, 6), on="node-000"), job("b", allowed=(0, 0), least=(0, 0), on="node-000")]
    assert workers(cluster(uneven, nodes(1, 8.0))) == [3, 3]
    even = [job("a", allowed=(0, 4), on="node-000"), job("b", allowed=(0, 3), on="node-000")]
    assert workers(cluster(even, nodes(1, 9.0))) == [4, 3]


def test_a_costly_pause_keeps_cores_where_they_are():
    jobs = [job("a", allowed=(0, 5), on="node-000"), job("b", allowed=(0, 1), on="node-000")]
    slow = [dataclasses.replace(one, bid=dataclasses.replace(one.bid, pause_seconds=400.0)) for one in jobs if one.bid]
    assert workers(cluster(jobs, nodes(1, 8.0))) == [3, 3]
    assert workers(cluster(slow, nodes(1, 8.0))) == [5, 1]


def test_why_stays_while_the_size_does():
    seen = cluster([job("a", allowed=(0, 3), on="node-000", age=30.0)], nodes(1, 8.0))
    first = decide(seen)
    assert first.changed == ("a",)
    assert first.allowances[0].why == (
        "grew from 3 workers and the chief to 7 workers and the chief, +87 % by its model: room was free"
    )
    again = decide(given(seen, first, later=500.0))
    assert again.changed == () and again.allowances == first.allowances


# ---------------------------------------------------------------------------------------- lies and silence


@pytest.mark.parametrize("speed", [math.nan, math.inf, -1.0, 0.0, 1e300])
def test_a_throughput_that_cannot_be_is_no_model(speed):
    liar = job("liar", bid=bid((0, 1), (0, 7), tuple(Worth(0, at, speed) for at in range(8))))
    assert workers(cluster([liar, job("honest", power=1.0)], nodes(1, 8.0))) == [3, 3]


def test_a_throughput_that_grows_without_bound_gets_no_more_than_the_best_job_there_could_be():
    steps = tuple(Worth(0, at, 10.0 ** (2 * at)) for at in range(8))
    liar = job("liar", bid=bid((0, 1), (0, 7), steps))
    got = workers(cluster([liar, job("honest", power=1.0)], nodes(1, 8.0)))
    assert got[0] is not None and got[0] <= 4, "a quarter faster than its processes are many, at the first step"


def test_a_bid_out_of_bounds_moves_nothing_out_of_them():
    odd = bid((9, 99), (10**30, -5), (Worth(-1, 10**30, 5.0),), left=-1.0, change_seconds=math.inf,
              pause_seconds=-math.inf)  # fmt: skip
    later = dataclasses.replace(odd, time=NOW + 1e9)
    seen = cluster(
        [job("a", least=(0, 1), most=(0, 3), bid=later), job("b", allowed=(0, 1), on="node-000", bid=odd)], nodes(2)
    )
    assert sizes(seen) == {"a": (0, 1), "b": (0, 1)}


def test_a_silent_aimaster_gets_nothing_more_and_gives_to_higher_priorities_alone():
    silent = job("silent", allowed=(0, 3), on="node-000", silent_seconds=500.0)
    assert workers(cluster([silent], nodes(1, 8.0))) == [3]
    assert workers(cluster([silent, job("equal", least=(0, 0), allowed=(0, 0), on="node-000")], nodes(1, 5.0))) == [
        3,
        0,
    ]
    high = job("high", most=(0, 1), priority=1)
    assert workers(cluster([silent, high], nodes(1))) == [1, 1]
    assert silent.allowance is not None
    told = dataclasses.replace(silent, allowance=dataclasses.replace(silent.allowance, workers=1))
    assert workers(cluster([told, high], nodes(1))) == [None, 1], "its pods are there in spite of it: it stops"


def test_two_jobs_of_one_name_are_two_jobs():
    decision = decide(cluster([job("same"), job("same", priority=7)], nodes(1)))
    assert [one.workers for one in decision.allowances] == [1, 1]
    assert decision.changed == ("same", "same")


def test_numbers_that_are_none_are_decided_on():
    odd = dataclasses.replace(job("a"), weight=math.nan, arrived=math.inf, silent_seconds=math.nan)
    assert workers(Cluster(math.nan, nodes(1), (), (), (odd,))) == [3]


def test_as_many_jobs_as_there_may_be_are_linear():
    """Counted, not timed: sizes that are looked at for a job do not grow with the jobs beside it."""
    from deeprec_ext.arbiter import curve

    looked: list[int] = []
    plain = curve.Curve._value

    def counting(self, size):
        looked.append(1)
        return plain(self, size)

    counts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curve.Curve, "_value", counting)
        for many in (50, 200):
            looked.clear()
            decide(cluster([job(f"j-{at}", most=(0, 15)) for at in range(many)], nodes(many)))
            counts.append(len(looked) / many)
    assert counts[1] <= 1.2 * counts[0]


# ------------------------------------------------------------------------------------------ what is not taken


def not_taken(age: float, *, busy: bool = False, priority: int = 5, **more: Any) -> Job:
    """Allowed seven workers since `age` seconds, and has three."""
    one = job("slow", allowed=(0, 7), on="node-000", age=age, priority=priority, **more)
    assert one.bid is not None
    known = dataclasses.replace(one.bid, size=Count(0, 3), busy=busy)
    return dataclasses.replace(one, placed=one.placed[:4], bid=known)


def test_room_that_is_not_taken_is_for_others_after_some_minutes():
    other = job("other", least=(0, 0), most=(0, 4), allowed=(0, 0), on="node-000")
    for age, busy, after in ((100.0, False, [7, 0]), (3600.0, True, [7, 0]), (3600.0, False, [3, 4])):
        assert workers(cluster([not_taken(age, busy=busy), other], nodes(1, 9.0))) == after
    seen = cluster([not_taken(3600.0), other], nodes(1, 9.0))
    assert why(seen, "slow") == (
        "went from 7 workers and the chief to 3 workers and the chief: others have what it has not taken"
    )
    waits = job("waits", least=(0, 3), most=(0, 3), priority=0)
    assert workers(cluster([not_taken(3600.0), waits], nodes(1, 8.0))) == [3, 3]


def test_what_nobody_else_wants_stays_with_who_has_not_taken_it():
    seen = cluster([not_taken(3600.0), job("other", most=(0, 1), allowed=(0, 1), on="node-000")], nodes(1, 10.0))
    assert workers(seen) == [7, 1]
    assert decide(seen).allowances[0] == seen.jobs[0].allowance


def test_who_has_left_room_to_others_is_given_more_after_all_others_for_a_while():
    other = job("other", least=(0, 0), most=(0, 6), allowed=(0, 0), on="node-000")
    seen = cluster([not_taken(3600.0, priority=0), other], nodes(1, 9.0))
    first = decide(seen)
    assert [one.workers for one in first.allowances] == [3, 4]
    taken = given(seen, first)
    for later, at in ((60.0, [3, 4]), (1100.0, [3, 4])):
        assert workers(dataclasses.replace(taken, time=NOW + later)) == at, "equals give it nothing"
    more = dataclasses.replace(taken, time=NOW + 60.0, nodes=nodes(1, 12.0))
    assert workers(more) == [4, 6], "but what is over"
    free = given(more, decide(more), later=1300.0)
    assert workers(dataclasses.replace(free, nodes=nodes(1, 14.0))) == [6, 6], "then it is one of all again"


def test_a_decision_that_nobody_takes_up_is_not_taken_back_and_made_again():
    """Every twenty seconds for an hour: the room is offered, left to others, and not moved to and fro."""
    other = job("other", least=(0, 0), most=(0, 8), allowed=(0, 0), on="node-000")
    slow = not_taken(3600.0, priority=0, least=(0, 0))
    assert slow.bid is not None
    slow = dataclasses.replace(
        slow, placed=slow.placed[:1], bid=dataclasses.replace(slow.bid, size=Count(0, 0))
    )  # fmt: skip
    seen, changes, kept = cluster([slow, other], nodes(1, 9.0)), 0, 0.0
    for _ in range(180):
        now = decide(seen)
        changes += len(now.changed)
        kept += 20.0 * now.allowances[0].workers
        seen = given(seen, now, later=20.0)
        has = now.allowances[1].workers
        there = [dataclasses.replace(one, node="node-000") for one in (seen.jobs[0].placed[:1] * (has + 1))]
        placed = (there[0], *[dataclasses.replace(one, role="worker") for one in there[1:]])
        known = seen.jobs[1].bid
        assert known is not None
        taken = dataclasses.replace(
            seen.jobs[1], placed=placed, bid=dataclasses.replace(known, size=Count(0, has), time=seen.time)
        )
        seen = dataclasses.replace(seen, jobs=(seen.jobs[0], taken))
    assert changes <= 12 and 0 < kept < 3600.0, "it is offered its share twice, for three minutes each"


def test_why_is_said_of_those_who_are_told_to_give():
    seen = cluster([job("a", allowed=(0, 7), on="node-000"), job("b")], nodes(1, 8.0))
    assert why(seen, "a") == "went from 7 workers and the chief to 3 workers and the chief: others gain more by them"
