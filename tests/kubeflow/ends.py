"""`pkg/controller.v1/tensorflow`: job_test.go; `pkg/controller.v1/common`: job_test.go, job.go; `pkg/common/util`."""

from __future__ import annotations

from typing import Any

from tests.kubeflow.world import FAILED, RUNNING, SUCCEEDED, Case, cases, counted, deleted, finished, job, world
from tests.unit.tfjob.world import Cluster, template
from tfjob.model.spec import TFJob
from tfjob.pods.replica import service
from tfjob.reconciling import limits
from tfjob.reconciling.observed import View

TF = "controller.v1/tensorflow"
COMMON = "controller.v1/common"


def _remaining(cluster: Cluster) -> set[str]:
    return cluster.living


def _cleaned(policy: str, workers: list[str], ps: list[str], remaining: int) -> None:
    cluster = world(job(4, 2, run_policy={"cleanPodPolicy": policy}), {"Worker": workers, "PS": ps})
    finished(cluster, "Succeeded")
    cluster.settle()
    assert len(_remaining(cluster)) == len(cluster.services) == remaining


BY_POLICY = "it should clean associated Pods and Services according to clean policy"
CLEAN = cases(f"{TF}.Test Delete Pods and Services/{BY_POLICY}", _cleaned, {
    "4 workers and 2 ps is running, policy is all": ("All", [RUNNING] * 4, [RUNNING] * 2, 0),
    "4 workers and 2 ps is running, policy is running": ("Running", [RUNNING] * 4, [RUNNING] * 2, 0),
    "4 workers and 2 ps is succeeded, policy is running": ("Running", [SUCCEEDED] * 4, [SUCCEEDED] * 2, 6),
    "4 workers and 2 ps is succeeded, policy is None": ("None", [SUCCEEDED] * 4, [SUCCEEDED] * 2, 6),
})  # fmt: skip


def _two(policy: str, ended: str, remaining: set[str]) -> None:
    """A pod that runs and one that has succeeded."""
    cluster = world(job(2, run_policy={"cleanPodPolicy": policy}), {"Worker": [SUCCEEDED, RUNNING]})
    if ended == "Suspended":
        cluster.manifest["spec"]["runPolicy"]["suspend"] = True
    else:
        finished(cluster, ended)
    cluster.settle()
    assert _remaining(cluster) == remaining and {name[6:] for name in cluster.services} == remaining


BOTH = {"worker-0", "worker-1"}
DELETE = cases(f"{COMMON}.TestDeletePodsAndServices", _two, {
    "Succeeded job and cleanPodPolicy is Running": ("Running", "Succeeded", {"worker-0"}),
    "Suspended job and cleanPodPolicy is Running": ("Running", "Suspended", set()),
    "Finished job and cleanPodPolicy is All": ("All", "Succeeded", set()),
    "Finished job and cleanPodPolicy is None": ("None", "Failed", BOTH),
    "Suspended job and cleanPodPolicy is None": ("None", "Suspended", set()),
}) + cases(f"{COMMON}.DeletePodsAndServices", _two, {
    "Failed job and cleanPodPolicy is Running": ("Running", "Failed", {"worker-0"}),
    "Failed job and cleanPodPolicy is All": ("All", "Failed", set()),
    "Suspended job and cleanPodPolicy is All": ("All", "Suspended", set()),
})  # fmt: skip


def _pending() -> None:
    """One that waits would run later: it is cleaned up as one that runs."""
    cluster = world(job(2, run_policy={"cleanPodPolicy": "Running"}), {"Worker": ["Pending", FAILED]})
    finished(cluster, "Failed")
    cluster.settle()
    assert _remaining(cluster) == {"worker-1"}


def _deadline(seconds: int | None, passed: int, remaining: int) -> None:
    policy = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    cluster = world(job(4, 2, run_policy=policy), {"Worker": [RUNNING] * 4, "PS": [RUNNING] * 2})
    cluster.pass_seconds(passed)
    cluster.settle()
    cluster.settle()
    assert len(_remaining(cluster)) == len(cluster.services) == remaining
    if not remaining:
        assert cluster.last["message"] == "Job mnist has failed because it was active longer than specified deadline"


DEADLINE = cases(f"{TF}.Test Active Deadline Seconds/clean desired Pods and Services according to TFJob config", _deadline, {
    "4 workers and 2 ps is running, ActiveDeadlineSeconds unset": (None, 2, 6),
    "4 workers and 2 ps is running, ActiveDeadlineSeconds is 2": (2, 2, 0),
})  # fmt: skip


def _past_deadline(seconds: int, expected: bool) -> None:
    cluster = Cluster(job(1, run_policy={"activeDeadlineSeconds": seconds}))
    cluster.settle()
    if seconds:
        assert cluster.pods
    assert (cluster.state == "Failed") is expected


def _not_started() -> None:
    """Without a start no time runs."""
    cluster = world(job(1, run_policy={"activeDeadlineSeconds": 0}), {"Worker": []})
    view = View.of(cluster_observed(cluster), TFJob.parse(cluster.manifest), False, None)
    assert limits.exceeded(view, None, cluster.now) is None


def cluster_observed(cluster: Cluster) -> Any:
    from tfjob.reconciling.observed import Observed

    return Observed(cluster.manifest, tuple(cluster.pods.values()))


PAST_DEADLINE = cases(f"{COMMON}.TestPastActiveDeadline", _past_deadline, {
    "activeDeadlineSeconds is 0": (0, True), "activeDeadlineSeconds is 2": (2, False),
}) + [Case("core.PastActiveDeadline/startTime is nil", _not_started)]  # fmt: skip


def _restarts(limit: int, restarts: list[int], failed: bool, policy: str = "OnFailure", phase: str = RUNNING) -> None:
    """So often the containers of workers have been restarted."""
    cluster = world(
        job(4, 2, policy=policy, run_policy={"backoffLimit": limit}), {"Worker": [phase] * 4, "PS": [RUNNING] * 2}
    )
    for index, count in enumerate(restarts):
        status = cluster.pods[f"mnist-worker-{index}"]["status"]
        status["containerStatuses"] = [{"name": "tensorflow", "restartCount": count}]
    cluster.settle()
    cluster.settle()
    if failed:
        assert cluster.last["message"] == "Job mnist has failed because it has reached the specified backoff limit"
        assert not _remaining(cluster) and not cluster.services
    else:
        assert cluster.state != "Failed" and len(_remaining(cluster)) == 6


BACKOFF = cases(f"{TF}.Test Backoff For On Failure(/clean desired Pods and Services according to TFJob config", _restarts, {
    "4 workers each having 1 restartCount and 2 ps is running, backoffLimit 4 ": (4, [1, 1, 1, 1], True),
}) + cases(f"{COMMON}.TestPastBackoffLimit", _restarts, {
    "backOffLimit is 0": (0, [0, 0], False), "backOffLimit is 3": (3, [0, 0, 3], True),
}) + cases("core.PastBackoffLimit", _restarts, {
    "1 of 2": (2, [1], False), "2 of 2": (2, [1, 1], True), "0 and a restart": (0, [1], True),
    "Always": (1, [1], True, "Always"),
    "ExitCode": (1, [1], True, "ExitCode"), "Never is not counted": (1, [5], False, "Never"),
    "pending pods are not counted": (1, [5], False, "OnFailure", "Pending"),
})  # fmt: skip


def _first_failure(policy: str, limit: int, by_limit: bool) -> None:
    cluster = world(job(2, policy=policy, run_policy={"backoffLimit": limit}), {"Worker": [RUNNING, FAILED]}, code=137)
    cluster.look()
    message = cluster.last["message"]
    assert ("backoff limit" in message) is by_limit, message


EXCEEDS = cases(f"{COMMON}.ReconcileJobs/exceedsBackoffLimit", _first_failure, {
    "Never, 0": ("Never", 0, True), "OnFailure, 0": ("OnFailure", 0, True), "ExitCode, 0": ("ExitCode", 0, True),
    "Always, 0": ("Always", 0, True), "Never, 1": ("Never", 1, False), "OnFailure, 1": ("OnFailure", 1, False),
})  # fmt: skip


def _ttl(type_: str, phase: str) -> None:
    cluster = world(job(1, run_policy={"ttlSecondsAfterFinished": 3}), {"Worker": [phase]})
    cluster.settle()
    assert cluster.state == type_ and not cluster.gone
    cluster.pass_seconds(3)
    cluster.look()
    assert cluster.gone


TTL = cases(f"{TF}.Test TTL Seconds After Finished/should delete job when expired time is up", _ttl, {
    "succeeded job with TTL 3s": ("Succeeded", SUCCEEDED), "failed job with TTL 3s": ("Failed", FAILED),
})  # fmt: skip


def _cleanup(policy: dict[str, Any], ago: float | None, removed: bool) -> None:
    """`ago`: seconds since its completion; None: it has none."""
    cluster = world(job(2, run_policy=policy), {"Worker": [] if policy.get("suspend") else [RUNNING] * 2})
    if ago is not None:
        finished(cluster, "Succeeded", ago)
    for _ in range(3):
        cluster.look()
    assert cluster.gone is removed


CLEANUP = cases("Test for controller.v1/common.TFJob is created and is cleaned up", _cleanup, {
    "TFJob shouldn't be removed since TTL is nil": ({}, None, False),
    "No error with completionTime is nil if suspended": ({"suspend": True}, None, False),
    "No error with TTL is set and completionTime is nil, if suspended":
        ({"suspend": True, "ttlSecondsAfterFinished": 10}, None, False),
    "TFJob is removed since exceeded TTL (TTL is 180s)": ({"ttlSecondsAfterFinished": 180}, 86400, True),
    "TFJob is removed since (TTL is 0s)": ({"ttlSecondsAfterFinished": 0}, 0, True),
})  # fmt: skip


def _expires(ended: str | None, ttl: int | None, ago: float, expected: float | None) -> None:
    """When it has to be looked at again."""
    cluster = world(job(1, run_policy={} if ttl is None else {"ttlSecondsAfterFinished": ttl}), {"Worker": [RUNNING]})
    if ended:
        finished(cluster, ended, ago)
    actions = cluster.decide()
    assert actions.again_seconds == expected and not actions.delete_job


EXPIRES = cases("common/util.TestDurationUntilExpireTime", _expires, {
    "running job": (None, None, 0, None),
    "succeeded job with remaining time 1s": ("Succeeded", 5, 4, 1.0),
    "failed job with remaining time 1s": ("Failed", 5, 4, 1.0),
    "succeeded job with infinite TTL": ("Succeeded", None, 4, None),
})  # fmt: skip


def _expired() -> None:
    cluster = world(job(1, run_policy={"ttlSecondsAfterFinished": 5}), {"Worker": [RUNNING]})
    finished(cluster, "Succeeded", 6)
    assert cluster.decide().delete_job


def _copied() -> None:
    written = job(1)
    written["spec"]["tfReplicaSpecs"]["Worker"]["template"] = {
        **template(), "metadata": {"labels": {"label1": "1"}, "annotations": {"annotation1": "1"}},
    }  # fmt: skip
    cluster = Cluster(written)
    cluster.settle()
    metadata = cluster.pods["mnist-worker-0"]["metadata"]
    assert metadata["labels"]["label1"] == "1" and metadata["annotations"] == {"annotation1": "1"}


def _decoy() -> None:
    """Pods of another job are not taken for its own."""
    cluster = world(job(1), {"Worker": [RUNNING]})
    decoy = world(job(2, 3), {"Worker": [FAILED] * 2, "PS": [FAILED] * 3})
    for one in decoy.pods.values():
        one["metadata"]["ownerReferences"][0]["uid"] = "another"
    cluster.pods |= {f"decoy-{name}": one for name, one in decoy.pods.items()}
    actions = cluster.look()
    assert not actions.delete_pods and cluster.state == "Running"


def _service() -> None:
    parsed = TFJob.parse(job(2, chief=1))
    made = service(parsed, "Worker", 0)
    assert made["spec"]["clusterIP"] == "None" and made["metadata"]["ownerReferences"] == [parsed.owner_reference]
    assert made["spec"]["ports"] == [{"name": "tfjob-port", "port": 2222}]


def _no_owner() -> None:
    """A job without a uid owns nothing: what would be made for it is nobody's."""
    written = job(1)
    del written["metadata"]["uid"]
    cluster = world(job(1), {"Worker": [RUNNING]})
    view = View.of(cluster_observed(cluster), TFJob.parse(written), False, None)
    assert not view.pods and view.taken_pods


SERVICE = "Test for controller.v1/common.CreateNewService"
WHOLE = [
    Case("common/util.TestDurationUntilExpireTime/succeeded job without remaining time", _expired),
    Case(f"{COMMON}.DeletePodsAndServices/a pending pod counts as running", _pending),
    Case(
        f"{TF}.Test Copy Labels and Annotation/should copy labels and annotation from the spec to generated Pods",
        _copied,
    ),
    Case(f"{TF}.Test Add TFJob/should get the exact TFJob", _decoy),
    Case(f"{SERVICE}/Succeeded to create service", _service),
    Case(f"{SERVICE}/Failed to create service since Job's ownerReference is invalid", _no_owner),
]


def _ports(ports: list[dict[str, Any]], expected: list[tuple[str, int]]) -> None:
    written = job(1)
    written["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["ports"] = ports
    made = service(TFJob.parse(written), "Worker", 0)
    assert [(one["name"], one["port"]) for one in made["spec"]["ports"]] == expected


PORTS = cases("core.GetPortsFromJob", _ports, {
    "none": ([], [("tfjob-port", 2222)]),
    "one of its own": ([{"name": "http", "containerPort": 80}], [("http", 80), ("tfjob-port", 2222)]),
    "tfjob-port elsewhere": ([{"name": "tfjob-port", "containerPort": 5000}], [("tfjob-port", 5000)]),
})  # fmt: skip


def _scaled_services() -> None:
    cluster = world(job(3), {"Worker": counted(running=3)})
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 1
    actions = cluster.decide()
    assert (
        {one.name for one in actions.delete_services}
        == {"mnist-worker-1", "mnist-worker-2"}
        == {f"mnist-{short}" for short in deleted(actions)}
    )


SCALED = [Case(f"{COMMON}.ReconcileServices/surplus", _scaled_services)]

CASES = [
    *CLEAN, *DELETE, *DEADLINE, *PAST_DEADLINE, *BACKOFF, *EXCEEDS, *TTL, *CLEANUP, *EXPIRES, *WHOLE, *PORTS, *SCALED,
]  # fmt: skip
