"""Where we decide otherwise than Kubeflow, on purpose: docs/kubernetes.md, Differences. Each is tried as we do it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubeflow.world import FAILED, RUNNING, SUCCEEDED, Case, exited, finished, job, world
from tests.unit.tfjob.world import template
from tfjob.model.spec import InvalidError, TFJob
from tfjob.reconciling.observed import owned


def _refused(change: Any, field: str) -> None:
    written = job(1)
    change(written)
    with pytest.raises(InvalidError) as caught:
        TFJob.parse(written)
    assert caught.value.field == field


def _two_chiefs() -> None:
    _refused(
        lambda written: written["spec"]["tfReplicaSpecs"].update(Chief={"replicas": 2, "template": template()}),
        "spec.tfReplicaSpecs.Chief.replicas",
    )


def _unknown_type() -> None:
    _refused(
        lambda written: written["spec"]["tfReplicaSpecs"].update(Helper={"template": template()}),
        "spec.tfReplicaSpecs.Helper",
    )


def _long_names() -> None:
    _refused(lambda written: written["metadata"].update(name="a" * 60), "metadata.name")


def _slashes() -> None:
    """There is no such TFJob: no server takes the name, so there is nothing to be put in the place of `/`."""
    _refused(lambda written: written["metadata"].update(name="test/key"), "metadata.name")


def _no_port() -> None:
    """A template without ports has the usual one all the same."""
    assert TFJob.parse(job(1)).specs["Worker"].port == 2222


def _no_completion_time() -> None:
    """Instead of an error that is repeated for ever: the time counts from the condition."""
    cluster = world(job(2, run_policy={"ttlSecondsAfterFinished": 10}), {"Worker": [RUNNING] * 2})
    finished(cluster, "Succeeded", 5, completion=False)
    assert not cluster.decide().delete_job
    cluster.pass_seconds(5)
    assert cluster.decide().delete_job


def _no_adoption(kind: str) -> None:
    """A pod of nobody in the way is told and not taken over."""
    cluster = world(job(2), {"Worker": [RUNNING] * 2})
    where = cluster.pods if kind == "Pods" else cluster.services
    where["mnist-worker-1"]["metadata"]["ownerReferences"] = []
    cluster.look()
    assert not owned(where["mnist-worker-1"], TFJob.parse(cluster.manifest)) and "NameTaken" in cluster.reasons()


def _no_release(kind: str) -> None:
    """One whose labels were taken away still belongs to the job: owner references decide, not labels."""
    cluster = world(job(2), {"Worker": [RUNNING] * 2})
    where = cluster.pods if kind == "Pods" else cluster.services
    where["mnist-worker-1"]["metadata"]["labels"] = {}
    cluster.look()
    assert owned(where["mnist-worker-1"], TFJob.parse(cluster.manifest))


def _only_succeeded() -> None:
    """Kubeflow's job has both conditions then, and is Failed for who looks at the last."""
    cluster = world(job(2, chief=1), {"Worker": [FAILED] * 2, "Chief": [SUCCEEDED]})
    exited(cluster, "chief-0", 0)
    cluster.settle()
    assert ("Failed", "True") not in cluster.conditions and cluster.state == "Succeeded"


def _success_before_limits() -> None:
    """A job whose leader has succeeded has not failed of a limit in the same moment."""
    cluster = world(
        job(1, chief=1, run_policy={"activeDeadlineSeconds": 1}), {"Worker": [RUNNING], "Chief": [SUCCEEDED]}
    )
    exited(cluster, "chief-0", 0)
    cluster.pass_seconds(5)
    cluster.settle()
    assert cluster.state == "Succeeded"


def _left_over() -> None:
    """A pod that goes because the job was suspended is no failure of the job that is resumed."""
    cluster = world(job(1), {"Worker": [RUNNING]})
    cluster.manifest["spec"]["runPolicy"] = {"suspend": True}
    cluster.settle()
    cluster.pass_seconds(1)
    cluster.manifest["spec"]["runPolicy"] = {}
    cluster.settle()
    assert ("Failed", "True") not in cluster.conditions


def _last_applied() -> None:
    from tfjob.pods import gang

    annotations = {gang.LAST_APPLIED: "{}", "a": "b"}
    assert gang.pod_group(TFJob.parse(job(1, annotations=annotations)), "volcano")["metadata"]["annotations"] == {
        "a": "b"
    }


CONTROL = "controller.v1/control"
NEW_SERVICE = "Test for controller.v1/common.CreateNewService"
DIFFERENT = [
    Case("webhooks/tensorflow.validateTFReplicaSpecs/two chiefs", _two_chiefs),
    Case("webhooks/tensorflow.validateTFReplicaSpecs/an unknown type", _unknown_type),
    Case("webhooks/tensorflow.validateTFJob/a pod's name of more than 63 characters", _long_names),
    Case("controller.v1/tensorflow.TestGenLabels/a name with a slash", _slashes),
    Case(f"{NEW_SERVICE}/Failed to create service since containerPort is missing", _no_port),
    Case("Test for controller.v1/common.TFJob is created and is cleaned up/Error is occurred since completionTime is nil",
         _no_completion_time),
    Case("common/util.TestDurationUntilExpireTime/succeeded job with nil completion time error", _no_completion_time),
    *(Case(f"{CONTROL}.TestClaim{kind}/Claim {kind.lower()} with correct label", lambda kind=kind: _no_adoption(kind))
      for kind in ("Pods", "Services")),
    *(Case(f"{CONTROL}.TestClaim{kind}/Controller releases claimed {kind.lower()} when selector doesn't match",
           lambda kind=kind: _no_release(kind)) for kind in ("Pods", "Services")),
    Case("controller.v1/tensorflow.UpdateJobStatus/Failed beside Succeeded", _only_succeeded),
    Case("controller.v1/common.ReconcileJobs/limits before success", _success_before_limits),
    Case("controller.v1/common.ReconcileJobs/pods that go with a suspension", _left_over),
    Case("controller.v1/common.SyncPodGroup/kubectl's annotation", _last_applied),
]  # fmt: skip
