"""Pods, services and gangs (TFJOB.md, Pods and services; Gang scheduling)."""

from __future__ import annotations

import copy

import pytest

from tests.unit.tfjob.world import job, manifest, template
from tfjob.model.quantities import add, format_quantity, parse_quantity
from tfjob.model.spec import InvalidError, TFJob
from tfjob.pods import gang
from tfjob.pods.replica import pod, service

LABELS = {
    "training.kubeflow.org/operator-name": "tfjob-controller", "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "ps", "training.kubeflow.org/replica-index": "1",
}  # fmt: skip
OWNER = {
    "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "uid-of-mnist", "controller": True,
    "blockOwnerDeletion": True,
}  # fmt: skip


def test_pod_and_service_have_the_name_the_labels_and_the_owner_of_the_contract() -> None:
    for made in (pod(job(), "PS", 1), service(job(), "PS", 1)):
        metadata = made["metadata"]
        assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("mnist-ps-1", "ml", LABELS)
        assert metadata["ownerReferences"] == [OWNER]


def test_the_service_is_headless_with_the_named_ports_of_the_container() -> None:
    written = manifest()
    container = written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]
    container["ports"] = [
        {"name": "metrics", "containerPort": 9090}, {"containerPort": 7},
        {"name": "udp", "containerPort": 53, "protocol": "UDP"}
    ]  # fmt: skip
    made = service(TFJob.parse(written), "PS", 1)
    assert made["spec"] == {
        "clusterIP": "None", "selector": LABELS,
        "ports": [{"name": "metrics", "port": 9090}, {"name": "udp", "port": 53, "protocol": "UDP"},
                  {"name": "tfjob-port", "port": 2222}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "masters"),
    [
        ({"Chief": 1, "PS": 1, "Worker": 2}, {("Chief", 0)}),
        ({"Master": 1, "PS": 1, "Worker": 2}, {("Master", 0)}),
        ({"PS": 1, "Worker": 2, "Evaluator": 1}, {("Worker", 0)}),
    ],
)
def test_job_role_master_is_the_chief_or_master_else_worker_0(
    replicas: dict[str, int], masters: set[tuple[str, int]]
) -> None:
    one = job(replicas)
    found = {
        (type_, index) for type_, count in replicas.items() for index in range(count)
        if pod(one, type_, index)["metadata"]["labels"].get("training.kubeflow.org/job-role") == "master"
    }  # fmt: skip
    assert found == masters


@pytest.mark.parametrize(
    ("policy", "made"), [("Never", "Never"), ("OnFailure", "OnFailure"), ("Always", "Always"), ("ExitCode", "Never")]
)
def test_the_templates_restart_policy_is_overwritten(policy: str, made: str) -> None:
    written = manifest(policy=policy)
    written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["restartPolicy"] = "Always"
    assert pod(TFJob.parse(written), "PS", 0)["spec"]["restartPolicy"] == made


def test_labels_annotations_and_the_rest_of_the_template_are_kept_and_the_template_is_not_changed() -> None:
    written = manifest()
    kept = {
        "metadata": {"name": "ignored", "labels": {"team": "ads", "training.kubeflow.org/replica-index": "9"},
                     "annotations": {"sidecar.istio.io/inject": "false"}},
        **template(nodeSelector={"disk": "ssd"}, priorityClassName="high"),
    }  # fmt: skip
    written["spec"]["tfReplicaSpecs"]["PS"]["template"] = kept
    before = copy.deepcopy(written)
    made = pod(TFJob.parse(written), "PS", 1)
    assert made["metadata"]["labels"] == {"team": "ads", **LABELS}
    assert made["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert made["spec"]["nodeSelector"] == {"disk": "ssd"} and made["spec"]["priorityClassName"] == "high"
    assert made["spec"]["containers"][0]["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    assert written == before


# ---------------------------------------------------------------------------------------------------- gang


def test_a_pod_of_a_gang_for_volcano() -> None:
    made = pod(job(), "PS", 0, scheduler="volcano")
    assert made["spec"]["schedulerName"] == "volcano"
    assert made["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "mnist", "volcano.sh/task-spec": "ps"}


def test_a_pod_of_a_gang_for_scheduler_plugins() -> None:
    made = pod(job(), "PS", 0, scheduler="coscheduler")
    assert made["spec"]["schedulerName"] == "coscheduler"
    assert made["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "mnist"
    assert made["metadata"]["annotations"] == {}


def test_another_scheduler_that_the_user_has_named_stays() -> None:
    written = manifest()
    written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["schedulerName"] = "mine"
    parsed = TFJob.parse(written)
    assert pod(parsed, "PS", 0, scheduler="volcano")["spec"]["schedulerName"] == "mine"
    assert gang.foreign_scheduler(parsed, "volcano") and not gang.foreign_scheduler(job(), "volcano")


def _with_resources(**how: object) -> TFJob:
    written = manifest({"PS": 2, "Worker": 2}, **how)
    sizes = {"PS": {"requests": {"cpu": "500m", "memory": "1Gi"}}, "Worker": {"limits": {"cpu": 2, "memory": "512Mi"}}}
    for type_, spec in written["spec"]["tfReplicaSpecs"].items():
        spec["template"]["spec"]["containers"][0]["resources"] = sizes[type_]
    return TFJob.parse(written)


@pytest.mark.parametrize(
    ("minimum", "members", "cpu", "memory"), [(None, 4, "5", 3 << 30), (3, 3, "3", (5 << 30) // 2), (0, 0, None, None)]
)
def test_the_pod_group_is_named_as_the_job_and_wants_min_available_or_all(
    minimum: int | None, members: int, cpu: str | None, memory: int | None
) -> None:
    policy = {"schedulingPolicy": {"minAvailable": minimum, "queue": "ads", "priorityClass": "high"}}
    group = gang.pod_group(_with_resources(run_policy=policy), "volcano")
    assert (group["apiVersion"], group["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert group["metadata"]["name"] == "mnist" and group["metadata"]["ownerReferences"] == [OWNER]
    assert group["spec"] == {
        "minMember": members, "queue": "ads", "priorityClassName": "high",
        "minResources": {} if cpu is None else {"cpu": cpu, "memory": str(memory)},
    }  # fmt: skip


def test_the_pod_group_of_scheduler_plugins_knows_a_timeout_and_no_queue() -> None:
    policy = {"schedulingPolicy": {"scheduleTimeoutSeconds": 60, "minResources": {"cpu": "3"}, "queue": "ads"}}
    group = gang.pod_group(_with_resources(run_policy=policy), "coscheduler")
    assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert group["spec"] == {"minMember": 4, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60}


@pytest.mark.parametrize(
    ("existing", "differs"),
    [
        ({}, True),
        ({"minMember": 4, "minResources": {"cpu": "3000m"}, "queue": "moved", "more": 1}, False),
        ({"minMember": 3, "minResources": {"cpu": "3"}}, True),
        ({"minMember": 4, "minResources": {"cpu": "4"}}, True),
        ({"minMember": 4, "minResources": {"cpu": "?"}}, True),
    ],
)
def test_a_group_is_written_again_only_where_it_says_something_else(existing: dict[str, object], differs: bool) -> None:
    policy = {"schedulingPolicy": {"minResources": {"cpu": "3"}}}
    assert gang.differs({"spec": existing}, gang.pod_group(job(run_policy=policy), "volcano")) is differs


def test_a_request_that_is_no_quantity_is_refused_by_the_name_of_its_field() -> None:
    written = manifest()
    container = written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "much"}}
    with pytest.raises(InvalidError, match=r"tfReplicaSpecs\.PS\.template.*'much' is no quantity"):
        gang.pod_group(TFJob.parse(written), "volcano")


@pytest.mark.parametrize(
    ("text", "whole"),
    [("500m", "500m"), ("1.5", "1500m"), (2, "2"), ("1Ki", "1024"), ("1e3", "1000"), ("2E2", "200"), ("1E", str(10**18)),
     ("0.5Gi", str(1 << 29)), ("100u", "1m"), ("-1", "-1")],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_reads_them(text: str | int, whole: str) -> None:
    assert format_quantity(parse_quantity(text)) == whole


def test_quantities_add_up_exactly() -> None:
    assert add([{"cpu": "0.1"}] * 3 + [{"cpu": "200m", "memory": "1Mi"}]) == {"cpu": "500m", "memory": "1048576"}


@pytest.mark.parametrize("text", ["", "much", "1 Gi", "1GiB", "0x10", "1K", "inf", "1_000", "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        parse_quantity(text)
