"""What throughput depends on beside the size."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.autoscaler.model.formula import Place
from deeprec_ext.autoscaler.model.surroundings import UNKNOWN, Surroundings, around, changed_at, fullest
from deeprec_ext.autoscaler.observe.observed import Size, SlotUse, Window
from tests.unit.autoscaler.facts import fact

SIZE = Size(2, 1)


def window(start: float, others: float, cores: float = 2.0, size: Size = SIZE, **more: float) -> Window:
    return fact(Window, start, 10.0, size, 100.0, 10.0, host_cores=cores, others_cores=others, **more)


def test_a_process_without_a_request_may_use_the_whole_host():
    assert UNKNOWN.place(SIZE) == Place(2, 2, 1.0, 1.0, share=0.5, free=0.0)
    assert Surroundings(cores=8.0, free=5.0).place(SIZE) == Place(2, 2, 8.0, 8.0, share=0.5, free=5.0)
    assert Surroundings(cores=8.0).key(Size(2, 1, 0.5, 0.25)) == (2, 2, 0.5, 0.25)


def test_windows_of_a_size_are_judged_by_what_was_free_then():
    here = Surroundings(cores=2.0, free=2.0)
    assert here.place(SIZE, [window(0, 0.5), window(10, 0.7), window(20, 0.5)]).free == 1.5
    assert here.place(SIZE, [window(0, 0.5), window(10, 0.0, cores=0.0)]).free == 0  # not known


def test_the_present_load_of_others_is_that_of_the_newest_windows():
    told = [*(window(10.0 * n, 0.1) for n in range(8)), window(80, 1.1), window(90, 1.0), window(100, 1.2)]
    assert around(told, (), one_host=True) == Surroundings(2.0, pytest.approx(0.9))
    assert around(told, (), one_host=False) == Surroundings()  # processes to come have hosts of their own


def test_others_never_leave_nothing_at_all():
    assert around([window(0, 2.0)], (), one_host=True).free == pytest.approx(0.1)


def test_a_host_of_which_nobody_tells_any_more_is_not_known():
    """A process may stop to tell; who was on the host then may have left it since."""
    silent = [window(10.0 * at, 0.0, cores=0.0) for at in range(5, 12)]
    told = [window(0, 1.5), window(1, 1.5), window(2, 1.5)]
    assert around([*told, *silent[:3]], (), one_host=True).cores == 2.0
    assert around([*told, *silent], (), one_host=True) == Surroundings()


def test_the_load_of_others_has_changed_when_it_has_another_level():
    before, after = [window(10.0 * n, 0.1) for n in range(8)], [window(80 + 10.0 * n, 1.1) for n in range(5)]
    assert changed_at([*before, *after]) == 80
    assert changed_at(before) == 0
    assert changed_at([*before, *after, *(window(130 + 10.0 * n, 0.1) for n in range(4))]) == 130


def test_one_odd_window_is_no_change():
    steady = [window(10.0 * n, 0.1) for n in range(12)]
    odd = [dataclasses.replace(one, others_cores=1.5) if one.start in (60, 110) else one for one in steady]
    assert changed_at(odd) == 0


def test_nobody_knows_of_a_change_where_hosts_are_not_known():
    assert changed_at([window(10.0 * n, n % 2, cores=0.0) for n in range(12)]) == 0


def test_the_fullest_ps_is_told_by_the_measured_cpu():
    known = UNKNOWN.learned([window(0, 0, ps_cpu_cores=0.8, ps_cpu_most_cores=0.5) for _ in range(3)])
    assert known.share(2) == pytest.approx(0.625)
    assert known.share(1) == 1
    assert known.share(3) == pytest.approx(1.25 / 3)  # as uneven as at the nearest count that was measured


def test_at_other_counts_the_loads_of_the_slots_say_how_even_ps_can_be():
    loads = tuple(SlotUse(slot, "ps-0", 1, load) for slot, load in enumerate((6.0, 1.0, 1.0, 1.0, 1.0)))
    known = around([], loads, one_host=False)
    assert known.share(2) == pytest.approx(0.6) and known.share(4) == pytest.approx(0.6)  # one slot is most of it
    even = around([], [SlotUse(slot, "ps-0", 1, 1.0) for slot in range(8)], one_host=False)
    assert even.share(3) == pytest.approx(3 / 8) and even.share(4) == pytest.approx(1 / 4)
    assert even.share(20) == pytest.approx(1 / 8)
    unmeasured = around([], [SlotUse(slot, "ps-0", 1, 0.0) for slot in range(8)], one_host=False)
    assert unmeasured.share(3) == pytest.approx(1 / 3)


def test_the_heaviest_slots_are_laid_first():
    assert fullest((1, 1, 1, 1, 4), 2) == 0.5
    assert fullest((3, 3, 2, 2, 2), 2) == pytest.approx(7 / 12)
