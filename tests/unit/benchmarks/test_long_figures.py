"""What benchmarks/long_run.py makes of what it has seen."""

from __future__ import annotations

import random

from benchmarks.long_figures import analyse, table, theil_sen

MB = 10**6


def make_rows(minutes, grows=lambda minute: 0.0, slower=lambda minute: 1.0):
    dice, rows = random.Random(1), []
    for minute in range(1, minutes + 1):
        size = 2 + minute % 2
        own = (300 + 50 * (size == 3) + grows(minute) + dice.uniform(-1, 1)) * MB
        process = {"own": own, "rss": own + 60 * MB, "threads": 100, "fds": 40, "cpu": 6.0 * minute}
        rows.append({
            "kind": "sample", "time": 60.0 * minute, "minute": minute, "ps": size, "workers": 1,
            "processes": {"chief-0 pid 7": process, f"ps-1 pid {100 + minute}": process},
            "files": {"events.jsonl": [1, 1000 * minute]}, "examples_per_second": 1000.0 / slower(minute),
            "run_seconds": 0.01 * slower(minute), "run_p90_seconds": 0.02,
        })  # fmt: skip
        rows.append({"kind": "change", "id": minute, "change": "ps+", "outcome": "committed", "seconds": 2.0})
        rows.append({"kind": "pause", "id": minute, "change": "ps+", "pauses": [0.1, 0.2]})
    return rows


def test_a_slope_is_not_bent_by_some_wild_samples():
    points = [(float(x), 2.0 * x + 5) for x in range(30)]
    points[3] = (3.0, 1000.0)
    points[28] = (28.0, -1000.0)
    slope, noise = theil_sen(points)
    assert abs(slope - 2.0) < 0.01
    assert noise < 0.1


def test_memory_that_grows_shows_through_changes_of_size():
    flat = analyse(make_rows(60), settle=15)["processes"]["chief-0"]["own"]
    grown = analyse(make_rows(60, grows=lambda minute: minute / 2), settle=15)["processes"]["chief-0"]["own"]
    assert abs(flat["per_hour_at_one_size"]) < 2
    assert abs(grown["per_hour_at_one_size"] - 30) < 2
    assert abs(grown["per_hour"] - 30) < 15  # the two sizes are 50 MB apart


def test_only_processes_that_lived_all_along_have_a_slope():
    result = analyse(make_rows(30), settle=10)
    assert list(result["processes"]) == ["chief-0"]
    assert result["short_lived"] == 30
    assert result["processes"]["chief-0"]["cores"] == [0.1, 0.1]


def test_a_job_that_gets_slower_differs_between_first_and_last_quarter():
    result = analyse(make_rows(60, slower=lambda minute: 1 + minute / 60), settle=15)
    first, last = result["speed_first_last_quarter"]["run_seconds"]
    assert last / first > 1.3
    assert "first quarter" in table(result)


def test_an_interrupted_run_still_counts():
    result = analyse(make_rows(3), settle=15)
    assert result["samples"] == 3
    assert result["pause"]["ps+"]["max"] == 0.2
    assert result["files_mb"]["events.jsonl"]["files"] == 1
