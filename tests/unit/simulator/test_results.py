"""The figures of a comparison."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.errors import UsageError
from deeprec_ext.simulator import parts
from deeprec_ext.simulator.parts import Lot, fit_together
from deeprec_ext.simulator.results import calm, compare, converged_at, figures
from deeprec_ext.simulator.simulated_job import Account
from deeprec_ext.simulator.simulation import Ended, total
from deeprec_ext.simulator.trace import SimulatedCluster, Workload
from tests.unit.simulator.tiny import LIMITS, SPOT, mixed, trace, values

SIZE, WORK = Size(1, 1, 2.0, 2.0), Workload("a")


def ended(seconds: float, *times: float, started: float = 0.0, work: Workload = WORK, **more: object) -> Ended:
    decisions = tuple(Decision(number, time, "scale", SIZE, "") for number, time in enumerate(times))
    return Ended(work, started, seconds, Account(7200.0, 3600.0, 3.6e13, 1.8e13), decisions, (), False, SIZE, **more)


def test_figures_are_sums_and_shares():
    found = figures([ended(100.0), ended(300.0, started=50.0, work=Workload("b", arrives=20.0))])
    assert (found.jobs, found.failed) == (2, 0)
    assert (found.core_hours, found.core_hours_wasted, found.cpu_use) == (4.0, 2.0, 0.5)
    assert (found.memory_gb_hours, found.memory_gb_hours_wasted, found.memory_use) == (20.0, 10.0, 0.5)
    assert found.completion_p50 == (100 + 330) / 2
    assert (found.run_seconds, found.makespan) == (200.0, 350.0)


def test_deadlines_are_counted_for_jobs_that_have_one():
    late = Workload("a", objective="deadline", deadline_seconds=50.0)
    assert figures([ended(100.0, work=late), ended(100.0)]).deadlines_missed == 1
    assert figures([ended(40.0, work=late)]).deadlines_missed == 0
    assert figures([ended(100.0, work=dataclasses.replace(late, deadline_seconds=0.0))]).deadlines_missed == 0


def test_nothing_requested_is_no_division_by_zero():
    empty = dataclasses.replace(ended(100.0), account=Account())
    assert (figures([empty]).cpu_use, figures([empty]).memory_use) == (0.0, 0.0)


@pytest.mark.parametrize(
    "seconds, times, begin",
    [
        (5000.0, (0.0, 100.0, 400.0), 400.0),
        (5000.0, (0.0, 100.0, 900.0), 100.0),
        (700.0, (0.0, 200.0), None),
        (700.0, (), 0.0),
        (500.0, (0.0,), None),
    ],
)
def test_a_job_has_converged_where_ten_quiet_minutes_begin(seconds, times, begin):
    assert converged_at(ended(seconds, *times)) == begin


def test_calm_counts_decisions_after_convergence_by_their_kind():
    urgent = Decision(9, 2000.0, "replace", SIZE, "")
    memory = Decision(10, 2100.0, "resize", SIZE, "it grows by 3 MB/s")
    one = ended(4000.0, 0.0, 400.0, 1500.0)
    found = calm([dataclasses.replace(one, decisions=(*one.decisions, urgent, memory)), ended(100.0)])
    assert (found.converged, found.decisions, found.urgent, found.to_converge) == (1, 1, 2, 400.0)
    assert found.hours == 1.0
    assert found.per_hour == 1.0
    assert calm([ended(100.0)]).per_hour == 0.0


def test_accounts_are_added():
    assert total([Account(1, 2, 3, 4), Account(10, 20, 30, 40)]) == Account(11, 22, 33, 44)


@pytest.mark.parametrize("cluster", [{}, SPOT])
def test_a_comparison_of_all_three(cluster):
    told = set()
    found, jobs = compare(mixed(**cluster), Policy(), 1, lambda what, *_: told.add(what))
    assert told == {"policy", "twice the best static size", "best static size"}
    assert found == compare(mixed(**cluster), Policy(), 1)[0], "the same each time"
    assert len(jobs) == 3
    for one in (found.policy, found.twice, found.best):
        assert (one.jobs, one.failed) == (3, 0)
        assert 0 <= one.core_hours_wasted <= one.core_hours
        assert 0 <= one.memory_gb_hours_wasted <= one.memory_gb_hours
        assert 0 < one.cpu_use <= 1 and 0 < one.memory_use <= 1
        assert one.completion_p50 <= one.completion_p90 <= one.makespan
    assert found.cpu_waste_change == pytest.approx(found.policy.core_hours_wasted / found.twice.core_hours_wasted - 1)
    assert found.decisions == sum(len(one.decisions) - 1 for one in jobs)
    assert found.fastest_ratio > 1, "nobody beats the fastest size from its first second on"
    values_ = json.loads(json.dumps(found.to_values()))
    assert values_["policy"]["jobs"] == 3
    assert values_["decisions_per_hour_after_convergence"] == found.calm.per_hour


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(parts, "JOBS_MIN", 1)
    monkeypatch.setattr(parts, "JOBS_OF_PART", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.parametrize("cluster", [SPOT, {"cores": 12}], ids=["room for all", "jobs wait for each other"])
def test_in_several_processes_the_same_comes_out(monkeypatch, two_cores, cluster):
    given, told = mixed(**cluster), []
    in_processes = compare(given, Policy(), 1, lambda what, *numbers: told.append((what, numbers[0])))
    assert [done for what, done in told if what == "all sizes"] == [1, 2, 3]
    assert ("policy" in {what for what, _ in told}) == ("cores" in cluster), "simulated as one only where it must be"
    monkeypatch.setattr(parts, "JOBS_MIN", 100)
    assert in_processes == compare(given, Policy(), 1)


def test_a_job_that_no_size_fits_is_told_of_from_another_process(two_cores):
    limits, start = {**LIMITS, "max_ps_memory": "1GB"}, {"ps": 1, "workers": 1}
    with pytest.raises(UsageError, match="job a: no size within its limits"):
        compare(trace(values(objective="cheapest", limits=limits, start=start)), Policy(), 1)


def test_on_one_core_there_is_no_other_process(monkeypatch, two_cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(parts, "ProcessPoolExecutor", None)
    assert compare(mixed(), Policy(), 1)[0].policy.jobs == 3


def test_jobs_fit_together_where_whatever_they_take_or_ask_for_fits_at_any_time():
    def lot(*taken: tuple[float, float, float], asked: float = 1.0) -> Lot:
        return Lot([], list(taken), asked, 0.0)

    first = lot((0.0, 5.0, 1e9), (10.0, -5.0, -1e9))
    assert fit_together([first, lot((5.0, 4.0, 1e9))], SimulatedCluster(cores=10, memory=1e10))
    assert not fit_together([first, lot((5.0, 4.0, 1e9), asked=2.0)], SimulatedCluster(cores=10, memory=1e10))
    assert fit_together([first, lot((11.0, 9.0, 1e9))], SimulatedCluster(cores=10, memory=1e10))
    assert not fit_together([first, lot((10.0, 9.0, 1e9))], SimulatedCluster(cores=10, memory=1e10)), (
        "who was first is not known"
    )
    assert not fit_together([first, lot((5.0, 1.0, 2e10))], SimulatedCluster(cores=10, memory=1e10))


@pytest.mark.parametrize(
    "start, model",
    [
        ({"ps": 1, "workers": 1}, {}),
        ({"ps": 1, "workers": 1, "ps_cpu": 0.5, "worker_cpu": 0.5, "ps_memory": "5GB", "worker_memory": "100MB"}, {}),
        ({"ps": 2, "workers": 1, "ps_cpu": 2, "worker_cpu": 2, "ps_memory": "2GB"}, {"variable_growth": 500.0}),
    ],
)
def test_waste_is_never_negative(start, model):
    """Whatever was requested: nothing, less than is used, or memory that runs out."""
    given = trace(values(start=start, model=model, examples=2e6))
    found, _ = compare(given, Policy())
    for one in (found.policy, found.twice, found.best):
        assert one.core_hours_wasted >= 0
        assert one.memory_gb_hours_wasted >= 0
