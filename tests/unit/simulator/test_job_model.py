"""The job model at the limits of the closed loop, where the answer is known without it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.simulator.baselines import throughputs
from deeprec_ext.simulator.job_model import JobModel, pace, ps_bytes, throughput, wait

MODEL = JobModel()
SERVED = dataclasses.replace(MODEL, fan_out_core_seconds=0.0, ps_core_seconds=0.05)
"""A model whose PS are the bottleneck as soon as there are some trainers."""


def size(ps: int, trainers: int, ps_cpu: float = 2.0, worker_cpu: float = 2.0) -> Size:
    return Size(ps, trainers - 1, ps_cpu, worker_cpu)


@pytest.mark.parametrize("ps_cpu, worker_cpu", [(1.0, 1.0), (2.0, 4.0), (16.0, 16.0), (0.0, 0.0), (0.5, 0.25)])
def test_one_trainer_waits_for_nobody(ps_cpu, worker_cpu):
    of_ps, of_worker = ps_cpu or 1.0, worker_cpu or 1.0
    seconds = (
        MODEL.fixed_seconds
        + MODEL.compute_core_seconds / min(of_worker, MODEL.parallelism)
        + MODEL.fan_out_core_seconds / min(of_worker, 1.0)
        + MODEL.ps_core_seconds / min(of_ps, MODEL.ps_parallelism)
    )
    assert throughput(MODEL, size(1, 1, ps_cpu, worker_cpu)) == pytest.approx(MODEL.batch / seconds)


def test_many_trainers_are_bound_by_the_ps():
    most = SERVED.batch * 2.0 / SERVED.ps_core_seconds  # of one PS with two cores
    rates = [throughput(SERVED, size(1, trainers)) for trainers in (10, 100, 1000, 10_000)]
    assert rates == sorted(rates)
    assert all(rate < most for rate in rates)
    assert rates[-1] == pytest.approx(most, rel=0.01)


def test_many_trainers_are_bound_by_what_they_share():
    model = dataclasses.replace(MODEL, ps_core_seconds=0.0, shared_seconds=0.01)
    assert throughput(model, size(1, 10_000)) == pytest.approx(model.batch / 0.01, rel=0.01)
    assert throughput(model, size(8, 10_000)) == pytest.approx(model.batch / 0.01, rel=0.01), "more PS do not help"


def test_few_trainers_hardly_disturb_each_other():
    alone, four = throughput(MODEL, size(8, 1)), throughput(MODEL, size(8, 4))
    assert 3.9 * alone < four < 4 * alone


@pytest.mark.parametrize("trainers", [20, 200])
def test_more_ps_are_never_slower_where_ps_are_the_bottleneck(trainers):
    rates = [throughput(SERVED, size(ps, trainers)) for ps in range(1, 9)]
    assert rates == sorted(rates)
    assert rates[-1] > 2 * rates[0]


@pytest.mark.parametrize("ps, trainers", [(1, 1), (1, 30), (4, 30)])
def test_more_cpu_is_never_slower(ps, trainers):
    ladder = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    for rates in (
        [throughput(MODEL, size(ps, trainers, cpu, 2.0)) for cpu in ladder],
        [throughput(MODEL, size(ps, trainers, 2.0, cpu)) for cpu in ladder],
    ):
        assert rates == sorted(rates)
    assert throughput(MODEL, size(1, 1, 2.0, 16.0)) == throughput(MODEL, size(1, 1, 2.0, 4.0)), "it can use four"


@pytest.mark.parametrize("customers", [1, 2, 7, 500])
@pytest.mark.parametrize("demand, elsewhere", [(0.01, 0.1), (0.1, 0.01), (1e-6, 1.0)])
def test_the_wait_is_the_root_of_the_text(customers, demand, elsewhere):
    seconds = wait(demand, elsewhere, customers)
    assert seconds == pytest.approx(demand * (1 + (customers - 1) * seconds / (elsewhere + seconds)))
    assert demand <= seconds * (1 + 1e-9)


@pytest.mark.parametrize("shared", [0.0, 0.002])
def test_the_three_forms_of_the_model_agree(shared):
    model = dataclasses.replace(MODEL, shared_seconds=shared)
    sizes = [size(ps, trainers, 2.0, 3.0) for ps in (1, 2, 4, 8, 16) for trainers in (1, 5, 60)]
    expected = [throughput(model, one, 8) for one in sizes]
    ps, trainers = np.array([one.ps for one in sizes]), np.array([one.trainers for one in sizes])
    assert throughputs(model, ps, trainers, np.full(15, 2.0), np.full(15, 3.0), 8) == pytest.approx(np.array(expected))
    for one, rate in zip(sizes, expected):
        found = pace(model, one, [1.0] * one.trainers, [1.0] * one.ps, [1 / one.ps] * one.ps)
        assert found.examples_per_second == pytest.approx(rate)


def test_no_process_uses_more_than_it_has():
    for one in (size(1, 1, 0.5, 0.25), size(2, 20), size(1, 100), size(4, 3, 0.0, 0.0)):
        found = pace(MODEL, one, [1.0] * one.trainers, [1.0] * one.ps, [1 / one.ps] * one.ps)
        assert all(0 < cores <= (one.worker_cpu or 1.0) for cores in found.trainer_cores)
        assert all(0 < cores <= (one.ps_cpu or 1.0) for cores in found.ps_cores)
        assert all(0 < busy <= 1 for busy in found.ps_busy)
        assert 0 < found.compute_share < 1


def test_slow_hosts_and_hot_slots_are_slower():
    one = size(2, 4)
    sound = pace(SERVED, one, [1.0] * 4, [1.0, 1.0], [0.5, 0.5])
    straggler = pace(SERVED, one, [1.0, 1.0, 1.0, 0.5], [1.0, 1.0], [0.5, 0.5])
    assert straggler.step_seconds[3] > 1.3 * straggler.step_seconds[0]
    assert pace(SERVED, one, [1.0] * 4, [1.0, 0.5], [0.5, 0.5]).examples_per_second < sound.examples_per_second
    hot = pace(SERVED, one, [1.0] * 4, [1.0, 1.0], [0.9, 0.1])
    assert hot.examples_per_second < sound.examples_per_second
    assert hot.ps_busy[0] > hot.ps_busy[1]


def test_nobody_trains_without_ps_or_trainers():
    assert pace(MODEL, size(1, 1), [], [1.0], [1.0]).examples_per_second == 0.0
    assert pace(MODEL, size(1, 1), [1.0], [], []).examples_per_second == 0.0


def test_memory_of_a_ps_grows_with_its_share_and_with_what_was_trained():
    model = dataclasses.replace(MODEL, variable_bytes=8e9, variable_growth=2.0, ps_bytes=1e9)
    assert ps_bytes(model, 1, 1.0, 0.0) == 9e9, "a single PS has nobody to keep copies for"
    assert ps_bytes(model, 4, 0.25, 0.0) == 5e9
    assert ps_bytes(model, 4, 0.25, 1e9) == 6e9
    assert ps_bytes(dataclasses.replace(model, backups=False), 4, 0.25, 0.0) == 3e9
