"""What a job used of what it requested."""

from __future__ import annotations

import math

import pytest

from deeprec_ext.autoscaler.history.use import Use, use_of
from deeprec_ext.gazer.series_lines import Line

BEGIN, EVERY = 1_700_000_000.0, 2.0


def line(values: list[float], begin: float = BEGIN) -> Line:
    times = [begin + EVERY * number for number in range(len(values))]
    return Line("", "", times, list(values), list(values))


def test_what_was_requested_and_not_used_is_idle() -> None:
    """Without a request of memory the chief shares its container, whose working set is that of all in it."""
    processes = {
        "ps-0": {"cpu_cores": line([0.25] * 30), "rss_bytes": line([1e9] * 30)},
        "chief-0": {"cpu_cores": line([0.75] * 30), "cpu_limit_cores": line([1.5] * 30), "rss_bytes": line([2e9] * 30),
                    "working_set_bytes": line([7e9] * 30)},
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


def test_of_a_job_of_days_the_first_ones_count_as_long_as_they_were() -> None:
    """What is older than a day and a half is kept by ten minutes, and a gap is longer than what is usual at its time."""
    times = [BEGIN + 600.0 * number for number in range(200)]
    times += [times[-1] + 130.0 * number for number in range(1, 900)]
    whole = Line("", "", times, [1.0] * len(times), [1.0] * len(times))
    assert use_of({"ps-0": {"cpu_cores": whole}}, {}).cpu_core_seconds == times[-1] - BEGIN + 600.0
    early, late = times[:100], [time + 50_000.0 for time in times[100:]]
    away = Line("", "", early + late, whole.means, whole.highest)
    assert use_of({"ps-0": {"cpu_cores": away}}, {}).cpu_core_seconds == times[-1] - BEGIN + 600.0


@pytest.mark.parametrize("values", [[], [math.nan] * 5])
def test_what_was_not_measured_was_not_used(values: list[float]) -> None:
    assert use_of({"ps-0": {"cpu_cores": line(values)}, "ps-1": {}}, {"ps": (1.0, 1e9)}) == Use()
