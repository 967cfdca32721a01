"""The sweep finds what trying every size finds."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.limits import fits
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.errors import UsageError
from deeprec_ext.simulator.baselines import Sweep, doubled, static_sizes
from deeprec_ext.simulator.job_model import ps_bytes
from deeprec_ext.simulator.trace import Workload
from tests.unit.simulator.tiny import LIMITS, trace, values

POLICY = Policy()
CORES = (0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)


def work(resizable: bool = True, **more: object) -> Workload:
    model = {"parallelism": 2.0, "ps_parallelism": 1.0, "ps_core_seconds": 0.05}
    limits = {"max_ps": 3, "max_workers": 4, "resizable": resizable, **more.pop("limits", {})}
    return trace(values(model=model, limits=limits, **more)).jobs[0]


def every(sweep: Sweep) -> list[Size]:
    """Every size within the limits, with the memory it needs."""
    limits, start, model = sweep.work.limits, sweep.work.start, sweep.work.model
    ps_cores = [one for one in CORES if one <= model.ps_parallelism] if limits.resizable else [start.ps_cpu]
    worker_cores = [one for one in CORES if one <= model.parallelism] if limits.resizable else [start.worker_cpu]
    counts = range(limits.min_ps, limits.max_ps + 1), range(limits.min_workers, limits.max_workers + 1)
    sizes = (sweep.with_memory(Size(*one)) for one in itertools.product(*counts, ps_cores, worker_cores))
    return [one for one in sizes if one is not None]


@pytest.mark.parametrize("resizable", [True, False])
def test_the_cheapest_size_is_the_fastest_of_those_that_bring_nearly_most_per_cost(resizable):
    sweep = Sweep(work(resizable, objective="cheapest"), POLICY)
    sizes = every(sweep)
    most = max(sweep.rate(one) / sweep.price(one) for one in sizes)
    good = [one for one in sizes if sweep.rate(one) / sweep.price(one) >= (1 - POLICY.cheapest_share) * most]
    best = sweep.best()
    assert sweep.rate(best) == pytest.approx(max(map(sweep.rate, good)))
    assert best in good


@pytest.mark.parametrize("seconds", [500.0, 900.0, 2000.0])
def test_with_a_deadline_it_is_the_cheapest_that_is_in_time(seconds):
    sweep = Sweep(work(objective="deadline", deadline_seconds=seconds), POLICY)
    in_time = [one for one in every(sweep) if sweep.work.examples / sweep.rate(one) <= seconds]
    best = sweep.best()
    assert best in in_time
    assert sweep.price(best) == pytest.approx(min(map(sweep.price, in_time)))


def test_with_a_deadline_that_nobody_can_meet_it_is_as_for_the_fastest():
    late, fast = work(objective="deadline", deadline_seconds=1.0), work(objective="fastest")
    assert Sweep(late, POLICY).best() == Sweep(fast, POLICY).best()


@pytest.mark.parametrize("resizable", [True, False])
@pytest.mark.parametrize("model", [{}, {"ps_core_seconds": 0.3}, {"ps_core_seconds": 0.0}, {"shared_seconds": 0.05}])
def test_the_fastest_is_as_fast_as_the_fastest_there_is(resizable, model):
    job = work(resizable)
    sweep = Sweep(dataclasses.replace(job, model=dataclasses.replace(job.model, **model)), POLICY)
    most = max(map(sweep.rate, every(sweep)))
    assert 0.97 * most <= sweep.rate(sweep.fastest()) <= most * (1 + 1e-9)


def test_the_best_of_fastest_is_where_one_more_step_adds_too_little():
    sweep = Sweep(work(limits={"max_workers": 40, "max_ps": 8}), POLICY)
    best, fastest = sweep.best(), sweep.fastest()
    assert sweep.price(best) < sweep.price(fastest)
    assert sweep.rate(best) <= sweep.rate(fastest)
    for more in ({"workers": best.workers + 1}, {"ps": best.ps + 1}):
        assert sweep.rate(dataclasses.replace(best, **more)) < (1 + POLICY.marginal_gain) * sweep.rate(best)


@pytest.mark.parametrize("objective", ["fastest", "cheapest", "deadline"])
@pytest.mark.parametrize(
    "limits",
    [{}, {"total_cpu": 5.0}, {"total_memory": "30GB"}, {"min_ps": 2, "min_workers": 3}, {"max_worker_cpu": 1.0}],
)
def test_best_sizes_are_within_the_limits(objective, limits):
    start = {"ps": 2, "workers": 3, "ps_cpu": 0.5, "worker_cpu": 0.5, "ps_memory": "5GB", "worker_memory": "2GB"}
    job = work(objective=objective, deadline_seconds=900.0, limits=limits, start=start)
    for size in (Sweep(job, POLICY).best(), Sweep(job, POLICY).fastest()):
        assert fits(size, job.limits)


def test_a_best_size_has_memory_for_the_end_of_the_job():
    model = {"variable_growth": 1000.0}
    job = trace(values(objective="cheapest", model=model, limits=LIMITS)).jobs[0]
    size = Sweep(job, POLICY).best()
    share = -(-8 // size.ps) / 8
    assert size.ps_memory_bytes >= ps_bytes(job.model, size.ps, share, job.examples)


def test_without_room_for_the_memory_it_is_an_error_that_names_the_job():
    job = work(objective="cheapest", limits={"max_ps_memory": "1GB"}, start={"ps": 1, "workers": 1})
    with pytest.raises(UsageError, match="job a: no size within its limits"):
        Sweep(job, POLICY).best()


def test_doubled_is_twice_the_pods():
    size = doubled(Size(2, 3, 1.0, 2.0, 5, 6))
    assert (size.ps, size.trainers) == (4, 8)
    assert size.cpu == 2 * Size(2, 3, 1.0, 2.0, 5, 6).cpu


def test_static_sizes_are_per_job():
    jobs = (work(), dataclasses.replace(work(objective="cheapest"), name="b"))
    found = static_sizes(jobs, POLICY, Sweep.best)
    assert found == {"a": Sweep(jobs[0], POLICY).best(), "b": Sweep(jobs[1], POLICY).best()}
