"""No regret: what was measured better is gone back to, what failed is not tried again soon, and trying has its price."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.observed import Change, Host, Limits, Loss, Observed, Progress, Size, Window
from deeprec_ext.autoscaler.policy import exploring
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.record import bounded
from deeprec_ext.autoscaler.policy.search import Search
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy import jobs
from tests.unit.autoscaler.policy.jobs import POLICY, Job, uses, windows

LIMITS = Limits(1, 4, 0, 4)
RATES = {(1, 0): 22_900.0, (1, 1): 24_600.0, (2, 1): 20_800.0, (4, 1): 16_200.0}
"""Measured on two cores that were full from the first minute: examples/s by PS and workers."""


def grown(present: tuple[int, int], *, count: int = 2, time_left: float = 3000.0, **more) -> Observed:
    """The job of the issue, as it came to 4 PS; `count` windows at the present size."""
    sizes = list(RATES)
    sizes = sizes[: sizes.index(present) + 1]
    seen: list[Window] = []
    made: list[Change] = []
    for number, counts in enumerate(sizes):
        if number:
            before = sizes[number - 1]
            role, at = ("worker", 1) if counts[1] != before[1] else ("ps", 0)
            made.append(fact(Change, 40.0 * number, "scale-up", role, before[at], counts[at], "committed", 10.0, 0.5,
                             decision=number, foretold=RATES[before] * [1.96, 1.73, 1.55][number - 1]))  # fmt: skip
        seen += windows(Size(*counts), RATES[counts], 40.0 * number + 3.0, count if counts == present else 2)
    now = seen[-1].start + 10.0
    done = 22_900 * now
    given = {"limits": LIMITS, "progress": Progress(int(done), int(done + time_left * RATES[present])), **more}
    return fact(
        Observed, number=9, time=now, size=Size(*present), windows=tuple(seen), changes=tuple(made), **given
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ going back


def test_the_job_that_stayed_at_4_ps_for_seven_minutes_goes_back():
    """The model was off by 60 % and not followed; what was measured needs no model."""
    observed = grown((4, 1))
    error = Evidence(observed, POLICY).model.mape_holdout
    assert error > POLICY.error_max
    decision = decide(observed, POLICY)
    assert (decision.action, decision.size) == ("scale", Size(1, 1))
    assert "1 PS, 1 worker was measured better" in decision.reason and "(+52%)" in decision.reason


def test_it_would_have_gone_back_from_2_ps_already():
    decision = decide(grown((2, 1)), POLICY)
    assert (decision.action, decision.size) == ("scale", Size(1, 1))


@pytest.mark.parametrize("count", [1, 2])
def test_it_takes_two_windows_at_most(count):
    decision = decide(grown((4, 1), count=count), POLICY)
    assert decision.action == "scale" and decision.size == Size(1, 1), decision.reason


def blind(seconds: float, *, age: float = 1000.0, decision: int = 3, **more) -> Decision:
    """3 workers more since so long, one of which does not train: no window is closed, and nobody knows how fast the job is."""
    change = fact(Change, 100.0, "scale-up", "worker", 1, 4, "committed", 10.0, decision=decision, manual=decision < 0)
    size = Size(1, 4)
    old = {name: {"age_seconds": age} for name in ("ps_0", "chief_0", *(f"worker_{n}" for n in range(4)))}
    observed = jobs.seen(
        size, limits=LIMITS, time=100.0 + seconds, changes=(change,), windows=tuple(windows(Size(1, 1), 24_600.0, 20.0, 5)),
        roles=jobs.uses(size, **old), **more,
    )  # fmt: skip
    return decide(observed, POLICY)


def test_a_size_at_which_nothing_can_be_measured_is_left():
    assert "no throughput was measured yet" in blind(500.0).reason
    made = blind(700.0)
    assert (made.action, made.size) == ("scale", Size(1, 1)) and "nothing could be measured" in made.reason


def test_it_is_not_left_where_it_is_the_user_s_or_was_not_looked_at_for_as_long():
    assert blind(3000.0, decision=-1).action == "keep"
    assert blind(700.0, age=100.0).action == "keep", "an AIMaster that has come back has to measure first"
    assert blind(700.0, losses=(fact(Loss, 200.0, "ps-0", "killed"),)).action == "keep", "its model was away"
    assert blind(700.0, hold=True).action == "keep"


def test_within_the_noise_nothing_is_gone_back_to(monkeypatch):
    monkeypatch.setitem(RATES, (2, 1), 24_400.0)
    assert decide(grown((2, 1)), POLICY).size == Size(2, 1)


def scattered(rates: list[float], count: int) -> Observed:
    """2 PS and 1 worker, with windows of these rates in turns; 1 PS and 1 worker made 24 600 in two windows before."""
    observed = grown((2, 1), count=count)
    before = [one for one in observed.windows if one.size != Size(2, 1)]
    here = [one for one in observed.windows if one.size == Size(2, 1)]
    here = [dataclasses.replace(one, examples_per_second=rates[at % len(rates)]) for at, one in enumerate(here)]
    return dataclasses.replace(observed, windows=(*before, *here))


WILD = [8_000.0, 31_000.0, 12_000.0, 27_000.0]
STALLS = [24_700.0, 24_500.0, 24_600.0, 4_000.0]


@pytest.mark.parametrize("rates", [WILD, STALLS])
def test_a_size_whose_windows_scatter_is_left_when_its_mean_is_worse_for_sure(rates):
    """No single window says anything, and of those that stall the median looks fine; the mean of many says enough."""
    assert decide(scattered(rates, 2), POLICY).action == "keep"
    decision = decide(scattered(rates, 30), POLICY)
    assert (decision.action, decision.size) == ("scale", Size(1, 1)), decision.reason
    mean = sum(scattered(rates, 30).windows[at].examples_per_second for at in range(-30, 0)) / 30
    assert f"here {mean:,.0f} in 30 windows" in decision.reason


def test_a_size_whose_windows_scatter_is_not_left_for_nothing():
    """On average it is as good as the one before."""
    decision = decide(scattered([rate * 24_600 / 19_500 for rate in WILD], 30), POLICY)
    assert decision.action == "keep" and "throughput is noise" in decision.reason


@pytest.mark.parametrize("seed", range(4))
def test_what_scatters_everywhere_is_not_run_after(seed):
    chance = random.Random(seed)
    job = Job(Size(1, 1), lambda size, now: 1000.0 * max(0.05, chance.gauss(1, 0.4)), limits=LIMITS)
    job.run(6 * 3600)
    assert len(job.decisions) <= 12


def test_what_a_size_was_without_the_other_program_is_not_crowded_out_by_the_time_with_it():
    """2 PS and 6 workers made 23 000 examples/s before another program came, and stayed for longer than windows are kept."""
    alone, beside = {"host_cores": 4.0, "others_cores": 0.0}, {"host_cores": 4.0, "others_cores": 2.3}
    first, now = Size(2, 6), Size(1, 6)
    seen = [
        *windows(first, 23_000.0, 0.0, 5, **alone), *windows(first, 10_200.0, 60.0, 30, **beside),
        *windows(now, 10_300.0, 380.0, 3, **beside), *windows(now, 19_500.0, 420.0, 4, **alone),
    ]  # fmt: skip
    change = fact(Change, 375.0, "scale-down", "ps", 2, 1, "committed", 10.0, decision=1, foretold=10_200.0)
    observed = fact(
        Observed, number=9, time=460.0, size=now, limits=Limits(1, 8, 0, 8), windows=tuple(seen), changes=(change,),
        progress=Progress(10**6, 10**8), first=first,
    )  # fmt: skip
    decision = decide(bounded(observed, POLICY), POLICY)
    assert (decision.action, decision.size) == ("scale", first) and "was measured better" in decision.reason, (
        decision.reason
    )


def shrunk(now_others: float, *, left: float = 900.0, **more) -> Decision:
    """2 PS and 4 workers made as much as 1 PS alone while another program had 6 of 8 cores, from the beginning."""
    beside, now = {"host_cores": 8.0, "others_cores": 6.0}, {"host_cores": 8.0, "others_cores": now_others}
    seen = [
        *windows(Size(2, 4), 6_200.0, 20.0, 6, **beside), *windows(Size(1, 0), 6_200.0, 100.0, 6, **beside),
        *windows(Size(1, 0), 8_700.0, 180.0, 4, **now),
    ]  # fmt: skip
    made = [
        fact(Change, 95.0, kind, role, old, new, "committed", 10.0, 0.5, decision=1, foretold=6_200.0)
        for kind, role, old, new in (("scale-down", "ps", 2, 1), ("scale-down", "worker", 4, 0))
    ]
    given = {"limits": Limits(1, 8, 0, 8), "progress": Progress(10**6, 10**6 + int(8_700 * left)), **more}
    observed = fact(
        Observed, number=9, time=221.0, size=Size(1, 0), windows=tuple(seen), changes=tuple(made), one_host=True,
        hosts=(Host("host-0", 8.0, 2.0, now_others, 1, 1, 0),), first=Size(2, 4), **given,
    )  # fmt: skip
    return decide(observed, POLICY)


def test_when_the_other_program_has_gone_the_first_size_is_measured_again():
    """In proportion it would be as good as the small one, and the job stayed at that at a third of its throughput."""
    made = shrunk(0.0)
    assert (made.action, made.size) == ("explore", Size(2, 4)) and "others leave 8.0 of 8 cores now" in made.reason
    assert 0 < made.prediction.price_seconds < POLICY.explore_share * 900


@pytest.mark.parametrize(
    "given",
    [{"now_others": 6.0}, {"now_others": 0.0, "left": 20.0}, {"now_others": 0.0, "hold": True},
     {"now_others": 0.0, "objective": "cheapest"}, {"now_others": 0.0, "limits": Limits(1, 1, 0, 8)}],
    ids=["it has not gone", "the job ends soon", "held", "cheap is what is wanted", "it is not within the limits"],
)  # fmt: skip
def test_else_it_is_not(given):
    assert shrunk(**given).size != Size(2, 4)


@pytest.mark.parametrize("given", [{"hold": True}, {"busy": True}])
def test_who_holds_a_job_holds_it(given):
    assert decide(grown((4, 1), **given), POLICY).action == "keep"


def test_a_size_that_was_set_by_hand_is_the_users():
    observed = grown((4, 1))
    by_hand = (*observed.changes[:-1], dataclasses.replace(observed.changes[-1], manual=True, decision=-1))
    decision = decide(dataclasses.replace(observed, changes=by_hand), POLICY)
    assert decision.action == "keep" and "by hand" in decision.reason


def explored(workers: int, here: float, *, measured: float = 0.0) -> Decision:
    """1 PS and 3 workers made 5 290 examples/s; 2 PS were tried, and before (or after) they were measured somebody has set
    the workers by hand."""
    first, second, size = Size(1, 3), Size(2, 3), Size(2, workers)
    changes = (
        fact(Change, 60.0, "scale-up", "ps", 1, 2, "committed", 8.0, decision=1, foretold=6_000.0),
        fact(Change, 110.0, "scale-down", "worker", 3, workers, "committed", 5.0, manual=True, decision=-1),
    )  # fmt: skip
    seen = windows(first, 5_290.0, 20.0, 4)
    seen += windows(second, measured, 70.0, 4) if measured else []
    seen += windows(size, here, 120.0, 4)
    return decide(
        fact(Observed, number=3, time=293.0, size=size, windows=tuple(seen), changes=changes, limits=Limits(1, 2, 0, 4),
             progress=Progress(10**5, 10**8), first=first),
        POLICY,
    )  # fmt: skip


def test_an_exploration_is_taken_back_though_the_other_role_was_set_by_hand():
    """It froze for half an hour, and nobody had asked for its PS."""
    decision = explored(2, 3_319.0)
    assert (decision.action, decision.size) == ("scale", Size(1, 2)), decision.reason
    assert (
        "back from 2 PS, 2 workers to 1 PS, 2 workers: 5,290 examples/s were measured before decision 1"
        in decision.reason
    )


def test_an_exploration_that_was_right_stays_where_the_other_role_was_set_by_hand():
    decision = explored(2, 4_700.0, measured=6_300.0)
    assert decision.size == Size(2, 2), decision.reason
    assert "the number of workers was set by hand 3:03 ago, and is left alone for 26:57 more" in decision.reason
    assert "`deeprec-ext scale DIR --workers 3` changes it now" in decision.reason


def test_fewer_trainers_by_hand_are_no_reason_to_take_back_the_ps():
    assert "before decision" not in explored(1, 2_640.0).reason, "half of the trainers train half as fast"


def test_what_the_limits_do_not_allow_is_not_gone_back_to():
    assert decide(grown((4, 1), limits=Limits(2, 4, 0, 4)), POLICY).size.ps >= 2


def test_shortly_before_the_end_it_is_not_worth_it():
    assert decide(grown((4, 1), time_left=12.0), POLICY).action == "keep"


def test_cheapest_goes_back_to_what_was_better_per_cost():
    decision = decide(grown((2, 1), objective="cheapest"), POLICY)
    assert decision.action == "scale" and decision.size in (Size(1, 0), Size(1, 1))


def test_a_deadline_that_is_met_is_no_reason_to_go_back():
    observed = grown((2, 1), objective="deadline", deadline_seconds=10_000.0)
    assert "was measured better" not in decide(observed, POLICY).reason
    late = dataclasses.replace(observed, deadline_seconds=2_900.0)
    assert decide(late, POLICY).size == Size(1, 1)


def test_a_size_that_was_better_under_other_conditions_is_not_gone_back_to():
    """At 1 PS and 1 worker the job made 24 600 while the machine was its own; since, another program has a core."""
    before = windows(Size(1, 0), 22_900.0, 0.0, 4) + windows(Size(1, 1), 24_600.0, 60.0, 4)
    here = windows(Size(1, 0), 22_900.0, 120.0, 4) + windows(Size(1, 0), 14_000.0, 160.0, 4)
    made = [
        fact(Change, 50.0, "scale-up", "worker", 0, 1, "committed", 10.0, decision=1),
        fact(Change, 110.0, "scale-down", "worker", 1, 0, "committed", 10.0, decision=2),
    ]
    observed = fact(
        Observed, number=9, time=200.0, size=Size(1, 0), limits=LIMITS, windows=(*before, *here), changes=tuple(made),
        progress=Progress(10**6, 10**8),
    )  # fmt: skip
    decision = decide(observed, POLICY)
    assert "was measured better" not in decision.reason


# ------------------------------------------------------------------------------------------------ failed directions


def full(seed: int) -> Callable[[Size, float], float]:
    """Two cores that one trainer and one PS nearly fill: more PS cost more per example."""
    chance = random.Random(seed)
    return lambda size, now: min(22_900 * size.trainers, 24_600 / (1 + 0.175 * (size.ps - 1))) * chance.gauss(1, 0.012)


def test_after_a_prediction_that_failed_its_direction_waits_twice_as_long_each_time():
    decisions: list[tuple[float, Decision]] = []
    job = Job(Size(1, 1), full(1), limits=LIMITS, total=0, watch=lambda seen, made: decisions.append((seen.time, made)))
    job.run(12 * 3600)
    ups = [time for time, made in decisions if made.action != "keep" and made.size.ps > 1]
    waits = [later - earlier for earlier, later in zip(ups, ups[1:])]
    assert len(ups) <= 5
    for number, wait in enumerate(waits):
        assert wait >= POLICY.direction_seconds * 2.0**number
    said = [made.reason for _, made in decisions if "the next try is in" in made.reason]
    assert not said or "more PS brought" in said[0]


def test_another_direction_may_still_be_tried():
    observed = dataclasses.replace(grown((2, 1)), size=Size(1, 1), time=160.0)
    back = fact(Change, 120.0, "scale-down", "ps", 2, 1, "committed", 10.0, 0.5, decision=3, foretold=24_600.0)
    seen = (*observed.windows, *windows(Size(1, 1), 24_600.0, 130.0, 3))
    evidence = Evidence(dataclasses.replace(observed, windows=seen, changes=(*observed.changes, back)), POLICY)
    assert "-15% where +73% was predicted" in exploring.barred(evidence, Size(2, 1))
    assert "+7% where +96% was predicted" in exploring.barred(evidence, Size(1, 2))
    assert exploring.barred(evidence, Size(2, 2)) == ""
    assert exploring.barred(evidence, Size(1, 0)) == ""


# ------------------------------------------------------------------------------------------------ what trying costs


def test_a_step_without_a_known_error_is_one_process_of_one_role():
    sizes: list[tuple[Size, Size]] = []
    job = Job(
        Size(1, 0), lambda size, now: 1000.0 * size.trainers, limits=Limits(1, 8, 0, 16),
        watch=lambda seen, made: sizes.append((seen.size, made.size)) if made.action == "explore" else None,
    )  # fmt: skip
    job.run(1800)
    assert sizes
    for old, new in sizes:
        assert abs(new.ps - old.ps) + abs(new.workers - old.workers) == 1


def test_a_job_that_is_too_short_for_it_tries_nothing():
    """Three minutes: two windows at a size and the ways there and back would be a tenth of it."""
    job = Job(Size(1, 0), full(1), limits=LIMITS, total=22_900 * 180, delay=20.0)
    job.run(180)
    assert job.decisions == []


@pytest.mark.parametrize(("now", "left"), [(5.0, 60.0), (180.0, 180.0), (900.0, 900.0), (86_400.0, 3_600.0)])
def test_a_job_without_a_known_end_is_expected_to_go_on_for_as_long_as_it_has_run(now, left):
    assert (
        Evidence(dataclasses.replace(grown((1, 0)), time=now, progress=Progress(10**6, 0)), POLICY).seconds_left == left
    )


def test_memory_must_suffice_for_longer_than_a_young_job_without_a_known_end_is_expected_to_run():
    evidence = Evidence(dataclasses.replace(grown((1, 0)), progress=Progress(10**6, 0)), POLICY)
    assert evidence.seconds_to_last == POLICY.horizon_seconds / 4 > evidence.seconds_left


def test_whenever_a_job_without_a_known_end_ends_a_trial_has_cost_no_more_than_its_share():
    """After three minutes, too: what may be given for a trial grows with the time trained so far."""
    tried: list[tuple[float, Decision]] = []
    job = Job(
        Size(1, 0), full(1), limits=LIMITS, total=0, delay=20.0,
        watch=lambda seen, made: tried.append((seen.time, made)) if made.action == "explore" else None,
    )  # fmt: skip
    job.run(180)
    assert job.decisions == []
    job.run(3600)
    assert tried, "a job that goes on does learn"
    assert all(made.prediction.price_seconds <= POLICY.explore_share * time for time, made in tried)


def test_a_long_job_tries_and_says_what_it_may_cost():
    job = Job(Size(1, 0), full(1), limits=LIMITS, total=22_900 * 3600, delay=20.0)
    job.run(30)
    [made] = job.decisions
    assert made.action == "explore" and "it may cost" in made.reason
    assert 0 < made.prediction.price_seconds <= POLICY.explore_share * 3600


@pytest.mark.parametrize(("used", "dear"), [(1.95, False), (1.0, True)])
def test_on_a_host_that_is_full_less_is_tried_in_jobs_of_a_few_minutes_too(used, dear):
    """What a process less does not use, the others do: 4 PS and 4 workers on two cores trained two thirds of 1 and 1."""
    observed = jobs.seen(
        Size(4, 4), 1000.0, limits=LIMITS, progress=Progress(10**5, 10**5 + 340 * 1000), one_host=True,
        hosts=(Host("host-0", 2.0, used, 0.0, 4, 5, 0),),
    )  # fmt: skip
    evidence = Evidence(observed, POLICY)
    assert bool(exploring.too_dear(evidence, Size(3, 4))) is dear
    assert bool(exploring.too_dear(evidence, Size(5, 4))) is not dear, (
        "a PS more would take from the others, if anything"
    )


@pytest.mark.parametrize(("foretold", "share"), [(1.2, 0.05), (0.97, 0.05), (0.88, 0.12)])
def test_what_is_foretold_to_be_lost_is_in_the_price_though_the_model_is_not_trusted(monkeypatch, foretold, share):
    """Of two trainers on two full cores one was tried for 5 % of ten seconds; it was foretold to lose 12 %, and lost 22 %."""
    monkeypatch.setattr(Evidence, "modelled", lambda evidence, size: foretold * evidence.rate)
    observed = jobs.seen(
        Size(1, 1), 1000.0, limits=LIMITS, one_host=True, hosts=(Host("host-0", 2.0, 1.95, 0.0, 1, 2, 0),)
    )  # fmt: skip
    assert exploring.risk(Evidence(observed, POLICY), Size(1, 0)) == pytest.approx(share)


def test_until_a_change_was_seen_it_takes_as_long_as_the_job_took_to_start():
    """On a laptop ten seconds, not the half minute of a pod: with two large tables one PS less was faster by half, and
    the trial too dear by a hair."""
    full_host = (Host("host-0", 2.0, 1.95, 0.0, 2, 2, 0),)
    size = Size(2, 1)

    def price(started: float) -> float:
        ages = {name: {"age_seconds": 160.0 - started} for name in ("ps_0", "ps_1", "chief_0", "worker_0")}
        observed = jobs.seen(size, 1000.0, limits=LIMITS, roles=jobs.uses(size, **ages), one_host=True, hosts=full_host)
        return exploring.price_seconds(Evidence(observed, POLICY), Size(1, 1))

    assert price(10.0) < price(20.0) < price(40.0) == price(500.0), "no longer than is usual"
    assert price(0.2) == price(500.0), "no job starts in no time"


@pytest.mark.parametrize(("free", "grows"), [(0, True), (500 << 20, False), (8 << 30, True)])
def test_no_process_is_added_for_which_the_host_has_no_memory(free, grows):
    size = Size(1, 1)
    observed = jobs.seen(
        size,
        1000.0,
        limits=LIMITS,
        roles=jobs.uses(size),
        one_host=True,
        hosts=(Host("host-0", 8.0, 2.0, 0.0, 1, 2, free),),
    )
    search = Search(Evidence(observed, POLICY), hopeful=False)
    assert (search.allowed(Size(1, 2)) is not None) == (search.allowed(Size(2, 1)) is not None) == grows
    assert search.allowed(Size(1, 0)) is not None


def test_copies_of_a_single_ps_are_nobody_else_s_memory_and_a_second_ps_keeps_some():
    """A trainer of 1 GB that keeps 6 GB of copies is no reason for further workers of 7 GB; 2 PS of 3 GB hold 3 GB of copies
    each."""
    size, free = Size(1, 1), 5 << 30
    roles = jobs.uses(size, ps_0={"working_set_bytes": 6 << 30},
                      worker_0={"working_set_bytes": 7 << 30, "copies_bytes": 6 << 30})  # fmt: skip

    def search(left: int) -> Search:
        host = Host("host-0", 8.0, 2.0, 0.0, 1, 2, left)
        return Search(
            Evidence(jobs.seen(size, 1000.0, limits=LIMITS, roles=roles, one_host=True, hosts=(host,)), POLICY), False
        )

    assert search(free).allowed(Size(1, 2)) is not None
    assert search(free).allowed(Size(2, 1)) is None
    assert search(8 << 30).allowed(Size(2, 1)) is not None
    assert "537 MB of memory left" in search(512 << 20).lacks_memory(size) and not search(free).lacks_memory(size)


@pytest.mark.parametrize(("used", "full"), [(1.95, True), (0.5, False)])
def test_where_all_pods_are_on_one_node_of_a_cluster_a_trial_has_the_price_of_one_host(used, full):
    """A cluster may have no other node; where pods are on two, it has room somewhere."""

    def price(*hosts: Host, one_host: bool = False) -> float:
        observed = jobs.seen(Size(4, 4), 1000.0, limits=LIMITS, one_host=one_host, hosts=hosts)
        return exploring.price_seconds(Evidence(observed, POLICY), Size(5, 4))

    node, part = Host("node-a", 2.0, used, 0.0, 4, 5, 0), Host("node-a", 2.0, used, 0.0, 4, 4, 0)
    assert price(node) == price(node, one_host=True)
    assert price(part) == price(part, Host("node-b", 2.0, 1.95, 0.0, 0, 1, 0)), (
        "of the others it is not known where they are"
    )
    assert (price(node) > price(part)) == full


def crowd(size: Size, cores: float = 2.0, used: float = 1.95, **more) -> Decision:
    """Of a job of ten minutes whose processes all are on one host."""
    observed = jobs.seen(
        size, 1000.0, limits=LIMITS, progress=Progress(10**5, 10**5 + 500 * 1000), one_host=True,
        hosts=(Host("host-0", cores, used, 0.0, size.ps, size.trainers, 0),), **more,
    )  # fmt: skip
    return decide(observed, POLICY)


def test_of_many_processes_on_few_cores_that_are_full_half_are_tried():
    made = crowd(Size(4, 4))
    assert (made.action, made.size.ps, made.size.workers) == ("explore", 2, 2)
    assert "9 processes take turns on 2 cores" in made.reason
    assert crowd(Size(2, 2)).size == Size(1, 1)
    assert crowd(Size(1, 2)).size.ps == 1  # four processes on two cores are no crowd
    assert crowd(Size(4, 4), cores=16.0, used=15.9).size != Size(2, 2)
    assert crowd(Size(4, 4), used=1.0).size != Size(2, 2)


@pytest.mark.parametrize(("cores", "tried"), [(0.19, False), (0.05, True)])
def test_where_limits_of_their_own_hold_processes_nobody_takes_over_what_fewer_did(cores, tried):
    """3 PS of 0.2 cores trained 17 200 examples/s, 2 of them 11 500, and 1 PS with half of the workers 4 500."""
    held = {f"ps_{i}": {"cpu_limit_cores": 0.2, "cpu_cores": cores} for i in range(4)}
    made = crowd(Size(4, 4), roles=jobs.uses(Size(4, 4), **held))
    assert (made.action == "explore" and made.size.ps < 4) == tried, made.reason


def test_what_nobody_would_do_is_the_price_of_fewer():
    held = {f"ps_{i}": {"cpu_limit_cores": 0.2, "cpu_cores": 0.19} for i in range(4)}
    observed = jobs.seen(Size(4, 4), 1000.0, limits=LIMITS, one_host=True, roles=jobs.uses(Size(4, 4), **held),
                         hosts=(Host("host-0", 2.0, 1.95, 0.0, 4, 5, 0),))  # fmt: skip
    evidence = Evidence(observed, POLICY)
    assert exploring.risk(evidence, Size(2, 4)) == exploring.undone(evidence, Size(2, 4)) == 0.5
    assert exploring.undone(evidence, Size(4, 2)) == exploring.undone(evidence, Size(5, 4)) == 0.0


@pytest.mark.parametrize(("count", "left"), [(4, False), (12, True)])
def test_a_size_is_left_when_it_is_known_what_it_is_worth(count, left):
    """Of windows that scatter by a fifth four say little: the job would not know what to come back to."""
    rates = [1_120.0, 900.0, 1_080.0, 760.0]
    seen = [one for at in range(count) for one in windows(Size(4, 4), rates[at % 4], 20.0 + 10 * at, 1, scatter=0.0)]
    made = crowd(Size(4, 4), windows=tuple(seen), time=seen[-1].start + 10.0)
    assert (made.action == "explore") == left, made.reason


def test_a_crowd_that_was_thinned_out_for_nothing_comes_back_and_is_left_alone():
    rates = {(4, 4): 1000.0, (2, 2): 800.0}
    job = Job(
        Size(4, 4), lambda size, now: rates.get((size.ps, size.workers), 900.0), limits=LIMITS, total=10**7, delay=5.0
    )
    host = Host("host-0", 2.0, 1.95, 0.0, 4, 5, 0)
    job.observed = lambda was=job.observed: dataclasses.replace(was(), hosts=(host,), one_host=True)  # type: ignore[method-assign]
    job.run(1200)
    assert [(made.size.ps, made.size.workers) for made in job.decisions[:2]] == [(2, 2), (4, 4)]
    assert job.size == Size(4, 4)


def test_what_changes_have_cost_already_counts():
    """A share of the job for all of them, not for each."""
    observed = grown((2, 1), time_left=900.0)
    slow = [
        w if w.size != Size(2, 1) else dataclasses.replace(w, examples_per_second=3_000.0) for w in observed.windows
    ]
    evidence = Evidence(
        dataclasses.replace(observed, windows=tuple(slow), progress=Progress(10**6, 10**6 + 900 * 3_000)), POLICY
    )
    assert evidence.brought.lost_seconds > 10
    assert "have cost" in exploring.too_dear(evidence, Size(3, 1))


def test_what_changes_have_won_may_be_spent_on_a_still_better_size():
    """From 4 PS and 4 workers to 2 and 2 a job of seven minutes had won a minute when one PS would have been better still."""
    observed = grown((2, 1), time_left=100.0)
    fast = [
        w if w.size != Size(2, 1) else dataclasses.replace(w, examples_per_second=60_000.0) for w in observed.windows
    ]
    progress = Progress(10**6, 10**6 + 100 * 60_000)
    won = Evidence(dataclasses.replace(observed, windows=tuple(fast), progress=progress), POLICY)
    even = Evidence(dataclasses.replace(observed, progress=Progress(10**6, 10**6 + 100 * 22_900)), POLICY)
    assert won.brought.lost_seconds < -10 and won.seconds_left <= 100.5
    dear = exploring.price_seconds(won, Size(3, 1))
    assert POLICY.explore_share * 100 < dear < (1 + exploring.WON_MOST) * POLICY.explore_share * 100, dear
    assert exploring.too_dear(won, Size(3, 1)) == ""
    assert "that are left" in exploring.too_dear(even, Size(3, 1))
    short = Evidence(
        dataclasses.replace(observed, windows=tuple(fast), progress=Progress(10**6, 10**6 + 40 * 60_000)), POLICY
    )
    assert "that changes have won for it" in exploring.too_dear(short, Size(3, 1)), (
        "but never more than a few times that"
    )


def test_the_size_a_job_began_with_is_compared_with_after_any_number_of_changes():
    """Twenty sizes and sixty changes later: the windows and the changes of its beginning would be long forgotten."""
    sizes = [Size(1 + at % 4, 1 + at // 4) for at in range(20)]
    seen, made = windows(Size(1, 0), 1000.0, 0.0, 3), []
    for at in range(60):
        old, new = sizes[(at - 1) % 20] if at else Size(1, 0), sizes[at % 20]
        made.append(
            fact(Change, 2000.0 * at + 90, "scale-up", "ps", old.ps, new.ps, "committed", 10.0, 0.5, decision=at)
        )
        if new.workers != old.workers:
            both = dataclasses.replace(made[-1], role="worker", from_count=old.workers, to_count=new.workers)
            made.append(both)
        seen += windows(new, 900.0, 2000.0 * at + 95, 3)
    observed = fact(
        Observed, number=99, time=seen[-1].start + 10, size=sizes[-1], limits=Limits(1, 4, 0, 8), windows=tuple(seen),
        changes=tuple(made[-building.CHANGES_KEPT :]), progress=Progress(10**6, 10**8), first=Size(1, 0),
    )  # fmt: skip
    evidence = Evidence(bounded(observed, POLICY), POLICY)
    assert (evidence.brought.first, evidence.brought.first_rate) == ((1, 0), pytest.approx(1000, rel=0.02))
    assert evidence.brought.gained == pytest.approx(-0.1, abs=0.03)
    assert (
        exploring.least_rate(evidence) > 900
        and "1 PS, 0 workers was measured better" in decide(observed, POLICY).reason
    )
    forgotten = dataclasses.replace(observed, first=None)
    assert Evidence(bounded(forgotten, POLICY), POLICY).brought.first != (1, 0)


@pytest.mark.parametrize("first", [Size(1, 0), Size(1, 1), Size(2, 1), Size(4, 1), Size(4, 4), Size(2, 3)])
@pytest.mark.parametrize("seconds", [180, 600, 1800, 7200])
def test_on_cores_that_are_full_no_job_is_slower_than_at_its_first_size(first, seconds):
    rate = full(seconds)
    alone = Job(first, rate, limits=LIMITS).rate(first, 0.0)
    middle = sorted(full(7)(first, 0.0) for _ in range(1))[0]
    base = (alone + middle) / 2
    job = Job(first, rate, limits=LIMITS, total=int(base * seconds), delay=15.0)
    while job.done < job.total:
        job.run(10.0)
    assert job.now <= 1.03 * seconds + 20.0


# ------------------------------------------------------------------------------------------------ predictions that were wrong

GROWN = [  # (size, examples/s, what was foretold there), each measured by twelve windows; more workers bring ever less
    ((1, 8), 25_600.0, 0.0), ((1, 9), 26_700.0, 28_400.0), ((2, 9), 27_000.0, 32_300.0), ((2, 16), 28_700.0, 38_900.0),
    ((6, 16), 28_600.0, 58_200.0), ((3, 9), 27_000.0, 24_600.0),
]  # fmt: skip


def settled(seconds: float, foretold: float = 1.0) -> Observed:
    """A job that has been at 3 PS and 9 workers for so long. `foretold`: factor on what was."""
    seen: list[Window] = []
    made: list[Change] = []
    for number, (counts, rate, promised) in enumerate(GROWN):
        start = 140.0 * number
        if number:
            for role, before, after in zip(("ps", "worker"), GROWN[number - 1][0], counts):
                if before != after:
                    kind = "scale-up" if after > before else "scale-down"
                    made.append(fact(Change, start - 3, kind, role, before, after, "committed", 10.0, 0.5, decision=number,
                                     foretold=foretold * promised))  # fmt: skip
        seen += windows(Size(*counts), rate, start + (seconds if counts == (3, 9) else 0.0), 12, scatter=0.03)
    return fact(
        Observed, number=9, time=seen[-1].start + 10.0, size=Size(3, 9), limits=Limits(1, 8, 0, 16), windows=tuple(seen),
        changes=tuple(made), progress=Progress(10**6, 10**12), first=Size(1, 8),
    )  # fmt: skip


def test_of_what_a_model_foretells_again_a_settled_job_believes_what_came_true():
    """More workers were to bring 6 and 44 %, and brought 4 and 6; a third more of them are to bring a third again."""
    observed = settled(4000.0)
    evidence = Evidence(observed, POLICY)
    assert evidence.modelled(Size(3, 13)) > 1.2 * evidence.rate and exploring.trusted(evidence)
    assert exploring.came_true(evidence, Size(3, 13)) == pytest.approx(0.25, abs=0.05)
    assert exploring.came_true(evidence, Size(4, 9)) == exploring.BELIEVED_LEAST, "more PS brought next to nothing"
    assert exploring.came_true(evidence, Size(2, 16)) == 1.0, "that was measured"
    assert exploring.came_true(evidence, Size(4, 10)) == 1.0, "both at once were never tried"
    decision = decide(observed, POLICY)
    assert decision.action == "keep" and "came true" in decision.reason, decision.reason


def held(counts: tuple[tuple[int, int, float], ...], **more: Any) -> Observed:
    """A job that had these sizes (PS, workers, examples/s) for ten minutes each; to the last one somebody went by hand."""
    made, seen = [], []
    for number, (ps, workers, rate) in enumerate(counts):
        if number:
            old = counts[number - 1]
            role, before, after = ("ps", old[0], ps) if old[0] != ps else ("worker", old[1], workers)
            kind, by_hand = "scale-up" if after > before else "scale-down", number == len(counts) - 1
            made.append(fact(Change, 603.0 * number, kind, role, before, after, "committed", 5.0,
                             manual=by_hand, decision=-1 if by_hand else number))  # fmt: skip
        seen += windows(Size(ps, workers), rate, 603.0 * number + 3, 8)
    size = Size(*counts[-1][:2])
    busy = uses(size, **{f"ps_{number}": {"busy_share": 0.95} for number in range(size.ps)})
    return fact(
        Observed, number=9, time=seen[-1].start + 300, size=size, windows=tuple(seen), changes=tuple(made), roles=busy,
        limits=Limits(1, 8, 0, 16), progress=Progress(10**6, 10**8), **more,
    )  # fmt: skip


@pytest.mark.parametrize("ps", [1, 2, 3])
def test_the_role_that_nobody_has_set_is_the_best_beside_the_one_that_was(ps):
    """The best size of all has more of both; it was waited for, for half an hour."""
    counts = {
        1: ((1, 1, 2000.0), (1, 2, 2900.0), (1, 3, 3700.0)),
        2: ((1, 1, 1500.0), (2, 1, 1900.0), (2, 2, 2800.0), (2, 3, 3500.0)),
        3: ((1, 2, 2000.0), (2, 2, 2600.0), (3, 2, 3000.0), (3, 3, 3800.0)),
    }[ps]
    observed = held(counts)
    free = tuple(dataclasses.replace(one, manual=False, decision=9) for one in observed.changes)
    assert decide(dataclasses.replace(observed, changes=free), POLICY).size.workers > 3
    decision = decide(observed, POLICY)
    assert (decision.action, decision.size) == ("scale", Size(ps + 1, 3)), decision.reason


def test_where_the_free_role_is_right_what_holds_the_other_is_told():
    decision = decide(held(((1, 0, 1000.0), (2, 0, 1100.0), (2, 1, 2150.0), (2, 2, 3100.0))), POLICY)
    assert decision.action == "keep" and decision.reason.startswith("2 PS, 2 workers is the best size known")
    assert re.search(r"; \d PS, \d+ workers is predicted to train \+\d+%, but the number of workers was set by hand",
                     decision.reason), decision.reason  # fmt: skip


def test_a_way_back_in_the_trainers_counts_those_that_there_would_be():
    """A worker less made it slower; somebody has changed the PS since."""
    changes = (
        fact(Change, 60.0, "scale-down", "worker", 3, 1, "committed", 8.0, decision=1, foretold=5_000.0),
        fact(Change, 110.0, "scale-up", "ps", 1, 2, "committed", 5.0, manual=True, decision=-1),
    )  # fmt: skip
    seen = windows(Size(1, 3), 5_290.0, 20.0, 4) + windows(Size(2, 1), 2_900.0, 120.0, 4)
    decision = decide(
        fact(Observed, number=3, time=293.0, size=Size(2, 1), windows=tuple(seen), changes=changes, limits=Limits(1, 2, 0, 4),
             progress=Progress(10**5, 10**8), first=Size(1, 3)),
        POLICY,
    )  # fmt: skip
    assert (decision.action, decision.size) == ("scale", Size(2, 3)), decision.reason
    assert "the number of PS was set by hand since, and stays" in decision.reason


@pytest.mark.parametrize("objective", ["fastest", "deadline"])
def test_who_does_not_know_when_the_job_ends_is_not_late_and_a_trial_has_its_price(objective):
    size = Size(1, 1)
    seen = windows(Size(1, 0), 1000.0, 3.0, 6) + windows(size, 1900.0, 40.0, 3)
    grew = fact(Change, 38.0, "scale-up", "worker", 0, 1, "committed", 8.0, decision=1, foretold=1900.0)
    decision = decide(
        fact(Observed, number=3, time=75.0, size=size, windows=tuple(seen), changes=(grew,), limits=Limits(1, 4, 0, 4),
             progress=Progress(10**5, 0), first=Size(1, 0), objective=objective, deadline_seconds=3000.0, roles=uses(size)),
        POLICY,
    )  # fmt: skip
    assert decision.action == "keep" and "to try it may cost 6.5 s, more than 2.5%" in decision.reason


def test_where_somebody_has_gone_beyond_the_limits_no_size_that_keeps_that_is_allowed():
    observed = held(((1, 1, 1500.0), (2, 1, 1900.0), (2, 2, 2800.0), (2, 3, 3500.0)))
    assert Search(Evidence(observed, POLICY), hopeful=False).allowed(Size(3, 3)) is not None
    beyond = dataclasses.replace(observed, limits=Limits(1, 8, 0, 2))
    assert Search(Evidence(beyond, POLICY), hopeful=False).allowed(Size(3, 3)) is None
