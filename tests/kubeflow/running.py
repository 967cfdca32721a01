"""`pkg/controller.v1/tensorflow`: status_test.go, tfjob_controller_test.go; `pkg/core`: job.go; `pkg/controller.v1/common`:
status_test.go, pod.go."""

from __future__ import annotations

from typing import Any

from tests.kubeflow.world import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    Case,
    cases,
    condition,
    counted,
    deleted,
    exited,
    job,
    world,
)
from tests.unit.tfjob.world import Cluster
from tfjob.model.kinds import Manifest

TF = "controller.v1/tensorflow"


def _status(written: Manifest, phases: dict[str, list[str]], expected: str, completed: bool = False) -> None:
    """`completed`: worker 0 has said that it exited with 0. A leader that runs has run before the others ended."""
    leader = "Chief" if "Chief" in phases else "Worker"
    cluster = world(written, {type_: [RUNNING] * len(found) for type_, found in phases.items()})
    if RUNNING in phases[leader]:
        cluster.settle()
    for type_, found in phases.items():
        for index, phase in enumerate(found):
            cluster.pods[f"mnist-{type_.lower()}-{index}"]["status"] = {"phase": phase}
    if completed:
        exited(cluster, "worker-0", 0)
    cluster.settle()
    found = condition(cluster, expected)
    assert found is not None, cluster.conditions
    if any((condition(cluster, type_) or {}).get("status") == "True" for type_ in ("Succeeded", "Failed")):
        assert (condition(cluster, "Running") or {}).get("status") != "True"


ALL_WORKERS = {"successPolicy": "AllWorkers"}
BIG = {"PS": counted(running=2)}
STATUS = cases(f"{TF}.Test Status/should update TFJob with desired status", _status, {
    "Chief worker is succeeded": (job(1, chief=1), {"Worker": counted(succeeded=1), "Chief": counted(succeeded=1)},
        "Succeeded"),
    "Chief worker is running": (job(1, chief=1), {"Chief": counted(running=1)}, "Running"),
    "Chief worker is failed": (job(1, chief=1), {"Chief": counted(failed=1)}, "Failed"),
    "(No chief worker) Worker is failed": (job(1), {"Worker": counted(failed=1)}, "Failed"),
    "(No chief worker) Worker is succeeded": (job(1), {"Worker": counted(succeeded=1)}, "Succeeded"),
    "(No chief worker) Worker is running": (job(1), {"Worker": counted(running=1)}, "Running"),
    "(No chief worker) 2 workers are succeeded, 2 workers are active":
        (job(4, 2), {**BIG, "Worker": counted(succeeded=2, running=2)}, "Running"),
    "(No chief worker) 2 workers are running, 2 workers are failed":
        (job(4, 2), {**BIG, "Worker": counted(failed=2, running=2)}, "Failed"),
    "(No chief worker) 2 workers are succeeded, 2 workers are failed":
        (job(4, 2), {**BIG, "Worker": counted(succeeded=2, failed=2)}, "Failed"),
    "(No chief worker) worker-0 are succeeded, 3 workers are active":
        (job(4, 2), {**BIG, "Worker": counted(succeeded=1, running=3)}, "Succeeded", True),
    "(No chief worker, successPolicy: AllWorkers) worker-0 are succeeded, 3 workers are active":
        (job(4, **ALL_WORKERS), {"Worker": counted(succeeded=1, running=3)}, "Running", True),
    "(No chief worker, successPolicy: AllWorkers) 4 workers are succeeded":
        (job(4, **ALL_WORKERS), {"Worker": counted(succeeded=4)}, "Succeeded", True),
    "(No chief worker, successPolicy: AllWorkers) worker-0 is succeeded, 2 workers are running, 1 worker is failed":
        (job(4, **ALL_WORKERS), {"Worker": [SUCCEEDED, RUNNING, RUNNING, FAILED]}, "Failed", True),
    "Chief is running, workers are failed":
        (job(4, 2, chief=1), {**BIG, "Worker": counted(failed=4), "Chief": counted(running=1)}, "Running"),
    "Chief is running, workers are succeeded":
        (job(4, 2, chief=1), {**BIG, "Worker": counted(succeeded=4), "Chief": counted(running=1)}, "Running"),
    "Chief is running, a PS is failed":
        (job(4, 2, chief=1), {"PS": [FAILED, RUNNING], "Worker": counted(succeeded=4), "Chief": counted(running=1)}, "Failed"),
    "Chief is failed, workers are succeeded":
        (job(4, 2, chief=1), {**BIG, "Worker": counted(succeeded=4), "Chief": counted(failed=1)}, "Failed"),
    "Chief is succeeded, workers are failed":
        (job(4, 2, chief=1), {**BIG, "Worker": counted(failed=4), "Chief": counted(succeeded=1)}, "Succeeded"),
})  # fmt: skip


def _restarting() -> None:
    written = job(4, 2, chief=1, policy="ExitCode")
    cluster = world(written, {**BIG, "Worker": counted(failed=4), "Chief": counted(failed=1)}, code=130)
    cluster.look()
    assert cluster.state == "Restarting" and "TFJobRestarting" in cluster.reasons()


def _failed() -> None:
    cluster = world(job(3), {"Worker": [FAILED]})
    cluster.settle()
    assert cluster.counts("Worker")["failed"] == 1 and condition(cluster, "Failed") is not None


def _replica_statuses() -> None:
    """One that runs and is being deleted counts as failed."""
    cluster = world(job(7), {"Worker": counted(failed=2, succeeded=3, running=2)})
    cluster.pods["mnist-worker-6"]["metadata"]["deletionTimestamp"] = "2025-01-31T12:01:00Z"
    cluster.look()
    assert cluster.counts("Worker") == {"failed": 3, "succeeded": 3, "active": 1}


WHOLE = [
    Case(f"{TF}.Test Status/should update TFJob with desired status/Chief is failed and restarting", _restarting),
    Case(f"{TF}.Test Failed/should update TFJob with failed status", _failed),
    Case("controller.v1/common.TestUpdateJobReplicaStatuses", _replica_statuses),
]

# ------------------------------------------------------------------------------------------------ the normal path


def _normal(
    counts: tuple[int, int], workers: list[str], ps: list[str], created: int, expected: str | None, start: bool = False
) -> None:
    """`counts`: of workers and PS. What there is of each type; each has its service."""
    cluster = world(job(*counts), {"Worker": workers, "PS": ps})
    actions = cluster.decide()
    assert len(actions.create_pods) == len(actions.create_services) == created and not actions.delete_pods
    for one in (*actions.create_pods, *actions.create_services):
        assert one["metadata"]["ownerReferences"][0]["uid"] == "uid-of-mnist"
    cluster.look()
    statuses = cluster.status["replicaStatuses"]
    for type_, phases in (("Worker", workers), ("PS", ps)):
        found = statuses.get(type_, {})
        assert [found.get(key, 0) for key in ("active", "succeeded", "failed")] == [
            phases.count(phase) for phase in (RUNNING, SUCCEEDED, FAILED)
        ]
    if expected:
        assert cluster.last["type"] == expected and cluster.last["reason"] == f"TFJob{expected}"
    assert not start or cluster.status["startTime"]


DISTRIBUTED = "Distributed TFJob (4 workers, 2 PS) is"
NORMAL = cases(f"{TF}.Test Normal Path/should create desired Pods and Services", _normal, {
    "Local TFJob is created": ((1, 0), [], [], 1, None),
    f"{DISTRIBUTED} created": ((4, 2), [], [], 6, None),
    f"{DISTRIBUTED} created and all replicas are pending": ((4, 2), [PENDING] * 4, [PENDING] * 2, 0, None),
    f"{DISTRIBUTED} created and all replicas are running": ((4, 2), [RUNNING] * 4, [RUNNING] * 2, 0, "Running", True),
    f"{DISTRIBUTED} created, 2 workers, 1 PS are pending": ((4, 2), [PENDING] * 2, [PENDING], 3, None),
    f"{DISTRIBUTED} created, 2 workers, 1 PS are pending, 1 worker is running":
        ((4, 2), [PENDING, PENDING, RUNNING], [PENDING], 2, "Running"),
    f"{DISTRIBUTED} created, 2 workers, 1 PS are pending, 1 worker is succeeded":
        ((4, 2), [PENDING, PENDING, SUCCEEDED], [PENDING], 2, None),
    f"{DISTRIBUTED} succeeded": ((4, 2), [SUCCEEDED] * 4, [SUCCEEDED] * 2, 0, "Succeeded"),
})  # fmt: skip

SUSPEND = f"{TF}.TFJob with suspend semantics"
CREATED = ("Created", "True", "TFJobCreated", "TFJob mnist is created.")


def _conditions(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    return [(one["type"], one["status"], one["reason"], one["message"]) for one in cluster.status.get("conditions", [])]


def _suspended() -> None:
    cluster = Cluster(job(1, chief=1, run_policy={"suspend": True}))
    cluster.settle()
    assert not cluster.pods and not cluster.services and not cluster.status.get("startTime")
    assert _conditions(cluster) == [CREATED, ("Suspended", "True", "TFJobSuspended", "TFJob mnist is suspended.")]


def _resumed() -> None:
    cluster = world(job(1, chief=1), {"Worker": [RUNNING], "Chief": [RUNNING]})
    cluster.settle()
    running = ("Running", "True", "TFJobRunning", "TFJob ml/mnist is running.")
    assert _conditions(cluster) == [CREATED, running]
    started = cluster.status["startTime"]
    cluster.pass_seconds(5)
    cluster.manifest["spec"]["runPolicy"] = {"suspend": True}
    cluster.settle()
    cluster.reap()
    assert not cluster.pods and not cluster.services and cluster.status["startTime"] == started
    assert not cluster.counts("Chief") and not cluster.counts("Worker")
    text = "TFJob mnist is suspended."
    assert _conditions(cluster) == [
        CREATED, ("Running", "False", "TFJobSuspended", text), ("Suspended", "True", "TFJobSuspended", text),
    ]  # fmt: skip
    cluster.manifest["spec"]["runPolicy"] = {"suspend": False}
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert cluster.living == {"chief-0", "worker-0"} and cluster.status["startTime"] != started
    assert _conditions(cluster) == [CREATED, ("Suspended", "False", "TFJobResumed", "TFJob mnist is resumed."), running]


def _external() -> None:
    cluster = Cluster(job(1, chief=1, run_policy={"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True}))
    cluster.settle()
    cluster.manifest["spec"]["runPolicy"]["suspend"] = False
    cluster.settle()
    assert not cluster.pods and not cluster.services and not cluster.status


SUSPENDED = [
    Case(f"{SUSPEND}/Shouldn't create resources if TFJob is suspended", _suspended),
    Case(
        f"{SUSPEND}/Should delete resources after TFJob is suspended; Should resume TFJob after TFJob is unsuspended",
        _resumed,
    ),
    Case(f"{SUSPEND}/Should not reconcile a job while managed by external controller", _external),
]

# ------------------------------------------------------------------------------------------------ pods that cannot start

WAITING = {
    "name": "tensorflow",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
}


def _told(status: dict[str, Any], expected: list[tuple[str, str]], phase: str = PENDING) -> None:
    cluster = world(job(1), {"Worker": [phase]})
    cluster.pods["mnist-worker-0"]["status"] = {"phase": phase, **status}
    cluster.look()
    found = [(event.reason, event.message) for event in cluster.events if event.type == "Warning"]
    assert [reason for reason, _ in found] == [reason for reason, _ in expected]
    for (_, message), (_, part) in zip(found, expected):
        assert "mnist-worker-0" in message and part in message


def _waiting(reason: str, message: str = "a message") -> dict[str, Any]:
    return {"name": "tensorflow", "state": {"waiting": {"reason": reason, **({"message": message} if message else {})}}}


def _unscheduled(reason: str) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes are available"}
        ]
    }


ENDED = {"name": "tensorflow", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "too much"}}}
ABNORMAL = cases("core.RecordAbnormalPods", _told, {
    **{f"waiting {reason}": ({"containerStatuses": [_waiting(reason)]}, [(reason, "a message")]) for reason in (
        "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName", "CrashLoopBackOff")},
    "waiting without a message": ({"containerStatuses": [_waiting("ContainerCreating", "")]}, []),
    "terminated": ({"containerStatuses": [ENDED]}, [("OOMKilled", "137")], RUNNING),
    "terminated with 0": ({"containerStatuses": [{"name": "a",
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}, [], RUNNING),
    "two containers": ({"containerStatuses": [_waiting("ErrImagePull"), _waiting("ErrImagePull", "another")]},
                       [("ErrImagePull", "a message"), ("ErrImagePull", "another")]),
    "an init container": ({"initContainerStatuses": [_waiting("ErrImagePull")]}, [("ErrImagePull", "a message")]),
    "Unschedulable": (_unscheduled("Unschedulable"), [("Unschedulable", "0/3 nodes")]),
    "SchedulingGated": (_unscheduled("SchedulingGated"), [("SchedulingGated", "0/3 nodes")]),
    "scheduled": ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, []),
    "no status at all": ({}, []),
    "the latest condition counts": ({"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2025-01-31T12:00:00Z"},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-01-31T12:00:05Z"}]}, []),
    "containers before conditions": ({**_unscheduled("Unschedulable"), "containerStatuses": [WAITING]},
                                     [("ImagePullBackOff", "Back-off")]),
    "finished": ({"containerStatuses": [ENDED]}, [], SUCCEEDED),
})  # fmt: skip

# ------------------------------------------------------------------------------------------------ source without a table


def _dynamic(phases: dict[str, list[str]], expected: str) -> None:
    cluster = world(job(2, 1, enableDynamicWorker=True), phases)
    cluster.settle()
    assert cluster.state == expected


DYNAMIC = cases(f"{TF}.UpdateJobStatus/enableDynamicWorker", _dynamic, {
    "a worker failed": ({"Worker": [RUNNING, FAILED], "PS": [RUNNING]}, "Running"),
    "a PS failed": ({"Worker": [RUNNING, RUNNING], "PS": [FAILED]}, "Failed"),
})  # fmt: skip


def _retry(policy: str, code: int | None, again: bool) -> None:
    cluster = world(job(2, policy=policy), {"Worker": [RUNNING, FAILED]}, code=code)
    assert deleted(cluster.decide()) == ({"worker-1"} if again else set())


RETRIES = cases("controller.v1/common.ReconcilePods", _retry, {
    "OnFailure, 1": ("OnFailure", 1, True), "Always, 1": ("Always", 1, True), "Never, 130": ("Never", 130, False),
    "ExitCode, 127": ("ExitCode", 127, False), "ExitCode, 128": ("ExitCode", 128, True),
        "ExitCode, 137": ("ExitCode", 137, True),
    "ExitCode, unknown": ("ExitCode", None, True), "ExitCode, 255": ("ExitCode", 255, True),
})  # fmt: skip


def _type_named(type_: str) -> None:
    """Whichever replica fails, the message names its type; without a leader the others do not count as running."""
    replicas = {"Worker": [RUNNING], "PS": [RUNNING], "Evaluator": [RUNNING], "Chief": [RUNNING]}
    cluster = world(job(1, 1, chief=1, evaluator=1), {**replicas, type_: [FAILED]})
    cluster.settle()
    assert cluster.last["message"] == f"TFJob ml/mnist has failed because 1 {type_} replica(s) failed."
    assert cluster.last["reason"] == "TFJobFailed" and cluster.status["completionTime"]


FAILURES = cases(
    f"{TF}.UpdateJobStatus/a failed replica",
    _type_named,
    {type_: type_ for type_ in ("Chief", "Evaluator", "PS", "Worker")},
)


def _overwritten() -> None:
    written = job(1)
    written["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = "Always"
    cluster = Cluster(written)
    cluster.look()
    assert "SetPodTemplateRestartPolicy" in cluster.reasons()


def _exited() -> None:
    cluster = world(job(2, policy="ExitCode"), {"Worker": [RUNNING, FAILED]}, code=137)
    cluster.look()
    assert any(event.reason == "ExitedWithCode" and "137" in event.message for event in cluster.events)


EVENTS = [
    Case("controller.v1/common.createNewPod/SetPodTemplateRestartPolicy", _overwritten),
    Case("controller.v1/common.ReconcilePods/ExitedWithCode", _exited),
]

CASES = [*STATUS, *WHOLE, *NORMAL, *SUSPENDED, *ABNORMAL, *DYNAMIC, *RETRIES, *FAILURES, *EVENTS]
