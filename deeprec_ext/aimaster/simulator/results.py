"""What the policy's jobs took, against static sizes on the same trace: time, waste, use, and how calm the policy was."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from deeprec_ext.aimaster.policy.decision import Decision
from deeprec_ext.aimaster.policy.observed import Size
from deeprec_ext.aimaster.policy.settings import Policy
from deeprec_ext.aimaster.simulator.baselines import Sweep, doubled, static_sizes
from deeprec_ext.aimaster.simulator.simulation import Ended, Simulation, total
from deeprec_ext.aimaster.simulator.trace import Trace

QUIET_SECONDS = 600.0
"""A job has converged when so long nothing was decided."""
JOBS_FOR_TWO = 100
"""Jobs of a trace from which a second process, which takes a second to start, is worth it."""
VOLUNTARY = ("scale", "resize", "rebalance")
Watch = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Figures:
    """Of one way to size the jobs of a trace."""

    jobs: int
    failed: int
    completion_p50: float  # seconds from the arrival to the end
    completion_p90: float
    run_seconds: float  # from start to end, mean
    makespan: float
    core_hours: float  # requested
    core_hours_wasted: float
    memory_gb_hours: float
    memory_gb_hours_wasted: float
    cpu_use: float  # used ÷ requested
    memory_use: float
    deadlines_missed: int


def figures(ended: Sequence[Ended]) -> Figures:
    sums = total([one.account for one in ended])
    waits = sorted(one.started - one.work.arrives + one.seconds for one in ended)
    late = [one for one in ended if one.work.objective == "deadline" and one.seconds > one.work.deadline_seconds > 0]
    return Figures(
        jobs=len(ended), failed=sum(one.failed for one in ended), completion_p50=statistics.median(waits),
        completion_p90=waits[int(0.9 * (len(waits) - 1))], run_seconds=statistics.fmean(one.seconds for one in ended),
        makespan=max(one.started + one.seconds for one in ended),
        core_hours=sums.requested_cores / 3600, core_hours_wasted=(sums.requested_cores - sums.used_cores) / 3600,
        memory_gb_hours=sums.requested_bytes / 3.6e12,
        memory_gb_hours_wasted=(sums.requested_bytes - sums.used_bytes) / 3.6e12,
        cpu_use=sums.used_cores / sums.requested_cores if sums.requested_cores else 0.0,
        memory_use=sums.used_bytes / sums.requested_bytes if sums.requested_bytes else 0.0,
        deadlines_missed=len(late),
    )  # fmt: skip


@dataclass(frozen=True)
class Calm:
    """Decisions after convergence."""

    converged: int  # jobs
    hours: float  # that they ran after it
    decisions: int  # in that time, for throughput, cost or balance
    urgent: int  # in that time, for lost, slow or reclaimed processes and for memory
    to_converge: float  # seconds, median over the jobs that did

    @property
    def per_hour(self) -> float:
        return self.decisions / self.hours if self.hours else 0.0


def calm(ended: Sequence[Ended]) -> Calm:
    """A job has converged at the beginning of its first ten minutes without a decision."""
    begins, hours, count, urgent = [], 0.0, 0, 0
    for one in ended:
        begin = converged_at(one)
        if begin is None:
            continue
        begins.append(begin)
        hours += (one.seconds - begin) / 3600
        after = [decision for decision in one.decisions if decision.time > begin]
        count += sum(decision.action in VOLUNTARY and not _urgent(decision) for decision in after)
        urgent += sum(decision.action not in VOLUNTARY or _urgent(decision) for decision in after)
    return Calm(len(begins), hours, count, urgent, statistics.median(begins) if begins else 0.0)


def converged_at(one: Ended) -> float | None:
    times = [0.0, *(decision.time for decision in one.decisions), one.seconds]
    return next((begin for begin, end in zip(times, times[1:]) if end - begin >= QUIET_SECONDS), None)


def _urgent(decision: Decision) -> bool:
    """Memory is added for a reason that no calm forbids."""
    return "lack of memory" in decision.reason or "grows by" in decision.reason


@dataclass(frozen=True)
class Comparison:
    """The same trace, sized by the policy, by twice the best static size, and by the best one."""

    policy: Figures
    twice: Figures
    best: Figures
    calm: Calm
    time_ratio: float  # run time of a job ÷ with its best static size: median over the jobs
    time_ratio_p90: float
    fastest_ratio: float  # ÷ with the fastest size there is within the limits, which costs what it may: median
    cpu_waste_change: float  # against twice the best size: -0.6 is 60 % less
    memory_waste_change: float
    decisions: int

    def to_values(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "decisions_per_hour_after_convergence": self.calm.per_hour}


@dataclass(frozen=True)
class Static:
    """What became of the jobs with static sizes, and which these are, by the name of the job."""

    twice: list[Ended]
    best: list[Ended]
    fastest: dict[str, Size]


def compare(trace: Trace, policy: Policy, seed: int = 0, watch: Watch | None = None) -> tuple[Comparison, list[Ended]]:
    """Also returns what became of the policy's jobs. The static sizes of a long trace are worked out in another process."""
    both = _beside(trace, policy, seed, watch)
    if both is None:
        static = static_runs(trace, policy, seed, watch)  # first: a job without any size that fits is told at once
        both = _run(trace, policy, seed, watch), static
    ours, static = both
    times = {one.work.name: one.seconds for one in static.best}
    ratios = sorted(one.seconds / times[one.work.name] for one in ours)
    sweeps = {work.name: Sweep(work, policy) for work in trace.jobs}
    quickest = [
        one.seconds / (one.work.examples / sweeps[one.work.name].rate(static.fastest[one.work.name])) for one in ours
    ]  # fmt: skip
    a, b = figures(ours), figures(static.twice)
    comparison = Comparison(
        a, b, figures(static.best), calm(ours), statistics.median(ratios), ratios[int(0.9 * (len(ratios) - 1))],
        statistics.median(quickest), _change(a.core_hours_wasted, b.core_hours_wasted),
        _change(a.memory_gb_hours_wasted, b.memory_gb_hours_wasted),
        sum(len(one.decisions) - 1 for one in ours),
    )  # fmt: skip
    return comparison, ours


def static_runs(trace: Trace, policy: Policy, seed: int, watch: Watch | None = None) -> Static:
    best = static_sizes(trace.jobs, policy, Sweep.best)
    fastest = static_sizes(trace.jobs, policy, Sweep.fastest)
    twice = {name: doubled(size) for name, size in best.items()}
    return Static(
        _run(trace, None, seed, watch, "twice the best static size", twice),
        _run(trace, None, seed, watch, "best static size", best),
        fastest,
    )


def _run(
    trace: Trace, policy: Policy | None, seed: int, watch: Watch | None, what: str = "policy",
    sizes: dict[str, Size] | None = None,
) -> list[Ended]:  # fmt: skip
    def told(done: int, jobs: int, now: float) -> None:
        if watch is not None:
            watch(what, done, jobs, now)

    return Simulation(trace, policy, seed, sizes, told).run()


def _beside(trace: Trace, policy: Policy, seed: int, watch: Watch | None) -> tuple[list[Ended], Static] | None:
    """Both at once. None: the trace is short, there is one core, or there can be no other process."""
    if len(trace.jobs) < JOBS_FOR_TWO or len(os.sched_getaffinity(0)) < 2:
        return None
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            static = pool.submit(static_runs, trace, policy, seed)
            return _run(trace, policy, seed, watch), static.result()
    except BrokenProcessPool:
        return None


def _change(now: float, before: float) -> float:
    return now / before - 1 if before > 0 else 0.0
