"""Windows of throughput: what belongs to one, and what to none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.observe.windows import KEPT, PATIENCE_SECONDS, PER_SIZE, Windows
from tests.unit.autoscaler.facts import tick

ONE, TWO = Size(1, 1), Size(2, 1)


def feed(windows, *, start, stop, size, rate, quiet=True, who="a", base=0, preparing=False):
    """One tick a second; returns the total at the end."""
    total = base
    for now in range(start, stop):
        tick(windows, float(now), size, {who: total}, quiet=quiet, examples_per_step=10.0, preparing=preparing)
        total += rate
    return total


def test_a_steady_job_gives_windows_of_its_rate():
    windows = Windows(seconds=5.0, settle_seconds=2.0)
    feed(windows, start=0, stop=30, size=ONE, rate=100)
    assert len(windows.all()) == 5
    assert {window.examples_per_second for window in windows.all()} == {100.0}
    assert {window.examples_per_step for window in windows.all()} == {10.0}
    assert windows.all()[0].start == 2.0


def test_nothing_counts_while_the_job_settles_after_a_change_of_size():
    windows = Windows(seconds=5.0, settle_seconds=3.0)
    total = feed(windows, start=0, stop=11, size=ONE, rate=100)
    feed(windows, start=11, stop=30, size=TWO, rate=300, base=total)
    of_two = [window for window in windows.all() if window.size == TWO]
    assert of_two and {window.examples_per_second for window in of_two} == {300.0}
    assert of_two[0].start == 14.0


def test_a_disturbance_ends_the_window_and_starts_the_wait_again():
    windows = Windows(seconds=5.0, settle_seconds=2.0)
    total = feed(windows, start=0, stop=8, size=ONE, rate=100)
    total = feed(windows, start=8, stop=12, size=ONE, rate=1, quiet=False, base=total)
    feed(windows, start=12, stop=25, size=ONE, rate=100, base=total)
    assert {window.examples_per_second for window in windows.all()} == {100.0}
    assert not any(8 < window.start < 13 for window in windows.all())


@pytest.mark.parametrize(
    ("rates", "learned"),
    [((100, 90, 110), True), ((100, 100, 500), True), ((100, 90, 10_000_000), False), ((0, 0, 100), True), ((1, 5000), True)],
    ids=["alike", "a faster host", "a false figure", "the others stand still", "two, and nobody knows which is right"],
)  # fmt: skip
def test_a_figure_that_no_other_trainer_comes_near_teaches_nothing(rates, learned):
    windows, size = Windows(seconds=5.0, settle_seconds=2.0), Size(1, len(rates) - 1)
    for now in range(20):
        tick(windows, float(now), size, {f"trainer {at}": now * rate for at, rate in enumerate(rates)}, quiet=True)
    assert {window.examples_per_second for window in windows.all()} == ({float(sum(rates))} if learned else set())
    assert windows.fresh() == learned


@pytest.mark.parametrize(
    ("rates", "learned"),
    [((100, 90), True), ((2500, 2500), True), ((100, 1900), True), ((90, 10_000), False), ((0, 10_000), False)],
    ids=["alike", "faster now", "a faster host", "a false figure", "a false figure alone"],
)  # fmt: skip
def test_of_two_trainers_what_one_did_before_says_who_is_wrong(rates, learned):
    windows = Windows(seconds=5.0, settle_seconds=2.0)
    feed(windows, start=0, stop=20, size=Size(1, 0), rate=100)
    for now in range(20, 40):
        told = {"a": 2000 + now * rates[0], "b": now * rates[1]}
        tick(windows, float(now), ONE, told, quiet=True)
    assert any(window.size == ONE for window in windows.all()) == learned


def test_of_a_size_windows_are_kept_of_each_load_of_others():
    windows = Windows(seconds=5.0, settle_seconds=2.0)
    for now in range(60 + 10 * PER_SIZE):
        tick(windows, float(now), ONE, {"a": now * 100}, host_cores=4.0, others_cores=0.1 if now < 30 else 2.3)
    levels = [window.level for window in windows.all()]
    assert levels.count(0) >= 5 and levels.count(2) == PER_SIZE and len(set(levels)) <= 3


def test_a_time_in_which_sessions_are_prepared_counts_only_where_there_is_nothing_else_for_long():
    windows = Windows(seconds=5.0, settle_seconds=2.0)
    total = feed(windows, start=0, stop=8, size=ONE, rate=100)
    total = feed(windows, start=8, stop=26, size=ONE, rate=10, base=total, preparing=True)
    assert [window.preparing for window in windows.all()] == [False]  # it lasts, but there was a clear one not long ago
    feed(windows, start=26, stop=40, size=ONE, rate=10, base=total, preparing=True)
    clear, doubtful = windows.all()
    assert (clear.preparing, clear.examples_per_second) == (False, 100.0)
    assert (doubtful.preparing, doubtful.examples_per_second) == (True, 10.0) and doubtful.start >= 7 + PATIENCE_SECONDS


def test_what_trainers_use_while_they_prepare_is_not_what_a_step_takes():
    windows = Windows(seconds=5.0, settle_seconds=2.0)
    for now in range(40):
        tick(
            windows, float(now), TWO, {"a": 100 * now}, trainer_cpu={"a": 0.5 * now}, ps_cpu={"p": 0.25 * now},
            preparing=True,
        )  # fmt: skip
    assert windows.all() and all(one.preparing and one.trainer_cpu_cores == 0.0 for one in windows.all())
    assert windows.all()[0].ps_cpu_cores == pytest.approx(0.25)
    gaps = [after.start - before.start for before, after in zip(windows.all(), windows.all()[1:])]
    assert all(gap >= PATIENCE_SECONDS for gap in gaps)


def test_a_long_piece_before_a_change_counts_until_its_last_tick():
    windows = Windows(seconds=10.0, settle_seconds=0.0)
    feed(windows, start=0, stop=8, size=ONE, rate=100)
    tick(windows, 9.0, TWO, {"a": 800})
    (window,) = windows.all()
    assert (window.seconds, window.examples_per_second) == (6.0, 100.0)


def test_a_short_piece_before_a_change_is_no_window():
    windows = Windows(seconds=10.0, settle_seconds=0.0)
    feed(windows, start=0, stop=4, size=ONE, rate=100)
    tick(windows, 4.0, TWO, {"a": 400})
    assert windows.all() == ()


def test_a_worker_that_comes_or_goes_does_not_count_with_its_whole_total():
    windows = Windows(seconds=5.0, settle_seconds=0.0)
    for now in range(12):
        examples = {"a": 100 * now}
        if 3 <= now < 9:
            examples["late"] = 1_000_000 + 50 * now
        tick(windows, float(now), ONE, examples)
    assert max(window.examples_per_second for window in windows.all()) <= 150.0


def test_the_newest_of_each_size_are_kept():
    windows = Windows(seconds=1.0, settle_seconds=0.0)
    feed(windows, start=0, stop=200, size=ONE, rate=1)
    assert len(windows.all()) == PER_SIZE
    assert windows.all()[-1].start > 150


def test_windows_of_the_size_a_job_began_with_are_not_crowded_out():
    windows = Windows(seconds=1.0, settle_seconds=0.0, first=ONE)
    feed(windows, start=0, stop=10, size=ONE, rate=1)
    for number in range(20):
        feed(windows, start=100 * number + 100, stop=100 * number + 150, size=Size(2, number), rate=1)
    assert len(windows.all()) == KEPT
    assert sum(one.size == ONE for one in windows.all()) == 8 and windows.all()[-1].size == Size(2, 19)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100), st.sampled_from([ONE, TWO]), st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**9)),
            st.booleans(),
        ),
        max_size=200,
    )
)  # fmt: skip
def test_whatever_comes_rates_are_not_negative_and_memory_is_bounded(ticks):
    windows, now = Windows(seconds=3.0, settle_seconds=1.0), 0.0
    for step, size, totals, quiet in ticks:
        now += step
        tick(windows, now, size, totals, quiet=quiet)
    assert len(windows.all()) <= KEPT
    assert all(window.examples_per_second >= 0 and window.seconds > 0 for window in windows.all())


def test_a_window_says_what_cpu_a_trainer_and_all_ps_used():
    windows = Windows(seconds=4.0, settle_seconds=0.0)
    for now in range(7):
        tick(
            windows, float(now), TWO, {"a": 100 * now}, trainer_cpu={"a": 0.5 * now, "b": 0.3 * now, "c": 0.1 * now},
            ps_cpu={"p": 0.25 * now, "q": 0.5 * now},
        )  # fmt: skip
    (window,) = windows.all()
    assert window.trainer_cpu_cores == pytest.approx(0.9 / TWO.trainers)
    assert window.ps_cpu_cores == pytest.approx(0.75)


def test_a_window_tells_what_others_used_of_the_host_and_which_ps_was_busiest():
    windows = Windows(seconds=10, settle_seconds=0)
    for second in range(13):
        tick(
            windows, float(second), ONE, {"a": 100 * second}, ps_cpu={"p": 0.1 * second, "q": 0.3 * second},
            host_cores=2.0 if second != 5 else 0.0, others_cores=0.5 if second != 5 else 0.0,
        )  # fmt: skip
    (window,) = windows.all()
    assert (window.ps_cpu_cores, window.ps_cpu_most_cores) == (0.4, 0.3)
    assert (window.host_cores, window.others_cores) == (2.0, 0.5)  # a tick that does not know it says nothing


def test_what_a_step_without_ps_consists_of_is_the_median_of_what_ticks_tell():
    """The first of them may still tell of the size before."""
    windows, size = Windows(), Size(0, 1)
    for second in range(20):
        told = {"own_seconds": 0.3, "sum_seconds": 0.01} if second < 6 else {"own_seconds": 0.1, "sum_seconds": 0.02}
        tick(windows, float(second), size, {"a": 100 * second, "b": 100 * second}, **told)
    assert [(one.own_seconds, one.sum_seconds) for one in windows.all()] == [(0.1, 0.02)]
    for second in range(20, 40):
        tick(windows, float(second), size, {"a": 100 * second, "b": 100 * second})
    assert windows.all()[-1].own_seconds == 0.0, "nobody has told"
