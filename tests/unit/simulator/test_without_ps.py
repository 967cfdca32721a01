"""Simulated jobs without PS: the same rules drive them, on workers alone, and none is slower than it began."""

from __future__ import annotations

from typing import Any

import pytest

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.job_model import JobModel, pace, throughput
from deeprec_ext.simulator.simulation import Ended, Simulation
from tests.unit.simulator.tiny import trace, values

POLICY = Policy()
MACHINE = {"pod_start_seconds": 15.0, "pause_seconds": 0.3, "speed_scatter": 0.0}
LIMITS = {"min_ps": 0, "max_ps": 0, "max_workers": 6}
ROOMY = {"batch": 512, "compute_core_seconds": 0.4, "parallelism": 1.0, "host_cores": 16.0, "fixed_seconds": 0.004,
         "sum_seconds": 0.005}  # fmt: skip


def ran(workers: int, examples: float, seed: int = 0, **more: Any) -> tuple[Ended, Ended]:
    """(with the autoscaler, without) of the same job with the same luck."""
    given = {"start": {"ps": 0, "workers": workers}, "limits": LIMITS, "examples": examples, "noise": 0.02, **more}
    cluster = {**MACHINE, **given.pop("cluster", {})}
    work = trace(values(**given), **cluster)
    [ours], [alone] = Simulation(work, POLICY, seed).run(), Simulation(work, None, seed).run()
    for one in ours.decisions:
        assert one.size.ps == 0 and "PS" not in one.reason, one
    return ours, alone


def last(ended: Ended) -> Size:
    return [one for one in ended.decisions if one.action != "keep"][-1].size


@pytest.mark.parametrize("local", [False, True])
def test_where_a_step_is_computing_and_there_are_cores_the_job_grows(local: bool) -> None:
    ours, alone = ran(0, 8e6, model={**ROOMY, "local_batch": local})
    assert last(ours).workers >= 3
    assert ours.seconds < 0.5 * alone.seconds


def test_where_a_step_is_the_sum_the_job_does_not_grow() -> None:
    heavy = {**ROOMY, "compute_core_seconds": 0.02, "sum_seconds": 0.2}
    ours, alone = ran(0, 4e7, model=heavy)
    assert last(ours).workers == 0
    assert ours.seconds < 1.03 * alone.seconds


def test_a_job_whose_step_is_the_sum_shrinks() -> None:
    heavy = {**ROOMY, "compute_core_seconds": 0.02, "sum_seconds": 0.2}
    ours, alone = ran(4, 8e6, model=heavy)
    assert last(ours).workers == 0
    assert ours.seconds < 0.6 * alone.seconds


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("others", [0.0, 1.0])
def test_on_cores_that_are_full_no_job_is_slower_than_it_began(workers: int, others: float) -> None:
    """Two cores, which one worker computes on: more of them only sum besides."""
    full = {**ROOMY, "parallelism": 2.0, "host_cores": 2.0, "sum_seconds": 0.02}
    beside = {"neighbour_cores": others, "neighbour_after": 200.0, "neighbour_seconds": 200.0} if others else {}
    ours, alone = ran(workers, 4e6, model=full, **beside)
    assert ours.seconds < 1.03 * alone.seconds


def test_a_worker_on_a_slow_host_is_replaced_by_what_it_computes() -> None:
    model = {**ROOMY, "host_cores": 0.0}
    most = {**LIMITS, "min_workers": 4, "max_workers": 4}
    for seed in range(20):
        ours, alone = ran(
            4, 8e6, seed, model=model, limits=most, cluster={"slow_share": 0.2, "slow_speed": 0.4, "pod_start_seconds": 5.0}
        )  # fmt: skip
        replaced = [one for one in ours.decisions if one.action == "replace"]
        if replaced:
            break
    assert "of a step before its sum" in replaced[0].reason and "all wait for it" in replaced[0].reason
    assert ours.seconds < alone.seconds


def test_the_step_of_all_is_as_long_as_the_slowest_computes_and_the_ring_sums() -> None:
    model = JobModel(
        batch=100.0, fixed_seconds=0.0, compute_core_seconds=0.4, sum_seconds=0.1, round_seconds=0.0, parallelism=1.0
    )
    found = pace(model, Size(0, 1, worker_cpu=1.0), [1.0, 0.5], (), ())
    assert found.step_seconds == pytest.approx([0.5, 0.5])  # 0.2 at half the speed, and 2 * 1/2 of what there is to sum
    assert found.sum_seconds == pytest.approx([0.3, 0.1])
    assert found.examples_per_second == pytest.approx(200.0)
    assert throughput(model, Size(0, 0, worker_cpu=1.0)) == pytest.approx(250.0)
