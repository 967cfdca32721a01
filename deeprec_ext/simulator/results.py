"""What the policy's jobs took, against static sizes on the same trace: time, waste, use, and how calm the policy was."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.baselines import Sweep, doubled, static_sizes
from deeprec_ext.simulator.parts import Lot, Part, in_parts, together
from deeprec_ext.simulator.simulation import Ended, Simulation, total
from deeprec_ext.simulator.trace import Trace

QUIET_SECONDS = 600.0
"""A job has converged when so long nothing was decided."""
VOLUNTARY = ("scale", "explore", "resize", "rebalance")
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


def compare(trace: Trace, policy: Policy, seed: int = 0, watch: Watch | None = None) -> tuple[Comparison, list[Ended]]:
    """Also returns what became of the policy's jobs. A long trace is simulated in several processes."""
    parts = in_parts(trace, policy, seed, lambda done: _tell(watch, "all sizes", done, len(trace.jobs), 0.0))
    best_sizes, fastest = _static_sizes(trace, policy, parts)  # first: a job without any size that fits is told at once
    twice_sizes = {name: doubled(size) for name, size in best_sizes.items()}

    def ended(what: str, lots: list[Lot] | None, policy: Policy | None, sizes: dict[str, Size] | None) -> list[Ended]:
        found = together(lots, trace) if lots is not None else None
        told = partial(_tell, watch, what)
        return found if found is not None else Simulation(trace, policy, seed, sizes, told).run()

    def lots(way: str) -> list[Lot] | None:
        return [getattr(part, way) for part in parts] if parts is not None else None

    ours = ended("policy", lots("policy"), policy, None)
    twice = ended("twice the best static size", lots("twice"), None, twice_sizes)
    best = ended("best static size", lots("best"), None, best_sizes)
    times = {one.work.name: one.seconds for one in best}
    ratios = sorted(one.seconds / times[one.work.name] for one in ours)
    sweeps = {work.name: Sweep(work, policy) for work in trace.jobs}
    quickest = [one.seconds / (one.work.examples / sweeps[one.work.name].rate(fastest[one.work.name])) for one in ours]
    a, b = figures(ours), figures(twice)
    comparison = Comparison(
        a, b, figures(best), calm(ours), statistics.median(ratios), ratios[int(0.9 * (len(ratios) - 1))],
        statistics.median(quickest), _change(a.core_hours_wasted, b.core_hours_wasted),
        _change(a.memory_gb_hours_wasted, b.memory_gb_hours_wasted),
        sum(len(one.decisions) - 1 for one in ours),
    )  # fmt: skip
    return comparison, ours


def _static_sizes(trace: Trace, policy: Policy, parts: list[Part] | None) -> tuple[dict[str, Size], dict[str, Size]]:
    """The best ones, and the fastest, by the name of the job."""
    if parts is None:
        return static_sizes(trace.jobs, policy, Sweep.best), static_sizes(trace.jobs, policy, Sweep.fastest)
    best = {name: size for part in parts for name, size in part.best_sizes.items()}
    return best, {name: size for part in parts for name, size in part.fastest_sizes.items()}


def _tell(watch: Watch | None, what: str, done: int, jobs: int, now: float) -> None:
    if watch is not None:
        watch(what, done, jobs, now)


def _change(now: float, before: float) -> float:
    return now / before - 1 if before > 0 else 0.0
