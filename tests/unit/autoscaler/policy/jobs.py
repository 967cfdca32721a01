"""Jobs to decide for: observations in a few words, and one that answers what is decided, in virtual time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Change, Limits, Observed, Progress, RoleUse, Size, Window
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.record import Record
from deeprec_ext.autoscaler.policy.thresholds import Policy
from tests.unit.autoscaler.facts import fact

LIMITS = Limits(1, 8, 0, 16)
POLICY = Policy()
KEPT_PER_SIZE = 30  # windows, as the autoscaler keeps them
WHILE_CHANGING = 0.9  # share of its throughput that a job has while it changes: nobody waits for who starts
PAUSE = 0.5  # seconds


def windows(size: Size, rate: float, start: float, count: int = 3, scatter: float = 0.01, **more: Any) -> list[Window]:
    """Ten-second windows one after the other, alternately a little above and below the rate."""
    return [
        fact(Window, start + 10 * n, 10.0, size, rate * (1 + scatter * (-1) ** n), 100.0, **more) for n in range(count)
    ]


def seen(size: Size, rate: float = 1000.0, **more: Any) -> Observed:
    """A job that has had this size for half a minute, at this throughput."""
    given = {"number": 3, "time": 160.0, "limits": LIMITS, "windows": tuple(windows(size, rate, 120.0)),
             "progress": Progress(10**5, 10**8), **more}  # fmt: skip
    return fact(Observed, size=size, **given)


def uses(size: Size, **of: dict[str, Any]) -> tuple[RoleUse, ...]:
    """All processes of a size, alike but for those named: `uses(size, worker_1={"step_seconds": 9.0})`."""
    names = [*(f"ps-{n}" for n in range(size.ps)), "chief-0", *(f"worker-{n}" for n in range(size.workers))]
    found = []
    for name in names:
        if name.startswith("ps-"):
            use = fact(RoleUse, name, 0.5, size.ps_cpu, 10**9, size.ps_memory_bytes, busy_share=0.3, age_seconds=600.0)
        else:
            use = fact(RoleUse,
                name, 0.9, size.worker_cpu, 10**9, size.worker_memory_bytes, step_seconds=0.1, step_seconds_lasting=0.1,
                steps_per_second=10.0, age_seconds=600.0,
            )  # fmt: skip
        found.append(dataclasses.replace(use, **of.get(name.replace("-", "_"), {})))
    return tuple(found)


class Job:
    """Carries out every decision after `delay` seconds, as an AIMaster does.

    Args:
      rate: examples per second of a size at a time; may lie.
      outcome: of the change with this number.
      look: seconds between two decisions, each at the end of a window of ten.
      watch: is told of every decision, with what it was made from.
    """

    def __init__(
        self, size: Size, rate: Callable[[Size, float], float], *, limits: Limits = LIMITS, policy: Policy = POLICY,
        total: int = 10**12, delay: float = 8.0, objective: str = "fastest",
        outcome: Callable[[int], str] = lambda number: "committed", seed: int = 0, look: float = 10.0,
        watch: Callable[[Observed, Decision], None] = lambda observed, decision: None,
    ) -> None:  # fmt: skip
        self.first = size
        self.size, self.rate, self.limits, self.policy = size, rate, limits, policy
        self.total, self.delay, self.objective, self.outcome = total, delay, objective, outcome
        self.now, self.done, self.look, self.looked = 0.0, 0.0, look, -look
        self.watch, self.looks = watch, 0
        self.windows: list[Window] = []
        self.changes: list[Change] = []
        self.decisions: list[Decision] = []
        self.chance = random.Random(seed)

    def observed(self) -> Observed:
        return fact(Observed,
            number=1 + self.looks, time=self.now, size=self.size, limits=self.limits, objective=self.objective,
            windows=tuple(self.windows), roles=uses(self.size), changes=tuple(self.changes[-40:]),
            progress=Progress(int(self.done), self.total), first=self.first,
        )  # fmt: skip

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            rate = self.rate(self.size, self.now)
            self.windows.append(fact(Window, self.now, 10.0, self.size, rate, 100.0))
            same = [window for window in self.windows if window.size == self.size]
            if len(same) > KEPT_PER_SIZE:
                self.windows.remove(same[0])
            self.now += 10.0
            self.done += 10.0 * rate if rate > 0 else 0.0
            if self.now - self.looked < self.look:
                continue
            self.looked = self.now
            observed = self.observed()
            decision = decide(observed, self.policy)
            self.watch(observed, decision)
            self.looks += 1
            if decision.action != "keep":
                self.decisions.append(decision)
                self.carry_out(decision)

    def carry_out(self, decision: Decision) -> None:
        old, new, outcome = self.size, decision.size, self.outcome(len(self.decisions))
        self.done += max(0.0, self.windows[-1].examples_per_second) * WHILE_CHANGING * max(0.0, self.delay - PAUSE)
        self.now += self.delay
        for role, before, after in (("ps", old.ps, new.ps), ("worker", old.workers, new.workers)):
            if before != after:
                self.record("scale-up" if after > before else "scale-down", role, before, after, outcome, decision)
            elif decision.action == "resize":
                self.record("resize", role, before, after, outcome, decision)
        if decision.action in ("replace", "rebalance"):
            self.record(decision.action, "ps", old.ps, old.ps, outcome, decision)
        if outcome == "committed":
            self.size = new

    def record(self, kind: str, role: str, before: int, after: int, outcome: str, decision: Decision) -> None:
        self.changes.append(
            fact(
                Change,
                self.now,
                kind,
                role,
                before,
                after,
                outcome,
                self.delay,
                PAUSE,
                decision=decision.number,
                foretold=decision.prediction.examples_per_second,
            )
        )

    def flips(self, since: float = 0.0) -> int:
        """Changes of direction of one role."""
        count = 0
        for role in ("ps", "worker"):
            moves = [
                c for c in self.changes if c.role == role and c.from_count != c.to_count and c.outcome == "committed"
            ]
            count += sum(
                (a.to_count > a.from_count) != (b.to_count > b.from_count) and b.time >= since
                for a, b in zip(moves, moves[1:])
            )
        return count


def recorded_job(directory: Path, policy: Policy = POLICY, seconds: float = 400.0) -> Job:
    """A job whose every look of so long is in the record of this directory, with what came of it."""
    writer = Record(directory, policy, lambda: 1_700_000_000.0)
    job = Job(Size(1, 1), saturating(4000.0, 6.0), policy=policy, watch=writer.add)
    job.run(seconds)
    for decision in job.decisions:
        writer.outcome(decision.number, "committed", "", job.rate(decision.size, job.now))
    return job


def saturating(top: float, half: float, per_ps: float = 1e9) -> Callable[[Size, float], float]:
    """Throughput that grows with trainers and saturates, bound by PS too."""

    def rate(size: Size, now: float) -> float:
        return min(top * size.trainers / (size.trainers + half), per_ps * size.ps)

    return rate
