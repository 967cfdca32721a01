"""What a job used of what it requested, and what changes of its size brought."""

from __future__ import annotations

import math

import pytest

from deeprec_ext.autoscaler.history.use import Brought, Use, brought_by, use_of
from deeprec_ext.gazer.series_lines import Line

BEGIN, EVERY = 1_700_000_000.0, 2.0


def line(values: list[float], begin: float = BEGIN) -> Line:
    times = [begin + EVERY * number for number in range(len(values))]
    return Line("", "", times, list(values), list(values))


def job(speed: list[float], ps: list[float], trainers: list[float]) -> dict[str, Line]:
    return {"examples_per_second": line(speed), "ps": line(ps), "workers": line(trainers)}


def test_what_was_requested_and_not_used_is_idle() -> None:
    processes = {
        "ps-0": {"cpu_cores": line([0.25] * 30), "rss_bytes": line([1e9] * 30)},
        "chief-0": {"cpu_cores": line([0.75] * 30), "cpu_limit_cores": line([1.5] * 30), "working_set_bytes": line([2e9] * 30)},
    }  # fmt: skip
    assert use_of(processes, {"ps": (0.5, 4e9), "": (1.0, 0.0)}) == Use(
        process_seconds=120.0, cpu_core_seconds=60.0, cpu_held_core_seconds=120.0, cpu_idle_core_seconds=60.0,
        memory_byte_seconds=180e9, memory_held_byte_seconds=240e9, memory_idle_byte_seconds=180e9,
    )  # fmt: skip


def test_where_nothing_was_requested_nothing_is_idle() -> None:
    """A limit that a process sees is then one that it shares with others."""
    processes = {"ps-0": {"cpu_cores": line([0.25] * 30), "cpu_limit_cores": line([64.0] * 30)}}
    found = use_of(processes, {})
    assert (found.cpu_core_seconds, found.cpu_held_core_seconds, found.cpu_idle_core_seconds) == (15.0, 0.0, 0.0)


def test_more_than_was_requested_is_not_less_than_idle() -> None:
    found = use_of({"ps-0": {"cpu_cores": line([2.0, 0.0] * 15)}}, {"ps": (1.0, 0.0)})
    assert (found.cpu_held_core_seconds, found.cpu_idle_core_seconds) == (60.0, 30.0)


def test_a_time_in_which_a_process_was_not_there_counts_nothing() -> None:
    early, late = line([1.0] * 10), line([1.0] * 10, BEGIN + 1000.0)
    both = Line("", "", [*early.times, *late.times], [1.0] * 20, [1.0] * 20)
    assert use_of({"worker-0": {"cpu_cores": both}}, {}).process_seconds == 20 * EVERY


@pytest.mark.parametrize("values", [[], [math.nan] * 5])
def test_what_was_not_measured_was_not_used(values: list[float]) -> None:
    assert use_of({"ps-0": {"cpu_cores": line(values)}, "ps-1": {}}, {"ps": (1.0, 1e9)}) == Use()


def brought(speed: list[float], trainers: list[float], changes: int = 1) -> Brought:
    return brought_by(job(speed, [1.0] * len(speed), trainers), changes, 0, 10.0, 10.0)


def test_what_changes_brought_counts_their_pauses() -> None:
    """60 s with 100 examples/s, 10 s of pause, 50 s with 300: 21 000 examples, which would have taken 210 s."""
    found = brought([100.0] * 30 + [0.0] * 5 + [300.0] * 25, [1.0] * 30 + [3.0] * 30)
    assert found == Brought(1, 0, 100.0, 175.0, 90.0)


def test_a_change_that_made_it_slower_has_cost_time() -> None:
    found = brought([100.0] * 30 + [50.0] * 30, [1.0] * 30 + [3.0] * 30)
    assert found.saved_seconds == -30.0


def test_a_job_that_kept_its_size_saved_nothing() -> None:
    assert brought([100.0] * 60, [1.0] * 60, changes=0) == Brought(0, 0, 100.0, 100.0, 0.0)


def test_a_first_size_that_was_left_too_soon_is_not_compared_with() -> None:
    found = brought([100.0] * 8 + [300.0] * 30, [1.0] * 8 + [3.0] * 30)
    assert (found.first_examples_per_second, found.saved_seconds) == (0.0, 0.0) and found.examples_per_second > 200


@pytest.mark.parametrize("lines", [{}, job([], [], []), job([math.nan] * 40, [1.0] * 40, [1.0] * 40)])
def test_of_a_job_without_figures_nothing_is_said(lines: dict[str, Line]) -> None:
    assert brought_by(lines, 2, 1, 10.0, 10.0) == Brought(2, 1)
