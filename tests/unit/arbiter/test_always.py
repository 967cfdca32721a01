"""Whatever is observed: never an exception, never beyond bounds or room, the same each time, and decided once."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from deeprec_ext.arbiter.curve import clipped, size_of
from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import (
    Allowance,
    Amount,
    Bid,
    Cluster,
    Count,
    Job,
    Node,
    Placed,
    Pods,
    Quota,
    Resources,
    Waiting,
    Worth,
)
from deeprec_ext.arbiter.rules import Rules
from tests.unit.arbiter import clusters
from tests.unit.arbiter.clusters import GIB, NOW

EXAMPLES = int(os.environ.get("DEEPREC_EXT_TEST_EXAMPLES", "150"))
"""Of each property."""
ODD = (0.0, -1.0, 1e300, math.nan, math.inf, -math.inf)
T = TypeVar("T")
seeds = st.integers(0, 2**32)
"""Of a cluster: drawn value by value, one takes longer to make than to decide on ten."""


class Made:
    """A cluster by chance. Args: odd: with numbers that nobody should say."""

    def __init__(self, seed: int, *, odd: bool = False, new: bool = False) -> None:
        self.chance, self.odd, self.new = random.Random(seed), odd, new

    def some(self, *values: T) -> T:
        return self.chance.choice(values)

    def number(self, low: float, high: float) -> float:
        return self.some(*ODD) if self.odd and self.chance.random() < 0.15 else self.chance.uniform(low, high)

    def count(self, high: int) -> int:
        return self.some(-1, 10**30) if self.odd and self.chance.random() < 0.1 else self.chance.randint(0, high)

    def size(self) -> Count:
        return Count(self.count(2), self.count(8))

    def amount(self, cores: int) -> Resources:
        cpu = self.some(float(self.chance.randint(0, cores)), self.number(0.0, cores))
        others = (Amount("gpu", self.some(0.0, 1.0, 2.0)),) if self.chance.random() < 0.15 else ()
        return Resources(cpu, self.chance.randint(0, 4 * cores) * GIB, others)

    def bid(self) -> Bid:
        worth = tuple(
            Worth(self.count(2), self.count(10), self.number(1.0, 1e4)) for _ in range(self.chance.randint(0, 8))
        )
        time, size, wanted, left = self.number(0.0, 2 * NOW), self.size(), self.size(), self.number(0.0, 1e6)
        self.some(
            0.0, self.number(0.0, 1e4)
        )  # a bid had one number more: seeds that found something mean what they did
        return Bid(
            time, size, wanted, worth, left, self.number(0.0, 60.0), self.number(0.0, 20.0), self.some(True, False),
            self.some(True, False, False),
        )  # fmt: skip

    def job(self) -> Job:
        least, most = self.size(), self.size()
        started = not self.new and self.some(True, False)
        placed = [
            Placed(
                self.some("chief", "ps", "worker", "worker", "other", "nobody's"),
                self.some("n0", "n1", "n2", "n3", "gone"),
            )
            for _ in range(0 if self.new else self.chance.randint(0, 8))
        ]
        given = Allowance(
            "",
            self.some(True, True, False),
            self.count(2),
            self.count(8),
            self.number(0.0, 1.5 * NOW),
            "",
            self.some(0.0, self.number(NOW - 100.0, NOW + 1500.0)),
        )
        return Job(
            self.some("a", "b", "c", "d"), self.some(0, 0, 5, -3), self.number(0.1, 4.0), least,
            most if self.odd else Count(least.ps + most.ps, least.workers + most.workers),
            Pods(*(self.amount(3) for _ in range(4))), tuple(placed), self.some("", "q"), self.number(0.0, NOW), started,
            self.some(True, False, False, False), self.size(), None if self.new else self.some(None, given),
            self.some(None, self.bid(), self.bid()), self.number(0.0, 200.0), self.some(0.0, self.number(0.0, 2 * NOW)),
        )  # fmt: skip

    def cluster(self) -> Cluster:
        pods = (0, -5, 10**30) if self.odd else (0, 0, 3, 8)
        nodes = [
            Node(
                self.some("n0", "n1", "n2", "n3"),
                self.amount(8),
                self.number(0.0, 2.0),
                self.some(True, False),
                self.some(*pods),
            )
            for _ in range(self.chance.randint(0, 5))
        ]
        waiting = [
            Waiting(self.some("x", "y"), self.some(-5, 0, 3, 9), self.amount(4), self.number(0.0, NOW))
            for _ in range(self.chance.randint(0, 3))
        ]
        limits: tuple[tuple[str, ...], ...] = (("cpu",), ("cpu", "memory", "gpu"), ())
        quotas = [Quota("q", self.amount(8), self.some(*limits)) for _ in range(self.chance.randint(0, 1))]
        jobs = [self.job() for _ in range(self.chance.randint(0, 7))]
        return Cluster(NOW, tuple(nodes), tuple(waiting), tuple(quotas), tuple(jobs))

    def rules(self) -> Rules:
        return Rules(
            priorities=self.some("strict", "weight"), minimums_first=self.some(True, False),
            aging_seconds=self.some(0.0, 600.0),
        )  # fmt: skip


@given(seeds, st.booleans())
@settings(max_examples=EXAMPLES)
def test_every_job_gets_one_allowance_within_its_bounds(seed: int, odd: bool):
    made = Made(seed, odd=odd)
    seen, rules = made.cluster(), made.rules()
    decision = decide(seen, rules)
    assert [one.job for one in decision.allowances] == [one.name for one in seen.jobs]
    assert 0.0 <= decision.used_share <= 1.0
    for one, job in zip(decision.allowances, seen.jobs):
        least, most = size_of(job.least), size_of(job.most)
        most = max(least[0], most[0]), max(least[1], most[1])
        allowed = one.ps, one.workers
        if not one.runs:
            assert allowed == (0, 0)
        elif job.strict:
            assert allowed <= most
        else:
            assert allowed == clipped(allowed, least, most)
        assert one.why and "\n" not in one.why and math.isfinite(one.since)


@given(seeds, st.booleans())
@example(1203, True)  # who was found running and is stopped at the first look is stopped now, not when it came
@example(5779, False)  # who came back to what he had, within a decision, has had it since long: it is decided once more
@example(1173, True)
@example(620, True)  # who would start and be stopped in turn is stopped, also if it was never told anything before
@settings(max_examples=EXAMPLES)
def test_what_was_decided_is_not_changed_when_the_same_is_observed_again(seed: int, odd: bool):
    made = Made(seed, odd=odd)
    seen, rules = made.cluster(), made.rules()
    first = decide(seen, rules)
    again = decide(clusters.given(seen, first), rules)
    assert again.changed == ()
    assert again.allowances == first.allowances


@given(seeds)
@settings(max_examples=EXAMPLES)
def test_new_jobs_are_never_allowed_more_than_there_is(seed: int):
    made = Made(seed, new=True)
    seen, rules = made.cluster(), made.rules()
    decision = decide(seen, rules)
    pairs = [(job, one) for job, one in zip(seen.jobs, decision.allowances) if one.runs]

    def together(jobs: list[tuple[Job, Allowance]]) -> tuple[float, int]:
        pods = [(job.pods.chief, 1) for job, _ in jobs] + [(job.pods.other, 1) for job, _ in jobs]
        pods += [(job.pods.ps, one.ps) for job, one in jobs] + [(job.pods.worker, one.workers) for job, one in jobs]
        return sum(each.cpu * count for each, count in pods), sum(each.memory_bytes * count for each, count in pods)

    cores, memory = together(pairs)
    whole: dict[str, Resources] = {}
    for node in seen.nodes:
        whole.setdefault(f"{node.name} {len(whole)}", node.free)
    assert cores <= sum(one.cpu for one in whole.values()) + 0.02
    assert memory <= sum(one.memory_bytes for one in whole.values())
    for quota in seen.quotas:
        if "cpu" in quota.limits:
            assert together([one for one in pairs if one[0].queue == quota.name])[0] <= quota.free.cpu + 0.02


@given(seeds)
@settings(max_examples=EXAMPLES)
def test_it_does_not_matter_in_which_order_jobs_and_nodes_are_observed(seed: int):
    seen = Made(seed, new=True).cluster()
    named = [dataclasses.replace(one, name=f"{one.name}-{at}") for at, one in enumerate(seen.jobs)]
    nodes = [dataclasses.replace(one, name=f"{one.name}-{at}") for at, one in enumerate(seen.nodes)]
    there = dataclasses.replace(seen, jobs=tuple(named), nodes=tuple(nodes))
    turned = dataclasses.replace(there, jobs=tuple(named[::-1]), nodes=tuple(nodes[::-1]))
    assert sorted(decide(there).allowances, key=str) == sorted(decide(turned).allowances, key=str)


@given(seeds)
@settings(max_examples=EXAMPLES)
def test_a_job_that_is_more_important_than_all_others_starts_if_it_would_alone(seed: int):
    seen = Made(seed, new=True).cluster()
    if not seen.jobs:
        return
    first = dataclasses.replace(seen.jobs[0], name="first", priority=10)
    alone = decide(dataclasses.replace(seen, jobs=(first,), waiting=()))
    assert (
        decide(dataclasses.replace(seen, jobs=(first, *seen.jobs[1:]))).allowances[0].runs == alone.allowances[0].runs
    )
