"""From manifests, as anybody may have written them, to what the arbiter decides from."""

from __future__ import annotations

import dataclasses
import json

import pytest

from deeprec_ext.arbiter.observed import Allowance, Amount, Bid, Cluster, Count, Resources, Worth
from deeprec_ext.arbiter.wire import allowance_text, bid_text
from deeprec_ext.decoding import built
from tests.unit.tfjob.arbiting.clusters import (
    MADE,
    NOW,
    node,
    observed,
    pod,
    pods_of,
    priority_class,
    quota,
    seen,
    tfjob,
)
from tfjob.arbiting.amounts import requested
from tfjob.arbiting.observing import REACHED_MAX, Labels, observe
from tfjob.arbiting.seen import pod_seen
from tfjob.model.annotations import parse
from tfjob.model.spec import TFJob
from tfjob.pods import aimaster

GIB = 1 << 30
FULL = "0/3 nodes are available: 3 Insufficient cpu."


def test_of_a_node_there_is_what_pods_of_others_leave():
    job = tfjob()
    pods = [
        pod("a", "n1", 3, "4Gi"), pod("done", "n1", 9, phase="Succeeded"), pod("b", "n2", 1),
        *pods_of(job, "n1", ps=1, workers=2, aimaster=True),
    ]  # fmt: skip
    found = observed([job], pods, nodes=[node("n2", 8, "8Gi"), node("n1", 16, "64Gi", pods=10)])
    assert [one.name for one in found.nodes] == ["n1", "n2"]
    assert found.nodes[0].free == Resources(13.0, 60 * GIB) and found.nodes[0].pods == 9
    assert found.nodes[1].free == Resources(7.0, 7 * GIB)


def test_a_job_is_what_its_user_wrote_its_aimaster_said_and_its_pods_are():
    bid = Bid(NOW - 5, Count(1, 2), Count(2, 4), (Worth(1, 2, 100.0), Worth(2, 4, 180.0)), training=True)
    had = Allowance("", True, 1, 3, NOW - 100, "there was room")
    job = tfjob(
        priority="gold", cpu="500m", status={"conditions": [{"type": "Running", "status": "True"}]},
        annotations={"min-ps": "1", "max-ps": "3", "max-workers": "6", "weight": "2.5", "supervise": "dynamic",
                     "worth": bid_text(bid), "allowance": allowance_text(had)},
    )  # fmt: skip
    pods = pods_of(job, "n1", ps=1, workers=2, aimaster=True)
    (found,) = observed([job], pods, nodes=[node()], classes=[priority_class("gold", 1000)]).jobs
    assert (found.name, found.priority, found.weight, found.queue) == ("ml/ctr", 1000, 2.5, "")
    assert (found.least, found.most, found.written) == (Count(1, 0), Count(3, 6), Count(1, 2))
    assert found.bid == bid and found.allowance == dataclasses.replace(had, job="ml/ctr") and found.started
    assert (
        found.pods.worker == Resources(0.5, GIB) and found.pods.other == Resources()
    )  # the AIMaster's is the operator's to say
    assert [one.role for one in found.placed] == ["other", "chief", "ps", "worker", "worker"]


def test_placed_pods_are_in_the_order_of_their_indices():
    job = tfjob(workers=12)
    pods = pods_of(job, "n1", ps=1, workers=12)
    for index, one in enumerate(pods[2:]):
        one["spec"]["nodeName"] = f"n{index}"
    (found,) = observed([job], pods, nodes=[node()]).jobs
    assert [one.node for one in found.placed if one.role == "worker"] == [f"n{index}" for index in range(12)]


def test_a_deadline_counts_from_the_beginning_or_from_when_the_job_was_made():
    says = {"autoscale": "true", "deadline": "2h"}
    began = {"startTime": "2027-01-15T08:00:00Z"}
    jobs = [
        tfjob("a", annotations=says), tfjob("b", annotations=says, status=began), tfjob("c"),
        tfjob("d", annotations={"autoscale": "true"}, status=began),
    ]  # fmt: skip
    assert [one.deadline for one in observed(jobs, nodes=[node()]).jobs] == [NOW - 60 + 7200, NOW + 7200, 0.0, 0.0]


def test_a_least_that_is_lowered_counts_from_when_the_aimaster_is_started_with_it():
    job, lower = (tfjob(workers=4, annotations={"min-workers": count}) for count in ("3", "1"))
    elastic, _ = parse(TFJob.parse(job))
    assert elastic is not None
    pods = pods_of(lower, "n1", ps=1, workers=4, aimaster=True)
    image = aimaster.Options(image="example/aimaster:1")
    made = aimaster.pod(TFJob.parse(job), elastic, image)
    pods[-1]["spec"]["containers"] = made["spec"]["containers"]
    assert observed([lower], pods, nodes=[node()]).jobs[0].least == Count(1, 3)
    assert observed([lower], pods[:-1], nodes=[node()]).jobs[0].least == Count(1, 1)
    fewer = tfjob(workers=2, annotations={"min-workers": "1", "max-workers": "2"})
    assert observed([fewer], pods, nodes=[node()]).jobs[0].least == Count(1, 2), "never beyond the most"
    for text in ("{", "[]", '{"min_workers": "many"}'):
        pods[-1]["spec"]["containers"][0]["env"][0]["value"] = text
        assert observed([lower], pods, nodes=[node()]).jobs[0].least == Count(1, 1)


def test_without_a_chief_worker_0_is_it():
    job = tfjob(workers=3)
    del job["spec"]["tfReplicaSpecs"]["Chief"]
    pods = pods_of(job, "n1", workers=3, chief=False)
    (found,) = observed([job], pods, nodes=[node()]).jobs
    assert [one.role for one in found.placed] == ["chief", "worker", "worker"]
    assert found.written == Count(1, 2) and found.least == Count(1, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {"enabled": "false"}}, {"run_policy": {"suspend": True}},
        {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}},
        {"run_policy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, {"annotations": {"max-ps": "many"}},
    ],
    ids=str,
)  # fmt: skip
def test_jobs_that_are_not_to_run_elastic_are_others(change):
    """What their pods hold is taken."""
    job = tfjob(**change)
    found = observed([job, tfjob("other")], pods_of(job, "n1", ps=1, workers=2), nodes=[node("n1", 16)])
    assert [one.name for one in found.jobs] == ["ml/other"]
    assert found.nodes[0].free.cpu == 12.0


def test_pods_that_carry_a_jobs_label_but_belong_to_somebody_else_are_not_its_own():
    job = tfjob()
    stranger = pods_of(job, "n1", workers=2)
    for one in stranger:
        one["metadata"]["ownerReferences"][0]["uid"] = "of-another-kind"
    found = observed([job], stranger, nodes=[node("n1", 16)])
    assert found.jobs[0].placed == () and found.nodes[0].free.cpu == 13.0


def test_nodes_to_which_nothing_new_may_go_are_no_room():
    gpu = [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    nodes = [
        node("cordoned", cordoned=True), node("lost", ready=False), node("gpu", taints=gpu), node("good"),
        node("soft", taints=[{"key": "x", "effect": "PreferNoSchedule"}]), node("full", pods=1),
    ]  # fmt: skip
    pods = [pod("one", "full", 0)]
    assert [one.name for one in observed([tfjob()], pods, nodes=nodes).nodes] == ["good", "soft"]
    tolerant = tfjob("tolerant", template={"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]})
    assert [one.name for one in observed([tfjob(), tolerant], pods, nodes=nodes).nodes] == ["good", "gpu", "soft"]


def test_nodes_that_no_job_selects_are_no_room():
    nodes = [node("a", labels={"pool": "train", "zone": "1"}), node("b", labels={"pool": "web"}), node("c")]
    selecting = tfjob(template={"nodeSelector": {"pool": "train"}})
    assert [one.name for one in observed([selecting], nodes=nodes).nodes] == ["a"]
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["web", "train"]},
                                   {"key": "zone", "operator": "DoesNotExist"}]}]  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert [one.name for one in observed([tfjob(template={"affinity": affinity})], nodes=nodes).nodes] == ["b"]


def test_prices_and_spot_are_read_from_labels():
    nodes = [
        node("a", labels={"deeprec.io/price-per-hour": "1.25", "karpenter.sh/capacity-type": "spot"}),
        node("b", labels={"cost": "3", "eks.amazonaws.com/capacityType": "ON_DEMAND"}),
        node("c", labels={"deeprec.io/price-per-hour": "cheap", "pool": "preemptible"}),
    ]
    found = observed([tfjob()], nodes=nodes).nodes
    assert [(one.price, one.spot) for one in found] == [(1.25, True), (0.0, False), (0.0, False)]
    found = observed([tfjob()], nodes=nodes, labels=Labels("cost", (("pool", "preemptible"),))).nodes
    assert [(one.price, one.spot) for one in found] == [(0.0, True), (3.0, False), (0.0, True)]


def test_who_waits_for_room_is_told_by_priority_and_who_waits_for_something_else_is_not():
    job = tfjob()
    own = pods_of(job, "", workers=1)[1]
    own["status"]["conditions"] = pod("x", waits="0/3 nodes: 3 Insufficient cpu.")["status"]["conditions"]
    going = pod("going", waits=FULL, priority=60)
    going["metadata"]["deletionTimestamp"] = MADE
    pods = [
        going, pod("low", waits=FULL, priority=1, cpu=2),
        pod("high", waits="0/3 nodes are available: 1 Too many pods, 2 Insufficient memory.", priority=9),
        pod("volume", waits="pod has unbound immediate PersistentVolumeClaims", priority=99),
        pod("new", priority=50), pod("placed", "n1", priority=70), own,
    ]  # fmt: skip
    found = observed([job], pods, nodes=[node()]).waiting
    assert [(one.name, one.priority) for one in found] == [("web/high", 9), ("web/low", 1)]
    assert found[1].resources == Resources(2.0, GIB) and found[0].since == NOW - 60


def test_who_waits_for_nodes_that_no_job_uses_is_not_told_and_who_may_use_some_names_them():
    serving = [{"key": "pool", "value": "serving", "effect": "NoSchedule"}]
    nodes = [
        node("n1"), node("n2", labels={"zone": "b"}),
        node("serving", labels={"pool": "serving"}, taints=serving),
    ]  # fmt: skip
    tolerates = [{"key": "pool", "operator": "Exists"}]
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
    zone = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pods = [
        pod("there", waits=FULL, priority=9, nodeSelector={"pool": "serving"}, tolerations=tolerates),
        pod("nowhere", waits=FULL, priority=8, nodeSelector={"pool": "none"}),
        pod("some", waits=FULL, priority=7, affinity=zone), pod("every", waits=FULL, priority=6, tolerations=tolerates),
    ]  # fmt: skip
    found = observed([tfjob()], pods, nodes=nodes)
    assert [(one.name, one.nodes) for one in found.waiting] == [("web/some", ("n2",)), ("web/every", ())]
    confined = observed([tfjob()], pods, nodes=None, quotas=[quota(cpu="8", memory="9Gi")]).waiting
    assert [one.nodes for one in confined] == [()] * 4, "where nobody may see nodes"


def test_of_many_nodes_the_roomiest_are_named():
    nodes = [node(f"n{at:03}", 4 + at % 100, labels={"zone": "b"}) for at in range(200)] + [node("other")]
    (found,) = observed([tfjob()], [pod("some", waits=FULL, nodeSelector={"zone": "b"})], nodes=nodes).waiting
    assert len(found.nodes) == REACHED_MAX and {"n099", "n199"} <= set(found.nodes)


def test_the_quota_of_a_namespace_counts_for_its_jobs_without_what_others_use_there():
    job = tfjob()
    pods = [*pods_of(job, "n1", ps=1), pod("notebook", "n1", 2, "4Gi", namespace="ml"), pod("x", "n1", namespace="web")]
    quotas = [
        quota(requests_cpu="10", requests_memory="20Gi"), quota(name="tight", cpu="8", pods="50"),
        quota(name="best", scopes=["BestEffort"], cpu="1"), quota("web", cpu="1"),
    ]  # fmt: skip
    found = observed(
        [job, tfjob("far", namespace="b", annotations={"queue": "team-b"})], pods, nodes=[node()], quotas=quotas
    )
    (limit,) = found.quotas
    assert (limit.name, limit.limits) == ("ml", ("cpu", "memory", "pods"))
    assert (limit.free, limit.pods, limit.held) == (Resources(6.0, 16 * GIB), 49, Resources(2.0, 4 * GIB))
    assert {one.name: one.queue for one in found.jobs} == {"ml/ctr": "ml", "b/far": "team-b"}


def test_queues_of_kueue_and_volcano_are_named():
    kueue, volcano = tfjob("a"), tfjob("b", run_policy={"schedulingPolicy": {"queue": "night"}})
    kueue["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    assert [one.queue for one in observed([kueue, volcano], nodes=[node()]).jobs] == ["team-a", "night"]


def test_where_no_nodes_may_be_seen_the_quota_is_the_room():
    job, elsewhere = tfjob(), tfjob("far", namespace="b")
    found = observed([job, elsewhere], pods_of(job, "n1", ps=1), nodes=None, quotas=[quota(cpu="10", memory="20Gi")])
    assert [(one.name, one.free) for one in found.nodes] == [("quota of ml", Resources(10.0, 20 * GIB))]
    assert [one.name for one in found.jobs] == ["ml/ctr"]
    assert {one.node for one in found.jobs[0].placed} == {"quota of ml"}


def test_priorities_are_those_of_classes_and_where_these_are_not_known_of_pods():
    classes = [priority_class("gold", 100), priority_class("usual", 7, default=True)]
    jobs = [tfjob("a", priority="gold"), tfjob("b"), tfjob("c", priority="lost")]
    assert [one.priority for one in observed(jobs, nodes=[node()], classes=classes).jobs] == [100, 7, 7]
    pods = pods_of(jobs[2], "n1")
    pods[0]["spec"]["priority"] = 55
    assert [one.priority for one in observed(jobs, pods, nodes=[node()], known=False).jobs] == [0, 0, 55]


def test_an_aimaster_is_silent_while_its_pod_is_not_ready():
    job = tfjob()
    pods = pods_of(job, "n1", aimaster=True)
    pods[-1]["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": MADE}]
    assert observed([job], pods, nodes=[node()]).jobs[0].silent_seconds == 0.0
    pods[-1]["status"]["conditions"][0]["status"] = "False"
    assert observed([job], pods, nodes=[node()]).jobs[0].silent_seconds == 60.0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"time": 1}', json.dumps("x" * 9000), '{"time":1,"size":{"ps":-1,"workers":0},"wanted":{"ps":1,'
             '"workers":1},"worth":[]}', '{"time":1,"size":{"ps":1,"workers":0},"wanted":{"ps":1,"workers":1},"worth":'
             '[{"ps":1,"workers":1,"examples_per_second":-4}]}'], ids=range(7),
)  # fmt: skip
def test_a_bid_that_is_none_counts_as_none(text):
    kept = seen([tfjob(annotations={"worth": text, "allowance": text})])
    assert observe(kept, NOW).jobs[0].bid is None
    assert bool(kept.bidders[0].unread) == bool(text)


@pytest.mark.parametrize("spoil", [
    lambda one: one["status"].update(conditions=["no", None]), lambda one: one["spec"].update(containers="none"),
    lambda one: one["spec"].update(containers=[{"resources": {"requests": {"cpu": "a lot"}}}, {"resources": []}]),
    lambda one: one["metadata"].update(labels=None), lambda one: one["spec"].update(priority="high"),
])  # fmt: skip
def test_no_manifest_is_too_odd_to_be_seen(spoil):
    one = pod("odd", "n1")
    spoil(one)
    assert pod_seen(one) is not None


def test_a_pod_requests_what_the_scheduler_counts():
    of = lambda cpu, **more: {"resources": {"requests": {"cpu": cpu}}, **more}  # noqa: E731
    assert requested({"containers": [of("1"), of("500m")], "initContainers": [of("1")]}).cpu == 1.5
    assert requested({"containers": [of("1")], "initContainers": [of("4"), of("2")]}).cpu == 4.0
    assert requested({"containers": [of("1")], "initContainers": [of("1", restartPolicy="Always"), of("3")]}).cpu == 4.0
    assert requested({"containers": [of("1")], "overhead": {"cpu": "250m"}}).cpu == 1.25
    limits = {"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1", "ephemeral-storage": "1Gi"}}}
    assert requested({"containers": [limits]}) == Resources(2.0, 0, (Amount("nvidia.com/gpu", 1.0),))


def test_what_was_observed_is_the_same_after_it_was_written_down():
    job = tfjob(annotations={"allowance": allowance_text(Allowance("", False, 0, 0, 1.5, "no room"))})
    found = observed([job], [pod("w", waits="")], nodes=[node(others={"nvidia.com/gpu": "4"})], quotas=[quota(cpu="3")])
    assert built(Cluster, json.loads(json.dumps(dataclasses.asdict(found)))) == found
