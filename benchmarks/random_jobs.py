"""Is the autoscaler ever worse than leaving a job alone? Random simulated jobs, with and without it.

    python -m benchmarks.random_jobs                      # 300 jobs, some minutes
    python -m benchmarks.random_jobs --jobs 1000 --from 5000

Hosts of 2 to 16 cores, or one for each process; 1 to 6 PS and 0 to 6 workers at first; 3 to 80 minutes; windows that scatter by
1 to 8 %. In 4 of 10 another program takes cores for a while, in 3 of 20 input is slow or a table hot. A job that took longer
than `MOST` of its time at the first size is printed with its decisions.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.job import say
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.job_model import JobModel, throughput
from deeprec_ext.simulator.simulation import Simulation
from deeprec_ext.simulator.trace import parse

CLUSTER = {"pod_start_seconds": 15.0, "pause_seconds": 0.5, "speed_scatter": 0.0, "bytes_per_second": 500e6}
MOST = 1.03


def job(seed: int) -> dict[str, Any]:
    """One job, as a trace has it."""
    chance = random.Random(f"fuzz{seed}")
    model: dict[str, Any] = {
        "batch": 512,
        "compute_core_seconds": 10 ** chance.uniform(-2.3, -0.7),
        "parallelism": chance.choice([1.0, 2.0, 4.0]),
        "fan_out_core_seconds": 10 ** chance.uniform(-4, -2.1),
        "fixed_seconds": 10 ** chance.uniform(-3, -1),
        "ps_core_seconds": 10 ** chance.uniform(-3, -1),
        "host_cores": chance.choice([0.0, 2.0, 2.0, 4.0, 8.0, 16.0]),
        "variable_bytes": 10 ** chance.uniform(7, 9.7),
        "ps_parallelism": chance.choice([1.0, 2.0, 8.0]),
        "shared_seconds": chance.choice([0.0, 0.0, 0.005]),
    }
    start = {"ps": chance.randint(1, 6), "workers": chance.randint(0, 6)}
    rate = throughput(JobModel(**model), Size(start["ps"], start["workers"]))
    seconds = 10 ** chance.uniform(2.3, 3.7)
    if chance.random() < 0.15:
        model["input_per_second"] = rate * chance.uniform(0.5, 1.5)
    drawn: dict[str, Any] = {
        "model": model, "start": start, "limits": {"max_ps": 8, "max_workers": 8}, "examples": rate * seconds,
        "noise": chance.choice([0.01, 0.02, 0.05, 0.08]), "bursts": chance.choice([0, 0, 0.05]),
    }  # fmt: skip
    if chance.random() < 0.4 and model["host_cores"]:
        drawn.update(
            neighbour_cores=model["host_cores"] * chance.uniform(0.2, 0.8),
            neighbour_after=chance.uniform(0, seconds), neighbour_seconds=chance.uniform(30, 600),
        )  # fmt: skip
    if chance.random() < 0.15:
        drawn["hot_share"] = chance.uniform(0.2, 0.7)
    return drawn


def ran(seed: int) -> tuple[float, str]:
    """(time ÷ staying at the first size, its seconds there and its decisions)"""
    trace = parse({"version": 1, "cluster": CLUSTER, "jobs": [{"name": "a", **job(seed)}]})
    [ours], [alone] = Simulation(trace, Policy(), seed).run(), Simulation(trace, None, seed).run()
    made = ", ".join(
        f"{one.time:.0f} s: {one.size.ps},{one.size.workers}" for one in ours.decisions if one.action != "keep"
    )
    return ours.seconds / alone.seconds, f"{alone.seconds:.0f} s at the first size; {made}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    ratios = []
    seeds = range(arguments.first, arguments.first + arguments.jobs)
    with ProcessPoolExecutor(arguments.processes) as pool:
        for seed, (ratio, told) in zip(seeds, pool.map(ran, seeds)):
            ratios.append(ratio)
            if ratio > MOST:
                say(f"seed {seed}: {ratio:.3f}; {told}")
    ratios.sort()
    print(
        f"{len(ratios)} jobs, time ÷ staying at the first size: median {statistics.median(ratios):.3f}, "
        f"mean {statistics.fmean(ratios):.4f}, p95 {ratios[int(0.95 * len(ratios))]:.3f}, worst {ratios[-1]:.3f}; "
        f"{sum(ratio > MOST for ratio in ratios)} above {MOST}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
