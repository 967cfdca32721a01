"""The autoscaler is never worse than leaving the job alone: simulated jobs that it could make slower, over many seeds."""

from __future__ import annotations

from typing import Any

import pytest

from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.simulation import Ended, Simulation
from tests.unit.simulator.tiny import trace, values

POLICY = Policy()
MOST = 1.03
"""Time to the same examples ÷ staying at the first size."""

UNLUCKY = 1.05
"""The same where every third host is slow: a process that is tried and given back, or come back to, may land on one, which no
policy knows before."""

ONE_MACHINE = {"pod_start_seconds": 15.0, "pause_seconds": 0.5, "speed_scatter": 0.0, "bytes_per_second": 500e6}
FULL = {  # two cores, filled by one trainer and one PS; each further PS costs a sixth more per example
    "batch": 512, "compute_core_seconds": 0.03, "parallelism": 2.0, "fan_out_core_seconds": 0.007, "fixed_seconds": 0.002,
    "ps_core_seconds": 0.005, "host_cores": 2.0, "variable_bytes": 1e8, "ps_parallelism": 2.0,
}  # fmt: skip
ROOMY = {**FULL, "host_cores": 32.0, "fan_out_core_seconds": 0.0005, "parallelism": 1.0}
LIMITS = {"max_ps": 4, "max_workers": 4}
SIZES = {"small": (1, 0), "large": (4, 4), "many PS": (4, 1), "middle": (2, 2)}
SCENARIOS: dict[str, dict[str, Any]] = {
    "cores that are full": {"model": FULL},
    "cores that are full, and more work": {"model": {**FULL, "ps_core_seconds": 0.02}},
    "another program takes a core": {
        "model": FULL, "neighbour_cores": 1.0, "neighbour_after": 200.0, "neighbour_seconds": 120.0
    },
    "a hot table": {"model": {**ROOMY, "ps_core_seconds": 0.05}, "hot_share": 0.6},
    "bound by its input": {"model": {**ROOMY, "input_per_second": 15_000.0}},
    "cores to spare": {"model": ROOMY},
    "noise": {"model": FULL, "noise": 0.08, "bursts": 0.05},
}  # fmt: skip
SLOW = {"slow_share": 0.3, "slow_speed": 0.4}


def ran(scenario: str, start: str, examples: float, seed: int, **cluster: Any) -> tuple[Ended, Ended]:
    """(with the autoscaler, without) of the same job with the same luck."""
    ps, workers = SIZES[start]
    given = {
        "start": {"ps": ps, "workers": workers},
        "limits": LIMITS,
        "examples": examples,
        "noise": 0.02,
        **SCENARIOS[scenario],
    }
    work = trace(values(**given), **ONE_MACHINE, **cluster)
    [ours], [alone] = Simulation(work, POLICY, seed).run(), Simulation(work, None, seed).run()
    return ours, alone


def seeds(count: int) -> list[Any]:
    """All but the first are for long runs of the tests."""
    return [pytest.param(one, marks=pytest.mark.long) if one else one for one in range(count)]


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("examples", [4e6, 1.5e7, 6e7])
@pytest.mark.parametrize("start", sorted(SIZES))
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_no_job_is_slower_than_at_its_first_size(scenario, start, examples, seed):
    ours, alone = ran(scenario, start, examples, seed)
    told = [(round(one.time), one.action, one.size.ps, one.size.workers, one.reason[:200]) for one in ours.decisions]
    assert ours.seconds <= MOST * alone.seconds, told


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("start", ["middle", "large"])
def test_nor_by_much_where_every_third_host_is_slow(start, seed):
    ours, alone = ran("cores to spare", start, 6e7, seed, **SLOW)
    assert ours.seconds <= UNLUCKY * alone.seconds


def test_it_is_not_calm_by_doing_nothing():
    """Where more brings more, the job grows."""
    ours, alone = ran("cores to spare", "small", 6e7, 0)
    assert ours.seconds < 0.6 * alone.seconds
    assert ours.last.workers >= 3


def test_the_machine_of_the_issue_is_simulated_as_it_was_measured():
    """24 600 examples/s at 1 PS and 1 worker, 20 800 at 2 PS, 16 200 at 4."""
    from deeprec_ext.autoscaler.observe.observed import Size
    from deeprec_ext.simulator.job_model import JobModel, throughput

    model = JobModel(**FULL)
    rates = {ps: throughput(model, Size(ps, 1)) for ps in (1, 2, 4)}
    assert rates[2] / rates[1] == pytest.approx(20_800 / 24_600, abs=0.02)
    assert rates[4] / rates[1] == pytest.approx(16_200 / 24_600, abs=0.02)
