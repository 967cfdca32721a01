"""One simulated job: its load, its chance, and what the policy sees of it."""

from __future__ import annotations

import dataclasses
import math
import statistics

import pytest

from deeprec_ext.autoscaler.observe.observed import Observed, Size
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.luck import Luck
from deeprec_ext.simulator.observing import observe
from deeprec_ext.simulator.simulated_job import SETTLE_SECONDS, WINDOW_SECONDS, WINDOWS_PER_LOOK, SimulatedJob, even_map
from deeprec_ext.simulator.simulation import Simulation
from deeprec_ext.simulator.trace import SimulatedCluster, Workload
from tests.unit.simulator.tiny import trace, values

SIZE = Size(3, 2, 2.0, 2.0, 8 << 30, 4 << 30)


def luck(work: Workload, **cluster: float) -> Luck:
    return Luck(1, work, SimulatedCluster(**cluster))


def started(size: Size = SIZE, **more: object) -> SimulatedJob:
    """A job that trains from second 100 on; it was asked for at second 70."""
    work = trace(values(**more)).jobs[0]
    job = SimulatedJob(work, size, luck(work), 70.0)
    for pod in (*job.ps, *job.trainers):
        pod.ready = 100.0
    job.pause_until = 100.0
    job.refresh(100.0)
    return job


# ---------------------------------------------------------------------------------------------- load


@pytest.mark.parametrize("hot", [0.0, 0.3, 1.0])
def test_load_is_shared_among_all_ps(hot):
    job = started(hot_share=hot)
    assert sum(job.slot_loads()) == pytest.approx(1.0)
    shares = job.shares(3)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == pytest.approx(hot + (1 - hot) * 3 / 8)
    assert job.shares(2) == [0.5, 0.5], "while one is away"
    assert job.shares(0) == []


def test_slots_are_dealt_out_one_by_one():
    assert even_map(8, 3) == [0, 1, 2, 0, 1, 2, 0, 1]
    assert started().bytes_share() == 3 / 8


def test_a_hot_slot_is_seen_and_rebalanced():
    start = {"ps": 4, "workers": 6, "ps_cpu": 1, "worker_cpu": 4}
    model = {"ps_core_seconds": 0.2, "ps_parallelism": 1.0}
    limits = {"min_ps": 4, "max_ps": 4, "min_workers": 6, "max_workers": 6}
    given = values(hot_share=0.2, examples=2e7, start=start, model=model, limits=limits)
    [ours], [alone] = Simulation(trace(given), Policy()).run(), Simulation(trace(given), None).run()
    assert "rebalance" in [decision.action for decision in ours.decisions]
    assert ours.seconds < alone.seconds


def test_new_pods_get_the_lowest_free_names():
    job = started()
    assert [pod.name for pod in (*job.ps, *job.trainers)] == ["ps-0", "ps-1", "ps-2", "chief-0", "worker-0", "worker-1"]
    del job.trainers[1]
    assert job.free_names("worker", 2) == ["worker-0", "worker-2"]
    assert job.free_names("ps", 1) == ["ps-3"]


# ---------------------------------------------------------------------------------------------- time


def test_examples_and_use_are_integrals_over_time():
    job = started()
    assert job.done == 0 and job.rate > 0
    job.advance(130.0)
    assert job.done == pytest.approx(30 * job.rate)
    assert job.account.requested_cores == pytest.approx(60 * SIZE.cpu), "from the moment it was asked for"
    assert 0 < job.account.used_cores < 30 * SIZE.cpu
    done = job.done
    job.advance(120.0)
    assert job.done == done, "time does not go back"
    assert job.seconds_left() == pytest.approx((job.work.examples - done) / job.rate)


def test_a_pause_stops_training_and_lost_pods_slow_it_down():
    job = started()
    whole = job.rate
    job.trainers[-1].ready = math.inf
    job.refresh(110.0)
    assert 0 < job.rate < whole
    assert job.quiet_since == math.inf, "nothing is measured meanwhile"
    job.pause_until = 115.0
    job.refresh(112.0)
    assert job.rate == 0
    assert job.seconds_left() == math.inf


def test_memory_is_reached_where_the_fullest_ps_says():
    job = started(model={"variable_growth": 100.0})
    seconds = job.seconds_to_memory()
    job.advance(100.0 + seconds)
    assert job.ps_memory() == pytest.approx(SIZE.ps_memory_bytes)
    job.ps[1].ready = math.inf
    assert job.seconds_to_memory() == math.inf, "it is filled again first"
    assert started().seconds_to_memory() == math.inf, "tables that do not grow"
    assert started(dataclasses.replace(SIZE, ps_memory_bytes=0)).seconds_to_memory() == math.inf


# ---------------------------------------------------------------------------------------------- what is seen


def test_windows_are_undisturbed_stretches_with_noise():
    job = started(noise=0.05, bursts=0.0)
    job.measure(100.0 + SETTLE_SECONDS + WINDOW_SECONDS - 1)
    assert job.windows == []
    for number in range(1, 40):
        job.measure(100.0 + SETTLE_SECONDS + number * 1000)
    assert len(job.windows) == 39 * WINDOWS_PER_LOOK
    rates = [window.examples_per_second / job.rate for window in job.windows]
    assert statistics.fmean(rates) == pytest.approx(1.0, abs=0.02)
    assert statistics.stdev(rates) == pytest.approx(0.05, rel=0.3)
    starts = [window.start for window in job.windows]
    assert starts == sorted(set(starts))
    assert all(window.size == SIZE for window in job.windows)


def test_the_policy_sees_processes_and_windows_and_nothing_of_the_model():
    job = started(hot_share=0.3)
    job.measure(150.0)
    seen = observe(job, 5, 150.0)
    assert isinstance(seen, Observed)
    assert (seen.number, seen.time, seen.size) == (5, 80.0, SIZE)
    assert [role.name for role in seen.roles] == [pod.name for pod in (*job.ps, *job.trainers)]
    assert all(role.cpu_cores <= role.cpu_limit_cores for role in seen.roles)
    assert {slot.owner for slot in seen.slots} == {"ps-0", "ps-1", "ps-2"}
    assert max(seen.slots, key=lambda slot: slot.load).slot == 0
    assert Observed.from_json(seen.to_json()) == seen
    job.trainers[-1].ready = math.inf
    job.refresh(150.0)
    assert len(observe(job, 6, 150.0).roles) == len(seen.roles) - 1, "who is away is not seen"


# ---------------------------------------------------------------------------------------------- chance


def test_chance_comes_in_separate_streams():
    """So a policy that looks more often does not get other hosts."""
    work = Workload("a")
    one, other = luck(work, slow_share=0.5), luck(work, slow_share=0.5)
    for _ in range(50):
        other.window()
        other.reading()
        other.until(1.0)
    assert [one.speed() for _ in range(20)] == [other.speed() for _ in range(20)]
    assert luck(Workload("b")).speed() != luck(work).speed()


def test_chance_is_about_what_the_cluster_says():
    work = Workload("a", noise=0.04, bursts=0.0)
    chance = luck(work, slow_share=0.2, slow_speed=0.5, spot_share=0.3, pod_start_seconds=40.0)
    speeds = [chance.speed() for _ in range(2000)]
    assert sum(speed < 0.75 for speed in speeds) / 2000 == pytest.approx(0.2, abs=0.04)
    assert sum(chance.spot() for _ in range(2000)) / 2000 == pytest.approx(0.3, abs=0.04)
    assert statistics.fmean(chance.until(2.0) for _ in range(2000)) == pytest.approx(1800, rel=0.1)
    assert statistics.median(chance.start_seconds(1) for _ in range(500)) == pytest.approx(40, rel=0.1)
    assert statistics.median(chance.start_seconds(50) for _ in range(100)) > 60, "the last of many is late"
    assert chance.until(0.0) == math.inf
    assert chance.start_seconds(0) == 0.0
