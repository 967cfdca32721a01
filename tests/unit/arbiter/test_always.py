"""Whatever is observed: never an exception, never beyond bounds or room, the same each time, and decided once."""

from __future__ import annotations

import dataclasses
import math
import os

from hypothesis import given, settings
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

EXAMPLES = int(os.environ.get("DEEPREC_EXT_TEST_EXAMPLES", "120"))
"""Of each property; 5 000 were tried."""
ODD = [0.0, -1.0, 1e300, math.nan, math.inf, -math.inf]
names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
wheres = st.sampled_from(["n0", "n1", "n2", "n3", "gone"])


def numbers(low: float, high: float, odd: bool) -> st.SearchStrategy[float]:
    plain = st.floats(low, high, allow_nan=False)
    return st.one_of(plain, st.sampled_from(ODD)) if odd else plain


def counts(high: int, odd: bool) -> st.SearchStrategy[int]:
    plain = st.integers(0, high)
    return st.one_of(plain, st.sampled_from([-1, 10**30])) if odd else plain


def sizes(odd: bool) -> st.SearchStrategy[Count]:
    return st.builds(Count, counts(2, odd), counts(8, odd))


def amounts(cores: int, odd: bool) -> st.SearchStrategy[Resources]:
    others = st.lists(st.builds(Amount, st.just("gpu"), st.sampled_from([0.0, 1.0, 2.0])), max_size=1).map(tuple)
    cpu = st.one_of(st.integers(0, cores).map(float), numbers(0.0, cores, odd))
    return st.builds(Resources, cpu, st.integers(0, 4 * cores).map(lambda each: each * GIB), others)


@st.composite
def bids(draw: st.DrawFn, odd: bool) -> Bid:
    worth = st.builds(Worth, counts(2, odd), counts(10, odd), numbers(1.0, 1e4, odd))
    return Bid(
        draw(numbers(0.0, 2 * NOW, odd)), draw(sizes(odd)), draw(sizes(odd)), tuple(draw(st.lists(worth, max_size=8))),
        draw(numbers(0.0, 1e6, odd)), draw(st.one_of(st.just(0.0), numbers(0.0, 1e4, odd))), draw(numbers(0.0, 60.0, odd)),
        draw(numbers(0.0, 20.0, odd)), draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn, odd: bool, new: bool) -> Job:
    least, most = draw(sizes(odd)), draw(sizes(odd))
    started = not new and draw(st.booleans())
    roles = st.sampled_from(["chief", "ps", "worker", "worker", "other", "nobody's"])
    placed = st.lists(st.builds(Placed, roles, wheres), max_size=0 if new else 8)
    given = st.builds(
        Allowance, names, st.booleans(), counts(2, odd), counts(8, odd), numbers(0.0, 1.5 * NOW, odd), st.just("")
    )
    return Job(
        draw(names), draw(st.sampled_from([0, 0, 5, -3])), draw(numbers(0.1, 4.0, odd)), least,
        most if odd else Count(least.ps + most.ps, least.workers + most.workers),
        Pods(*(draw(amounts(3, odd)) for _ in range(4))), tuple(draw(placed)), draw(st.sampled_from(["", "q"])),
        draw(numbers(0.0, NOW, odd)), started, draw(st.sampled_from([False, False, False, True])), draw(sizes(odd)),
        None if new else draw(st.one_of(st.none(), given)), draw(st.one_of(st.none(), bids(odd))),
        draw(numbers(0.0, 200.0, odd)),
    )  # fmt: skip


@st.composite
def observed(draw: st.DrawFn, odd: bool = False, new: bool = False) -> Cluster:
    nodes = st.builds(
        Node,
        wheres,
        amounts(8, odd),
        st.just(0.0),
        st.booleans(),
        st.sampled_from([0, 0, 3, 8] if not odd else [0, -5, 10**30]),
    )
    waiting = st.builds(Waiting, names, st.sampled_from([-5, 0, 3, 9]), amounts(4, odd), numbers(0.0, NOW, odd))
    quotas = st.builds(Quota, st.just("q"), amounts(8, odd), st.sampled_from([("cpu",), ("cpu", "memory", "gpu"), ()]))
    return Cluster(
        NOW, tuple(draw(st.lists(nodes, max_size=5))), tuple(draw(st.lists(waiting, max_size=3))),
        tuple(draw(st.lists(quotas, max_size=1))), tuple(draw(st.lists(jobs(odd, new), max_size=6))),
    )  # fmt: skip


every_rules = st.builds(
    Rules,
    priorities=st.sampled_from(["strict", "weight"]),
    minimums_first=st.booleans(),
    aging_seconds=st.sampled_from([0.0, 600.0]),
)


@given(st.one_of(observed(), observed(odd=True)), every_rules)
@settings(max_examples=EXAMPLES)
def test_every_job_gets_one_allowance_within_its_bounds(seen: Cluster, rules: Rules):
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


@given(st.one_of(observed(), observed(odd=True)), every_rules)
@settings(max_examples=EXAMPLES)
def test_what_was_decided_is_not_changed_when_the_same_is_observed_again(seen: Cluster, rules: Rules):
    first = decide(seen, rules)
    again = decide(clusters.given(seen, first), rules)
    assert again.changed == ()
    assert again.allowances == first.allowances


@given(observed(new=True), every_rules)
@settings(max_examples=EXAMPLES)
def test_new_jobs_are_never_allowed_more_than_there_is(seen: Cluster, rules: Rules):
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


@given(observed(new=True))
@settings(max_examples=EXAMPLES)
def test_it_does_not_matter_in_which_order_jobs_and_nodes_are_observed(seen: Cluster):
    named = [dataclasses.replace(one, name=f"{one.name}-{at}") for at, one in enumerate(seen.jobs)]
    nodes = [dataclasses.replace(one, name=f"{one.name}-{at}") for at, one in enumerate(seen.nodes)]
    there = dataclasses.replace(seen, jobs=tuple(named), nodes=tuple(nodes))
    turned = dataclasses.replace(there, jobs=tuple(named[::-1]), nodes=tuple(nodes[::-1]))
    assert sorted(decide(there).allowances, key=str) == sorted(decide(turned).allowances, key=str)


@given(observed(new=True), st.sampled_from([1, 50]))
@settings(max_examples=EXAMPLES)
def test_a_job_that_is_more_important_than_all_others_starts_if_it_would_alone(seen: Cluster, priority: int):
    if not seen.jobs:
        return
    first = dataclasses.replace(seen.jobs[0], name="first", priority=9 + priority)
    alone = decide(dataclasses.replace(seen, jobs=(first,), waiting=()))
    assert (
        decide(dataclasses.replace(seen, jobs=(first, *seen.jobs[1:]))).allowances[0].runs == alone.allowances[0].runs
    )
