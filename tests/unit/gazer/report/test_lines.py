"""Arithmetic of time series."""

from __future__ import annotations

import pytest

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.lines import Lines, buckets, length, natural, slope, without
from deeprec_ext.gazer.report.story import Failure, Placement, Scaling
from deeprec_ext.gazer.series import Line
from tests.unit.gazer.report.stories import BEGAN, case, line, lines, loaded, steady, story


def test_a_mean_is_weighted_by_time():
    found = Lines([Line("ps-0", "cpu_cores", [10.0, 20.0, 30.0, 35.0], [1.0, 1.0, 1.0, 3.0], [1.0, 1.0, 2.0, 4.0])])
    assert found.mean("ps-0", "cpu_cores") == pytest.approx((30 * 1.0 + 5 * 3.0) / 35)
    assert found.peak("ps-0", "cpu_cores") == 4.0
    assert found.mean("ps-0", "rss_bytes") is None
    assert found.peak("ps-1", "cpu_cores") is None


def test_a_process_that_was_away_has_a_gap_and_not_a_long_sample():
    found = Lines([Line("worker-0", "cpu_cores", [2.0, 4.0, 6.0, 106.0, 108.0], [1.0] * 5, [1.0] * 5)])
    assert found.seconds("worker-0", "cpu_cores") == pytest.approx(10.0)


def test_a_line_that_begins_with_minutes_and_ends_with_seconds_has_no_gap():
    """What is older than an hour is kept in steps of a minute."""
    times = [60.0 * minute for minute in range(1, 13)] + [720.0 + 10 * number for number in range(1, 361)]
    found = Lines([Line("job", "steps_per_second", times, [30.0] * 12 + [20.0] * 360, [30.0] * 372)])
    assert found.seconds("job", "steps_per_second") == pytest.approx(4320.0)
    assert found.mean("job", "steps_per_second") == pytest.approx((12 * 60 * 30 + 3600 * 20) / 4320)
    assert all(
        one.end == next.start
        for one, next in zip(found.spans("job", "steps_per_second"), found.spans("job", "steps_per_second")[1:])
    )


def test_a_process_that_was_away_among_the_seconds_has_a_gap_though_there_are_many_minutes():
    minutes = [60.0 * minute for minute in range(1, 61)]
    seconds = [3600.0 + 10 * number for number in (1, 2, 3, 4, 5, 17, 18, 19, 20, 21)]
    found = Lines([Line("worker-0", "cpu_cores", minutes + seconds, [1.0] * 70, [1.0] * 70)])
    assert found.seconds("worker-0", "cpu_cores") == pytest.approx(3600 + 100)


def test_questions_can_be_restricted_to_windows():
    found = Lines([line("ps-0", "cpu_cores", lambda time: 1.0 if time <= 100 else 5.0)])
    assert found.mean("ps-0", "cpu_cores", ((BEGAN, BEGAN + 100),)) == 1.0
    assert found.peak("ps-0", "cpu_cores", ((BEGAN + 100, BEGAN + 300),)) == 5.0
    assert found.mean("ps-0", "cpu_cores", ()) is None


def test_names_are_in_natural_order():
    assert sorted(["ps-10", "ps-2", "aimaster", "chief-0"], key=natural) == ["aimaster", "chief-0", "ps-2", "ps-10"]


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], ((0, 10),)),
        ([(2, 4)], ((0, 2), (4, 10))),
        ([(-5, 3), (9, 20)], ((3, 9),)),
        ([(2, 4), (3, 6)], ((0, 2), (6, 10))),
        ([(5, 5)], ((0, 10),)),
        ([(-1, 11)], ()),
    ],
)
def test_holes_are_cut_out_of_windows(holes, left):
    assert without(((0, 10),), holes) == left


def test_buckets_lie_inside_the_windows():
    assert buckets(((0, 12), (20, 24)), 5) == [(0, 5), (5, 10)]
    assert length(((0, 12), (20, 24))) == 16


def test_the_slope_is_not_impressed_by_outliers():
    times = [float(time) for time in range(20)]
    values = [2.0 * time for time in times]
    values[7] = 1e6
    assert slope(times, values) == pytest.approx(2.0, rel=0.1)
    assert slope([1.0], [1.0]) == 0.0


def test_calm_time_is_without_the_start_scalings_and_failures():
    found = case(
        scalings=(Scaling("scale-up", "ps", BEGAN + 100, 10.0, "committed"), Scaling("scale-up", "ps", 0.0, 0.0, "refused")),
        failures=(Failure("ps-1", "killed", BEGAN + 200, 0.1, 5.0),),
    )  # fmt: skip
    assert [(start - BEGAN, end - BEGAN) for start, end in found.calm] == [(10, 100), (115, 200), (210, 300)]


def test_nothing_is_calm_after_a_failure_that_was_not_recovered():
    found = case(failures=(Failure("ps-1", "hung", BEGAN + 200, 3.0, None),))
    assert found.calm == ((BEGAN + 10, BEGAN + 200),)


def test_a_trainer_that_came_later_has_its_own_warm_up():
    values = steady()
    late = lines({"worker-9": values.pop("worker-1")}, start=100.0)
    found = Case(story(values, lines=(*lines(values), *late)))
    assert found.calm_of("worker-9") == ((BEGAN + 110, BEGAN + 300),)
    assert found.calm_of("worker-8") == ()


def test_loads_are_those_of_the_last_slot_map_that_was_in_use_for_a_while():
    values = {**steady(), **loaded({"ps-0": lambda time: 2.0 if time <= 200 else 0.4}, {0: 0.1})}
    placements = (Placement(BEGAN, ("ps-1",)), Placement(BEGAN + 200, ("ps-0",)), Placement(BEGAN + 295, ("ps-2",)))
    found = case(values, placements=placements)
    assert found.placed == ((BEGAN + 200, BEGAN + 295),)
    assert [(one.name, one.busy) for one in found.loads.ps] == [("ps-0", pytest.approx(0.4))]


def test_without_samples_there_is_no_calm_time_and_no_load():
    found = case({})
    assert (found.trainers, found.training, found.calm, found.loads) == ([], (), (), None)
