"""Like is compared with like: shifts are found, noise is not taken for one, and older rates are brought to the present."""

from __future__ import annotations

import random
import statistics
import time

import pytest

from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.autoscaler.outcomes import conditions
from deeprec_ext.autoscaler.outcomes.conditions import by_size, comparable
from deeprec_ext.autoscaler.outcomes.measured import key_of
from tests.unit.autoscaler.facts import fact

A, B = Size(1, 1), Size(2, 1)


def windows(*of: tuple[Size, float, int], scatter: float = 0.01, seed: int = 0) -> list[Window]:
    """So many windows of a size at a rate, one stretch after the other."""
    chance, found = random.Random(seed), []
    for size, rate, count in of:
        for _ in range(count):
            found.append(fact(Window, 10.0 * len(found), 10.0, size, rate * chance.gauss(1, scatter)))
    return found


def rates(given: list[Window]) -> dict[Size, float]:
    found = by_size(comparable(given))
    return {size: found[key_of(size)].rate for size in (A, B) if key_of(size) in found}


def test_without_a_shift_every_window_counts_as_it_was_measured():
    given = windows((A, 100, 6), (B, 80, 4), (A, 100, 4))
    assert [one.rate for one in comparable(given)] == [one.examples_per_second for one in given]
    assert not any(one.drift for one in comparable(given))


def test_a_rate_of_before_a_shift_counts_in_proportion_and_less_surely():
    """B was a fifth slower than A; then something takes 40 % of the machine."""
    given = windows((B, 80, 4), (A, 100, 4), (A, 60, 4))
    assert rates(given)[A] == pytest.approx(60, rel=0.03)
    assert rates(given)[B] == pytest.approx(48, rel=0.05)
    assert by_size(comparable(given))[key_of(B)].drift == pytest.approx(0.2, abs=0.03)
    assert by_size(comparable(given))[key_of(A)].drift == 0


def test_it_shows_where_a_size_is_come_back_to_and_is_not_as_it_was():
    given = windows((A, 100, 4), (B, 120, 4), (A, 60, 4))
    assert rates(given)[A] == pytest.approx(60, rel=0.03)
    assert rates(given)[B] == pytest.approx(72, rel=0.05)


def test_what_was_measured_since_the_shift_counts_alone():
    given = windows((A, 100, 4), (A, 50, 4), (B, 40, 4))
    assert rates(given)[B] == pytest.approx(40, rel=0.03)
    assert rates(given)[A] == pytest.approx(50, rel=0.03)


def test_an_era_is_linked_to_the_present_by_way_of_another_one():
    """B, halved by the first shift, says what the second era was; A says what the first was."""
    given = windows((A, 100, 4), (B, 80, 3), (B, 40, 3), (Size(3, 3), 30, 2), (A, 60, 4))
    found = by_size(comparable(given))
    assert found[key_of(A)].rate == pytest.approx(60, rel=0.03)
    assert found[key_of(B)].rate == pytest.approx(48, rel=0.03)
    assert found[key_of(Size(3, 3))].rate == pytest.approx(36, rel=0.03)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("scatter", [0.01, 0.05, 0.3])
def test_noise_is_no_shift(seed, scatter):
    given = windows((A, 100, 12), (B, 80, 12), (A, 100, 12), scatter=scatter, seed=seed)
    given = [one for one in given if one.examples_per_second > 0]
    assert not any(one.drift for one in comparable(given))


@pytest.mark.parametrize("scatter", [0.05, 0.08])
def test_in_hours_of_noise_there_is_hardly_ever_a_shift(scatter):
    """A job is looked at again and again, at its newest twelve windows: one look in three hundred took noise for a shift."""
    given, looks = windows((A, 100, 10 * 360), scatter=scatter, seed=1), range(12, 10 * 360, 4)
    found = sum(bool(conditions._shifts(given[end - 12 : end])) for end in looks)
    assert found <= len(looks) / 400


@pytest.mark.parametrize(("slower", "scatter", "most"), [(0.15, 0.02, 3), (0.3, 0.05, 4), (0.5, 0.05, 3)])
def test_a_shift_of_the_rate_shows_within_a_few_windows(slower, scatter, most):
    needed = []
    for seed in range(30):
        given = windows((A, 100, 12), (A, 100 * (1 - slower), 12), scatter=scatter, seed=seed)
        needed.append(next(count for count in range(3, 13) if conditions._shifts(given[count : 12 + count])))
    assert sorted(needed)[26] <= most


def test_a_few_slow_windows_are_no_shift():
    given = windows((A, 100, 5), (A, 50, 2), (A, 100, 5))
    assert not any(one.drift for one in comparable(given))


def test_a_load_that_comes_and_goes_leaves_the_first_rates_as_good_as_before():
    given = windows((B, 80, 4), (A, 100, 4), (A, 60, 4), (A, 100, 4))
    assert rates(given)[B] == pytest.approx(80, rel=0.05)


def test_another_program_is_seen_where_no_size_was_measured_on_both_sides():
    """It came with the change of size: the rates alone would say that B is slow."""
    before = [fact(Window, 10.0 * n, 10.0, A, 100.0, host_cores=2.0, others_cores=0.1) for n in range(4)]
    after = [fact(Window, 40.0 + 10 * n, 10.0, B, 60.0, host_cores=2.0, others_cores=1.0) for n in range(4)]
    assert {one.window.size for one in comparable(before + after)} == {B}
    calm = [fact(Window, 40.0 + 10 * n, 10.0, B, 60.0, host_cores=2.0, others_cores=0.1) for n in range(4)]
    assert {one.window.size for one in comparable(before + calm)} == {A, B}


def test_a_program_that_takes_nothing_from_the_job_changes_nothing():
    before = [fact(Window, 10.0 * n, 10.0, A, 100.0 + n % 2, host_cores=8.0, others_cores=0.1) for n in range(4)]
    after = [fact(Window, 40.0 + 10 * n, 10.0, A, 100.0 + n % 2, host_cores=8.0, others_cores=4.0) for n in range(4)]
    assert all(one.drift < 0.01 for one in comparable(before + after))


def test_when_the_other_program_has_gone_what_was_measured_before_it_counts_as_it_was():
    """In proportion to A, which was bound by its own trainer when it was alone, B would be no better than A."""

    def stretch(start: float, size: Size, rate: float, others: float) -> list[Window]:
        return [
            fact(Window, start + 10.0 * n, 10.0, size, rate + n, host_cores=2.0, others_cores=others) for n in range(3)
        ]

    given = [
        *stretch(0, B, 25_000, 0.1),
        *stretch(30, B, 12_300, 1.1),
        *stretch(60, A, 12_300, 1.1),
        *stretch(90, A, 14_000, 0.1),
    ]
    found = by_size(comparable(given))
    assert found[key_of(B)].rate == pytest.approx(25_000, rel=0.01) and not found[key_of(B)].drift
    assert found[key_of(A)].rate == pytest.approx(14_000, rel=0.01)


def test_a_slow_window_before_another_program_came_is_not_of_its_time():
    """With the two that were slow because of it there would be three, a shift; and the only one of A from when it was alone."""

    def stretch(start: float, size: Size, others: float, *rates: float) -> list[Window]:
        return [
            fact(Window, start + 10.0 * n, 10.0, size, rate, host_cores=2.0, others_cores=others)
            for n, rate in enumerate(rates)
        ]

    given = [
        *stretch(0, A, 0.0, 24_900, 24_500, 24_950, 25_060, 24_100, 12_500), *stretch(70, B, 0.0, 19_100, 18_900),
        *stretch(100, A, 1.0, 12_200, 12_000), *stretch(130, B, 1.0, 12_200, 12_150, 12_400),
        *stretch(170, B, 0.0, 19_700, 18_500),
    ]  # fmt: skip
    assert conditions._shifts(given) == [100.0, 170.0]
    assert by_size(comparable(given))[key_of(A)].rate == pytest.approx(24_700, rel=0.03)


# ------------------------------------------------------------------------------------------------ in little time


@pytest.mark.parametrize("seed", range(20))
def test_what_the_first_values_scatter_is_worked_out_for_all_places_at_once(seed):
    chance = random.Random(seed)
    values = [chance.choice([chance.gauss(1, 0.1), 1.0, 0.5, 1e6]) for _ in range(chance.randrange(1, 60))]
    found = conditions._scatters(values)
    assert found[0] == 0 and len(found) == 1 + len(values)
    for count in range(1, 1 + len(values)):
        middle = statistics.median(values[:count])
        direct = sum(abs(value - middle) for value in values[:count])
        assert found[count] == pytest.approx(direct, rel=1e-9, abs=1e-9 * max(values))


def test_a_shift_in_a_month_is_found_in_a_moment():
    """43 200 windows of a minute; from the twentieth day on another program takes a core."""
    loads = [1.0 if minute // 1440 >= 19 else 0.1 for minute in range(30 * 1440)]
    given = [
        fact(Window, 60.0 * at, 60.0, A, 100.0 - 40 * (load > 0.5) + at % 2, host_cores=2.0, others_cores=load)
        for at, load in enumerate(loads)
    ]
    began = time.process_time()
    assert conditions._shifts(given) == [60.0 * 1440 * 19]
    assert time.process_time() - began < 10, "minutes, where each place looks at all windows"


def test_shifts_within_shifts_are_searched_for_only_so_deep():
    """Each is at the edge of what is left: a thousand would take a thousand looks at nearly all windows."""
    stairs = [10.0**step for step in range(200) for _ in range(3)]
    assert len(conditions._splits(stairs, 3, 3, lambda one, other: 0.12 * min(one, other))) == conditions.DEPTH_MAX
