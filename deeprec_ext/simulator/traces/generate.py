"""Makes traces: jobs drawn from four families, badly sized as users size them, on a cluster with its mishaps.

    python -m deeprec_ext.simulator.traces.generate --jobs 24 --seed 1 > small.yaml
    python -m deeprec_ext.simulator.traces.generate --jobs 12 --seed 2 --kind spot > spot.yaml

What the numbers rest on stands in README.md beside this file.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import sys
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Limits, Size
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.baselines import Sweep
from deeprec_ext.simulator.job_model import JobModel, cores, ps_bytes
from deeprec_ext.simulator.trace import SimulatedCluster, Trace, Workload

GB = 10**9
FAMILIES = {  # medians: core seconds per step of a trainer, of PS, cores it can use, batch, GB of variables
    "linear": (0.03, 0.020, 2.0, 2048, 6),
    "wide-deep": (0.10, 0.025, 3.0, 1024, 10),
    "deepfm": (0.25, 0.040, 4.0, 1024, 20),
    "attention": (0.80, 0.030, 6.0, 512, 8),
}
HABITS = ("tiny", "huge", "many workers", "many PS", "history")
"""How jobs are sized before the start: by default, out of caution, by fashion, and by a good guess."""


def job(chance: random.Random, number: int, arrives: float, roles: int, hours: float, hot: bool) -> Workload:
    """Args:
    roles: about so many pods at the best size; 0: a few to a few dozen, as drawn.
    hours: about so long at the best size.
    """
    family = chance.choice(sorted(FAMILIES))
    compute, ps, parallelism, batch, size = FAMILIES[family]

    def around(value: float, scatter: float = 0.3) -> float:
        return value * math.exp(chance.gauss(0.0, scatter))

    model = JobModel(
        batch=batch, fixed_seconds=around(0.006), compute_core_seconds=around(compute), parallelism=parallelism,
        fan_out_core_seconds=around(0.0003), ps_core_seconds=around(ps), ps_parallelism=8.0,
        variable_bytes=around(size * GB, 0.6), worker_bytes=around(1.2 * GB, 0.2),
        variable_growth=around(4.0, 0.5) if chance.random() < 0.25 else 0.0,
    )  # fmt: skip
    alone = model.fixed_seconds + model.compute_core_seconds / parallelism
    width = around(roles * 0.75 if roles else 14, 0.15 if roles else 0.5)
    model = dataclasses.replace(model, shared_seconds=alone / width / 2)
    limits = Limits(1, max(6, round(width)), 0, max(8, round(5 * width)), 16.0, 16.0, resizable=True)
    work = Workload(
        f"{family}-{number}", round(arrives, 1), 1.0, model=model, limits=limits, noise=chance.choice((0.02, 0.04, 0.08)),
        hot_share=0.25 if hot and chance.random() < 0.3 else 0.0,
    )  # fmt: skip
    objective = chance.choices(("fastest", "cheapest", "deadline"), (6, 2, 2))[0]
    best = Sweep(work, Policy()).best()
    rate = Sweep(work, Policy()).rate(best)
    seconds = around(hours * 3600, 0.3)
    work = dataclasses.replace(work, examples=float(round(rate * seconds)), objective=objective)
    if objective == "deadline":
        work = dataclasses.replace(work, deadline_seconds=round(seconds * chance.uniform(1.3, 2.5)))
    return dataclasses.replace(work, start=start(chance, work, best))


def start(chance: random.Random, work: Workload, best: Size) -> Size:
    """What a user, or the estimator, asks for."""
    habit = chance.choice(HABITS)
    limits = work.limits
    ps, workers = best.ps, best.workers
    if habit == "tiny":
        ps, workers = 1, min(2, workers)
    elif habit == "huge":
        ps, workers = 2 * ps, 2 * workers
    elif habit == "many workers":
        ps, workers = max(1, ps // 2), 2 * workers
    elif habit == "many PS":
        ps, workers = 3 * ps, max(1, workers // 2)
    else:
        ps, workers = max(1, round(ps * chance.uniform(0.7, 1.3))), max(1, round(workers * chance.uniform(0.7, 1.3)))
    ps, workers = min(ps, limits.max_ps), min(workers, limits.max_workers)
    need = ps_bytes(work.model, ps, 1.2 / ps, 0.0)
    size = Size(ps, workers, chance.choice((2.0, 4.0, 8.0)), chance.choice((2.0, 4.0, 8.0)))
    return dataclasses.replace(
        size,
        ps_memory_bytes=math.ceil(max(8 * GB, 1.3 * need) / GB) * GB,
        worker_memory_bytes=chance.choice((4, 8)) * GB,
    )


def make(jobs: int, seed: int, kind: str = "steady", roles: int = 0, hours: float = 1.0) -> Trace:
    """Args: kind: `steady`, a sound cluster; `spot`, failures, reclaimed and slow hosts, and slots that are hot."""
    chance = random.Random(f"{seed}/{jobs}/{kind}/{roles}")
    cluster = SimulatedCluster()
    if kind == "spot":
        cluster = SimulatedCluster(
            failures_per_hour=0.01, spot_share=0.4, reclaims_per_hour=0.1, slow_share=0.03, pod_start_seconds=50.0
        )
    found = []
    arrives = 0.0
    for number in range(jobs):
        found.append(job(chance, number, arrives, roles, hours, kind == "spot"))
        arrives += chance.expovariate(1 / 120)
    busy = sum(cores(one.start.worker_cpu) * one.start.trainers + one.start.cpu for one in found)
    cluster = dataclasses.replace(cluster, cores=float(max(200, round(busy, -2))), memory=round(busy * 6) * GB)
    return Trace(cluster, tuple(found), f"{kind}-{jobs}")


def to_values(trace: Trace) -> dict[str, Any]:
    """As a trace file has it; defaults are left out."""

    def without_defaults(value: Any) -> Any:
        if not dataclasses.is_dataclass(value):
            return float(f"{value:.5g}") if isinstance(value, float) else value
        found = {}
        for one in dataclasses.fields(value):
            own = getattr(value, one.name)
            default = one.default_factory() if one.default_factory is not dataclasses.MISSING else one.default
            if own != default or one.default is dataclasses.MISSING:
                found[one.name] = without_defaults(own)
        return found

    return {
        "version": 1, "cluster": without_defaults(trace.cluster), "jobs": [without_defaults(one) for one in trace.jobs]
    }  # fmt: skip


def main() -> None:
    import yaml

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("steady", "spot"), default="steady")
    parser.add_argument("--roles", type=int, default=0, help="pods of a job at its best size; 0: as drawn")
    parser.add_argument("--hours", type=float, default=1.0, help="about so long does a job take")
    given = parser.parse_args()
    trace = make(given.jobs, given.seed, given.kind, given.roles, given.hours)
    print(f"# made by traces/generate.py --jobs {given.jobs} --seed {given.seed} --kind {given.kind} --roles {given.roles}"
          f" --hours {given.hours}")  # fmt: skip
    yaml.safe_dump(to_values(trace), sys.stdout, sort_keys=False, default_flow_style=None, width=128)


if __name__ == "__main__":
    main()
