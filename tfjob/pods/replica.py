"""The pod and the headless service of one replica, as the contract has them. The same for ordinary and elastic jobs."""

from __future__ import annotations

import copy

from tfjob.model import names
from tfjob.model.kinds import Manifest
from tfjob.model.spec import ReplicaSpec, TFJob
from tfjob.pods import gang
from tfjob.pods.tf_config import VARIABLE, tf_config


def pod(job: TFJob, type_: str, index: int, *, domain: str = "", scheduler: str = "") -> Manifest:
    """The template with name, labels, owner, restart policy and TF_CONFIG.

    Args:
        domain: of the cluster, where it has to be written in TF_CONFIG.
        scheduler: name of the gang scheduler; empty: pods are scheduled one by one.
    """
    spec = job.specs[type_]
    template = copy.deepcopy(spec.template)
    metadata = template.get("metadata") or {}
    body: Manifest = template["spec"]
    body["restartPolicy"] = "Never" if spec.restart_policy == "ExitCode" else spec.restart_policy
    _complete(body, spec, tf_config(job, type_, index, domain=domain))
    labels = {**(metadata.get("labels") or {}), **names.replica_labels(job.name, type_, index)}
    if is_master(job, type_, index):
        labels[names.ROLE_LABEL] = "master"
        if names.ET_ROLE_LABEL in labels:
            labels[names.ET_ROLE_LABEL] = names.ET_LAUNCHER
    finalizers = metadata.get("finalizers")
    manifest: Manifest = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": names.pod_name(job.name, type_, index), "namespace": job.namespace, "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}), "ownerReferences": [job.owner_reference],
            **({"finalizers": list(finalizers)} if finalizers else {}),
        },
        "spec": body,
    }  # fmt: skip
    return gang.enlist(manifest, job, type_, scheduler) if scheduler else manifest


def service(job: TFJob, type_: str, index: int) -> Manifest:
    """Headless: its name is the pod's address."""
    labels = names.replica_labels(job.name, type_, index)
    return {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": names.pod_name(job.name, type_, index), "namespace": job.namespace, "labels": labels,
            "ownerReferences": [job.owner_reference],
        },
        "spec": {"clusterIP": "None", "selector": dict(labels), "ports": _service_ports(job.specs[type_])},
    }  # fmt: skip


def is_master(job: TFJob, type_: str, index: int) -> bool:
    """Whether this replica leads the job: Chief, Master, or worker 0 where there is neither."""
    return type_ == job.chief if job.chief else (type_, index) == (names.WORKER, 0)


def _complete(body: Manifest, spec: ReplicaSpec, config: str | None) -> None:
    container = next(one for one in body["containers"] if one.get("name") == names.CONTAINER)
    ports = container.get("ports") or []
    if not any(port.get("name") == names.PORT_NAME for port in ports):
        container["ports"] = [*ports, {"name": names.PORT_NAME, "containerPort": spec.port}]
    if config is not None:
        env = [entry for entry in container.get("env") or [] if entry.get("name") != VARIABLE]
        container["env"] = [*env, {"name": VARIABLE, "value": config}]


def _service_ports(spec: ReplicaSpec) -> list[Manifest]:
    ports: list[Manifest] = []
    for port in spec.ports:
        protocol = {"protocol": port["protocol"]} if port.get("protocol") else {}
        ports.append({"name": port["name"], "port": port["containerPort"], **protocol})
    return ports
