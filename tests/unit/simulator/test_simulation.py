"""Whole simulations of tiny traces: they end, they are the same each time, and nobody leaves the limits."""

from __future__ import annotations

import dataclasses
import math

import pytest

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.limits import fits
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator import simulation
from deeprec_ext.simulator.job_model import throughput
from deeprec_ext.simulator.pool import Pool
from deeprec_ext.simulator.simulation import Ended, Simulation
from deeprec_ext.simulator.trace import SimulatedCluster, Trace
from deeprec_ext.simulator.virtual_clock import Clock, Event
from tests.unit.simulator.tiny import LIMITS, SPOT, mixed, trace, values

POLICY = Policy()


class Watched(Pool):
    """Never holds more than there is."""

    def take(self, cores: float, memory: float) -> None:
        super().take(cores, memory)
        assert -1e-6 <= self.cores <= self.cluster.cores * (1 + 1e-9)
        assert 0 <= self.memory <= self.cluster.memory


def simulated(given: Trace, policy: Policy | None = POLICY, seed: int = 0) -> dict[str, Ended]:
    simulation = Simulation(given, policy, seed)
    simulation.pool = Watched(given.cluster)
    ended = simulation.run()
    assert sorted(one.work.name for one in ended) == sorted(job.name for job in given.jobs), "every job ends"
    assert not simulation.running
    assert simulation.pool.cores == pytest.approx(0, abs=1e-6) and simulation.pool.memory == 0, "all is given back"
    times = [one.started + one.seconds for one in ended]
    assert times == sorted(times)
    return {one.work.name: one for one in ended}


# ---------------------------------------------------------------------------------------------- the same each time


@pytest.mark.parametrize("cluster", [{}, SPOT])
def test_the_same_seed_gives_the_same_simulation(cluster):
    assert simulated(mixed(**cluster), seed=3) == simulated(mixed(**cluster), seed=3)
    assert simulated(mixed(**cluster), seed=3) != simulated(mixed(**cluster), seed=4)


def test_a_job_that_is_alone_is_not_changed_by_another_job_in_the_trace():
    """Chance is drawn per job."""
    two = simulated(trace(values(name="a"), values(name="b", arrives=50.0)))
    assert two["a"] == simulated(trace(values(name="a")))["a"]


# ---------------------------------------------------------------------------------------------- limits and ends


@pytest.mark.parametrize("cluster", [{}, SPOT, {"cores": 20}, {"memory": "40GB"}])
@pytest.mark.parametrize("seed", [0, 1])
def test_jobs_end_and_stay_within_their_limits(cluster, seed):
    for one in simulated(mixed(**cluster), seed=seed).values():
        assert not one.failed
        assert one.decisions[0].action == "start"
        assert all(decision.action != "keep" for decision in one.decisions)
        assert all(fits(decision.size, one.work.limits) for decision in one.decisions)
        assert fits(one.last, one.work.limits)
        assert [decision.time for decision in one.decisions] == sorted(decision.time for decision in one.decisions)
        assert one.started >= one.work.arrives


def test_the_policy_makes_a_job_larger_that_is_worth_it():
    long = values(examples=2e7, start={"ps": 1, "workers": 0, "ps_cpu": 2, "worker_cpu": 2})
    ours, alone = simulated(trace(long))["a"], simulated(trace(long), None)["a"]
    assert ours.last.workers > 1
    assert ours.seconds < 0.6 * alone.seconds
    assert alone.decisions == ()
    assert alone.last == alone.work.start


def test_without_a_policy_time_is_what_the_model_says():
    calm = {"pod_start_scatter": 0, "speed_scatter": 0, "pod_start_seconds": 20}
    given = trace(values(examples=1e6), **calm)
    one = simulated(given, None)["a"]
    work = given.jobs[0]
    slots = 2 * work.limits.max_ps
    assert one.seconds == pytest.approx(20 + 1e6 / throughput(work.model, work.start, slots))
    assert one.account.requested_cores == pytest.approx(work.start.cpu * one.seconds)
    assert one.account.requested_bytes == pytest.approx(work.start.memory_bytes * one.seconds)


def test_sizes_are_given_in_place_of_those_of_the_trace():
    size = Size(2, 4, 2.0, 2.0, 8 << 30, 4 << 30)
    [one] = Simulation(trace(), None, sizes={"a": size}).run()
    assert one.last == size


# ---------------------------------------------------------------------------------------------- bad luck


@pytest.mark.parametrize("policy", [POLICY, None])
def test_failures_and_reclaims_are_lived_through(policy):
    long = [
        values(name=name, examples=3e7, start={"ps": 2, "workers": 4, "ps_cpu": 2, "worker_cpu": 2}) for name in "ab"
    ]
    ended = simulated(trace(*long, **{**SPOT, "failures_per_hour": 3.0}), policy, seed=1)
    causes = {loss.cause for one in ended.values() for loss in one.losses}
    assert "killed" in causes
    assert policy is not None or "preempted" in causes, "nobody replaces what is reclaimed"
    calm = simulated(trace(*long), None)
    if policy is None:
        assert all(one.seconds > calm[name].seconds for name, one in ended.items())
    assert all(0 <= loss.time <= one.seconds for one in ended.values() for loss in one.losses)


def test_whoever_is_on_a_host_that_is_taken_away_is_replaced():
    long = values(examples=2e7, start={"ps": 1, "workers": 3, "ps_cpu": 2, "worker_cpu": 2})
    spot = {"reclaims_per_hour": 6.0, "spot_share": 1.0}
    one = simulated(trace(long, **spot))["a"]
    assert any(decision.action == "replace" for decision in one.decisions)
    assert len(one.losses) < len(simulated(trace(long, **spot), None)["a"].losses)


def small_memory(ps: int, **more: object) -> dict:
    start = {"ps": ps, "workers": 2, "ps_cpu": 2, "worker_cpu": 2, "ps_memory": "4GB", "worker_memory": "2GB"}
    return values(model={"variable_bytes": 3.2e9 * ps, "backups": False, **more}, start=start, examples=2e7)


def test_a_job_that_lacks_memory_gets_more():
    one = simulated(trace(small_memory(2, variable_growth=200.0)))["a"]
    assert not one.failed
    assert one.last.ps_memory_bytes > 4e9 or one.last.ps > 2
    assert any("memory" in decision.reason or "grows" in decision.reason for decision in one.decisions)


@pytest.mark.parametrize("ps, restart", [(1, 35.0), (4, 35.0), (1, 13.0)])
def test_ps_that_lack_memory_from_the_start_leave_time_to_decide(ps, restart):
    """Also where they are back before two windows could be measured."""
    given = small_memory(ps)
    given["model"]["variable_bytes"] = 4e9 * ps
    one = simulated(trace(given, pod_start_seconds=restart, pod_start_scatter=0))["a"]
    assert not one.failed
    assert one.losses[0].cause == "oom"
    assert one.last.ps_memory_bytes * one.last.ps >= 1.1 * 4e9 * ps


def test_a_job_that_nobody_gives_memory_fails():
    given = small_memory(1)
    given["model"]["variable_bytes"] = 5e9
    one = simulated(trace(given), None)["a"]
    assert one.failed
    assert len(one.losses) == simulation.KILLS_MAX


def test_a_job_without_end_has_failed_at_last():
    one = simulated(trace(values(examples=1e15), values(name="b")), None)["a"]
    assert one.failed
    assert one.seconds > simulation.SECONDS_MAX


# ---------------------------------------------------------------------------------------------- the cluster


def test_jobs_wait_in_line_for_room():
    start = {"ps": 1, "workers": 3, "ps_cpu": 2, "worker_cpu": 2}
    ended = simulated(trace(*(values(name=name, start=start) for name in "abc"), cores=15), None)
    first, second, third = sorted(ended.values(), key=lambda one: one.started)
    assert first.started == 0
    assert second.started == first.seconds
    assert third.started == second.started + second.seconds
    assert [one.work.name for one in (first, second, third)] == ["a", "b", "c"]


def test_a_job_larger_than_the_cluster_runs_alone():
    [one] = Simulation(trace(cores=2), None).run()
    assert not one.failed


def test_a_change_that_finds_no_room_is_rolled_back():
    start = {"ps": 1, "workers": 1, "ps_cpu": 2, "worker_cpu": 2}
    one = simulated(trace(values(start=start, examples=2e7), cores=6.5, acquire_limit_seconds=60))["a"]
    assert any(decision.size.cpu > 6.5 for decision in one.decisions)
    assert one.last.cpu <= 6.5


# ---------------------------------------------------------------------------------------------- its parts


def test_the_clock_goes_from_event_to_event():
    clock = Clock()
    for time, name in ((5.0, "late"), (1.0, "early"), (math.inf, "never"), (5.0, "after it"), (-3.0, "at once")):
        clock.at(time, Event(name, "look"))
    found = []
    while (event := clock.next()) is not None:
        found.append((clock.now, event.job))
    assert found == [(0.0, "at once"), (1.0, "early"), (5.0, "late"), (5.0, "after it")]


def test_a_week_is_simulated_without_waiting_for_it(monkeypatch):
    import time

    def waits(seconds: float) -> None:
        raise AssertionError("the clock is virtual")

    monkeypatch.setattr(time, "sleep", waits)
    monkeypatch.setattr(time, "time", lambda: waits(0))
    monkeypatch.setattr(time, "monotonic", lambda: waits(0))
    ended = Simulation(trace(values(arrives=604_800.0)), None).run()
    assert ended[0].started == 604_800.0


def test_the_pool_counts_what_is_taken():
    pool = Pool(SimulatedCluster(cores=10.0, memory=100))
    pool.take(4.0, 50)
    assert pool.fits(6.0, 50) and not pool.fits(6.1, 1) and not pool.fits(1.0, 51)
    pool.take(-4.0, -50)
    assert pool.fits(10.0, 100)


def test_who_watches_is_told_of_each_end():
    told = []
    Simulation(mixed(), None, watch=lambda done, jobs, now: told.append((done, jobs, now))).run()
    assert [one[:2] for one in told] == [(1, 3), (2, 3), (3, 3)]
    assert told == sorted(told)


def test_a_policy_with_other_thresholds_decides_otherwise():
    hasty = dataclasses.replace(POLICY, windows_min=8, obvious_gain=10.0)
    given = trace(values(examples=2e7, limits={**LIMITS, "max_workers": 12}))
    ours, other = simulated(given)["a"], simulated(given, hasty)["a"]
    assert ours.decisions[1].time < other.decisions[1].time
