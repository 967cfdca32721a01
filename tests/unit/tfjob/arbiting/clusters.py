"""Nodes, pods, quotas and elastic TFJobs in a few words, as an API server has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deeprec_ext.arbiter.observed import Cluster
from tfjob.arbiting.bidders import Classes, bidder_of
from tfjob.arbiting.kueue import KueueSeen, cluster_queue_seen, cohort_seen, flavor_seen, local_queue_seen
from tfjob.arbiting.observing import Labels, Seen, observe
from tfjob.arbiting.seen import class_seen, node_seen, pod_seen, quota_seen
from tfjob.arbiting.tally import Pods
from tfjob.arbiting.volcano import volcano_queue_seen
from tfjob.model import names
from tfjob.model.kinds import Manifest

NOW = 1_800_000_000.0
MADE = "2027-01-15T07:59:00Z"  # a minute before


def node(
    name: str = "n1", cpu: Any = 16, memory: str = "64Gi", *, pods: int = 110, taints: Any = (), **more: Any
) -> Manifest:
    """`more`: labels (`/` as `__`, `-` as they are), `cordoned`, `ready`."""
    cordoned, ready = more.pop("cordoned", False), more.pop("ready", True)
    allocatable = {"cpu": str(cpu), "memory": memory, "pods": str(pods), **more.pop("others", {})}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": {**({"unschedulable": True} if cordoned else {}), "taints": list(taints)},
        "status": {"allocatable": allocatable, "capacity": allocatable,
                   "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]},
    }  # fmt: skip


def containers(cpu: Any = 1, memory: str = "1Gi", **others: Any) -> list[Manifest]:
    requests = {"cpu": str(cpu), "memory": memory, **others}
    return [{"name": "tensorflow", "image": "example/train:1", "resources": {"requests": requests}}]


def pod(
    name: str, on: str = "", cpu: Any = 1, memory: str = "1Gi", *, namespace: str = "web", priority: int = 0,
    waits: str | None = None, phase: str = "", labels: Any = None, owner: str = "", **spec: Any,
) -> Manifest:  # fmt: skip
    """`waits`: what the scheduler says of it. `spec`: more of it."""
    conditions = []
    if waits is not None:
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": waits,
                       "lastTransitionTime": MADE}]  # fmt: skip
    owners = [{"kind": "TFJob", "uid": owner, "controller": True}] if owner else []
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {}), "ownerReferences": owners},
        "spec": {"containers": containers(cpu, memory), "priority": priority, **({"nodeName": on} if on else {}), **spec},
        "status": {"phase": phase or ("Running" if on else "Pending"), "conditions": conditions},
    }  # fmt: skip


def tfjob(
    name: str = "ctr", *, ps: int = 1, workers: int = 2, cpu: Any = 1, memory: str = "1Gi", priority: str = "",
    namespace: str = "ml", annotations: Any = None, status: Any = None, run_policy: Any = None, template: Any = None,
) -> Manifest:  # fmt: skip
    """With a chief. `annotations`: without our prefix."""
    spec = {
        "containers": containers(cpu, memory),
        **({"priorityClassName": priority} if priority else {}),
        **(template or {}),
    }
    counts = {"Chief": 1, "Worker": workers, **({"PS": ps} if ps else {})}
    said = {"enabled": "true", **({} if ps else {"strategy": "allreduce"}), **(annotations or {})}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": MADE,
                     "annotations": {names.ANNOTATION_PREFIX + key: value for key, value in said.items()}},
        "spec": {"runPolicy": dict(run_policy or {}),
                 "tfReplicaSpecs": {type_: {"replicas": count, "template": {"spec": spec}} for type_, count in counts.items()}},
        "status": dict(status or {}),
    }  # fmt: skip


def pods_of(
    job: Manifest, on: str, *, ps: int = 0, workers: int = 0, chief: bool = True, aimaster: bool = False
) -> list[Manifest]:
    """Of a job; all on one node."""
    metadata, found = job["metadata"], []
    request = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    for type_, count in (("Chief", chief), ("PS", ps), ("Worker", workers)):
        for index in range(count):
            found.append(pod(
                names.pod_name(metadata["name"], type_, index), on, request["cpu"], request["memory"],
                namespace=metadata["namespace"], owner=metadata["uid"],
                labels=names.replica_labels(metadata["name"], type_, index),
            ))  # fmt: skip
    if aimaster:
        labels = {"app.kubernetes.io/component": "aimaster", names.JOB_LABEL: metadata["name"]}
        name = names.aimaster_name(metadata["name"])
        found.append(
            pod(name, on, "250m", "256Mi", namespace=metadata["namespace"], owner=metadata["uid"], labels=labels)
        )
    return found


def quota(namespace: str = "ml", name: str = "all", scopes: Any = None, **hard: str) -> Manifest:
    """`requests_cpu="8"`."""
    limits = {key.replace("_", "."): value for key, value in hard.items()}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": limits, **({"scopes": scopes} if scopes else {})},
    }


def priority_class(name: str, value: int, default: bool = False) -> Manifest:
    return {"metadata": {"name": name}, "value": value, "globalDefault": default}


def seen(
    jobs: Sequence[Manifest], pods: Sequence[Manifest] = (), nodes: Sequence[Manifest] | None = (),
    quotas: Sequence[Manifest] = (), classes: Sequence[Manifest] = (), labels: Labels | None = None,
    queues: Sequence[Manifest] = (), **known: bool,
) -> Seen:  # fmt: skip
    """What is kept of manifests."""
    return Seen(
        [one for one in map(bidder_of, jobs) if one is not None], Pods(one for one in map(pod_seen, pods) if one is not None),
        None if nodes is None else [node_seen(one) for one in nodes],
        [one for one in map(quota_seen, quotas) if one is not None], Classes(map(class_seen, classes), **known),
        labels or Labels(), KueueSeen(
            *([see(one) for one in queues if one["kind"] == kind and "kueue" in one["apiVersion"]] for kind, see in KUEUE)
        ), [volcano_queue_seen(one) for one in queues if one["kind"] == "Queue"],
    )  # fmt: skip


KUEUE = (
    ("LocalQueue", local_queue_seen), ("ClusterQueue", cluster_queue_seen), ("ResourceFlavor", flavor_seen),
    ("Cohort", cohort_seen),
)  # fmt: skip


def local_queue(name: str = "team-a", queue: str = "cq", namespace: str = "ml", **spec: Any) -> Manifest:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": queue, "stopPolicy": "None", **spec},
        "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Ready"}]},
    }  # fmt: skip


def cluster_queue(
    name: str = "cq",
    flavors: Any = None,
    used: Any = None,
    *,
    version: str = "v1beta2",
    active: str = "True",
    **spec: Any,
) -> Manifest:
    """`flavors`: name → resource → nominal quota, or (that, borrowing limit, lending limit); `used`: what of it is."""

    def quotas(found: Any) -> list[Manifest]:
        keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
        return [
            {"name": resource, **{key: each for key, each in zip(keys, one if isinstance(one, tuple) else (one,)) if each}}
            for resource, one in found.items()
        ]  # fmt: skip

    flavors = flavors or {"default-flavor": {"cpu": "9", "memory": "36Gi"}}
    group = {
        "coveredResources": list(next(iter(flavors.values()))),
        "flavors": [{"name": one, "resources": quotas(found)} for one, found in flavors.items()],
    }
    usage = [
        {"name": one, "resources": [{"name": key, "total": total, "borrowed": "0"} for key, total in found.items()]}
        for one, found in (used or {}).items()
    ]
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": [group], **spec},
        "status": {"conditions": [{"type": "Active", "status": active, "reason": "FlavorNotFound"}],
                   "flavorsReservation": usage, "flavorsUsage": usage},
    }  # fmt: skip


def flavor(name: str, **labels: str) -> Manifest:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }  # fmt: skip


def volcano_queue(
    name: str = "night", *, state: str = "Open", used: Any = None, waits: int = 0, **spec: Any
) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
        "status": {"state": state, "allocated": {"cpu": "0", "memory": "0", **(used or {})}, "pending": waits},
    }  # fmt: skip


def observed(jobs: Sequence[Manifest], pods: Sequence[Manifest] = (), **others: Any) -> Cluster:
    return observe(seen(jobs, pods, **others), NOW)
