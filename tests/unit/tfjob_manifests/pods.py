"""The ordinary pod of a TFJob, as the contract makes it, for the tests of this directory."""

from __future__ import annotations

from typing import Any

from tfjob.pods.injection import elastic_pod

OWNER = {
    "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "ctr", "uid": "0123456789ab-cdef", "controller": True,
    "blockOwnerDeletion": True,
}  # fmt: skip


def ordinary(
    role: str = "worker", *, container: Any = None, spec: Any = None, annotations: Any = None
) -> dict[str, Any]:
    """Of job `ctr`; `container` and `spec` are added to the training container and to the pod."""
    training = {
        "name": "tensorflow", "image": "example/ctr:1", "command": ["python", "/train.py"],
        "ports": [{"name": "tfjob-port", "containerPort": 2222}],
        "env": [{"name": "TF_CONFIG", "value": "{}"}], **(container or {}),
    }  # fmt: skip
    labels = {
        "training.kubeflow.org/job-name": "ctr", "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": "0", "training.kubeflow.org/operator-name": "tfjob-controller",
    }  # fmt: skip
    metadata: dict[str, Any] = {
        "name": f"ctr-{role}-0",
        "namespace": "ads",
        "labels": labels,
        "ownerReferences": [OWNER],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [training], **(spec or {})},
    }  # fmt: skip


def injected(pod: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The elastic pod of worker 0, or what the arguments say."""
    role = changes.get("role", "worker")
    given: dict[str, Any] = {
        "job": "ctr", "namespace": "ads", "role": role, "index": 0, "slots": 8, "package": "inject",
        "package_image": "example/deeprec-ext:1", "evaluator": False, "chief": "chief", **changes,
    }  # fmt: skip
    return elastic_pod(ordinary(role) if pod is None else pod, **given)


def training(pod: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in pod["spec"]["containers"] if one["name"] == "tensorflow")


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env") or []}


def tfjob(*, annotations: dict[str, str] | None = None, container: Any = None, **replicas: int) -> dict[str, Any]:
    """The elastic TFJob `ads/ctr`; replicas by type (PS=2, Chief=1, Worker=2 if none are given)."""
    replicas = replicas or {"PS": 2, "Chief": 1, "Worker": 2}
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "example/ctr:1", **(container or {})}]}}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": {
            "name": "ctr", "namespace": "ads", "uid": "0123456789ab-cdef",
            "annotations": {"aimaster.deeprec.io/enabled": "true", **(annotations or {})},
        },
        "spec": {"tfReplicaSpecs": {kind: {"replicas": count, "template": template} for kind, count in replicas.items()}},
    }  # fmt: skip
