"""Jobs whose pods may not go to all nodes, and whose pods several quotas count: no allowance exceeds any of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings

from deeprec_ext.arbiter.curve import clipped, size_of
from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Allowance, Bound, Bounds, Cluster, Job, Node, Quota, Resources
from deeprec_ext.arbiter.record import Record, replay
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.arbiter.telling import summary
from tests.unit.arbiter import clusters
from tests.unit.arbiter.clusters import GIB, cluster, job, nodes, pod, sizes, why, workers
from tests.unit.arbiter.test_always import EXAMPLES, Made, seeds

GROUPS = ("a", "b", "c")
NAMES = ("q", "second", "third")


def everywhere(groups: Iterable[str] | None = None, quotas: Iterable[str] = ()) -> Bounds:
    """The same for all roles."""
    bound = Bound(None if groups is None else tuple(groups), tuple(quotas))
    return Bounds(bound, bound, bound, bound)


def grouped(group: str, count: int, of_cores: float = 4.0) -> tuple[Node, ...]:
    made = nodes(count, of_cores)
    return tuple(dataclasses.replace(one, name=f"{group}-{one.name}", group=group) for one in made)


def bounded(seed: int, *, odd: bool = False, new: bool = False) -> tuple[Cluster, Rules]:
    """Like those of `test_always`, with groups of nodes, quotas of several names, and roles of jobs that differ."""
    made, chance = Made(seed, odd=odd, new=new), random.Random(seed)
    seen, rules = made.cluster(), made.rules()

    def bound() -> Bound:
        groups = chance.choice([None, tuple(chance.sample(GROUPS, chance.randint(0, 3)))])
        return Bound(groups, tuple(chance.sample(NAMES, chance.randint(0, 2))))

    limits = (("cpu",), ("cpu", "memory", "pods"), ("gpu",), ())
    quotas = [
        Quota(name, made.amount(12), chance.choice(limits), chance.randint(0, 8), made.amount(4), f"queue {name}",
              chance.choice(["", "", "", "it is Closed"]))
        for name in NAMES for _ in range(chance.randint(0, 2))
    ]  # fmt: skip
    there = tuple(dataclasses.replace(one, group=chance.choice(GROUPS)) for one in seen.nodes)
    jobs = tuple(
        dataclasses.replace(one, bounds=Bounds(bound(), bound(), bound(), bound()) if chance.random() < 0.8 else None)
        for one in seen.jobs
    )
    return dataclasses.replace(seen, nodes=there, quotas=tuple(quotas), jobs=jobs), rules


def counts(one: Job, allowed: Allowance) -> list[tuple[Bound, Resources, int]]:
    """Of each role: where its pods are counted, what each requests, how many there are."""
    bounds, pods = one.bounds or Bounds(), one.pods
    others = 1 if pods.other.cpu or pods.other.memory_bytes or pods.other.others else 0
    if not allowed.runs:
        return []
    return [
        (bounds.chief, pods.chief, 1), (bounds.ps, pods.ps, allowed.ps), (bounds.worker, pods.worker, allowed.workers),
        (bounds.other, pods.other, others),
    ]  # fmt: skip


@given(seeds)
@settings(max_examples=2 * EXAMPLES)
def test_new_jobs_exceed_no_quota_that_counts_them(seed: int):
    seen, rules = bounded(seed, new=True)
    allowances = decide(seen, rules).allowances
    for quota in seen.quotas:
        counted = [
            (pod, number) for one, allowed in zip(seen.jobs, allowances) for bound, pod, number in counts(one, allowed)
            if quota.name == one.queue or quota.name in bound.quotas
        ]  # fmt: skip
        for name, limit in (("cpu", quota.free.cpu), ("memory", quota.free.memory_bytes), ("pods", quota.pods)):
            if name in quota.limits:
                used = sum(
                    number * {"cpu": pod.cpu, "memory": pod.memory_bytes, "pods": 1}[name] for pod, number in counted
                )
                assert used <= limit + (0.02 if name == "cpu" else 0)


@given(seeds)
@settings(max_examples=2 * EXAMPLES)
def test_new_jobs_have_room_on_nodes_to_which_their_pods_may_go(seed: int):
    """Pods that may go to some groups only never request more than the nodes of these have, for each set of groups."""
    seen, rules = bounded(seed, new=True)
    allowances = decide(seen, rules).allowances
    for count in range(len(GROUPS) + 1):
        for some in itertools.combinations(GROUPS, count):
            there = [one for one in seen.nodes if one.group in some]
            pods = [
                (pod, number) for one, allowed in zip(seen.jobs, allowances)
                for bound, pod, number in counts(one, allowed)
                if bound.groups is not None and set(bound.groups) <= set(some)
            ]  # fmt: skip
            assert sum(pod.cpu * number for pod, number in pods) <= sum(one.free.cpu for one in there) + 0.02
            assert sum(pod.memory_bytes * number for pod, number in pods) <= sum(one.free.memory_bytes for one in there)
            if all(one.pods for one in there):
                assert sum(number for _, number in pods) <= sum(one.pods for one in there)


@given(seeds)
@settings(max_examples=EXAMPLES)
def test_of_a_closed_queue_nobody_starts_and_nobody_grows(seed: int):
    seen, rules = bounded(seed)
    closed = {one.name for one in seen.quotas if one.closed}
    for one, allowed in zip(seen.jobs, decide(seen, rules).allowances):
        bounds = one.bounds or Bounds()
        names = {one.queue}.union(*(bound.quotas for bound in (bounds.chief, bounds.ps, bounds.worker, bounds.other)))
        if not names & closed:
            continue
        before = one.allowance
        if before is not None and not before.runs:
            assert not allowed.runs
            assert "starts nobody, it is Closed" in allowed.why or "never fits" in allowed.why
        if before is not None and before.runs and allowed.runs:
            old = clipped((before.ps, before.workers), size_of(one.least), size_of(one.most))
            assert one.strict or (allowed.ps <= old[0] and allowed.workers <= old[1])


@given(seeds)
@settings(max_examples=EXAMPLES)
def test_what_was_decided_within_bounds_is_not_changed_when_it_is_observed_again(seed: int):
    seen, rules = bounded(seed, odd=seed % 2 == 0)
    first = decide(seen, rules)
    again = decide(clusters.given(seen, first), rules)
    assert again.changed == () and again.allowances == first.allowances


# ------------------------------------------------------------------------------------------------------------- nodes


def test_jobs_that_select_different_nodes_have_what_those_nodes_have():
    there = [*grouped("a", 2), *grouped("b", 1)]
    jobs = [
        job("x", bounds=everywhere("a")),
        job("y", bounds=everywhere("b")),
        job("z", least=(0, 2), bounds=everywhere("b")),
    ]
    assert workers(cluster(jobs, there)) == [7, 3, None]
    assert (
        why(cluster(jobs, there), "z")
        == "waits for 3.0 cores: 0.0 of 4.0 cores free on the 1 node to which they may go; first in line"
    )


def test_each_role_counts_where_its_pods_may_go():
    small, large = Bound(("small",)), Bound(("large",))
    one = job("x", least=(1, 1), most=(1, 9), bounds=Bounds(small, large, small, small))
    assert sizes(cluster([one], [*grouped("small", 1), *grouped("large", 1)])) == {"x": (1, 3)}


def test_who_may_go_elsewhere_gives_nothing_for_who_may_not():
    there = [*grouped("a", 1), *grouped("b", 1)]
    runs = job("low", allowed=(0, 3), on="a-node-000", bounds=everywhere("a"))
    wants = job("high", least=(0, 4), priority=5, bounds=everywhere("b"))
    found = cluster([runs, wants], there)
    assert workers(found) == [3, None]
    assert why(found, "high") == (
        "never fits: its least of 5.0 cores, and the 1 node to which these pods may go together have 4.0 cores"
    )
    fits = job("high", least=(0, 3), most=(0, 3), priority=5, bounds=everywhere("ab"))
    assert workers(cluster([runs, fits], there)) == [3, 3]


def test_a_lower_priority_gives_where_both_may_go():
    there = [*grouped("a", 1), *grouped("b", 1)]
    lows = [
        job("one", allowed=(0, 3), on="a-node-000", bounds=everywhere("a")),
        job("two", allowed=(0, 3), on="b-node-000", bounds=everywhere("b")),
    ]
    high = job("high", most=(0, 1), priority=5, bounds=everywhere("b"))
    assert workers(cluster([*lows, high], there)) == [3, 1, 1]


def test_room_that_is_kept_on_some_nodes_holds_up_nobody_on_others():
    there = [*grouped("a", 2), *grouped("b", 1)]
    runs = job("runs", least=(0, 4), most=(0, 4), allowed=(0, 4), on="a-node-000", bounds=everywhere("a"))
    old = job("old", least=(0, 7), most=(0, 7), bounds=everywhere("a"), arrived=clusters.NOW - 5000.0)
    behind = job("behind", least=(0, 1), most=(0, 1), bounds=everywhere("a"))
    beside = job("beside", least=(0, 1), most=(0, 1), bounds=everywhere("b"))
    assert workers(cluster([runs, old, behind, beside], there)) == [4, None, None, 1]


def test_a_pod_larger_than_any_node_to_which_it_may_go_is_told_with_these():
    there = [*grouped("a", 3), *grouped("b", 1, 64.0)]
    assert why(cluster([job("x", pod=6.0, bounds=everywhere("a"))], there), "x") == (
        "never fits: a worker of 6.0 cores, and the largest of the 3 nodes to which it may go has 4.0 cores"
    )
    nowhere = job("x", bounds=everywhere(()))
    assert why(cluster([nowhere], there), "x").startswith("never fits: a worker of 1.0 cores")
    assert why(cluster([nowhere], there), "x").endswith("there is no node to which it may go")


# ------------------------------------------------------------------------------------------------------------- quotas


def test_the_tightest_of_several_quotas_counts_and_is_named():
    limits = [
        Quota("ml", Resources(cpu=12.0), ("cpu",)),
        Quota("team", Resources(cpu=2.0), ("cpu",), held=Resources(cpu=6.0), said="ClusterQueue team"),
    ]
    one = job("x", queue="ml", bounds=everywhere(quotas=["team"]))
    assert workers(cluster([one], nodes(8), quotas=limits)) == [1]
    large = job("x", least=(0, 3), queue="ml", bounds=everywhere(quotas=["team"]))
    assert why(cluster([large], nodes(8), quotas=limits), "x") == (
        "waits for 4.0 cores of ClusterQueue team: 2.0 of 8.0 cores free; first in line"
    )
    huge = job("x", least=(0, 8), most=(0, 9), queue="ml", bounds=everywhere(quotas=["team"]))
    assert why(cluster([huge], nodes(8), quotas=limits), "x") == (
        "never fits: its least of 9.0 cores is more than ClusterQueue team has, 8.0 cores"
    )


def test_a_quota_counts_the_roles_that_it_counts_and_no_others():
    limit = Quota("ml/spot", Resources(cpu=3.0), ("cpu", "pods"), pods=2, said="ResourceQuota ml/spot")
    counted = Bound(quotas=("ml/spot",))
    assert workers(cluster([job("x", bounds=Bounds(worker=counted))], nodes(8), quotas=[limit])) == [2]
    assert workers(cluster([job("x", bounds=Bounds(chief=counted))], nodes(8), quotas=[limit])) == [7]


def test_who_waits_for_a_quota_is_given_by_those_of_that_quota_alone():
    limit = Quota("team", Resources(cpu=6.0), ("cpu",), said="ClusterQueue team")
    bounds = everywhere(quotas=["team"])
    jobs = [
        job("in", least=(0, 1), allowed=(0, 5), on="node-000", bounds=bounds), job("out", allowed=(0, 5), on="node-001"),
        job("new", most=(0, 1), priority=5, bounds=bounds),
    ]  # fmt: skip
    assert workers(cluster(jobs, nodes(3, 6.0), quotas=[limit]))[0] == 3
    assert workers(cluster(jobs, nodes(3, 6.0), quotas=[limit]))[1:] == [7, 1]


def test_of_a_queue_on_hold_who_runs_goes_on_and_who_waits_is_told_why():
    limit = Quota("team", Resources(cpu=60.0), ("cpu",), said="ClusterQueue team", closed="its stopPolicy is Hold")
    bounds = everywhere(quotas=["team"])
    runs, waits = job("runs", allowed=(0, 2), on="node-000", bounds=bounds), job("waits", bounds=bounds)
    there = cluster([runs, waits, job("free")], nodes(8), quotas=[limit])
    assert workers(there) == [2, None, 7]
    assert why(there, "waits") == "waits: ClusterQueue team starts nobody, its stopPolicy is Hold"
    assert summary(there, decide(there))[-1] == "ClusterQueue team: 60.0 cores; starts nobody, its stopPolicy is Hold"
    opened = dataclasses.replace(there, quotas=(dataclasses.replace(limit, closed=""),))
    assert workers(opened)[1] is not None


def test_pods_of_others_take_no_quota():
    limit = Quota("team", Resources(cpu=4.0), ("cpu",))
    one = job("x", allowed=(0, 3), on="node-000", bounds=everywhere(quotas=["team"]))
    assert workers(cluster([one], nodes(1), [pod("serving", 100, 2.0)], [limit])) == [1]


# ------------------------------------------------------------------------------------------------------------- records


def test_decisions_within_bounds_are_replayed(tmp_path: Path):
    record = Record(tmp_path / "arbiter.jsonl")
    limit = Quota("team", Resources(cpu=6.0), ("cpu", "pods"), 5, Resources(2.0, GIB), "ClusterQueue team", "")
    jobs = [job("x", bounds=everywhere("a", ["team"])), job("y", bounds=Bounds(worker=Bound(())))]
    seen = cluster(jobs, [*grouped("a", 2), *grouped("b", 2)], quotas=[limit])
    assert record.add(seen, decide(seen))
    later = clusters.given(seen, decide(seen), later=30.0)
    assert record.add(
        dataclasses.replace(later, jobs=later.jobs[:1]), decide(dataclasses.replace(later, jobs=later.jobs[:1]))
    )
    found = list(replay(tmp_path / "arbiter.jsonl"))
    assert [one.same for one in found] == [True, True] and found[0].cluster == seen


def test_what_was_recorded_without_bounds_reads_as_it_was(tmp_path: Path):
    """A line of a release that knew neither groups of nodes nor several quotas."""
    path = tmp_path / "arbiter.jsonl"
    limit = Quota("team", Resources(cpu=6.0), ("cpu",))
    seen = cluster([job("x", queue="team"), job("y", allowed=(0, 2), on="node-001")], nodes(4), quotas=[limit])
    assert Record(path).add(seen, decide(seen))
    line = json.loads(path.read_text())
    for one in line["cluster"]["jobs"]:
        assert one.pop("bounds") is None
    for one in line["cluster"]["nodes"]:
        assert one.pop("group") == ""
    for one in line["cluster"]["quotas"]:
        for name in ("pods", "held", "said", "closed"):
            del one[name]
    path.write_text(json.dumps(line) + "\n")
    (found,) = replay(path)
    assert found.same and found.cluster == seen
