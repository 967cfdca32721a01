"""What sizes are worth to a job, from what was measured; and what of it is news."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

import pytest

from deeprec_ext.arbiter.observed import WORTH_MAX, Bid, Count, Worth
from deeprec_ext.arbiter.wire import TEXT_MAX, bid_text
from deeprec_ext.autoscaler.loop.bidding import WAIT_SECONDS, News, bid_of, counts_between
from deeprec_ext.autoscaler.observe.observed import Change, Host, Limits, Observed, Progress, Size
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.decoding import built
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import LIMITS, seen, uses, windows

WANTED = Count(1, 3)
SUMS = Limits(min_ps=0, max_ps=0, min_workers=0, max_workers=7)


def bid(observed: Observed, wanted: Count = WANTED, *, decides: bool = False, training: bool = True) -> Bid:
    return bid_of(observed, Policy(), time=1000.0, wanted=wanted, decides=decides, training=training)


def worth(one: Bid) -> dict[tuple[int, int], float]:
    return {(size.ps, size.workers): size.examples_per_second for size in one.worth}


def three_sizes(**more: Any) -> Observed:
    """PS 1 with 0, 1 and 3 workers: 500, 950 and 1 700 examples/s."""
    rates = [(Size(1, 0), 500.0), (Size(1, 1), 950.0), (Size(1, 3), 1700.0)]
    known = [one for at, (size, rate) in enumerate(rates) for one in windows(size, rate, 40.0 * at)]
    return seen(Size(1, 3), windows=tuple(known), **more)


def test_measured_sizes_are_told_as_measured_and_others_as_the_model_has_them() -> None:
    found = worth(bid(three_sizes()))
    assert found[1, 0] == pytest.approx(500, rel=0.02) and found[1, 1] == pytest.approx(950, rel=0.02)
    assert found[1, 3] == pytest.approx(1700, rel=0.02)
    assert found[1, 1] < found[1, 2] < found[1, 3], "between the two it lies between"
    assert found[1, 4] >= 0.95 * found[1, 3]


def test_nothing_is_said_until_something_is_measured() -> None:
    found = bid(seen(Size(1, 3), windows=()), training=False)
    assert (found.worth, found.size, found.wanted, found.training) == ((), Count(1, 3), Count(1, 3), False)


def test_a_size_that_was_just_entered_does_not_make_the_job_forget_what_it_knows() -> None:
    known = three_sizes(changes=(fact(Change, 159.0, "scale-down", "worker", 3, 2, "committed", 2.0),))
    found = worth(bid(dataclasses.replace(known, size=Size(1, 2))))
    assert found[1, 3] == pytest.approx(1700, rel=0.02) and found[1, 1] < found[1, 2] < found[1, 3]


def test_no_prediction_is_beyond_what_more_of_everything_could_bring() -> None:
    for observed in (seen(Size(2, 1), 1000.0), three_sizes(), seen(Size(1, 0), 1e9)):
        best = [(one.size.ps, one.size.trainers, one.examples_per_second) for one in observed.windows]
        for (ps, workers), rate in worth(bid(observed)).items():
            most = max(r * max(1, (workers + 1) / t) * max(1, ps / p) for p, t, r in best)
            assert 0 < rate <= 1.001 * most and math.isfinite(rate)


@pytest.mark.parametrize("limits", [LIMITS, SUMS])
def test_who_knows_one_size_says_neither_that_its_workers_bring_nothing_nor_that_each_brings_all(
    limits: Limits,
) -> None:
    """On a machine that others fill a model of one size had all smaller sizes as fast: a sleeping script lost its workers."""
    size = Size(limits.least_ps, 3)
    full = {
        "host_cores": 2.0,
        "others_cores": 2.0,
        "trainer_cpu_cores": 0.02,
        "ps_cpu_cores": 0.02,
        "ps_cpu_most_cores": 0.02,
    }
    hosts = (fact(Host, "host-0", 2.0, 0.1, 2.0, size.ps, 4),)
    known = tuple(windows(size, 629.0, 120.0, **full))
    found = worth(bid(seen(size, windows=known, limits=limits, hosts=hosts, one_host=True), Count(size.ps, 3)))
    for workers in range(3):
        assert 629.0 * (workers + 1) / 4 <= found[size.ps, workers] <= 629.0 * math.sqrt((workers + 1) / 4) * 1.02


def test_without_the_libraries_of_the_model_measured_sizes_are_told_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "scipy", "scipy.optimize"):
        monkeypatch.setitem(sys.modules, name, None)
    found = bid(three_sizes(), decides=True)
    assert set(worth(found)) == {(1, 0), (1, 1), (1, 3)} and found.wanted == Count(1, 3)


def test_a_job_without_ps_bids_by_its_own_model() -> None:
    rates = [(Size(0, 0), 100.0), (Size(0, 1), 180.0), (Size(0, 3), 300.0)]
    known = [one for at, (size, rate) in enumerate(rates) for one in windows(size, rate, 40.0 * at)]
    found = bid(seen(Size(0, 3), windows=tuple(known), limits=SUMS), Count(0, 3))
    assert [(one.ps, one.workers) for one in found.worth] == [(0, count) for count in range(8)]
    assert worth(found)[0, 1] < worth(found)[0, 2] < worth(found)[0, 3]


def test_wide_ranges_are_told_in_ever_larger_steps_and_stay_small() -> None:
    limits = Limits(1, 200, 0, 5000)
    found = bid(seen(Size(3, 77), limits=limits, windows=tuple(windows(Size(3, 77), 1e5, 120.0))), Count(5, 1234))
    sizes = set(worth(found))
    assert len(sizes) <= WORTH_MAX and {(3, 77), (5, 1234), (1, 0), (200, 5000)} <= sizes
    assert len(bid_text(found)) < TEXT_MAX and built(Bid, json.loads(bid_text(found))) == found
    steps = [one.workers for one in counts_between(Limits(0, 0, 0, 5000), [])]
    assert len(steps) > 30 and all(later <= 2 * earlier + 2 for earlier, later in zip(steps, steps[1:]))


@pytest.mark.parametrize("limits", [Limits(1, 1, 0, 0), Limits(2, 2, 3, 3), Limits(0, 0, 0, 0), Limits(4, 2, 5, 1)])
def test_narrow_and_contradictory_limits_give_few_sizes(limits: Limits) -> None:
    low = Count(limits.least_ps, limits.min_workers)
    assert low in counts_between(limits, [Count(9, 9)]) and len(counts_between(limits, [Count(9, 9)])) <= 2


def test_sizes_without_memory_for_them_are_worth_nothing() -> None:
    size = Size(4, 1, ps_memory_bytes=2 * 10**9)
    using = [one for one in uses(size) if one.name.startswith("ps-")]
    roles = tuple(dataclasses.replace(one, working_set_bytes=15 * 10**8, memory_limit_bytes=2 * 10**9) for one in using)
    full = seen(size, windows=tuple(windows(size, 1000.0, 120.0)), roles=roles)
    assert min(ps for ps, _ in worth(bid(full))) >= 3, "all of it does not fit on fewer"


def test_a_job_with_an_autoscaler_wants_what_that_would_choose_alone() -> None:
    settled = seen(Size(1, 1), time=900.0, windows=tuple(windows(Size(1, 1), 950.0, 600.0, count=20)))
    decided = decide(settled, Policy())
    assert decided.action == "explore" and decided.size.workers == 2
    assert bid(settled, Count(1, 1), decides=True).wanted == Count(1, 2), "the next size on its way"
    assert bid(dataclasses.replace(settled, busy=True), Count(1, 1), decides=True).wanted == Count(1, 2)
    assert bid(settled, Count(2, 6), decides=True).wanted == Count(2, 6), "and what was taken from it"
    assert bid(settled, Count(1, 1)).wanted == Count(1, 1), "without one it wants what was asked for"
    held = dataclasses.replace(settled, hold=True)
    assert bid(held, Count(1, 1), decides=True).wanted == Count(1, 1), "its user wants no other"


def test_what_is_left_and_what_changes_cost_are_told() -> None:
    changes = (
        fact(Change, 50.0, "scale-up", "worker", 1, 3, "committed", 21.0),
        fact(Change, 80.0, "scale-up", "ps", 1, 2, "committed", 34.0, 0.7),
        fact(Change, 100.0, "scale-down", "ps", 2, 1, "committed", 34.0, 0.9),
    )
    found = bid(three_sizes(changes=changes, progress=Progress(400, 1000)))
    assert found.left == 600.0
    assert (found.change_seconds, found.pause_seconds) == (34.0, pytest.approx(0.8))


BID = Bid(1000.0, Count(1, 3), Count(1, 4), (Worth(1, 3, 1000.0), Worth(1, 4, 1200.0)), 1e6, 20.0, 0.5, True)


@pytest.mark.parametrize(("changes", "after"), [
    ({"time": 1200.0}, math.inf), ({"left": 0.96e6}, math.inf), ({"change_seconds": 22.0}, math.inf),
    ({"worth": (Worth(1, 3, 1040.0), Worth(1, 4, 1200.0))}, math.inf),
    ({"worth": (Worth(1, 3, 1060.0), Worth(1, 4, 1200.0))}, WAIT_SECONDS), ({"worth": (Worth(1, 3, 1000.0),)}, WAIT_SECONDS),
    ({"worth": ()}, WAIT_SECONDS), ({"left": 0.9e6}, WAIT_SECONDS), ({"wanted": Count(1, 5)}, WAIT_SECONDS),
    ({"busy": True}, WAIT_SECONDS),
    ({"change_seconds": 40.0}, WAIT_SECONDS), ({"pause_seconds": 1.0}, WAIT_SECONDS),
    ({"size": Count(1, 2)}, 0.0), ({"training": False}, 0.0),
])  # fmt: skip
def test_what_matters_is_news(changes: dict[str, Any], after: float) -> None:
    assert News(BID, dataclasses.replace(BID, **changes)).after_seconds == after


def test_limits_of_the_arbiter_are_none_of_a_bid() -> None:
    """It is told what the job would gain beyond what it is allowed now."""
    assert max(workers for _, workers in worth(bid(three_sizes(limits=LIMITS)))) == LIMITS.max_workers
