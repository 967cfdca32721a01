"""What is wrong with a job is said with its figures and with what to do."""

from __future__ import annotations

from typing import Any

from tests.unit.tfjob.arbiting.clusters import NOW, node, pods_of, priority_class, quota, seen, tfjob
from tfjob.arbiting.observing import observe
from tfjob.arbiting.problems import NEVER_FITS, NO_CLASS, NO_RIGHTS, UNREAD, Capacities, problems
from tfjob.arbiting.seen import reach_of


def told(job: Any, pods: Any = (), **others: Any) -> dict[str, str]:
    """Reason → message."""
    found = seen([job], pods, **others)
    cluster = observe(found, NOW)
    return {
        event.reason: event.message
        for event in problems(
            found.bidders[0], cluster.jobs[0] if cluster.jobs else None, found, Capacities(found), cluster.quotas
        )
    }  # fmt: skip


def test_a_class_that_there_is_not_is_named_with_those_that_there_are():
    classes = [priority_class("silver", 1), priority_class("gold", 9)]
    found = told(tfjob(priority="god"), nodes=[node()], classes=classes)
    assert list(found) == [NO_CLASS] and "god does not exist (there are: gold, silver)" in found[NO_CLASS]
    assert not told(tfjob(priority="gold"), nodes=[node()], classes=classes)
    assert not told(tfjob(priority="god"), nodes=[node()], known=False), "nobody may read them"


def test_the_class_of_the_scheduling_policy_counts_where_no_template_names_one():
    classes = [priority_class("silver", 1), priority_class("gold", 9), priority_class("usual", 3, default=True)]
    policy = {"run_policy": {"schedulingPolicy": {"priorityClass": "gold"}}}
    jobs = [tfjob("a", **policy), tfjob("b", priority="silver", **policy), tfjob("c")]
    assert [one.priority for one in observe(seen(jobs, nodes=[node()], classes=classes), NOW).jobs] == [9, 1, 3]
    odd = tfjob(run_policy={"schedulingPolicy": {"priorityClass": "god"}})
    assert observe(seen([odd], nodes=[node()], classes=classes), NOW).jobs[0].priority == 3
    assert "another in schedulingPolicy.priorityClass" in told(odd, nodes=[node()], classes=classes)[NO_CLASS]


def test_a_least_that_never_fits_is_told_with_its_figures():
    large = tfjob(cpu=4, annotations={"min-workers": "5", "max-workers": "9"}, workers=5)
    nodes = [node("n1", 8), node("n2", 8)]
    message = told(large, nodes=nodes)[NEVER_FITS]
    assert "1 PS, 5 workers: 28 cores; all 2 nodes" in message and "16 cores together" in message
    assert not told(large, nodes=[*nodes, node("n3", 12)])
    assert not told(large, pods_of(large, "n1"), nodes=nodes), "it has fitted"


def test_a_pod_that_is_larger_than_any_node_is_told_with_the_largest():
    message = told(tfjob(cpu=9), nodes=[node("n1", 8), node("n2", 4)])[NEVER_FITS]
    assert (
        message.startswith("a chief of it requests 9 cores, and the largest of the 2 nodes")
        and "has 8 cores" in message
    )


def test_a_job_that_no_node_may_take_is_told():
    job = tfjob(template={"nodeSelector": {"pool": "trian"}})
    assert "no node to which its pods may go" in told(job, nodes=[node(labels={"pool": "train"})])[NEVER_FITS]


def test_a_job_that_only_wishes_for_spot_nodes_fits_on_others_where_there_are_none():
    wish = {"annotations": {"spot": "spot=true"}}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "spot", "operator": "In", "values": ["true"]}]}]}}}  # fmt: skip
    tolerates = [{"key": "spot", "operator": "Exists"}]
    for template in ({"nodeSelector": {"spot": "true"}}, {"affinity": affinity}):
        job = tfjob(template={**template, "tolerations": tolerates}, **wish)
        taints = [{"key": "spot", "value": "true", "effect": "NoSchedule"}]
        nodes = [node("n1"), node("s1", labels={"spot": "true"}, taints=taints)]
        assert not told(job, nodes=nodes[:1]) and not told(job, nodes=nodes[1:])
        assert [one.name for one in observe(seen([job], nodes=nodes), NOW).nodes] == ["n1", "s1"]
        assert NEVER_FITS in told(tfjob(template=template), nodes=nodes[:1]), "it is no wish without the annotation"
    elsewhere = tfjob(template={"nodeSelector": {"spot": "true", "pool": "a"}}, **wish)
    assert NEVER_FITS in told(elsewhere, nodes=[node("n1")])


def test_a_quota_that_is_less_than_the_least_is_told():
    job = tfjob(annotations={"min-workers": "2"})
    message = told(job, nodes=[node()], quotas=[quota(cpu="3", memory="1Ti")])[NEVER_FITS]
    assert "a chief, 1 PS, 2 workers: 4 cores; the ResourceQuota of namespace ml has 3 cores" in message


def test_annotations_of_ours_that_cannot_be_read_are_told():
    message = told(tfjob(annotations={"worth": "{"}), nodes=[node()])[UNREAD]
    assert message.startswith("annotation aimaster.deeprec.io/worth: ") and "as if it were not there" in message


def test_a_job_of_whose_room_nobody_knows_is_told_which_rights_are_missing():
    assert "components/arbiter" in told(tfjob(), nodes=None)[NO_RIGHTS]


def test_jobs_with_the_same_selectors_share_a_reach():
    assert reach_of(tfjob()["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]) == reach_of({"nodeSelector": {}})
