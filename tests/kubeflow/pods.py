"""`pkg/controller.v1/tensorflow`: pod_test.go, tensorflow_test.go, util_test.go; `pkg/controller.v1/common`: pod_test.go,
service_test.go, util_test.go; `pkg/controller.v1/control`."""

from __future__ import annotations

import json
from typing import Any

from tests.kubeflow.world import FAILED, RUNNING, SUCCEEDED, Case, cases, deleted, exited, job, world
from tests.unit.tfjob.world import Cluster, template
from tfjob.model import names
from tfjob.model.spec import TFJob
from tfjob.pods import gang
from tfjob.pods.replica import is_master, pod, service
from tfjob.pods.tf_config import tf_config
from tfjob.reconciling.observed import index_of, owned

TF = "controller.v1/tensorflow"
COMMON = "controller.v1/common"
CONTROL = "controller.v1/control"


def _config(written: Any, domain: str, expected: str) -> None:
    parsed = TFJob.parse({**written, "metadata": {**written["metadata"], "namespace": "ns"}})
    made = pod(parsed, "Worker", 0, domain=domain)
    env = made["spec"]["containers"][0].get("env") or []
    assert (env[0]["value"] if env else "") == expected


def _dense(domain: str, *types: str) -> str:
    tail = f".{domain}" if domain else ""
    cluster = ",".join(f'"{type_}":["mnist-{type_}-0.ns.svc{tail}:2222"]' for type_ in types)
    return f'{{"cluster":{{{cluster}}},"task":{{"type":"worker","index":0}},"environment":"cloud"}}'


CLUSTER_SPEC = cases(f"{TF}.ClusterSpec/should generate desired cluster spec", _config, {
    "1 worker": (job(1), "", ""),
    "1 worker, a domain": (job(1), "tf.training.com", ""),
    "1 worker, 1 ps, a domain": (job(1, 1), "tf.training.org", _dense("tf.training.org", "ps", "worker")),
    "evaluator, a domain": (job(1, 1, evaluator=1), "tf.training.io", _dense("tf.training.io", "evaluator", "ps", "worker")),
    "evaluator": (job(1, 1, evaluator=1), "", _dense("", "evaluator", "ps", "worker")),
})  # fmt: skip


def _sparse(type_: str, index: int, expected: Any) -> None:
    text = tf_config(TFJob.parse(job(2, 2, chief=1, enableDynamicWorker=True)), type_, index)
    assert text is not None
    found = json.loads(text)
    assert found == {"cluster": expected, "task": {"type": type_.lower(), "index": index}} and list(found) == [
        "cluster",
        "task",
    ]


PS = ["mnist-ps-0.ml.svc:2222", "mnist-ps-1.ml.svc:2222"]
SPARSE = cases(f"{TF}.TestConvertClusterSpecToSparseClusterSpec", _sparse, {
    "worker": ("Worker", 0, {"worker": {"0": "mnist-worker-0.ml.svc:2222"}, "ps": PS}),
    "ps": ("PS", 0, {"worker": {}, "ps": PS[:1]}),
}) + cases(f"{TF}.convertClusterSpecToSparseClusterSpec", _sparse, {
    "worker 1": ("Worker", 1, {"worker": {"1": "mnist-worker-1.ml.svc:2222"}, "ps": PS}),
    "ps 1": ("PS", 1, {"worker": {}, "ps": PS[1:]}),
    "chief": ("Chief", 0, {"worker": {}, "ps": []}),
})  # fmt: skip


def _distributed(written: Any, expected: bool) -> None:
    parsed = TFJob.parse(written)
    type_ = next(iter(parsed.specs))
    assert (tf_config(parsed, type_, 0) is not None) is expected


IS_DISTRIBUTED = cases(f"{TF}.IsDistributed/should returns correctly", _distributed, {
    "1 worker": (job(1), False), "1 worker, 1 ps": (job(1, 1), True), "1 ps": (job(0, 1), False),
        "1 worker, chief": (job(1, chief=1), True),
})  # fmt: skip


def _policy(written: str, expected: str) -> None:
    assert pod(TFJob.parse(job(1, policy=written)), "Worker", 0)["spec"]["restartPolicy"] == expected


POLICIES = {
    "ExitCode": ("ExitCode", "Never"),
    "Never": ("Never", "Never"),
    "Always": ("Always", "Always"),
    "OnFailure": ("OnFailure",) * 2,
}
RESTART_POLICY = cases(f"{TF}.Restart Policy/should assign proper restart policy to pod", _policy, POLICIES)
SET_RESTART_POLICY = cases(
    f"{COMMON}.TestSetRestartPolicy", _policy, {f"restartPolicy is {name}": row for name, row in POLICIES.items()}
)


def _exit_code() -> None:
    cluster = world(job(1, policy="ExitCode"), {"Worker": [FAILED]}, code=130)
    assert deleted(cluster.decide()) == {"worker-0"}


def _unretryable() -> None:
    cluster = world(job(1, policy="ExitCode"), {"Worker": [FAILED]}, code=1)
    cluster.settle()
    last = cluster.last
    assert (last["type"], last["status"], last["reason"]) == ("Failed", "True", "TFJobFailed")
    assert last["message"] == 'job "mnist" is failing because "Worker" replica(s) failed.'


def _scale_down() -> None:
    cluster = world(job(3, enableDynamicWorker=True), {"Worker": [RUNNING] * 3})
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 2
    assert deleted(cluster.decide()) == {"worker-2"}


def _scale_up() -> None:
    cluster = world(job(3, enableDynamicWorker=True), {"Worker": [RUNNING]})
    assert {one["metadata"]["name"] for one in cluster.decide().create_pods} == {"mnist-worker-1", "mnist-worker-2"}


WHOLE = [
    Case(f"{TF}.Exit Code/should delete designated Pod", _exit_code),
    Case(f"{TF}.Unretryable Exit Code/should set the job status to Failed", _unretryable),
    Case(f"{TF}.Test Scale Down/should delete redundant Pods", _scale_down),
    Case(f"{TF}.Test Scale Up/should create missing Pods", _scale_up),
]


def _worker_0(failed: int, succeeded: int, running: int, ps: int, expected: bool) -> None:
    """Succeeded ones come first, as there; worker 0 of them has said that it exited with 0."""
    phases = [SUCCEEDED] * succeeded + [FAILED] * failed + [RUNNING] * running
    cluster = world(job(len(phases), ps), {"Worker": phases, "PS": [RUNNING] * ps})
    if succeeded:
        exited(cluster, "worker-0", 0)
    cluster.settle()
    assert ("Succeeded", "True") in cluster.conditions if expected else ("Succeeded", "True") not in cluster.conditions


def _no_workers(**leader: int) -> None:
    """Where there are no workers there is no worker 0 that could decide: the leader does."""
    cluster = world(job(**leader), {})
    cluster.settle()
    assert cluster.state == "Created"
    name = next(iter(cluster.pods))[len("mnist-") :]
    cluster.run()
    cluster.end(name, 0)
    cluster.settle()
    assert cluster.state == "Succeeded"


WORKER_0 = cases(f"{TF}.TestIsWorker0Completed/should match expected result", _worker_0, {
    "0, 0, 1 of 1, 1 ps": (0, 0, 1, 1, False), "0, 1, 0 of 1": (0, 1, 0, 0, True), "1, 1, 0 of 2": (1, 1, 0, 0, True),
    "1, 0, 1 of 2": (1, 0, 1, 0, False),
}) + [
    Case(f"{TF}.TestIsWorker0Completed/should match expected result/a master", lambda: _no_workers(master=1)),
    Case(f"{TF}.TestIsWorker0Completed/should match expected result/a chief", lambda: _no_workers(chief=1)),
]  # fmt: skip


def _owner() -> None:
    found = TFJob.parse(job(1)).owner_reference
    assert (found["uid"], found["name"], found["apiVersion"]) == ("uid-of-mnist", "mnist", "kubeflow.org/v1")
    assert found["controller"] is True and found["blockOwnerDeletion"] is True and found["kind"] == "TFJob"


def _labels() -> None:
    found = names.job_labels("mnist")
    assert found == {
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/operator-name": "tfjob-controller",
    }


NAMES = [Case(f"{TF}.TestGenOwnerReference", _owner), Case(f"{TF}.TestGenLabels", _labels)]


def _general_name(type_: str) -> None:
    assert names.pod_name("1-2-3-4-5", type_, 1) == "1-2-3-4-5-worker-1"


GENERAL_NAME = cases(f"{COMMON}.TestGenGeneralName", _general_name, {"worker": "worker", "WORKER": "WORKER"})


def _scheduler(scheduler: str, chosen: tuple[str, ...], expected: bool) -> None:
    written = job(1, 1)
    for type_, name in zip(("PS", "Worker"), chosen):
        written["spec"]["tfReplicaSpecs"][type_]["template"] = template(**({"schedulerName": name} if name else {}))
    assert gang.foreign_scheduler(TFJob.parse(written), scheduler) is expected


CUSTOM_SCHEDULER = cases(f"{COMMON}.TestIsCustomSchedulerSet", _scheduler, {
    "replicaSpecs aren't set custom schedulerName": ("alpha", ("", ""), False),
    "all replicaSpecs are set custom schedulerName": ("beta", ("custom-a", "custom-b"), True),
    "one of replicaSpecs is set custom schedulerName": ("gamma", ("", "custom-b"), True),
})  # fmt: skip


def _slices(present: list[int], replicas: int, expected: int, what: str) -> None:
    """Indices that are looked at: those that are there, and those that there are to be."""
    cluster = Cluster(job(max([*present, replicas - 1]) + 1))
    cluster.settle()
    cluster.pods = {name: one for name, one in cluster.pods.items() if index_of(one, "Worker") in present}
    cluster.services = {name: one for name, one in cluster.services.items() if index_of(one, "Worker") in present}
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = replicas
    actions = cluster.decide()
    gone, made = (
        (actions.delete_pods, actions.create_pods)
        if what == "pods"
        else (actions.delete_services, actions.create_services)
    )
    looked_at = {*present, *(index_of(one, "Worker") for one in made)}
    assert len(gone) == sum(index >= replicas for index in present)
    assert max(index for index in looked_at if index is not None) + 1 == expected


SLICES = {
    "3 of 3": ([0, 1, 2], 3, 3),
    "3 of 4": ([0, 1, 2], 4, 4),
    "3 of 2": ([0, 1, 2], 2, 3),
    "index 4 of 3": ([0, 1, 2, 4], 3, 5),
}
POD_SLICES = cases(
    f"{COMMON}.TestCalculatePodSliceSize", _slices, {name: (*row, "pods") for name, row in SLICES.items()}
)
SERVICE_SLICES = cases(
    f"{COMMON}.TestCalculateServiceSliceSize", _slices, {name: (*row, "services") for name, row in SLICES.items()}
)


def _filtered() -> None:
    labels = [{names.TYPE_LABEL: type_, names.INDEX_LABEL: "0"} for type_ in ("ps", "worker", "ps", "worker", "ps")]
    found = [index_of({"metadata": {"labels": one}}, "PS") for one in labels]
    assert found == [0, None, 0, None, 0]


FILTERED = [
    Case(f"{COMMON}.TestFilterPodsForReplicaType", _filtered), Case(f"{COMMON}.TestFilterServicesForReplicaType", _filtered),
]  # fmt: skip


def _index(labels: dict[str, str], expected: int | None) -> None:
    assert index_of({"metadata": {"labels": {names.TYPE_LABEL: "worker", **labels}}}, "Worker") == expected


def _type(labels: dict[str, str], known: bool) -> None:
    assert (index_of({"metadata": {"labels": {names.INDEX_LABEL: "0", **labels}}}, "Foo") is not None) is known


INDEX_LABEL, TYPE_LABEL = names.INDEX_LABEL, names.TYPE_LABEL
LABELS = cases("util/labels.TestReplicaIndex", _index, {
    "new": ({INDEX_LABEL: "2"}, 2), "old": ({INDEX_LABEL: "3"}, 3), "none": ({}, None), "both": ({INDEX_LABEL: "4"}, 4),
}) + cases("util/labels.TestReplicaType", _type, {
    "new": ({TYPE_LABEL: "foo"}, True), "old": ({TYPE_LABEL: "bar"}, False), "none": ({}, False),
        "both": ({TYPE_LABEL: "foo"}, True),
})  # fmt: skip


def _created_pod() -> None:
    """What is sent: the labels and the spec of the template, under the pod's own name."""
    written = job(2)
    written["spec"]["tfReplicaSpecs"]["Worker"]["template"] = {
        **template(nodeName="a"), "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.f/g"]},
    }  # fmt: skip
    made = pod(TFJob.parse(written), "Worker", 1)
    metadata = made["metadata"]
    assert metadata["name"] == "mnist-worker-1" and metadata["namespace"] == "ml" and made["spec"]["nodeName"] == "a"
    assert metadata["labels"] == {"a": "b", **names.replica_labels("mnist", "Worker", 1)}
    assert metadata["annotations"] == {"c": "d"} and metadata["finalizers"] == ["e.f/g"]


def _created_service() -> None:
    made = service(TFJob.parse(job(2)), "Worker", 1)
    labels = names.replica_labels("mnist", "Worker", 1)
    assert (
        made["metadata"]["name"] == "mnist-worker-1"
        and made["metadata"]["labels"] == made["spec"]["selector"] == labels
    )


def _service_owner() -> None:
    parsed = TFJob.parse(job(2))
    assert service(parsed, "Worker", 0)["metadata"]["ownerReferences"] == [parsed.owner_reference]


def _of_another(kind: str) -> None:
    cluster = world(job(2), {"Worker": [RUNNING] * 2})
    where = cluster.pods if kind == "Pods" else cluster.services
    where["mnist-worker-1"]["metadata"]["ownerReferences"][0]["uid"] = "AAAAA"
    parsed = TFJob.parse(cluster.manifest)
    assert [owned(one, parsed) for one in where.values()] == [True, False]
    actions = cluster.decide()
    assert not actions.delete_pods and not actions.delete_services and not actions.create_pods


def _of_a_deleted_job(kind: str) -> None:
    """Nothing is taken, nothing is made: what is its own goes with it."""
    cluster = world(job(2), {"Worker": [RUNNING] * 2})
    del (cluster.pods if kind == "Pods" else cluster.services)["mnist-worker-1"]
    cluster.manifest["metadata"]["deletionTimestamp"] = "2025-01-31T12:00:00Z"
    assert not cluster.decide().writes


def _orphan_that_goes(kind: str) -> None:
    cluster = world(job(2), {"Worker": [RUNNING] * 2})
    where = cluster.pods if kind == "Pods" else cluster.services
    metadata = where["mnist-worker-1"]["metadata"]
    metadata["ownerReferences"], metadata["deletionTimestamp"] = [], "2025-01-31T12:00:00Z"
    actions = cluster.decide()
    assert (
        not owned(where["mnist-worker-1"], TFJob.parse(cluster.manifest))
        and not actions.create_pods
        and not actions.delete_pods
    )


def _claims(kind: str) -> list[Case]:
    one, name = kind.lower(), f"{CONTROL}.TestClaim{kind}"
    return [
        Case(f"{name}/Controller marked for deletion can not claim {one}", lambda: _of_a_deleted_job(kind)),
        Case(f"{name}/Controller marked for deletion can not claim new {one}", lambda: _of_a_deleted_job(kind)),
        Case(f"{name}/Controller can not claim {one} owned by another controller", lambda: _of_another(kind)),
        Case(f"{name}/Controller does not claim orphaned {one} marked for deletion", lambda: _orphan_that_goes(kind)),
    ]


CONTROLS = [
    Case(f"{CONTROL}.TestCreatePods", _created_pod), Case(f"{CONTROL}.TestCreateService", _created_service),
    Case(f"{CONTROL}.TestCreateServicesWithControllerRef", _service_owner), *_claims("Pods"), *_claims("Services"),
]  # fmt: skip


def _master(written: Any, type_: str, index: int, expected: bool) -> None:
    parsed = TFJob.parse(written)
    assert is_master(parsed, type_, index) is expected
    assert (pod(parsed, type_, index)["metadata"]["labels"].get(names.ROLE_LABEL) == "master") is expected


IS_MASTER = cases(f"{TF}.IsMasterRole", _master, {
    "chief": (job(2, chief=1), "Chief", 0, True), "worker 0 beside a chief": (job(2, chief=1), "Worker", 0, False),
    "master": (job(2, master=1), "Master", 0, True), "worker 0": (job(2, 1), "Worker", 0, True),
    "worker 1": (job(2, 1), "Worker", 1, False), "ps 0": (job(2, 1), "PS", 0, False),
})  # fmt: skip

CASES = [
    *CLUSTER_SPEC, *SPARSE, *IS_DISTRIBUTED, *RESTART_POLICY, *SET_RESTART_POLICY, *WHOLE, *WORKER_0, *NAMES, *GENERAL_NAME,
    *CUSTOM_SCHEDULER, *POD_SLICES, *SERVICE_SLICES, *FILTERED, *LABELS, *CONTROLS, *IS_MASTER,
]  # fmt: skip
