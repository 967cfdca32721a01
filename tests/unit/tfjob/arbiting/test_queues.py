"""Quotas with scopes, queues of Kueue and Volcano, nodes that not all jobs may use: from manifests as these APIs have them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Cluster, Quota, Resources
from tests.unit.tfjob.arbiting.clusters import (
    cluster_queue,
    containers,
    flavor,
    local_queue,
    node,
    observed,
    pod,
    pods_of,
    priority_class,
    quota,
    tfjob,
    volcano_queue,
)
from tests.unit.tfjob.arbiting.test_problems import told
from tfjob.arbiting.problems import NEVER_FITS
from tfjob.arbiting.scopes import traits_of
from tfjob.model.kinds import Manifest

GIB = 1 << 30


def in_kueue(name: str = "ctr", queue: str = "team-a", **more: Any) -> Manifest:
    job = tfjob(name, **more)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return job


def in_volcano(name: str = "ctr", queue: str = "night", **more: Any) -> Manifest:
    return tfjob(name, run_policy={"schedulingPolicy": {"queue": queue}}, template={"schedulerName": "volcano"}, **more)


def limits(found: Cluster) -> dict[str, tuple[float, float]]:
    """What people call each → cores that are free, and that others hold."""
    return {one.said or one.name: (one.free.cpu, one.held.cpu) for one in found.quotas}


def bounds(found: Cluster, at: int = 0) -> dict[str, tuple[tuple[str, ...] | None, tuple[str, ...]]]:
    of_job = found.jobs[at].bounds
    assert of_job is not None
    return {
        role: (getattr(of_job, role).groups, getattr(of_job, role).quotas)
        for role in ("chief", "ps", "worker", "other")
    }


# ------------------------------------------------------------------------------------------------------------- scopes


def test_a_quota_of_a_priority_class_counts_the_pods_of_that_class():
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]}
    of_low = quota(name="low", cpu="8", pods="6")
    of_low["spec"]["scopeSelector"] = selector
    jobs = [tfjob("a", priority="low"), tfjob("b", priority="high"), tfjob("c")]
    pods = [
        pod("x", "n1", 2, namespace="ml", priorityClassName="low"), pod("y", "n1", 1, namespace="ml", priorityClassName="high"),
        *pods_of(jobs[0], "n1", ps=1),
    ]  # fmt: skip
    classes = [priority_class("low", 1), priority_class("high", 9)]
    found = observed(jobs, pods, nodes=[node()], quotas=[of_low], classes=classes)
    (limit,) = found.quotas
    assert limit == Quota("ml/low", Resources(6.0), ("cpu", "pods"), 5, Resources(2.0), "ResourceQuota ml/low")
    assert bounds(found) == dict.fromkeys(("chief", "ps", "worker", "other"), (None, ("ml/low",)))
    assert [one.bounds for one in found.jobs[1:]] == [None, None] and {one.queue for one in found.jobs} == {""}
    by_default = observed(jobs, pods, nodes=[node()], quotas=[of_low], classes=[priority_class("low", 1, default=True)])
    assert [one.bounds is None for one in by_default.jobs] == [False, True, False], "who names none has the default"


@pytest.mark.parametrize(
    ("scopes", "counts"),
    [(["NotBestEffort"], True), (["BestEffort"], False), (["NotTerminating"], True), (["Terminating"], False),
     (["NotTerminating", "NotBestEffort"], True), (["NotTerminating", "BestEffort"], False), (["PriorityClass"], False),
     (["CrossNamespacePodAffinity"], False), (["OfALaterRelease"], False)],
)  # fmt: skip
def test_a_quota_with_scopes_counts_whom_all_of_them_match(scopes: list[str], counts: bool):
    found = observed([tfjob()], nodes=[node()], quotas=[quota(name="some", scopes=scopes, pods="3")])
    assert [one.name for one in found.quotas] == (["ml/some"] if counts else [])


def test_what_pods_have_that_scopes_look_at():
    bare = {"containers": [{"name": "tensorflow"}]}
    assert traits_of(bare).best_effort and not traits_of({"containers": containers()}).best_effort
    assert not traits_of({**bare, "initContainers": containers()}).best_effort
    assert traits_of({"activeDeadlineSeconds": 0}).terminating and not traits_of({}).terminating
    term = {"topologyKey": "zone", "namespaceSelector": {}}
    weighed = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    }
    assert traits_of({"affinity": weighed}).crossing and not traits_of({"affinity": {"podAffinity": {}}}).crossing


def test_pods_that_request_nothing_are_bounded_by_their_number():
    bare = {"containers": [{"name": "tensorflow", "image": "example/train:1"}]}
    job = tfjob(template=bare, ps=0, workers=9, annotations={"max-workers": "9"})
    found = observed([job], nodes=[node()], quotas=[quota(name="few", scopes=["BestEffort"], pods="4")])
    (allowed,) = decide(found).allowances
    assert allowed.workers == 3 and bounds(found)["other"] == (None, ())


# ------------------------------------------------------------------------------------------------------------- nodes


def test_nodes_are_grouped_by_which_pods_may_go_there():
    nodes = [
        node("a1", labels={"pool": "a"}),
        node("a2", labels={"pool": "a"}),
        node("b1", labels={"pool": "b"}),
        node("c1"),
    ]
    jobs = [tfjob("a", template={"nodeSelector": {"pool": "a"}}), tfjob("b", template={"nodeSelector": {"pool": "b"}})]
    found = observed(jobs, nodes=nodes)
    assert {one.name: one.group for one in found.nodes} == {"a1": "0", "a2": "0", "b1": "1"}
    assert bounds(found)["worker"] == (("0",), ()) and bounds(found, 1)["worker"] == (("1",), ())
    assert bounds(found)["other"] == (None, ()), "an AIMaster goes to any of them"
    everywhere = observed([*jobs, tfjob("c")], nodes=nodes)
    assert everywhere.jobs[2].bounds is None and len(everywhere.nodes) == 4
    alike = observed([tfjob("c"), tfjob("d")], nodes=nodes)
    assert {one.group for one in alike.nodes} == {""} and [one.bounds for one in alike.jobs] == [None, None]


def test_roles_of_one_job_may_go_to_different_nodes():
    job = tfjob(workers=9, annotations={"max-workers": "9"})
    gpu = {"key": "gpu", "operator": "Exists"}
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    worker["spec"] = {**worker["spec"], "tolerations": [gpu], "nodeSelector": {"gpu": "yes"}}
    nodes = [node("cpu", 16), node("gpu", 4, labels={"gpu": "yes"}, taints=[{"key": "gpu", "effect": "NoSchedule"}])]
    found = observed([job], nodes=nodes)
    assert bounds(found) == {"chief": (("0",), ()), "ps": (("0",), ()), "worker": (("1",), ()), "other": (("0",), ())}
    assert decide(found).allowances[0].workers == 4


def test_a_least_that_fits_nowhere_is_told_with_the_nodes_it_may_use():
    nodes = [node("a1", 4, labels={"pool": "a"}), node("b1", 64, labels={"pool": "b"})]
    select = {"nodeSelector": {"pool": "a"}}
    large = tfjob(template=select, annotations={"min-workers": "5", "max-workers": "9"}, workers=5)
    assert "7 cores; all 1 node to which its pods may go have 4 cores together" in told(large, nodes=nodes)[NEVER_FITS]
    found = observed([large, tfjob("other")], nodes=nodes)
    (why,) = [one.why for one in decide(found).allowances if one.job == "ml/ctr"]
    assert (
        why == "never fits: its least of 7.0 cores, and the 1 node to which these pods may go together have 4.0 cores"
    )


# ------------------------------------------------------------------------------------------------------------- Kueue


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_cluster_queue_limits_the_sum_of_its_jobs_without_what_others_hold(version: str):
    job, other = in_kueue(workers=2), in_kueue("other", namespace="elsewhere")  # that one's namespace has no such queue
    queue = cluster_queue(used={"default-flavor": {"cpu": "7", "memory": "7Gi"}}, version=version)
    found = observed([job, other], nodes=[node()], queues=[local_queue(), queue, flavor("default-flavor")])
    # Kueue has reserved a chief, a PS and two workers for our job: 4 of 7 cores.
    assert limits(found) == {"ClusterQueue cq": (6.0, 3.0)}
    assert found.quotas[0].free.memory_bytes == 33 * GIB and found.quotas[0].limits == ("cpu", "memory")
    assert bounds(found, 1)["worker"] == (None, (found.quotas[0].name,)) and bounds(found, 1)["other"] == (None, ())
    assert found.jobs[0].name == "elsewhere/other" and found.jobs[0].bounds is None


def test_an_allowance_never_exceeds_what_the_queue_would_admit():
    job = in_kueue(workers=2, annotations={"max-workers": "12"})
    queue = cluster_queue(used={"default-flavor": {"cpu": "7"}})
    found = observed([job], nodes=[node(cpu=64)], queues=[local_queue(), queue])
    (allowed,) = decide(found).allowances
    assert 1 + allowed.ps + allowed.workers <= 6 and allowed.runs
    large = in_kueue(workers=6, annotations={"min-workers": "6", "max-workers": "12"})
    held = cluster_queue(used={"default-flavor": {"cpu": "11"}})
    (waits,) = decide(observed([large], nodes=[node(cpu=64)], queues=[local_queue(), held])).allowances
    assert waits.why == "waits for 8.0 cores of ClusterQueue cq: 6.0 of 9.0 cores free; first in line"
    huge = in_kueue(workers=9, annotations={"min-workers": "9", "max-workers": "12"})
    message = told(huge, nodes=[node(cpu=64)], queues=[local_queue(), queue])[NEVER_FITS]
    assert "11 cores; the ClusterQueue cq has 9 cores" in message


@pytest.mark.parametrize(
    ("queues", "why"),
    [([local_queue(), cluster_queue(stopPolicy="Hold")], "ClusterQueue cq starts nobody, its stopPolicy is Hold"),
     ([local_queue(), cluster_queue(active="False")], "ClusterQueue cq starts nobody, it is not active: FlavorNotFound"),
     ([local_queue(stopPolicy="HoldAndDrain"), cluster_queue()],
      "LocalQueue ml/team-a starts nobody, its stopPolicy is HoldAndDrain"),
     ([local_queue()], "LocalQueue ml/team-a starts nobody, there is no ClusterQueue cq")],
)  # fmt: skip
def test_a_queue_on_hold_starts_nobody(queues: list[Manifest], why: str):
    (allowed,) = decide(observed([in_kueue()], nodes=[node()], queues=queues)).allowances
    assert (allowed.runs, allowed.why) == (False, f"waits: {why}")


def test_what_pods_alone_name_as_their_queue_counts_as_their_pods_do():
    job = tfjob(workers=4)
    for one in job["spec"]["tfReplicaSpecs"].values():
        one["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}
    queue = cluster_queue(used={"default-flavor": {"cpu": "5"}})
    found = observed([job], pods_of(job, "n1", ps=1, workers=1), nodes=[node()], queues=[local_queue(), queue])
    assert limits(found) == {"ClusterQueue cq": (7.0, 2.0)}, "3 of the 5 cores are our pods'"


@pytest.mark.parametrize("field", ["cohort", "cohortName"])
def test_members_of_a_cohort_borrow_what_others_lend(field: str):
    queues = [
        cluster_queue("one", {"f": {"cpu": ("8", "4")}}, {"f": {"cpu": "4"}}, **{field: "all"}),
        cluster_queue("two", {"f": {"cpu": ("6", None, "2")}}, {"f": {"cpu": "5"}}, **{field: "all"}),
        cluster_queue("off", {"f": {"cpu": "50"}}, stopPolicy="Hold", **{field: "all"}),
    ]
    found = observed([in_kueue()], nodes=[node()], queues=[local_queue(queue="one"), *queues])
    # `one` has 8 of its own and may borrow 4; `two` lends 2 of its 6, of which it has taken 1 itself.
    assert limits(found) == {"ClusterQueue one": (9.0, 1.0)}
    other = in_kueue("b", "team-b", workers=3)
    found = observed(
        [in_kueue(), other], nodes=[node()], queues=[local_queue(queue="one"), local_queue("team-b", "two"), *queues]
    )
    assert limits(found) == {
        "ClusterQueue one": (10.0, 0.0), "ClusterQueue two": (14.0, 0.0), "cohort all of Kueue": (14.0, 0.0),
    }  # fmt: skip


def test_what_is_borrowed_by_a_queue_on_hold_is_not_free():
    queues = [
        cluster_queue("a", {"f": {"cpu": "10"}}, cohortName="all"),
        cluster_queue("b", {"f": {"cpu": "10"}}, {"f": {"cpu": "16"}}, stopPolicy="Hold", cohortName="all"),
    ]
    found = observed([in_kueue()], nodes=[node()], queues=[local_queue(queue="a"), *queues])
    assert limits(found) == {"ClusterQueue a": (4.0, 6.0)}


@pytest.mark.parametrize("lent", [0, 4])
def test_of_many_queues_that_keep_a_part_each_may_have_its_own(lent: int):
    names = [f"q{at}" for at in range(7)]
    queues = [cluster_queue(name, {"f": {"cpu": ("10", None, "0m")}}, cohortName="all") for name in names]
    lends = cluster_queue("lends", {"f": {"cpu": str(lent)}}, cohortName="all")
    jobs = [in_kueue(name, name, workers=12, annotations={"min-workers": "8", "max-workers": "12"}) for name in names]
    queues += [lends, *(local_queue(name, name) for name in names)]
    found = decide(observed(jobs, nodes=[node(cpu=500, memory="900Gi")], queues=queues)).allowances
    cores = [1 + one.ps + one.workers if one.runs else 0 for one in found]
    assert min(cores) >= 10 and sum(cores) == 70 + lent


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_whatever_a_cohort_lends_kueue_would_admit_what_is_allowed(seed: int):
    """By Kueue's own arithmetic: who takes more than it does not lend takes it from what all lend."""
    chance = random.Random(seed)
    queues, jobs, held = [], [], {}
    keeping = chance.random() < 0.5  # each of them a part
    for at in range(chance.randint(1, 5)):
        name, nominal = f"q{at}", chance.randint(0, 9)
        borrowing, lending = (
            chance.choice([None, chance.randint(0, 6)]),
            chance.choice([None, chance.randint(0, nominal)]) if not keeping else nominal // 2,
        )
        count, others = chance.randint(0, 2), chance.randint(0, 4)
        ours = [
            in_kueue(f"j{at}-{one}", f"l{at}", workers=1, annotations={"max-workers": "12"}) for one in range(count)
        ]
        limits_of = (str(nominal), (borrowing and str(borrowing)) or (borrowing is not None and "0m") or None)
        lends = None if lending is None else str(lending) if lending else "0m"
        queues += [
            local_queue(f"l{at}", name),
            cluster_queue(
                name, {"f": {"cpu": (*limits_of, lends)}}, {"f": {"cpu": str(others + 3 * count)}}, cohortName="all"
            ),
        ]
        jobs += ours
        held[name] = (nominal, math.inf if borrowing is None else borrowing,
                      0 if lending is None else nominal - lending, others)  # fmt: skip
    allowances = decide(observed(jobs, nodes=[node(cpu=500, memory="900Gi")], queues=queues)).allowances
    taken = dict.fromkeys(held, 0)
    for one in allowances:
        taken["q" + one.job.removeprefix("ml/j").partition("-")[0]] += (1 + one.ps + one.workers) if one.runs else 0
    lent = sum(nominal - own for nominal, _, own, _ in held.values())
    beyond = sum(max(0, taken[name] + others - own) for name, (_, _, own, others) in held.items())
    already = sum(max(0, others - own) for _, _, own, others in held.values())
    assert beyond <= max(lent, already)
    for name, (nominal, borrowing, _, others) in held.items():
        assert not taken[name] or taken[name] + others <= nominal + borrowing


def test_of_two_flavors_the_one_whose_labels_are_selected_counts():
    queue = cluster_queue(
        flavors={"spot": {"cpu": "20"}, "on-demand": {"cpu": "5"}},
        used={"on-demand": {"cpu": "6"}, "spot": {"cpu": "3"}},
    )
    flavors = [flavor("spot", tier="spot"), flavor("on-demand", tier="regular")]
    job = in_kueue(workers=2, template={"nodeSelector": {"tier": "regular", "disk": "ssd"}})
    nodes = [node(labels={"tier": "regular", "disk": "ssd"})]
    found = observed([job], nodes=nodes, queues=[local_queue(), queue, *flavors])
    assert limits(found) == {"ClusterQueue cq, flavor on-demand": (3.0, 2.0)}
    nobody_knows = observed([in_kueue(workers=2)], nodes=nodes, queues=[local_queue(), queue, *flavors])
    assert limits(nobody_knows) == {"ClusterQueue cq": (20.0, 5.0)}


def test_where_the_flavor_is_not_known_what_may_be_borrowed_of_all_is_the_limit():
    flavors = {"spot": {"cpu": "5"}, "regular": {"cpu": ("3", "2")}}
    queues = [
        cluster_queue("mine", flavors, cohortName="all"),
        cluster_queue(
            "lends",
            {"spot": {"cpu": ("9", None, "4")}, "regular": {"cpu": "6"}},
            {"spot": {"cpu": "6"}},
            cohortName="all",
        ),
    ]
    labelled = [flavor("spot", tier="spot"), flavor("regular", tier="regular")]
    found = observed([in_kueue()], nodes=[node()], queues=[local_queue(queue="mine"), *queues, *labelled])
    assert limits(found) == {"ClusterQueue mine": (13.0, 1.0)}, "8 of 9 of spot, 5 of regular"


def test_a_cohort_has_quotas_of_its_own():
    cohort = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all"},
        "spec": {"resourceGroups": cluster_queue("x", {"f": {"cpu": "3"}})["spec"]["resourceGroups"]},
    }  # fmt: skip
    queues = [local_queue(), cluster_queue(flavors={"f": {"cpu": "4"}}, cohortName="all"), cohort]
    assert limits(observed([in_kueue()], nodes=[node()], queues=queues)) == {"ClusterQueue cq": (7.0, 0.0)}


# ------------------------------------------------------------------------------------------------------------- Volcano


def test_a_queue_of_volcano_is_limited_by_its_capability_and_by_what_is_guaranteed_to_others():
    job = in_volcano(workers=2)
    mine = volcano_queue(capability={"cpu": "8"}, used={"cpu": "6", "memory": "6Gi"})
    pods = pods_of(job, "n1", ps=1, workers=1)
    found = observed([job], pods, nodes=[node()], queues=[mine])
    assert limits(found) == {"queue night of Volcano": (5.0, 3.0)} and found.quotas[0].limits == ("cpu",)
    assert bounds(found)["worker"][1] == ("queue night of Volcano",) and bounds(found)["other"][1] == ()
    kept = volcano_queue("vip", guarantee={"resource": {"cpu": "10"}})
    assert limits(observed([job], pods, nodes=[node()], queues=[mine, kept]))["queue night of Volcano"] == (3.0, 3.0)


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_closed_queue_of_volcano_starts_nobody(state: str):
    (allowed,) = decide(observed([in_volcano()], nodes=[node()], queues=[volcano_queue(state=state)])).allowances
    assert (allowed.runs, allowed.why) == (False, f"waits: queue night of Volcano starts nobody, it is {state}")


def test_queues_above_count_what_those_below_hold():
    queues = [
        volcano_queue(parent="team", used={"cpu": "2"}), volcano_queue("day", parent="team", used={"cpu": "3"}),
        volcano_queue("team", parent="root", capability={"cpu": "9"}), volcano_queue("root", capability={"cpu": "1"}),
    ]  # fmt: skip
    found = observed([in_volcano()], nodes=[node()], queues=queues)
    assert limits(found)["queue team of Volcano"] == (4.0, 5.0)
    assert bounds(found)["ps"][1] == ("queue night of Volcano", "queue team of Volcano")


def test_while_others_wait_for_what_they_deserve_a_queue_keeps_what_it_deserves_itself():
    mine = volcano_queue(deserved={"cpu": "4"}, capability={"cpu": "12"}, used={"cpu": "1"})
    others = volcano_queue("day", deserved={"cpu": "8"}, used={"cpu": "7"}, waits=1)
    there = {"nodes": [node()]}
    assert limits(observed([in_volcano()], queues=[mine, others], **there)) == {"queue night of Volcano": (3.0, 9.0)}
    others["status"]["pending"] = 0
    assert limits(observed([in_volcano()], queues=[mine, others], **there)) == {"queue night of Volcano": (11.0, 1.0)}
    weighed = [volcano_queue(weight=1), volcano_queue("day", weight=3, used={"cpu": "2"}, waits=2)]
    assert limits(observed([in_volcano()], queues=weighed, **there)) == {"queue night of Volcano": (4.0, 12.0)}


def test_jobs_that_name_no_queue_are_in_the_default_one_of_their_scheduler():
    queues = [volcano_queue("default", capability={"cpu": "3"}), local_queue(), cluster_queue()]
    by_volcano, by_nobody = tfjob("a", template={"schedulerName": "volcano"}), tfjob("b")
    found = observed([by_volcano, by_nobody], nodes=[node()], queues=queues)
    assert [one.said for one in found.quotas] == ["queue default of Volcano"] and found.jobs[1].bounds is None


def test_where_there_are_no_queues_nothing_of_them_is_observed():
    found = observed([in_kueue(), in_volcano("b")], nodes=[node()])
    assert found.quotas == () and [one.bounds for one in found.jobs] == [None, None]
